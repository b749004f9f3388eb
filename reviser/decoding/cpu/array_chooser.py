"""`Chooser` and `scan` on arrays, without torch: numba kernels, in one thread, for what goes through all scores.

>>> alphabet = Alphabet(num_text=4, pad=3)
>>> valid = np.array([1 << 34])  # INSERT alone
>>> chooser = ArrayChooser(GREEDY, alphabet)
>>> log_p = chooser.log_probabilities(np.arange(38, dtype=np.float32)[None], valid)
>>> chooser.draw(log_p, valid, np.zeros(1))
array([2])

`record_actions` keeps what was chosen. The step before it has read all weights, so nothing else is in a cache, Python
least of all: a dozen small operators take a quarter of a millisecond there, one kernel a fifth of that.

Shape letters: B rows, A actions, L tokens of a canvas, N candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from reviser import compiled
from reviser.actions import JUMP, MOVES, NUM_SPECIAL, REPLACE, STOP, Alphabet
from reviser.decoding.cpu import step_kernels as kernels
from reviser.decoding.cpu.cells import Array
from reviser.decoding.presets import GREEDY, STILL, TIES, Sampling, calm_bits
from reviser.orders.rng import GOLDEN

__all__ = ["ArrayChooser", "ChoiceLog", "record_actions", "scan_arrays", "score_landing_arrays", "uniform_arrays",
           "GREEDY"]  # fmt: skip

_NEVER = np.float32(-np.inf)


class ChoiceLog(NamedTuple):
    """An engine's record as arrays."""

    actions: Array
    """[B, T]: what each row has chosen."""
    scores: Array
    """[B, T]: their log-probabilities."""
    steps: Array
    """[B]: how many there are."""
    last: Array
    """[B]: the newest."""


def uniform_arrays(seeds: Sequence[int], steps: Array, draw: int = 0) -> Array:
    """`sampling.uniform` of seeds [B] and steps [T], as [B, T] in float64."""
    numbers, golden = np.array([seed % (1 << 64) for seed in seeds], np.uint64), np.uint64(GOLDEN)
    with np.errstate(over="ignore"):
        stream = _mix(_mix(numbers + golden)[:, None] + golden + steps.astype(np.uint64))
        drawn = _mix(stream + np.uint64((draw + 1) * GOLDEN % (1 << 64))) >> np.uint64(32)
    return cast(Array, drawn / np.float64(1 << 32))


