"""A trajectory's actions as edits of the text it began with, and edits applied, joined and shown.

    text       He go home .            draft tokens 0 to 3
    actions    JUMP 2, REPLACE, INSERT " goes", JUMP 3, INSERT " late", STOP
    edits      " go" -> " goes"  from JUMP, REPLACE, INSERT        "" -> " late"  from JUMP, INSERT

A hunk lies between two tokens of the draft that were never changed; what stands there in the end takes the place of
what stood there. Its probability is the product of the probabilities of the actions that made it: those that changed
text in the hunk, and the JUMPs, MOVEs and REPLACEs on the way to each. It is the probability that the model does this
once it has done what came before, not that of stopping or of leaving other places alone. Where whole stretches are
written anew (`rewrites`), many words would do, so it is the probability of changing something there: that of the way
to each place, and of the first DELETE or REPLACE.

>>> apply_edits("teh cat", [Edit(0, 3, "teh", "the", 0.9)])
'the cat'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from reviser.actions import Alphabet
from reviser.canvas import Canvas, apply_unchecked
from reviser.orders.record import Draft
from reviser.tokenizer import Tokenizer

FINISHED = ("model", "length")
"""Ends of a trajectory after which no edit is half done."""


class Attempt(Protocol):
    """What a decoder made of a draft."""

    @property
    def actions(self) -> tuple[int, ...]: ...
    @property
    def log_probabilities(self) -> tuple[float, ...]: ...
    @property
    def ended_by(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters `start` to `end` of a text, `before`, give way to `after`."""

    start: int
    end: int
    before: str
    after: str
    probability: float

    @property
    def growth(self) -> int:
        return len(self.after) - len(self.before)


@dataclass(frozen=True, slots=True)
class _Touch:
    """An action that changed text behind `boundary` of the draft; its log-probability with that of the way to it."""

    boundary: int
    log_probability: float


def find_edits(draft: Draft, attempt: Attempt, tokenizer: Tokenizer, rewrites: bool = False) -> list[Edit]:
    """The edits of an attempt, whose offsets count characters of the draft's text.

    Applying all of them gives the text of the final canvas. A hunk that was cut short is not among them.
    """
    origins, canvas, touches, is_leaving = _trace(draft, attempt, rewrites)
    old, new = tokenizer.pieces(draft.tokens), tokenizer.pieces(canvas.tokens)
    # A token that is still there but reads otherwise or as nothing, being half of a character, counts as changed.
    kept = [(o, p) for p, o in enumerate(origins) if o >= 0 and old[o] and old[o] == new[p]]
    starts = [0]
    for piece in old:
        starts.append(starts[-1] + len(piece))
    is_whole = attempt.ended_by in FINISHED or is_leaving
    edits = []
    for (o1, p1), (o2, p2) in pairwise([(-1, -1), *kept, (len(old), len(new))]):
        before, after = "".join(old[o1 + 1 : o2]), "".join(new[p1 + 1 : p2])
        inside = [touch for touch in touches if o1 < touch.boundary <= o2]
        if before == after or (not is_whole and touches[-1] in inside):
            continue
        probability = math.exp(min(sum(touch.log_probability for touch in inside), 0.0))
        edits.append(Edit(starts[o1 + 1], starts[o2], before, after, probability))
    return edits


def _trace(draft: Draft, attempt: Attempt, rewrites: bool) -> tuple[list[int], Canvas, list[_Touch], bool]:
    """Which token of the draft each final one is (-1: none), the final canvas, every change, and whether the cursor
    has gone elsewhere since the last."""
    alphabet, canvas = draft.rules.alphabet, draft.canvas
    origins, touches, way, is_leaving = list(range(len(draft.tokens))), list[_Touch](), 0.0, True
    for action, score in zip(attempt.actions, attempt.log_probabilities, strict=True):
        before, canvas = canvas, apply_unchecked(canvas, action, alphabet)
        is_way = alphabet.is_jump(action) or alphabet.is_move(action)
        if not rewrites or is_way or (is_leaving and not alphabet.is_insert(action)):
            way += score
        first = first_changed(before, action, alphabet)
        if first is None:
            is_leaving = is_leaving or before.cursor != canvas.cursor
            continue
        left = next((origin for origin in reversed(origins[:first]) if origin >= 0), -1)
        touches.append(_Touch(left + 1, way))
        num_behind = len(before.tokens) - before.cursor
        num_new = len(canvas.tokens) - num_behind - first
        origins = origins[:first] + [-1] * num_new + origins[before.cursor :]
        way, is_leaving = 0.0, False
    return origins, canvas, touches, is_leaving


