"""The chooser for a CPU: numba kernels, in one thread, for what goes through all scores; the rest is `Chooser`'s.

>>> alphabet = Alphabet(num_text=4, pad=3)
>>> valid = torch.tensor([1 << 34])  # INSERT alone
>>> CpuChooser(GREEDY, alphabet).choose(torch.arange(38.0)[None], valid, torch.zeros(1))[0]
tensor([2])

`record_actions` keeps what was chosen. The step before it has read all weights, so nothing else is in a cache, Python
and torch least of all: a dozen small operators take a quarter of a millisecond there, one kernel a fifth of that.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reviser import compiled
from reviser.actions import JUMP, Alphabet
from reviser.decoding.cpu.step_kernels import log_softmax
from reviser.decoding.sampling import GREEDY, TIES, Chooser

__all__ = ["CpuChooser", "ChoiceLog", "record_actions", "Alphabet", "GREEDY"]

Array = npt.NDArray[Any]


class ChoiceLog(NamedTuple):
    """An engine's tensors as arrays."""

    actions: Array
    """[B, T]: what each row has chosen."""
    scores: Array
    """[B, T]: their log-probabilities."""
    steps: Array
    """[B]: how many there are."""
    last: Array
    """[B]: the newest."""


class CpuChooser(Chooser):
    """A chooser in the CPU's memory."""

    def log_probabilities(self, logits: Tensor, valid: Tensor) -> Tensor:
        # One layout and one type, or numba would compile the kernel again.
        scores = np.ascontiguousarray(logits.float().numpy())
        log_softmax(scores, valid.numpy(), self.alphabet.num_text, self.alphabet.pad)
        return torch.from_numpy(scores)

    def _copy(self, scores: Tensor) -> Tensor:
        # clone() would wake torch's threads, which then spin for a while on the cores of the next step.
        return torch.from_numpy(scores.numpy().copy())

    def draw(
        self,
        log_p: Tensor,
        valid: Tensor,
        uniforms: Tensor,
        last: Tensor | None = None,
        grown: Tensor | None = None,
        banned: Tensor | None = None,
    ) -> Tensor:
        """As `Chooser`'s, which draws itself where there is no top-k."""
        sampling, size = self.sampling, log_p.shape[1]
        if sampling.temperature == 0 or sampling.top_k == 0:
            return super().draw(log_p, valid, uniforms, last, grown, banned)
        scores, uniforms = self.shape(log_p, valid, uniforms, last, grown, banned)
        k, actions = min(sampling.top_k, size), np.empty(len(scores), np.int64)
        rules = min(k + TIES, size), k, sampling.temperature, sampling.top_p, sampling.min_p
        _draw(scores.numpy(), uniforms.numpy(), *rules, actions)
        return torch.from_numpy(actions)

    def land(
        self, actions: Tensor, queries: Tensor, keys: Tensor, births: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `Chooser`'s, and only for rows that jump."""
        if keys.dtype != torch.float32:
            return super().land(actions, queries, keys, births, uniforms)
        landed, scores = actions.numpy().copy(), np.zeros(len(actions), np.float32)
        given = np.ascontiguousarray(queries.detach().float().numpy()), keys.numpy(), births.contiguous().numpy()
        row = self.alphabet.num_text + JUMP
        _land(*given, np.ascontiguousarray(uniforms.numpy()), self.landing_temperature, row, landed, scores)
        return torch.from_numpy(landed), torch.from_numpy(scores)


jit = compiled.jit()


@jit
def _draw(
    scores: Array, uniforms: Array, count: int, k: int, temperature: float, top_p: float, min_p: float, actions: Array
) -> None:
    values, shares, ids = np.empty(count, np.float32), np.empty(count, np.float32), np.empty(count, np.int64)
    for n in range(len(scores)):
        _find_highest(scores[n], values, ids)
        _share_out(values, k, np.float32(temperature), top_p, np.float32(min_p), shares)
        actions[n] = _pick(ids, shares, uniforms[n])


@jit
def _share_out(values: Array, k: int, temperature: Any, top_p: float, min_p: Any, shares: Array) -> None:
    """The shares of the draw of falling values: 0 for what is truncated, unnormalised; what equals the last stays."""
    total, before, lowest = 0.0, 0.0, np.float32(0)
    for j in range(len(values)):
        share = np.float32(math.exp((values[j] - values[0]) / temperature))
        shares[j] = share if values[j] >= values[k - 1] else np.float32(0)
        total += shares[j]
    for j in range(len(values)):
        if before < top_p * total:
            lowest = shares[j]
        before += shares[j]
    lowest = max(lowest if top_p < 1 else np.float32(0), min_p)
    for j in range(len(values)):
        if shares[j] < lowest:
            shares[j] = 0


@jit
def _pick(ids: Array, shares: Array, uniform: float) -> int:
    """The id that a number in [0, 1) falls on when the shares lie side by side in the order of ids; sorts both."""
    total, reached, place = 0.0, 0.0, 0
    for j in range(1, len(ids)):
        for here in range(j, 0, -1):
            if ids[here] > ids[here - 1]:
                break
            ids[here], ids[here - 1] = ids[here - 1], ids[here]
            shares[here], shares[here - 1] = shares[here - 1], shares[here]
    for share in shares:
        total += share
    for j in range(len(ids)):
        reached, place = reached + shares[j], j
        if reached > uniform * total:
            break
    return int(ids[place])


@jit
def _find_highest(scores: Array, values: Array, ids: Array) -> None:
    """The highest scores, as many as `values` has room for, in falling order; of equals the first."""
    count, held = len(values), 0
    for j in range(len(scores)):
        score = scores[j]
        if held == count and not score > values[count - 1]:
            continue
        place = min(held, count - 1)
        while place > 0 and score > values[place - 1]:
            values[place], ids[place] = values[place - 1], ids[place - 1]
            place -= 1
        values[place], ids[place] = score, j
        held = min(held + 1, count)


@jit
def _land(
    queries: Array, keys: Array, births: Array, uniforms: Array, temperature: float, jump: int, actions: Array,
    scores: Array,
) -> None:  # fmt: skip
    """Make the action `jump` of each row that has it one with a landing, and keep that landing's log-probability."""
    log_p, shares = np.empty(births.shape[1], np.float32), np.empty(births.shape[1], np.float64)
    for n in range(len(actions)):
        if actions[n] == jump:
            _score_landings(queries[n], keys[n], births[n], log_p)
            place = _best(log_p) if temperature == 0 else _pick_landing(log_p, uniforms[n], temperature, shares)
            actions[n], scores[n] = jump + 1 + place, log_p[place]


@jit
def _score_landings(query: Array, keys: Array, births: Array, log_p: Array) -> None:
    """pointer.py's `score_landings` of one row."""
    top, total = np.float32(-np.inf), 0.0
    for place in range(len(births)):
        log_p[place] = np.float32(-np.inf)
        if births[place] >= 0:
            score, key = np.float32(0), keys[births[place]]
            for j in range(len(query)):
                score += query[j] * key[j]
            log_p[place], top = score, max(top, score)
    for place in range(len(births)):
        if births[place] >= 0:
            total += math.exp(log_p[place] - top)
    for place in range(len(births)):
        log_p[place] -= top + np.float32(math.log(total))


@jit
def _best(log_p: Array) -> int:
    best = 0
    for place in range(len(log_p)):
        if log_p[place] > log_p[best]:
            best = place
    return best


@jit
def _pick_landing(log_p: Array, uniform: float, temperature: float, shares: Array) -> int:
    """The place that a number in [0, 1) falls on."""
    top, total, reached, picked = log_p[_best(log_p)], 0.0, 0.0, 0
    for place in range(len(log_p)):
        shares[place] = math.exp((np.float64(log_p[place]) - top) / temperature)
        total += shares[place]
    for place in range(len(log_p)):
        reached += shares[place]
        if shares[place] > 0:
            picked = place
            if reached > uniform * total:
                break
    return picked


@jit
def record_actions(record: ChoiceLog, left: Array, chosen: Array, log_p: Array, landed: Array) -> None:
    """Keep what was chosen in each row that has actions left, with its entry of log_p [B, A]; for a JUMP that of the
    last row, and what `landed` [B] adds to it."""
    last = log_p.shape[1] - 1
    for row in range(len(left)):
        action = chosen[row]
        record.last[row] = action
        if left[row] > 0:
            record.actions[row, record.steps[row]] = action
            record.scores[row, record.steps[row]] = log_p[row, min(action, last)] + landed[row]
            record.steps[row] += 1
