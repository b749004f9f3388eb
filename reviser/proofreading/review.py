"""Edits shown one by one to somebody who accepts or rejects them."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from reviser.proofreading.edits import Edit
from reviser.proofreading.proofread import Edited

QUESTION = "accept? y yes, n no, a this and all others, q leave the others out: "
OLD, NEW = "red strike", "green bold"
AROUND = 60
"""Characters of its line that are shown on either side of an edit."""


def review(
    edited: Edited, name: str, show: Callable[[Text], None], ask: Callable[[str], str], is_plain: bool
) -> Edited:
    """The edits that were accepted. `ask` gives the answer to a question; no answer leaves the others out."""
    accepted: list[Edit] = []
    for number, (edit, (line, column)) in enumerate(zip(edited.edits, edited.places, strict=True)):
        place = (
            f"{name}:{line}:{column}  edit {number + 1} of {len(edited.edits)}, probability {edit.probability:.2f}"
        )
        show(Text(place, "dim"))
        show(draw_edit(edited.original, edit, is_plain))
        answer = _ask_until_understood(ask)
        if answer == "a":
            accepted += edited.edits[number:]
        if answer in "aq":
            break
        if answer == "y":
            accepted.append(edit)
    return Edited(edited.original, tuple(accepted))


def _ask_until_understood(ask: Callable[[str], str]) -> str:
    while True:
        try:
            answer = ask(QUESTION).strip().lower()[:1]
        except EOFError:
            return "q"
        if answer and answer in "ynaq":
            return answer


def draw_edit(text: str, edit: Edit, is_plain: bool) -> Text:
    """The line of an edit, with what goes and what comes: `I [-recieve-]{+receive+} mail`, or in colours."""
    start = max(text.rfind("\n", 0, edit.start) + 1, edit.start - AROUND)
    end = text.find("\n", edit.end)
    end = min(len(text) if end < 0 else end, edit.end + AROUND)
    shown = Text(_clean(text[start : edit.start]))
    for piece, style, marks in ((edit.before, OLD, "[-{}-]"), (edit.after, NEW, "{{+{}+}}")):
        if piece:
            shown.append(marks.format(_clean(piece)) if is_plain else _clean(piece), style)
    return shown.append(_clean(text[edit.end : end]))


def draw_changes(edited: Edited) -> Text:
    """The whole text, with what came in colour."""
    shown, end = Text(), 0
    for edit in edited.edits:
        shown.append(_clean(edited.original[end : edit.start], "\n\t")).append(_clean(edit.after, "\n\t"), NEW)
        end = edit.end
    return shown.append(_clean(edited.original[end:], "\n\t"))


def _clean(text: str, allowed: str = "") -> str:
    """Without what would move the terminal's cursor."""
    return "".join(each if each.isprintable() or each in allowed else "\u2423" for each in text)
