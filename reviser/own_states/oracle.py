"""The oracle: what a shortest script would do next on any canvas, given what each free stretch is to become.

    canvas  [The] gull were| [asleep .]      goal of the free stretch: gulls were
    script  JUMP 2, REPLACE, gulls, STOP

Stretches lie between protected texts, and each has a goal of its own, so what is protected stays. Where the canvas
and its goals differ there is a hunk. The script takes first what lies at the cursor, so that work begun is finished,
then all others from left to right, as the teacher does. A draft's cursor says nothing: there it begins on the left.

Plain Python, slow; oracle_kernels.py labels whole rollouts and is held to this.

>>> from reviser.actions import Alphabet
>>> rules = Rules(Alphabet(num_text=257, pad=256), frozenset({"jump", "delete", "replace"}))
>>> [rules.alphabet.name(action) for action in write_script(Canvas((1, 2, 3), 3), [(1, 7, 3)], rules) or ()]
['JUMP 2', 'REPLACE', 'INSERT 7', 'STOP']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reviser.canvas import Canvas, Rules
from reviser.orders.align import Hunk, find_hunks, has_room, write_hunks
from reviser.own_states.oracle_kernels import NONE

Goals = Sequence[Sequence[int]]
"""What each free stretch of a canvas is to become, from left to right."""
OPERATORS = frozenset({"jump", "delete", "replace"})
"""What the oracle edits with."""


def find_free(canvas: Canvas) -> list[tuple[int, int]]:
    """The free stretches of a canvas, as the boundaries where each begins and ends."""
    found: list[tuple[int, int]] = []
    for boundary in canvas.open_boundaries():
        is_new = boundary == 0 or not canvas.is_open(boundary - 1) or canvas.is_fixed(boundary - 1)
        start = boundary if is_new or not found else found.pop()[0]
        found.append((start, boundary))
    return found


def find_differences(canvas: Canvas, goals: Goals, rules: Rules) -> list[Hunk]:
    """All hunks, from left to right."""
    allowed = replace(rules, operators=rules.operators & OPERATORS)
    return [
        Hunk(start + hunk.start, start + hunk.end, hunk.tokens)
        for (start, end), goal in zip(find_free(canvas), goals, strict=True)
        for hunk in find_hunks(Canvas(canvas.tokens[start:end]), tuple(goal), allowed)
    ]


def count_edits(canvas: Canvas, goals: Goals, rules: Rules) -> int:
    """How far a canvas is from its goals: tokens to remove and to insert."""
    return sum(hunk.end - hunk.start + len(hunk.tokens) for hunk in find_differences(canvas, goals, rules))


def write_script(canvas: Canvas, goals: Goals, rules: Rules, is_begun: bool = False) -> tuple[int, ...] | None:
    """The script from a canvas without a pending REPLACE, with STOP; None where the canvas has no room for it.

    `is_begun`: the cursor is where an action has put it.
    """
    hunks = find_differences(canvas, goals, rules)
    here = [hunk for hunk in hunks if is_begun and hunk.end == canvas.cursor]
    way = here + [hunk for hunk in hunks if hunk not in here]
    if not has_room(canvas, way, rules):
        return None
    return write_hunks(canvas, way, replace(rules, operators=rules.operators & OPERATORS))


def advise(canvas: Canvas, goals: Goals, rules: Rules, is_begun: bool = False) -> int:
    """The oracle's next action, or NONE.

    While a REPLACE is pending, it is the token that is missing there once the one to be replaced is gone.
    """
    if not canvas.is_replacing:
        script = write_script(canvas, goals, rules, is_begun)
        return NONE if script is None else script[0]
    place = canvas.cursor - 1
    marks = canvas.marks[: place + 1] + canvas.marks[place + 2 :]
    without = Canvas(canvas.tokens[:place] + canvas.tokens[place + 1 :], place, marks=marks)
    for hunk in find_differences(without, goals, rules):
        if hunk.start <= place <= hunk.end and hunk.tokens:
            return hunk.tokens[0]
    return NONE
