"""The chooser again for a GPU: scores to log-probabilities in one kernel, the draw among the best in another, and
where JUMPs go in a third.

Importing this needs Triton. What is chosen, and why, stands in sampling.py; sums may differ in the last bit.
Shape letters: B rows, A actions, N candidates.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from reviser.actions import JUMP, NUM_SPECIAL
from reviser.decoding.sampling import TIES, Chooser
from reviser.model.triton_kernels import LOG2E, NEVER

MOST_CANDIDATES = 128
"""Beyond these the draw, which compares each candidate with each, is torch's."""
GROUP = 64
"""Scores that are looked at together in the search for the highest."""


@triton.jit
def _log_probabilities(
    logits, valid, out, stride, A, num_text, pad, SPECIAL: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One row: log-softmax over what its mask allows."""
    row = tl.program_id(0).to(tl.int64)
    bits = tl.load(valid + row)
    can_insert = ((bits >> SPECIAL) & 1) != 0
    offsets = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), NEVER, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, A, BLOCK):
        cols = start + offsets
        x = tl.load(logits + row * stride + cols, mask=cols < A, other=float("-inf")).to(tl.float32)
        shift = tl.minimum(tl.maximum(cols - num_text, 0), SPECIAL).to(tl.int64)
        is_on = tl.where(cols < num_text, can_insert & (cols != pad), ((bits >> shift) & 1) != 0)
        x = tl.where(is_on, x, float("-inf"))
        # One exponential serves both cases: what is higher becomes the new base.
        share = tl.exp2(-tl.abs(x - top) * LOG2E)
        total = tl.where(x > top, total * share + 1.0, total + share)
        top = tl.maximum(top, x)
    highest = tl.max(top, 0)
    normaliser = highest + tl.log(tl.sum(total * tl.exp2((top - highest) * LOG2E), 0))
    for start in range(0, A, BLOCK):
        cols = start + offsets
        x = tl.load(logits + row * stride + cols, mask=cols < A, other=float("-inf")).to(tl.float32)
        shift = tl.minimum(tl.maximum(cols - num_text, 0), SPECIAL).to(tl.int64)
        is_on = tl.where(cols < num_text, can_insert & (cols != pad), ((bits >> shift) & 1) != 0)
        tl.store(out + row * A + cols, tl.where(is_on, x - normaliser, float("-inf")), mask=cols < A)


@triton.jit
def _highest_of_groups(scores, out, A, num, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """One row's BLOCK groups of scores: the highest of each."""
    row, groups = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    cols = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(scores + row * A + cols, mask=cols < A, other=float("-inf"))
    tl.store(out + row * num + groups, tl.max(x, 1), mask=groups < num)


@triton.jit
def _gather_groups(scores, groups, out, A, count, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """One row: the scores of its groups [count], one group after the other."""
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = at < count * GROUP
    group = tl.load(groups + row * count + at // GROUP, mask=is_in, other=0)
    cols = group * GROUP + at % GROUP
    x = tl.load(scores + row * A + cols, mask=is_in & (cols < A), other=float("-inf"))
    tl.store(out + row * count * GROUP + at, x, mask=is_in)


@triton.jit
def _draw(
    values, ids, uniforms, out, k, temperature, top_p, min_p, num, NUCLEUS: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """One row: which of its candidates [num], best first, the uniform picks."""
    row, place = tl.program_id(0).to(tl.int64), tl.arange(0, N)
    is_in = place < num
    value = tl.load(values + row * num + place, mask=is_in, other=float("-inf"))
    number = tl.load(ids + row * num + place, mask=is_in, other=1 << 40)
    share = tl.exp((value - tl.max(value, 0)) / temperature)
    lowest = tl.load(values + row * num + k - 1)
    share = tl.where(is_in & (value >= lowest), share, 0.0)
    if NUCLEUS:
        before = tl.sum(tl.where(place[None, :] < place[:, None], share.to(tl.float64)[None, :], 0.0), 1)
        is_needed = is_in & (before < top_p * tl.sum(share.to(tl.float64), 0))
        share = tl.where(share < tl.min(tl.where(is_needed, share, float("inf")), 0), 0.0, share)
    share = tl.where(share < min_p, 0.0, share)
    ladder = tl.sum(tl.where(number[None, :] <= number[:, None], share.to(tl.float64)[None, :], 0.0), 1)
    goal = tl.load(uniforms + row) * tl.sum(share.to(tl.float64), 0)
    picked = tl.min(tl.where(is_in & (ladder > goal) & (share > 0), number, 1 << 40), 0)
    # Rounding may leave no step above the goal; the last one it is, then.
    last = tl.max(tl.where(is_in & (share > 0), number, -1), 0)
    tl.store(out + row, tl.minimum(picked, last))


@triton.jit
def _land(
    rows, queries, keys, births, uniforms, scores, actions, landed, jump, S, num, P, temperature,
    GREEDY: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """One row: where it goes, if it jumps; `scores` is room to work in."""
    row = tl.program_id(0).to(tl.int64)
    action = tl.load(rows + row)
    score_of_landing = 0.0
    if action == jump:
        cols = tl.arange(0, BP)
        query = tl.load(queries + row * P + cols, mask=cols < P, other=0.0).to(tl.float32)
        for start in range(0, num, BN):
            some = start + tl.arange(0, BN)
            birth = tl.load(births + row * num + some, mask=some < num, other=-1)
            at = (row * S + birth[:, None]) * P + cols[None, :]
            key = tl.load(keys + at, mask=(birth[:, None] >= 0) & (cols[None, :] < P), other=0.0).to(tl.float32)
            score = tl.where(birth >= 0, tl.sum(key * query[None, :], 1), float("-inf"))
            tl.store(scores + row * num + some, score, mask=some < num)
        # Threads read what others wrote.
        tl.debug_barrier()
        places = tl.arange(0, N)
        log_p = tl.load(scores + row * num + places, mask=places < num, other=float("-inf"))
        top = tl.max(log_p, 0)
        if GREEDY:
            picked = tl.min(tl.where(log_p == top, places, N), 0)
        else:
            share = tl.exp((log_p - top).to(tl.float64) / temperature)
            ladder = tl.cumsum(share, 0)
            goal = tl.load(uniforms + row) * tl.sum(share, 0)
            picked = tl.min(tl.where((ladder > goal) & (share > 0), places, N), 0)
            # Rounding may leave no step above the goal; the last one it is, then.
            picked = tl.minimum(picked, tl.max(tl.where(share > 0, places, 0), 0))
        normaliser = top + tl.log(tl.sum(tl.exp(log_p - top), 0))
        score_of_landing = tl.sum(tl.where(places == picked, log_p, 0.0), 0) - normaliser
        action = (jump + 1 + picked).to(tl.int64)
    tl.store(actions + row, action)
    tl.store(landed + row, score_of_landing)


class GpuChooser(Chooser):
    """A chooser in the GPU's memory."""

    def log_probabilities(self, logits: Tensor, valid: Tensor) -> Tensor:
        B, A = logits.shape
        out = torch.empty(B, A, device=logits.device)
        _log_probabilities[(B,)](
            logits, valid, out, logits.stride(0), A, self.alphabet.num_text, self.alphabet.pad,
            SPECIAL=NUM_SPECIAL, BLOCK=4096, num_warps=16,
        )  # fmt: skip
        return out

    def _highest(self, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The highest stand in the groups with the highest ones: a few groups are searched, not all the scores."""
        B, A = scores.shape
        num = triton.cdiv(A, GROUP)
        if num <= 4 * count or not scores.is_contiguous():
            return super()._highest(scores, count)
        tops, some = scores.new_empty(B, num), scores.new_empty(B, count * GROUP)
        _highest_of_groups[(B, triton.cdiv(num, 64))](scores, tops, A, num, GROUP=GROUP, BLOCK=64, num_warps=4)
        groups = tops.topk(count, sorted=False).indices
        _gather_groups[(B, triton.cdiv(count * GROUP, 1024))](
            scores, groups, some, A, count, GROUP=GROUP, BLOCK=1024, num_warps=4
        )
        values, places = some.topk(count)
        return values, groups.gather(1, places // GROUP) * GROUP + places % GROUP

    def draw(
        self,
        log_p: Tensor,
        valid: Tensor,
        uniforms: Tensor,
        last: Tensor | None = None,
        grown: Tensor | None = None,
        banned: Tensor | None = None,
    ) -> Tensor:
        sampling, B = self.sampling, len(log_p)
        k = min(sampling.top_k, log_p.shape[1])
        count = min(k + TIES, log_p.shape[1])
        if sampling.temperature == 0 or not k or count > MOST_CANDIDATES:
            return super().draw(log_p, valid, uniforms, last, grown, banned)
        scores, uniforms = self.shape(log_p, valid, uniforms, last, grown, banned)
        values, ids = self._highest(scores, count)
        out = torch.empty(B, dtype=torch.int64, device=log_p.device)
        _draw[(B,)](
            values, ids, uniforms, out, k, sampling.temperature, sampling.top_p, sampling.min_p, count,
            NUCLEUS=sampling.top_p < 1, N=triton.next_power_of_2(count), num_warps=4,
        )  # fmt: skip
        return out

    def land(
        self, actions: Tensor, queries: Tensor, keys: Tensor, births: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `Chooser`'s, and the work is done for rows that jump alone."""
        (B, num), (_, S, P), temperature = births.shape, keys.shape, self.landing_temperature
        scores, landed = torch.empty(B, num, device=keys.device), torch.empty(B, device=keys.device)
        chosen = torch.empty_like(actions)
        _land[(B,)](
            actions, queries, keys, births.contiguous(), uniforms, scores, chosen, landed,
            self.alphabet.num_text + JUMP, S, num, P, float(temperature or 1.0),
            GREEDY=temperature == 0, BP=triton.next_power_of_2(P), BN=64, N=triton.next_power_of_2(num), num_warps=4,
        )  # fmt: skip
        return chosen, landed