def _mix(value: Array) -> Array:
    """rng.py's `mix`; products wrap."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast(Array, value ^ (value >> np.uint64(31)))


class ArrayChooser:
    """A `Sampling` for one alphabet; what each method takes and gives is what `Chooser`'s does."""

    def __init__(self, sampling: Sampling, alphabet: Alphabet) -> None:
        self.sampling, self.alphabet = sampling, alphabet
        first = alphabet.num_text
        self._moving = slice(first + MOVES, first + REPLACE), slice(first + JUMP, first + JUMP + 1)
        own = range(MOVES, REPLACE)
        self._begins = np.array([offset not in own and offset != JUMP for offset in range(NUM_SPECIAL)], np.float32)
        self._calm = np.array([calm_bits(offset) for offset in range(NUM_SPECIAL)])

    def log_probabilities(self, logits: Array, valid: Array) -> Array:
        """`logits` is overwritten."""
        log_softmax(logits, valid, self.alphabet.num_text, self.alphabet.pad)
        return logits

    def draw(
        self,
        log_p: Array,
        valid: Array,
        uniforms: Array,
        last: Array | None = None,
        grown: Array | None = None,
        banned: Array | None = None,
    ) -> Array:
        sampling, size = self.sampling, log_p.shape[1]
        scores = self._guard(log_p, valid, last, grown, banned) if sampling.has_guards else log_p
        if sampling.keep_moves:
            scores, uniforms = self._part(log_p, scores, uniforms, last)
        if sampling.temperature == 0:
            return cast(Array, scores.argmax(axis=-1))
        if sampling.top_k == 0:
            return self._draw_from_all(scores, uniforms)
        k, actions = min(sampling.top_k, size), np.empty(len(scores), np.int64)
        rules = min(k + TIES, size), k, sampling.temperature, sampling.top_p, sampling.min_p
        _draw(scores, np.ascontiguousarray(uniforms), *rules, actions)
        return actions

    def _guard(
        self, log_p: Array, valid: Array, last: Array | None, grown: Array | None, banned: Array | None
    ) -> Array:
        sampling, first = self.sampling, self.alphabet.num_text
        scores = log_p.copy()
        allowed = self._guard_bits(valid, last, grown) if sampling.has_forbidden else np.full(len(scores), -1)
        without = (
            _given(banned, "banned", "no_repeat") if sampling.no_repeat else np.empty((len(scores), 0), np.int64)
        )
        _forbid(scores, allowed, first, without)
        if sampling.stop_bias:
            scores[:, first + STOP] += sampling.stop_bias
        if sampling.jump_bias and not sampling.keep_moves:
            bias = np.float32(sampling.jump_bias) * self._of_last(self._begins, last, np.float32(1), "jump_bias")
            for own in self._moving:
                scores[:, own] += bias[:, None]
        if sampling.move_temperature is not None:
            # All candidates are divided by `temperature` later on.
            for own in self._moving:
                scores[:, own] *= sampling.temperature / sampling.move_temperature
        return scores

    def _guard_bits(self, valid: Array, last: Array | None, grown: Array | None) -> Array:
        # STOP is valid wherever a MOVE or a JUMP is, so something is left.
        if not self.sampling.moves:
            valid = valid & STILL
        elif self.sampling.calm:
            valid = valid & self._of_last(self._calm, last, calm_bits(-1), "calm")
        if self.sampling.min_tokens:
            is_short = _given(grown, "grown", "min_tokens") < self.sampling.min_tokens
            others = valid & ~(1 << STOP)
            valid = np.where(is_short & (others != 0), others, valid)
        return valid

    def _of_last(self, table: Array, last: Array | None, text: Any, setting: str) -> Array:
        """A table's entries of the actions before, `text` where those are INSERTs."""
        offsets = _given(last, "last", setting) - self.alphabet.num_text
        return cast(Array, np.where(offsets < 0, text, table[np.clip(offsets, 0, NUM_SPECIAL - 1)]))

    def _part(self, log_p: Array, scores: Array, uniforms: Array, last: Array | None) -> tuple[Array, Array]:
        moves, jump = self._moving
        rest, only = scores.copy(), scores.copy()
        rest[:, moves], rest[:, jump] = _NEVER, _NEVER
        only[:, : moves.start], only[:, moves.stop : jump.start] = _NEVER, _NEVER
        others, chance = 1 - self._chance_of_moves(log_p, log_p), self._chance_of_moves(log_p, scores)
        if self.sampling.jump_bias:
            begins = self._of_last(self._begins, last, np.float32(1), "jump_bias")
            chance = chance * np.exp(self.sampling.jump_bias * begins.astype(np.float64))
        chance = chance / (chance + np.maximum(others, 1e-12))
        chance = np.where(rest.max(axis=-1) > _NEVER, chance, 1.0)
        moves_now = uniforms < chance
        with np.errstate(divide="ignore", invalid="ignore"):
            again = np.where(moves_now, uniforms / chance, (uniforms - chance) / (1 - chance))
        return np.where(moves_now[:, None], only, rest), np.minimum(again, 1 - 2**-53)

    def _chance_of_moves(self, log_p: Array, scores: Array) -> Array:
        parts = (np.where(scores[:, own] == _NEVER, _NEVER, log_p[:, own]) for own in self._moving)
        moves, jump = (np.exp(part).sum(axis=-1, dtype=np.float64) for part in parts)
        chance: Array = moves + jump
        return chance

    def _draw_from_all(self, scores: Array, uniforms: Array) -> Array:
        sampling = self.sampling
        shares = np.exp((scores - scores.max(axis=-1, keepdims=True)) / np.float32(sampling.temperature))
        if sampling.top_p < 1:
            falling = -np.sort(-shares, axis=-1)
            before = falling.cumsum(axis=-1, dtype=np.float64) - falling
            is_in = before < sampling.top_p * falling.sum(axis=-1, keepdims=True, dtype=np.float64)
            shares[shares < np.where(is_in, falling, np.float32(np.inf)).min(axis=-1, keepdims=True)] = 0
        if sampling.min_p:
            # The highest share is 1.
            shares[shares < np.float32(sampling.min_p)] = 0
        ladder = shares.cumsum(axis=-1, dtype=np.float64)
        # Right of equal steps, so that a share of 0 is never picked; below the top, since a uniform is below 1.
        places = [
            np.searchsorted(steps, uniform * steps[-1], side="right")
            for steps, uniform in zip(ladder, uniforms, strict=True)
        ]
        return cast(Array, np.minimum(places, scores.shape[1] - 1))

    def land(
        self, actions: Array, queries: Array, keys: Array, births: Array, uniforms: Array
    ) -> tuple[Array, Array]:
        """Only for rows that jump."""
        landed, scores = actions.copy(), np.zeros(len(actions), np.float32)
        row = self.alphabet.num_text + JUMP
        given = queries, keys, births, np.ascontiguousarray(uniforms)
        _land(*given, self.landing_temperature, row, landed, scores)
        return landed, scores

    @property
    def landing_temperature(self) -> float:
        own = self.sampling.move_temperature
        return float(self.sampling.temperature if own is None else own)


