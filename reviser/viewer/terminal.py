"""A trajectory in the terminal: one line an action, the canvas after it, the cursor as a bar.

     12  INSERT " still"        {The} boats lay[ still]|{.}
     13  JUMP 2 after " boats"  {The} boats| lay still¦{.}
     14  INSERT " all"          {The} boats[ all]| lay still{.}

New text is coloured, protected text is dim; without colours the one stands in [brackets], the other in {braces}.
The line of a JUMP shows where the cursor came from as a broken bar, and underlines the token it went to. Long
canvases are cut to a view around the cursor. Control characters show as symbols, so a line stays a line and no text
can speak to the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from reviser.canvas import CLOSED, Canvas
from reviser.decoding.requests import CUT_SHORT
from reviser.orders.record import Trajectory
from reviser.tokenizer import Tokenizer

BAR = "▏"
PLAIN_BAR = "|"
OLD_BAR = "¦"
"""Where the cursor stood before a JUMP."""
CUT_MARK = "…"
NEW, PROTECTED, CURSOR, LEFT, LANDING = "bold green", "dim", "bold yellow", "yellow", "underline"
MIN_WIDTH, WIDEST_NAME, SMALL_VIEW = 40, 24, 16
_SYMBOLS = {code: chr(0x2400 + code) for code in range(32)} | {10: "⏎", 9: "⇥", 127: "␡"}
# C1 controls, line separators, marks that turn the direction of writing, and lone surrogates.
_CODES = (*range(0x80, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000))
_SYMBOLS |= {code: f"<{code:02X}>" for code in _CODES}
_SYMBOLS_IN_LINES = {code: symbol for code, symbol in _SYMBOLS.items() if code not in (9, 10)}


def make_console(width: int | None = None, has_color: bool = True) -> Console:
    """Standard output; colours only where asked for and where a terminal shows them (https://no-color.org)."""
    is_wanted = has_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    is_plain = not is_wanted or not sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=width,
        no_color=is_plain,
        highlight=False,
        soft_wrap=True,
        force_terminal=not is_plain,
    )


def visible(piece: str) -> str:
    """A piece of text that stays on its line."""
    return piece.translate(_SYMBOLS)


def name_action(action: int, tokenizer: Tokenizer, canvas: Canvas) -> str:
    """`INSERT " the"`, `MOVE -4`, `JUMP 7 after " cat"`, ...; a JUMP leaves the canvas as it is."""
    alphabet = tokenizer.alphabet
    if alphabet.is_insert(action):
        return f'INSERT "{visible(tokenizer.piece(action))}"'
    if not alphabet.is_jump(action):
        return alphabet.name(action)
    landing = alphabet.landing(action)
    if landing in (0, len(canvas.tokens)):
        return f"{alphabet.name(action)} to the {'end' if landing else 'front'}"
    return f'{alphabet.name(action)} after "{visible(tokenizer.piece(canvas.tokens[landing - 1]))}"'


def brace(piece: str, canvas: Canvas, place: int) -> str:
    """A protected piece with a brace where its span begins and ends; inside of a span no boundary is open."""
    if not canvas.is_fixed(place):
        return piece
    begins = place == 0 or not canvas.marks[place] & CLOSED
    ends = place == len(canvas.tokens) - 1 or canvas.is_open(place + 1)
    return f"{'{' * begins}{piece}{'}' * ends}"


