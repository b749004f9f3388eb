"""How one action is chosen: scores and validity in, an action and its log-probability out, for any number of rows.

    logits -> invalid out -> log p -> guards -> temperature -> top-k -> top-p -> min-p -> draw

The plain decoder and the engine both choose here, so they choose alike. A row's choice depends on its own scores and
on one number between 0 and 1, a pure function of (seed, step); so it does not depend on its neighbours. Top-k, top-p
and min-p each name the lowest score that stays, and whatever equals it stays too. The draw goes through what is left
in the order of ids, so that the order in which a device sorts equal scores does not matter.

All JUMPs are one candidate of that choice. Where it is chosen, a second one says to which boundary, by the pointer's
scores and the second number of (seed, step):

    scores of valid landings -> log p -> temperature -> draw

>>> alphabet = Alphabet(num_text=4, pad=3)
>>> chooser = Chooser(GREEDY, alphabet)
>>> valid = torch.tensor([1 << 3, 1 << 34])  # STOP alone; INSERT alone
>>> chooser.choose(torch.arange(38.0).repeat(2, 1), valid, uniforms(torch.tensor([1, 2]), torch.tensor([0, 0])))[0]
tensor([7, 2])

Shape letters: B rows, A actions, N candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from reviser.actions import JUMP, MOVES, NUM_SPECIAL, REPLACE, STOP, Alphabet
from reviser.canvas import Canvas
from reviser.decoding.presets import GREEDY, PAPER, STILL, TIES, Sampling, calm_bits
from reviser.model.pointer import score_landings
from reviser.orders.rng import GOLDEN, Random

__all__ = [
    "Sampling", "PAPER", "GREEDY", "Chooser", "uniform", "uniforms", "seed_tensor", "repeated_tokens", "calm_bits",
    "TIES",
]  # fmt: skip


def uniform(seed: int, step: int, draw: int = 0) -> float:
    """The number in [0, 1) that decides action `step` of the sequence with that seed; draw 1: where it jumps to."""
    stream = Random.of(seed, step)
    return [stream.bits32() for _ in range(draw + 1)][-1] / (1 << 32)


def uniforms(seeds: Tensor, steps: Tensor, draw: int = 0) -> Tensor:
    """`uniform` of int64 tensors that broadcast, as float64; a seed is read as 64 bits."""
    golden = _signed(GOLDEN)
    stream = _mix(_mix(seeds + golden) + golden + steps)
    return _shift(_mix(stream + _signed((draw + 1) * GOLDEN)), 32).double() / (1 << 32)


def seed_tensor(seeds: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Any integers as the int64 tensor that `uniforms` wants."""
    return torch.tensor([_signed(seed) for seed in seeds], dtype=torch.int64, device=device)