def first_changed(canvas: Canvas, action: int, alphabet: Alphabet) -> int | None:
    """The place where an action begins to change the canvas; None where it changes nothing."""
    if alphabet.is_insert(action):
        return canvas.cursor - canvas.is_replacing
    match alphabet.operator(action):
        case "delete" | "swap" | "cut":
            return canvas.cursor - alphabet.span(action)
        case "paste":
            return canvas.cursor
        case _:
            return None


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """The text after some edits of it, which are disjoint and in order."""
    parts, end = [], 0
    for edit in edits:
        parts += [text[end : edit.start], edit.after]
        end = edit.end
    return "".join([*parts, text[end:]])


def shift(edits: Sequence[Edit], by: int) -> list[Edit]:
    return [replace(edit, start=edit.start + by, end=edit.end + by) for edit in edits]


def compose(text: str, first: Sequence[Edit], second: Sequence[Edit]) -> list[Edit]:
    """Edits of `text` that do what `first` does and then `second`, whose offsets count what `first` leaves.

    Edits that meet become one, as probable as the least probable of them.
    """
    between = apply_edits(text, first)
    spans, growth = [], 0
    for edit in first:
        spans.append((edit.start + growth, edit.end + growth + edit.growth, edit, True))
        growth += edit.growth
    spans += [(edit.start, edit.end, edit, False) for edit in second]
    composed, growth = list[Edit](), 0
    for group in _meeting(sorted(spans, key=lambda span: span[:2])):
        start, end = group[0][0], max(span[1] for span in group)
        begin = start - growth
        growth += sum(edit.growth for _, _, edit, is_first in group if is_first)
        later = shift([edit for _, _, edit, is_first in group if not is_first], -start)
        before, after = text[begin : end - growth], apply_edits(between[start:end], later)
        probability = min(edit.probability for _, _, edit, _ in group)
        if before != after:
            composed.append(Edit(begin, end - growth, before, after, probability))
    return composed


_Span = tuple[int, int, Edit, bool]


def _meeting(spans: Sequence[_Span]) -> list[list[_Span]]:
    """Groups of spans that overlap or touch, in order."""
    groups, end = list[list[_Span]](), -1
    for span in spans:
        if span[0] > end:
            groups.append([])
        groups[-1].append(span)
        end = max(end, span[1])
    return groups


def polish(text: str, edits: Sequence[Edit]) -> list[Edit]:
    """The same change as a person would mark it: whole words, without the white space that stays.

    >>> polish("I recieve mail", [Edit(1, 8, " reciev", " receiv", 0.9)])
    [Edit(start=2, end=9, before='recieve', after='receive', probability=0.9)]
    """
    polished: list[Edit] = []
    for edit in edits:
        narrow = _trim(edit)
        wide = _widen(text, narrow)
        while polished and wide.start <= polished[-1].end:
            narrow = _join(text, polished.pop(), narrow)
            wide = _widen(text, narrow)
        polished.append(wide)
    return polished


def _join(text: str, left: Edit, right: Edit) -> Edit:
    """Two edits as one; the left one may have been widened into the right one."""
    surplus = max(left.end - right.start, 0)
    after = left.after[: len(left.after) - surplus] + text[left.end : right.start] + right.after
    probability = min(left.probability, right.probability)
    return Edit(left.start, right.end, text[left.start : right.end], after, probability)


def _trim(edit: Edit) -> Edit:
    """Without the white space that both sides begin and end with."""
    start = 0
    while edit.before[start : start + 1].isspace() and edit.before[start] == edit.after[start : start + 1]:
        start += 1
    before, after = edit.before[start:], edit.after[start:]
    end = 0
    while end < min(len(before), len(after)) and before[-1 - end] == after[-1 - end] and before[-1 - end].isspace():
        end += 1
    before, after = before[: len(before) - end], after[: len(after) - end]
    return replace(edit, start=edit.start + start, end=edit.end - end, before=before, after=after)


def _widen(text: str, edit: Edit) -> Edit:
    """To the ends of the words that it changes, in the old text or in the new."""
    start, end = edit.start, edit.end
    heads = {(side + text[end : end + 1])[:1] for side in (edit.before, edit.after)}
    tails = {(text[max(start - 1, 0) : start] + side)[-1:] for side in (edit.before, edit.after)}
    if any(map(is_word, heads)):
        while start > 0 and is_word(text[start - 1]):
            start -= 1
    if any(map(is_word, tails)):
        while end < len(text) and is_word(text[end]):
            end += 1
    left, right = text[start : edit.start], text[edit.end : end]
    return replace(edit, start=start, end=end, before=text[start:end], after=left + edit.after + right)


def is_word(character: str) -> bool:
    return character.isalnum() or character in ("'", "’")