def _given(array: Array | None, name: str, setting: str) -> Array:
    if array is None:
        raise ValueError(f"sampling with {setting} needs {name}")
    return array


def score_landing_arrays(queries: Array, keys: Array, births: Array) -> Array:
    """pointer.py's `score_landings`: [B, P], [B, S, P] and [B, L + 1] to log-probabilities [B, L + 1]."""
    log_p = np.empty(births.shape, np.float32)
    for row in range(len(births)):
        _score_landings(queries[row], keys[row], births[row], log_p[row])
    return log_p


class ArraysFound(NamedTuple):
    """scanning.py's `Found` as arrays [B]."""

    rows: Array
    actions: Array
    landed: Array


def scan_arrays(
    log_p: Array, landings: Array, cursors: Array, is_first: Array, alphabet: Alphabet, least: float
) -> ArraysFound:
    """scanning.py's `scan`."""
    stop, jump = alphabet.num_text + STOP, alphabet.num_text + JUMP
    stops, jumps = (np.exp(log_p[:, each].astype(np.float64)) for each in (stop, jump))
    changes = np.maximum(1 - stops - jumps, 0)
    places = np.arange(landings.shape[1])
    shares = np.exp(landings.astype(np.float64)) * jumps[:, None]
    ahead = np.where(is_first[:, None] | (places > cursors[:, None]), shares, 0.0)
    left = (1 - changes - (shares - ahead).sum(axis=-1))[:, None] - (ahead.cumsum(axis=-1) - ahead)
    chances = np.minimum(ahead / np.maximum(left, 1e-12), 1.0)
    is_due = (chances >= least) & (ahead > 0)
    due = np.where(is_due, places, landings.shape[1] - 1).min(axis=-1)
    own = log_p.copy()
    own[:, [stop, jump]] = _NEVER
    rows = np.where(changes >= least, own.argmax(axis=-1), np.where(is_due.any(axis=-1), jump, stop))
    is_jump = rows == jump
    with np.errstate(divide="ignore", invalid="ignore"):
        given = np.log(np.take_along_axis(chances, due[:, None], axis=1)[:, 0]).astype(np.float32) - log_p[:, jump]
    actions = np.where(is_jump, alphabet.jump(0) + due, rows)
    return ArraysFound(rows, actions, np.where(is_jump, given, np.float32(0)))


jit = compiled.jit()


@kernels.jit
def log_softmax(scores: Array, valid: Array, num_text: int, pad: int) -> None:
    """In place, over the actions that masks [N] allow: bit j is for action num_text + j, the last one for text."""
    low, num_special = np.float32(-np.inf), scores.shape[1] - num_text
    for n in range(len(scores)):
        row, top, total = scores[n], low, np.float32(0)
        row[pad] = low
        for j in range(num_special):
            if not (valid[n] >> j) & 1:
                row[num_text + j] = low
        if not valid[n] >> num_special:
            for j in range(num_text):
                row[j] = low
        for j in range(len(row)):
            top = row[j] if row[j] > top else top
        for j in range(len(row)):
            # _exp of what is not allowed is small, but not 0.
            total += kernels._exp(row[j] - top) if row[j] > low else np.float32(0)
        shift = top + np.float32(math.log(total))
        for j in range(len(row)):
            row[j] -= shift


@jit
def _forbid(scores: Array, allowed: Array, num_text: int, banned: Array) -> None:
    """Take away what is not allowed, bit j for action num_text + j, then what is banned if something else is left."""
    never, kept = _NEVER, np.empty(banned.shape[1], np.float32)
    for n in range(len(scores)):
        row, top = scores[n], never
        for j in range(len(row) - num_text):
            if not (allowed[n] >> j) & 1:
                row[num_text + j] = never
        for j in range(len(kept)):
            kept[j], row[banned[n, j]] = row[banned[n, j]], never
        for j in range(len(row)):
            top = max(top, row[j])
        # The last first, for the same one may be banned twice.
        for j in range(len(kept) - 1, -1, -1):
            if top > never:
                break
            row[banned[n, j]] = kept[j]


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
    """pointer.py's `score_landings` of one row; -inf everywhere where there is no landing."""
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
    rest = top + np.float32(math.log(total)) if total > 0 else np.float32(0)
    for place in range(len(births)):
        log_p[place] -= rest


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