def _signed(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _shift(value: Tensor, count: int) -> Tensor:
    # int64's own >> copies the sign.
    return (value >> count) & ((1 << (64 - count)) - 1)


def _mix(value: Tensor) -> Tensor:
    """rng.py's `mix`; int64 products wrap as 64-bit numbers do."""
    value = (value ^ _shift(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shift(value, 31)


def repeated_tokens(canvas: Canvas, size: int) -> set[int]:
    """Tokens whose INSERT would end an n-gram of that size which already stands whole on one side of the cursor.

    a b c a | b d, size 2: INSERT b would write "a b" again, and b is named. What stands across the cursor does not
    count, for the INSERT breaks it; nor does an n-gram that begins with the inserted token or has it inside.
    """
    left, right = canvas.tokens[: canvas.cursor - canvas.is_replacing], canvas.tokens[canvas.cursor :]
    context = left[len(left) - size + 1 :]
    if len(context) < size - 1:
        return set()
    grams = (side[i : i + size] for side in (left, right) for i in range(len(side) - size + 1))
    return {gram[-1] for gram in grams if gram[:-1] == context}


class Chooser:
    """A `Sampling` for one alphabet, with its tables on the device."""

    def __init__(self, sampling: Sampling, alphabet: Alphabet, device: torch.device | str = "cpu") -> None:
        self.sampling, self.alphabet = sampling, alphabet
        self._bits = torch.tensor([1 << offset for offset in range(NUM_SPECIAL)], device=device)
        self._inserts = torch.tensor([-torch.inf, 0.0], device=device)
        self._ids = torch.arange(alphabet.size, device=device)
        text = torch.full((alphabet.num_text,), calm_bits(-1))
        special = torch.tensor([calm_bits(offset) for offset in range(NUM_SPECIAL)])
        self._calm = torch.cat([text, special]).to(device)
        self._moving = tuple(
            slice(alphabet.num_text + first, alphabet.num_text + end)
            for first, end in ((MOVES, REPLACE), (JUMP, JUMP + 1))
        )
        self._begins = torch.ones(alphabet.size, 1, device=device)
        for own in self._moving:
            self._begins[own] = 0

    def choose(
        self,
        logits: Tensor,
        valid: Tensor,
        uniforms: Tensor,
        last: Tensor | None = None,
        grown: Tensor | None = None,
        banned: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """[B, A] logits and [B] masks to actions [B], and their log-probabilities [B] among the valid ones.

        The log-probability is the model's own, before guards, temperature and truncation. `last` [B] is the action
        before (any that does not move at the beginning; `calm` and `jump_bias` need it), `grown` [B] how many tokens
        longer the canvas is than its seed (`min_tokens`), `banned` [B, N] the ids of `repeated_tokens`, with `pad`
        for none (`no_repeat`). `logits` is overwritten. A JUMP comes as the row that all share; `land` goes on.
        """
        log_p = self.log_probabilities(logits, valid)
        actions = self.draw(log_p, valid, uniforms, last, grown, banned)
        return actions, log_p.gather(1, actions[:, None])[:, 0]

    def log_probabilities(self, logits: Tensor, valid: Tensor) -> Tensor:
        """[B, A] log-softmax over the valid actions, -inf elsewhere. `logits` is overwritten."""
        num_text, logits = self.alphabet.num_text, logits.float()
        logits[:, num_text:].masked_fill_((valid[:, None] & self._bits) == 0, -torch.inf)
        logits[:, :num_text].add_(self._inserts.index_select(0, valid >> NUM_SPECIAL)[:, None])
        logits[:, self.alphabet.pad].fill_(-torch.inf)
        return logits.log_softmax(dim=-1, dtype=torch.float32)

    def draw(
        self,
        log_p: Tensor,
        valid: Tensor,
        uniforms: Tensor,
        last: Tensor | None = None,
        grown: Tensor | None = None,
        banned: Tensor | None = None,
    ) -> Tensor:
        """The actions [B] that `uniforms` [B] pick by the rules of the sampling; `log_p` stays as it is."""
        scores, uniforms = self.shape(log_p, valid, uniforms, last, grown, banned)
        if self.sampling.temperature == 0:
            return scores.max(dim=-1).indices
        ids, shares = self._candidates(scores)
        ladder = shares.cumsum(dim=-1, dtype=torch.float64)
        # Right of equal steps, so that a share of 0 is never picked; below the top, since a uniform is below 1.
        place = torch.searchsorted(ladder, uniforms[:, None] * ladder[:, -1:], right=True)
        return ids.gather(1, place.clamp_(max=ladder.shape[1] - 1))[:, 0]

    def shape(
        self,
        log_p: Tensor,
        valid: Tensor,
        uniforms: Tensor,
        last: Tensor | None,
        grown: Tensor | None,
        banned: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Scores [B, A] after all guards, and the uniforms [B] that pick among them."""
        scores = self._guard(log_p, valid, last, grown, banned) if self.sampling.has_guards else log_p
        return self._part(log_p, scores, uniforms, last) if self.sampling.keep_moves else (scores, uniforms)

    def _part(self, log_p: Tensor, scores: Tensor, uniforms: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor]:
        """Settle by the model's own probability whether each row moves, and leave either moves or all else."""
        moves, jump = self._moving
        rest, only = scores.clone(), scores.clone()
        rest[:, moves], rest[:, jump] = -torch.inf, -torch.inf
        only[:, : moves.start], only[:, moves.stop : jump.start] = -torch.inf, -torch.inf
        others, chance = 1 - self._chance_of_moves(log_p, log_p), self._chance_of_moves(log_p, scores)
        if self.sampling.jump_bias:
            begins = self._begins.index_select(0, self._rows_of(last, "jump_bias"))[:, 0]
            chance = chance * (self.sampling.jump_bias * begins.double()).exp()
        chance = chance / (chance + others.clamp(min=1e-12))
        chance = torch.where(rest.amax(dim=-1) > -torch.inf, chance, 1.0)
        moves_now = uniforms < chance
        again = torch.where(moves_now, uniforms / chance, (uniforms - chance) / (1 - chance))
        return torch.where(moves_now[:, None], only, rest), again.clamp(max=1 - 2**-53)

    def _chance_of_moves(self, log_p: Tensor, scores: Tensor) -> Tensor:
        """[B] the probability of all MOVEs and JUMPs that have a score."""
        parts = (log_p[:, own].masked_fill(scores[:, own] == -torch.inf, -torch.inf) for own in self._moving)
        moves, jump = (part.exp().sum(dim=-1, dtype=torch.float64) for part in parts)
        return moves + jump

    def _guard(
        self, log_p: Tensor, valid: Tensor, last: Tensor | None, grown: Tensor | None, banned: Tensor | None
    ) -> Tensor:
        """The log-probabilities with what the guards forbid out, STOP biased and moves at their temperature."""
        sampling, first = self.sampling, self.alphabet.num_text
        scores = log_p.clone()
        if sampling.has_forbidden:
            allowed = self._guard_bits(valid, last, grown)
            scores[:, first:].masked_fill_((allowed[:, None] & self._bits) == 0, -torch.inf)
        if sampling.no_repeat:
            without = scores.scatter(1, _given(banned, "banned", "no_repeat"), -torch.inf)
            scores = torch.where(without.amax(dim=-1, keepdim=True) > -torch.inf, without, scores)
        if sampling.stop_bias:
            scores[:, first + STOP].add_(sampling.stop_bias)
        if sampling.jump_bias and not sampling.keep_moves:
            bias = sampling.jump_bias * self._begins.index_select(0, self._rows_of(last, "jump_bias"))
            for own in self._moving:
                scores[:, own].add_(bias)
        if sampling.move_temperature is not None:
            # All candidates are divided by `temperature` later on.
            for own in self._moving:
                scores[:, own].mul_(sampling.temperature / sampling.move_temperature)
        return scores

    def _guard_bits(self, valid: Tensor, last: Tensor | None, grown: Tensor | None) -> Tensor:
        """The validity masks without the moves and STOPs that are forbidden; never empty."""
        # STOP is valid wherever a MOVE or a JUMP is, so something is left.
        if not self.sampling.moves:
            valid = valid & STILL
        elif self.sampling.calm:
            valid = valid & self._calm.index_select(0, self._rows_of(last, "calm"))
        if self.sampling.min_tokens:
            is_short = _given(grown, "grown", "min_tokens") < self.sampling.min_tokens
            others = valid & ~(1 << STOP)
            valid = torch.where(is_short & (others != 0), others, valid)
        return valid

    def _candidates(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Ids [B, N], ascending, and their shares [B, N] of the draw: 0 for what is truncated, unnormalised."""
        sampling, k = self.sampling, min(self.sampling.top_k, scores.shape[1])
        values, ids = scores, self._ids.expand_as(scores)
        if k:
            values, ids = self._highest(scores, min(k + TIES, scores.shape[1]))
        shares = ((values - values.amax(dim=-1, keepdim=True)) / sampling.temperature).exp_()
        if k:
            shares.masked_fill_(values < values[:, k - 1 : k], 0)
        if sampling.top_p < 1:
            descending = shares if k else shares.sort(descending=True).values
            shares.masked_fill_(shares < _lowest_of_nucleus(descending, sampling.top_p), 0)
        if sampling.min_p:
            # The highest share is 1.
            shares.masked_fill_(shares < sampling.min_p, 0)
        if k:
            ids, order = ids.sort()
            shares = shares.gather(1, order)
        return ids, shares

    def _rows_of(self, last: Tensor | None, setting: str) -> Tensor:
        """The rows of the actions before, for the tables."""
        return _given(last, "last", setting).clamp(max=self.alphabet.size - 1)

    def land(
        self, actions: Tensor, queries: Tensor, keys: Tensor, births: Tensor, uniforms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Chosen actions [B] with the row that all JUMPs share made one of them, and the log-probabilities [B] of
        where those go among the valid landings, 0 for actions that do not jump.

        queries [B, P], keys [B, S, P] and births [B, L + 1] are those of `score_landings`, uniforms [B] second draws.
        """
        log_p = score_landings(queries, keys, births)
        landings, is_jump = self.draw_landing(log_p, uniforms), actions == self.alphabet.num_text + JUMP
        scores = log_p.gather(1, landings[:, None])[:, 0]
        return torch.where(is_jump, self.alphabet.jump(0) + landings, actions), scores.where(is_jump, 0.0)

    def draw_landing(self, log_p: Tensor, uniforms: Tensor) -> Tensor:
        """The boundaries [B] that uniforms [B] pick by log-probabilities [B, L + 1], never one of -inf where there is
        another. At temperature 0 the most probable, and the first of equals."""
        temperature = self.landing_temperature
        top, places = log_p.amax(dim=-1, keepdim=True), torch.arange(log_p.shape[1], device=log_p.device)
        if temperature == 0:
            return torch.where(log_p == top, places, log_p.shape[1] - 1).amin(dim=-1)
        # A row without a landing has a share of 0 everywhere.
        shares = ((log_p.double() - top.double().clamp(min=-1e30)) / temperature).exp()
        ladder = shares.cumsum(dim=-1)
        is_above = (ladder > uniforms[:, None] * ladder[:, -1:]) & (shares > 0)
        # A device may add in another order, so that no step is above; the last one it is, then.
        last = torch.where(shares > 0, places, 0).amax(dim=-1)
        return torch.minimum(torch.where(is_above, places, log_p.shape[1]).amin(dim=-1), last)

    @property
    def landing_temperature(self) -> float:
        own = self.sampling.move_temperature
        return self.sampling.temperature if own is None else own

    def _highest(self, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The highest scores [B, count] in falling order, and their ids."""
        values, ids = scores.topk(count)
        return values, ids


def _lowest_of_nucleus(shares: Tensor, top_p: float) -> Tensor:
    """[B, 1] the last of the descending shares that are needed to reach that part of their sum."""
    before = shares.cumsum(dim=-1, dtype=torch.float64) - shares
    is_in = before < top_p * shares.sum(dim=-1, keepdim=True, dtype=torch.float64)
    return shares.masked_fill(~is_in, torch.inf).amin(dim=-1, keepdim=True)


def _given(tensor: Tensor | None, name: str, setting: str) -> Tensor:
    if tensor is None:
        raise ValueError(f"sampling with {setting} needs {name}")
    return tensor
