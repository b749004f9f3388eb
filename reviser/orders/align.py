"""From any canvas to any target: the shortest edit script, as actions.

A longest common subsequence anchors the two texts; between anchors lie hunks, each a span to remove
and tokens to put in its place. The script visits the hunks from the cursor outwards, first the nearer
side, whichever way takes fewer actions, or from left to right, and ends in STOP.

    a b | c d      target a x c        hunks: b -> x, d -> nothing
    DELETE, INSERT x, MOVE +2, DELETE, STOP

With DELETE disabled the script can only insert (and replace, where REPLACE is enabled). Protected text stays as it
is: fixed tokens are anchors, and a hunk that begins at a closed boundary replaces the token on its right. A target
that cannot be reached so is an UnreachableError.

The way to a hunk is one JUMP, or spelled in MOVEs; where a MOVE would stop at a closed boundary, others go around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from reviser.actions import MAX_MOVE_EXPONENT, SPAN_SIZES, Alphabet
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, replay
from reviser.errors import ConfigError, UnreachableError
from reviser.orders.record import Draft
from reviser.orders.restore import By

Costs = npt.NDArray[np.int32]
FORBIDDEN = 1 << 20
STEPS = tuple(sign << exponent for exponent in range(MAX_MOVE_EXPONENT, -1, -1) for sign in (1, -1))
"""The distances of all MOVEs, the longest first."""
First = Literal["nearest", "left"]
"""Which of the places where two texts differ is edited first."""
CHANGES = "the target changes protected text"


@dataclass(frozen=True, slots=True)
class Hunk:
    """Canvas tokens start..end give way to `tokens`."""

    start: int
    end: int
    tokens: tuple[int, ...]


def align(
    canvas: Canvas, target: Sequence[int], rules: Rules, by: By | None = None, first: First = "nearest"
) -> tuple[int, ...]:
    """A shortest script of enabled actions that turns the canvas into the target, with STOP.

    `by` says how the cursor goes from place to place; without it, in JUMPs where they are enabled. `first` says which
    hunk is edited first: the nearest to the cursor, or the leftmost.
    """
    has_jumps = "jump" in rules.operators if by is None else by == "pointer"
    if len(target) > rules.max_length:
        raise ConfigError(f"the target has {len(target)} tokens and the canvas holds at most {rules.max_length}")
    hunks = find_hunks(canvas, tuple(target), rules)
    left = [hunk for hunk in hunks if _approach(hunk, rules) <= canvas.cursor]
    right = hunks[len(left) :]
    ways = [hunks] if first == "left" else [[*reversed(left), *right], [*right, *reversed(left)]]
    # On a nearly full canvas what shrinks must come before what grows.
    roomy = [way for way in ways if has_room(canvas, way, rules)] or [sorted(hunks, key=_growth)]
    script = _shortest([_Script(canvas, rules, has_jumps) for _ in roomy], roomy)
    _check_enabled(script, rules)
    return (*script, rules.alphabet.stop)


def _shortest(scripts: Sequence[_Script], ways: Sequence[Sequence[Hunk]]) -> list[int]:
    """The shortest of some scripts, one for each way through the hunks; some may not be possible."""
    found, error = list[list[int]](), UnreachableError()
    for script, hunks in zip(scripts, ways, strict=True):
        try:
            found.append(script.write(hunks))
        except UnreachableError as why:
            error = why
    if not found:
        raise error
    return min(found, key=len)


def _check_enabled(script: Sequence[int], rules: Rules) -> None:
    for operator in ("move", "jump"):
        if operator not in rules.operators and any(rules.alphabet.operator(action) == operator for action in script):
            raise UnreachableError(
                f"the target differs away from the cursor and the operator {operator} is not enabled"
            )


def find_hunks(canvas: Canvas, target: tuple[int, ...], rules: Rules) -> list[Hunk]:
    """Where a canvas and a target differ, from left to right."""
    from reviser.orders import kernels

    head, tail = _protected_ends(canvas, target)
    a, b = canvas.tokens[head : len(canvas.tokens) - tail], target[head : len(target) - tail]
    marks = np.array(canvas.marks[head : head + len(a) + 1] if canvas.marks else [0] * (len(a) + 1), np.int32)
    # What the first mark says of the token before it is no matter here.
    marks[0] &= CLOSED
    if not marks.any():
        # Not the same at the ends: a hunk should not depend on whether it is the last.
        begin = _common(a, b)
        a, b, marks = a[begin:], b[begin:], marks[begin:]
        head += begin
    if not a and not b:
        return []
    prices = _prices(marks, rules)
    costs = edit_costs(a, b, prices, kernels.fill_costs)
    if costs[0, 0] >= FORBIDDEN:
        is_free = edit_costs(a, b, _prices(np.zeros_like(marks), rules), kernels.fill_costs)[0, 0] < FORBIDDEN
        raise UnreachableError(CHANGES if is_free else _explain_unreachable(a, b, rules))
    return _trace(a, b, costs, head, prices)


def _protected_ends(canvas: Canvas, target: tuple[int, ...]) -> tuple[int, int]:
    """How many tokens at the front and the end of a canvas can neither change nor shift; the target has them."""
    tokens, marks = canvas.tokens, canvas.marks
    head = tail = 0
    if marks:
        while head < len(tokens) and marks[head] & CLOSED and marks[head + 1] & FIXED:
            head += 1
        while tail < len(tokens) - head and marks[-1 - tail] & CLOSED and marks[-1 - tail] & FIXED:
            tail += 1
    if len(target) < head + tail or target[:head] != tokens[:head]:
        raise UnreachableError(CHANGES)
    if target[len(target) - tail :] != tokens[len(tokens) - tail :]:
        raise UnreachableError(CHANGES)
    return head, tail


@dataclass(frozen=True, slots=True)
class Prices:
    """What edits cost: to remove each token, to replace it, and to insert at each boundary."""

    drop: Costs
    swap: Costs
    put: Costs


def _prices(marks: Costs, rules: Rules) -> Prices:
    """A removal costs 1, a replacement 2 and an insertion 1, or FORBIDDEN where rules or marks do not let it be."""
    is_fixed, is_closed = marks[1:] & FIXED != 0, marks & CLOSED != 0
    has_drop, has_swap = "delete" in rules.operators, "replace" in rules.operators
    # A removal ends at the boundary on the token's left.
    drop = np.where(is_fixed | is_closed[:-1] | (not has_drop), FORBIDDEN, 1)
    swap = np.where(is_fixed | (not has_swap), FORBIDDEN, 2)
    put = np.where(is_closed, FORBIDDEN, 1)
    return Prices(drop.astype(np.int32), swap.astype(np.int32), put.astype(np.int32))


def edit_costs(a: Sequence[int], b: Sequence[int], prices: Prices, fill: Callable[..., None] | None = None) -> Costs:
    """costs[i, j]: the price of the cheapest edits from a[i:] to b[j:]."""
    costs = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    texts = np.asarray(a, np.int32), np.asarray(b, np.int32)
    (fill or fill_costs)(*texts, prices.drop, prices.swap, prices.put, costs)
    return costs


def fill_costs(
    a: npt.NDArray[np.int32], b: npt.NDArray[np.int32], drop: Costs, swap: Costs, put: Costs, costs: Costs
) -> None:
    """The table of `edit_costs`, row by row from the ends."""
    for i in range(len(a), -1, -1):
        for j in range(len(b), -1, -1):
            options = [0 if i == len(a) and j == len(b) else FORBIDDEN]
            if j < len(b):
                options.append(int(costs[i, j + 1]) + int(put[i]))
            if i < len(a):
                options.append(int(costs[i + 1, j]) + int(drop[i]))
            if i < len(a) and j < len(b):
                options.append(int(costs[i + 1, j + 1]) + (0 if a[i] == b[j] else int(swap[i])))
            costs[i, j] = min(options)


def _trace(a: Sequence[int], b: Sequence[int], costs: Costs, offset: int, prices: Prices) -> list[Hunk]:
    hunks: list[Hunk] = []
    i = j = from_i = from_j = 0

    def close() -> None:
        if (from_i, from_j) != (i, j):
            hunks.append(Hunk(offset + from_i, offset + i, tuple(b[from_j:j])))

    while i < len(a) or j < len(b):
        here = costs[i, j]
        if i < len(a) and j < len(b) and a[i] == b[j] and here == costs[i + 1, j + 1]:
            close()
            i, j = i + 1, j + 1
            from_i, from_j = i, j
        elif i < len(a) and j < len(b) and a[i] != b[j] and here == costs[i + 1, j + 1] + prices.swap[i]:
            i, j = i + 1, j + 1
        elif i < len(a) and here == costs[i + 1, j] + prices.drop[i]:
            i += 1
        else:
            j += 1
    close()
    return hunks


def _approach(hunk: Hunk, rules: Rules) -> int:
    """The boundary from which a hunk's edits begin."""
    if "delete" in rules.operators or hunk.start == hunk.end:
        return hunk.end
    return hunk.start + 1


