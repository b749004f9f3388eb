"""Wrong edits, and whether they are undone: how far the canvas is from the reference before and after each action.

    reference  The gulls were asleep.
    canvas     The gull were asleep.      2 edits away: gull out, gulls in
    REPLACE, gulls                        0
    JUMP 3, DELETE                        1: a wrong edit
    INSERT were                           0: it is undone

An edit is wrong if it leads away from the reference, and undone if the distance comes back to what it was before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviser.canvas import Canvas, Rules, apply
from reviser.errors import UnreachableError
from reviser.orders.align import find_hunks
from reviser.orders.record import Draft


class WrongEdits(NamedTuple):
    """How many edits led away from a reference, and after how many of them the distance came back."""

    wrong: int = 0
    undone: int = 0


def count_distance(canvas: Canvas, target: Sequence[int], rules: Rules) -> int:
    """The tokens to be removed and inserted that make the target of a canvas."""
    hunks = find_hunks(canvas, tuple(target), rules)
    return sum(hunk.end - hunk.start + len(hunk.tokens) for hunk in hunks)


def count_wrong(draft: Draft, actions: Sequence[int], target: Sequence[int]) -> WrongEdits | None:
    """Of some actions; None where protected text keeps the target out of reach."""
    canvas, rules = draft.canvas, draft.rules
    try:
        distances = [count_distance(canvas, target, rules)]
        for action in actions:
            after = apply(canvas, action, rules)
            same = after.tokens == canvas.tokens
            distances.append(distances[-1] if same else count_distance(after, target, rules))
            canvas = after
    except UnreachableError:
        return None
    wrong = [step for step in range(len(actions)) if distances[step + 1] > distances[step]]
    undone = [step for step in wrong if min(distances[step + 1 :]) <= distances[step]]
    return WrongEdits(len(wrong), len(undone))