def draw_canvas(
    canvas: Canvas, pieces: Sequence[str], new: range, old_cursor: int | None, width: int, is_plain: bool
) -> Text:
    """The canvas as one line of at most `width` cells, with the cursor in view."""
    parts: list[tuple[str, str]] = []
    bar_at, old_at = 0, None
    for index in range(len(pieces) + 1):
        if index == canvas.cursor:
            bar_at = len(parts)
            parts.append((PLAIN_BAR if is_plain else BAR, CURSOR))
        elif index == old_cursor:
            old_at = len(parts)
            parts.append((OLD_BAR, LEFT))
        if index == len(pieces):
            break
        piece = visible(pieces[index])
        if index in new:
            parts.append((f"[{piece}]" if is_plain else piece, NEW))
        else:
            parts.append((brace(piece, canvas, index) if is_plain else piece, style_of(canvas, index, old_cursor)))
    first, last = _around(parts, bar_at, width)
    if old_at is None or first <= old_at <= last:
        return _view(parts, first, last)
    # The old place is out of sight, so a small view of it stands beside.
    small = min(SMALL_VIEW, width // 3)
    (first, end), (begin, last) = sorted((_around(parts, bar_at, width - small), _around(parts, old_at, small)))
    if begin <= end + 1:
        return _view(parts, first, last)
    return _view(parts, first, end)[:-1].append_text(_view(parts, begin, last))


def style_of(canvas: Canvas, place: int, old_cursor: int | None) -> str:
    """Of a token that the last action left as it is."""
    is_landing = old_cursor is not None and place == canvas.cursor - 1
    return " ".join(filter(None, (PROTECTED * canvas.is_fixed(place), LANDING * is_landing)))


def _around(parts: list[tuple[str, str]], bar_at: int, width: int) -> tuple[int, int]:
    """The first and the last of as many whole parts around the bar as fit, alternately left and right."""
    first = last = bar_at
    left_room = width - 2 - cell_len(parts[bar_at][0])
    grows = True
    while grows:
        grows = False
        for index in (first - 1, last + 1):
            if 0 <= index < len(parts) and cell_len(parts[index][0]) <= left_room:
                left_room -= cell_len(parts[index][0])
                first, last, grows = min(first, index), max(last, index), True
    return first, last


def _view(parts: list[tuple[str, str]], first: int, last: int) -> Text:
    """Some of the parts, marked where more lie beyond."""
    shown = Text(CUT_MARK if first > 0 else "")
    for text, style in parts[first : last + 1]:
        shown.append(text, style)
    return shown.append(CUT_MARK if last < len(parts) - 1 else "")


def show_trajectory(console: Console, trajectory: Trajectory, tokenizer: Tokenizer, record: dict[str, Any]) -> None:
    """Every action with the canvas after it, then the final text; a STOP that was only added is left out."""
    is_plain, alphabet = console.no_color, tokenizer.alphabet
    actions = trajectory.actions[:-1] if _is_cut_short(record) else trajectory.actions
    named = zip(actions, trajectory.states(), strict=False)
    names = ["draft", *(name_action(action, tokenizer, canvas) for action, canvas in named)]
    width = max(console.width, MIN_WIDTH)
    column = min(max(map(cell_len, names)), WIDEST_NAME, width // 3)
    room = width - column - 9
    before: Canvas | None = None
    for index, (name, canvas) in enumerate(zip(names, trajectory.states(), strict=False)):
        old_cursor = before.cursor if before and alphabet.is_jump(actions[index - 1]) else None
        line = Text(f"{index:>5}  {fit(name, column)}  ")
        pieces = tokenizer.pieces(canvas.tokens)
        line.append_text(draw_canvas(canvas, pieces, _new_tokens(before, canvas), old_cursor, room, is_plain))
        console.print(line)
        before = canvas
    console.print(Text(visible(_summary(trajectory, record)), "dim"))
    # Not by rich, which would put spaces for tabs.
    console.file.write(tokenizer.decode(trajectory.final.tokens).translate(_SYMBOLS_IN_LINES) + "\n")


def fit(name: str, width: int) -> str:
    """A name in that many cells; of a long one the beginning."""
    return set_cell_size(name, width) if cell_len(name) <= width else set_cell_size(name, width - 1) + CUT_MARK


def _new_tokens(before: Canvas | None, after: Canvas) -> range:
    """Which tokens of `after` the last action put there: those that end at the cursor."""
    if before is None or before.tokens == after.tokens:
        return range(0)
    grown = len(after.tokens) - len(before.tokens)
    if grown == 0:  # REPLACE changes one token, SWAP two
        changed = [i for i, (a, b) in enumerate(zip(before.tokens, after.tokens, strict=True)) if a != b]
        return range(min(changed), after.cursor)
    return range(after.cursor - max(grown, 0), after.cursor)


def _summary(trajectory: Trajectory, record: dict[str, Any]) -> str:
    num_tokens = len(trajectory.final.tokens) - trajectory.draft.prefix - trajectory.draft.suffix
    is_cut_short = _is_cut_short(record)
    parts = [f"{len(trajectory.actions) - is_cut_short} actions for {num_tokens} tokens"]
    if is_cut_short:
        parts.append("not finished")
    elif record.get("ended_by") == "length":
        parts.append("ended by a full canvas")
    if "order" in record:
        parts.append(f"order {record['order']}")
    if trajectory.log_q is not None:
        parts.append(f"log q {trajectory.log_q:.2f}")
    return ", ".join(parts)


def _is_cut_short(record: dict[str, Any]) -> bool:
    """Whether the trajectory's STOP was added by who kept it, not chosen; files of version 0.1 say has_stopped."""
    return record.get("ended_by") in CUT_SHORT or record.get("has_stopped") is False