def _growth(hunk: Hunk) -> int:
    return len(hunk.tokens) - (hunk.end - hunk.start)


class _Script:
    """A script being written; it knows where the cursor is and which boundaries are open by then."""

    def __init__(self, canvas: Canvas, rules: Rules, has_jumps: bool) -> None:
        self.rules, self.has_jumps, self.cursor = rules, has_jumps, canvas.cursor
        self.opens = [not mark & CLOSED for mark in canvas.marks]
        self.actions: list[int] = []

    def write(self, hunks: Sequence[Hunk]) -> list[int]:
        """The edits of hunks in the order given; boundaries behind finished ones shift as texts grow or shrink."""
        done = list[Hunk]()
        for hunk in hunks:
            shift = sum(_growth(h) for h in done if h.end <= hunk.start)
            self._go(_approach(hunk, self.rules) + shift)
            self._edit(hunk)
            self.cursor = hunk.start + shift + len(hunk.tokens)
            if self.opens:
                self.opens[hunk.start + shift + 1 : hunk.end + shift + 1] = [True] * len(hunk.tokens)
            done.append(hunk)
        return self.actions

    def _go(self, there: int) -> None:
        alphabet = self.rules.alphabet
        if self.has_jumps or not self.opens:
            self.actions += alphabet.way(self.cursor, there, self.has_jumps)
        else:
            self.actions += spell_around(self.cursor, there, self.opens, alphabet)
        self.cursor = there

    def _edit(self, hunk: Hunk) -> None:
        """The edits of one hunk, beginning at `_approach` and ending behind its last token."""
        alphabet, doomed, tokens = self.rules.alphabet, hunk.end - hunk.start, list(hunk.tokens)
        if not doomed:
            self.actions += tokens
        elif "delete" in self.rules.operators:
            is_replacing = bool(tokens) and "replace" in self.rules.operators
            self.actions += _remove(doomed - is_replacing, self.rules)
            self.actions += [alphabet.replace, *tokens] if is_replacing else tokens
        else:
            for number, token in enumerate(tokens[:doomed]):
                if number:
                    self._go(self.cursor + 1)
                self.actions += [alphabet.replace, token]
            self.actions += tokens[doomed:]


