"""From any canvas to any target: the shortest edit script, as actions.

A longest common subsequence anchors the two texts; between anchors lie hunks, each a span to remove
and tokens to put in its place. The script visits the hunks from the cursor outwards, first the nearer
side, whichever way takes fewer actions, and ends in STOP.

    a b | c d      target a x c        hunks: b -> x, d -> nothing
    DELETE, INSERT x, MOVE +2, DELETE, STOP

With DELETE disabled the script can only insert (and replace, where REPLACE is enabled); a target that
cannot be reached so is an UnreachableError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reviser.actions import SPAN_SIZES
from reviser.canvas import Canvas, Rules
from reviser.errors import ConfigError, UnreachableError

Costs = npt.NDArray[np.int32]
FORBIDDEN = 1 << 20


@dataclass(frozen=True, slots=True)
class Hunk:
    """Canvas tokens start..end give way to `tokens`."""

    start: int
    end: int
    tokens: tuple[int, ...]


def align(canvas: Canvas, target: Sequence[int], rules: Rules) -> tuple[int, ...]:
    """A shortest script of enabled actions that turns the canvas into the target, with STOP."""
    _check_protected(canvas, target, rules)
    hunks = find_hunks(canvas.tokens, tuple(target), rules)
    left = [hunk for hunk in hunks if _approach(hunk, rules) <= canvas.cursor]
    right = hunks[len(left) :]
    ways = [[*reversed(left), *right], [*right, *reversed(left)]]
    # On a nearly full canvas what shrinks must come before what grows.
    roomy = [way for way in ways if _fits(canvas, way, rules)] or [sorted(hunks, key=_growth)]
    script = min((_script(canvas, way, rules) for way in roomy), key=len)
    if "move" not in rules.operators and any(map(rules.alphabet.is_move, script)):
        raise UnreachableError("the target differs away from the cursor and the operator move is not enabled")
    return (*script, rules.alphabet.stop)


def find_hunks(tokens: tuple[int, ...], target: tuple[int, ...], rules: Rules) -> list[Hunk]:
    """Where the two texts differ, from left to right."""
    from reviser.orders import kernels

    a = tokens[rules.prefix : len(tokens) - rules.suffix]
    b = target[rules.prefix : len(target) - rules.suffix]
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    a, b = a[head : len(a) - tail], b[head : len(b) - tail]
    if not a and not b:
        return []
    drop = 1 if "delete" in rules.operators else FORBIDDEN
    swap = 2 if "replace" in rules.operators else FORBIDDEN
    costs = edit_costs(a, b, drop, swap, kernels.fill_costs)
    if costs[0, 0] >= FORBIDDEN:
        raise UnreachableError(_explain_unreachable(a, b, rules))
    return _trace(a, b, costs, rules.prefix + head, drop, swap)


def edit_costs(
    a: Sequence[int], b: Sequence[int], drop: int, swap: int, fill: Callable[..., None] | None = None
) -> Costs:
    """costs[i, j]: the fewest edits from a[i:] to b[j:], a removal costing `drop`, a replacement
    `swap` and an insertion 1."""
    costs = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    (fill or fill_costs)(np.asarray(a, np.int32), np.asarray(b, np.int32), drop, swap, costs)
    return costs


def fill_costs(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32], drop: int, swap: int, costs: Costs) -> None:
    """The table of `edit_costs`, row by row from the ends."""
    for i in range(len(a), -1, -1):
        for j in range(len(b), -1, -1):
            if i == len(a):
                costs[i, j] = len(b) - j
                continue
            best = min(int(costs[i + 1, j]) + drop, FORBIDDEN)
            if j < len(b):
                here = 0 if a[i] == b[j] else swap
                best = min(best, int(costs[i, j + 1]) + 1, int(costs[i + 1, j + 1]) + here)
            costs[i, j] = min(best, FORBIDDEN)


def _trace(a: Sequence[int], b: Sequence[int], costs: Costs, offset: int, drop: int, swap: int) -> list[Hunk]:
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
        elif i < len(a) and j < len(b) and a[i] != b[j] and here == costs[i + 1, j + 1] + swap:
            i, j = i + 1, j + 1
        elif i < len(a) and here == costs[i + 1, j] + drop:
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


def _script(canvas: Canvas, hunks: Sequence[Hunk], rules: Rules) -> tuple[int, ...]:
    """The hunks in the order given; boundaries behind finished ones shift as texts grow or shrink."""
    at, actions, done = canvas.cursor, [], list[Hunk]()
    for hunk in hunks:
        shift = sum(_growth(h) for h in done if h.end <= hunk.start)
        there = _approach(hunk, rules) + shift
        edits = _edit_hunk(hunk, rules)
        actions += [*rules.alphabet.spell(there - at), *edits]
        at = hunk.start + shift + len(hunk.tokens)
        done.append(hunk)
    return tuple(actions)


def _growth(hunk: Hunk) -> int:
    return len(hunk.tokens) - (hunk.end - hunk.start)


def _fits(canvas: Canvas, hunks: Sequence[Hunk], rules: Rules) -> bool:
    """Whether the canvas never exceeds its maximum on this way; hunks remove before they insert."""
    length = len(canvas.tokens)
    for hunk in hunks:
        length += _growth(hunk)
        if length > rules.max_length:
            return False
    return True


def _edit_hunk(hunk: Hunk, rules: Rules) -> list[int]:
    """The edits of one hunk, beginning at `_approach` and ending behind its last token."""
    alphabet, doomed, tokens = rules.alphabet, hunk.end - hunk.start, list(hunk.tokens)
    if not doomed:
        return tokens
    if "delete" not in rules.operators:
        replaced = [[alphabet.replace, token] for token in tokens[:doomed]]
        between = [alphabet.move(1)]
        steps = [action for pair in replaced for action in (*pair, *between)]
        return steps[:-1] + tokens[doomed:]
    is_replacing = bool(tokens) and "replace" in rules.operators
    edits = _remove(doomed - is_replacing, rules)
    return edits + ([alphabet.replace, *tokens] if is_replacing else tokens)


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


def _check_protected(canvas: Canvas, target: Sequence[int], rules: Rules) -> None:
    prefix, suffix = canvas.tokens[: rules.prefix], canvas.tokens[len(canvas.tokens) - rules.suffix :]
    end = len(target) - rules.suffix
    if end < rules.prefix or tuple(target[: rules.prefix]) != prefix or tuple(target[end:]) != suffix:
        raise UnreachableError("the target changes protected text")
    if len(target) > rules.max_length:
        raise ConfigError(f"the target has {len(target)} tokens and the canvas holds at most {rules.max_length}")


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