def write_hunks(canvas: Canvas, hunks: Sequence[Hunk], rules: Rules) -> tuple[int, ...]:
    """The script that edits hunks in the order given, with JUMPs and STOP; it may need more room than there is."""
    return (*_Script(canvas, rules, has_jumps=True).write(hunks), rules.alphabet.stop)


def has_room(canvas: Canvas, hunks: Sequence[Hunk], rules: Rules) -> bool:
    """Whether the canvas never exceeds its maximum on this way; hunks remove before they insert."""
    length = len(canvas.tokens)
    for hunk in hunks:
        length += _growth(hunk)
        if length > rules.max_length:
            return False
    return True


def spell_around(start: int, end: int, opens: Sequence[bool], alphabet: Alphabet) -> tuple[int, ...]:
    """The fewest MOVEs from one boundary to another that all stop at open ones; as `spell` does where that will do.

    >>> alphabet = Alphabet(num_text=257, pad=256)
    >>> [alphabet.distance(move) for move in spell_around(1, 4, [True, True, False, False, True], alphabet)]
    [-1, 4]
    """
    plain, place = alphabet.spell(end - start), start
    stops = [place := place + alphabet.distance(move) for move in plain]
    if all(opens[stop] for stop in stops):
        return plain
    before, edge = {start: start}, [start]
    while edge and end not in before:
        reached = list[int]()
        for here in edge:
            for there in (here + step for step in STEPS):
                if 0 <= there < len(opens) and opens[there] and there not in before:
                    before[there] = here
                    reached.append(there)
        edge = reached
    if end not in before:
        raise UnreachableError(
            f"every way from boundary {start} to {end} stops inside of protected text; enable the operator jump"
        )
    way = [end]
    while way[-1] != start:
        way.append(before[way[-1]])
    return tuple(alphabet.move(there - here) for here, there in pairwise(reversed(way)))


def fill_gaps(draft: Draft, fillings: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """What fills the gaps of a draft, from left to right and each from left to right, with STOP; a gap that nothing
    fills is passed over.

    >>> rules = Rules(Alphabet(num_text=257, pad=256), frozenset({"jump"}))
    >>> script = fill_gaps(Draft.gaps([[1], [2], [3]], rules), [[7, 7], [8]])
    >>> [rules.alphabet.name(action) for action in script]
    ['INSERT 7', 'INSERT 7', 'JUMP 4', 'INSERT 8', 'STOP']
    """
    rules, canvas, script = draft.rules, draft.canvas, list[int]()
    places = canvas.open_boundaries()
    if len(places) != len(fillings):
        raise ConfigError(f"{len(fillings)} fillings for a draft with {len(places)} gaps")
    grown = 0
    for place, filling in zip(places, fillings, strict=True):
        here = place + grown
        if filling and canvas.cursor != here:
            if "jump" in rules.operators:
                way = rules.alphabet.way(canvas.cursor, here, has_jumps=True)
            else:
                opens = [canvas.is_open(each) for each in range(len(canvas.tokens) + 1)]
                way = spell_around(canvas.cursor, here, opens, rules.alphabet)
            canvas, script = replay(canvas, way, rules), [*script, *way]
        if filling:
            canvas, script = replay(canvas, filling, rules), [*script, *filling]
        grown += len(filling)
    return (*script, rules.alphabet.stop)


def _remove(count: int, rules: Rules) -> list[int]:
    edits = []
    if "cut" in rules.operators:
        for size in reversed(SPAN_SIZES):
            edits += [rules.alphabet.cut(size)] * (count // size)
            count %= size
    return edits + [rules.alphabet.delete] * count


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts share at the front."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _explain_unreachable(a: Sequence[int], b: Sequence[int], rules: Rules) -> str:
    if "replace" in rules.operators:
        return (
            f"the target is {len(a) - len(b)} tokens shorter than the canvas and the operator delete is not "
            "enabled; enable it or choose a target at least as long"
        )
    return (
        "the target does not contain the canvas as a subsequence, so tokens would have to go, and the operator "
        "delete is not enabled; enable it or choose a target that only adds text"
    )
