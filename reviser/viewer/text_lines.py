"""Text as lines of cells, for pictures: what a reader sees as one character has one style, one place and one width.

    [("The cat", ""), (" sat", "new")]  ->  cells T h e _ c a t _ s a t  ->  lines of at most so many columns

Wide characters take two columns. Accents, joiners and the like belong to the character they follow. A line breaks
behind white space where it can, and always behind a line end.

>>> [len(cell.text) for cell in make_cells([("e\\u0301t", ""), ("\\u0301", "new")])]
[2, 2]
>>> lines = wrap(make_cells([("one two", "")]), 5)
>>> ["".join(cell.text for cell in line) for line in lines]
['one ', 'two']
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len

from reviser.viewer.terminal import visible

LINE_END = visible("\n")
_JOINER = "\u200d"
_SKIN = range(0x1F3FB, 0x1F400)
_FLAG = range(0x1F1E6, 0x1F200)
_MARKS = ("Mn", "Mc", "Me")
_NONE = str.maketrans({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"})
"""No XML may hold these, not even escaped."""


@dataclass(frozen=True, slots=True)
class Glyph:
    """A character as a reader sees it; `end` counts the characters of the text up to and with it."""

    text: str
    style: str
    width: int
    end: int

    @property
    def is_space(self) -> bool:
        return self.text.isspace()

    @property
    def ends_line(self) -> bool:
        return self.text == LINE_END


def printed(text: str) -> str:
    """Text without anything that is no character to look at, or that XML forbids."""
    return visible(text).translate(_NONE)


def make_cells(parts: Iterable[tuple[str, str]]) -> list[Glyph]:
    """Pieces of a text and their styles as cells; a cell has the style of its last piece that has one."""
    cells, end = list[Glyph](), 0
    for piece, style in parts:
        for character in piece:
            end += 1
            # A control character can become several signs, which stand alone.
            for sign in printed(character):
                if cells and _extends(cells[-1].text, sign):
                    last = cells.pop()
                    cells.append(Glyph(last.text + sign, style or last.style, max(last.width, cell_len(sign)), end))
                else:
                    cells.append(Glyph(sign, style, max(cell_len(sign), 1), end))
    return cells


def _extends(before: str, sign: str) -> bool:
    """Whether a character belongs to what stands before it."""
    if before == LINE_END:
        return False
    is_flag = ord(sign) in _FLAG and ord(before[0]) in _FLAG and len(before) == 1
    is_mark = unicodedata.category(sign) in _MARKS or cell_len(sign) == 0 or ord(sign) in _SKIN
    return is_flag or is_mark or before.endswith(_JOINER)


def wrap(cells: Sequence[Glyph], width: int) -> list[list[Glyph]]:
    """Lines of at most `width` columns, and one more where white space hangs over; at least one line."""
    lines, used = [list[Glyph]()], 0
    for word in _words(cells):
        size = sum(cell.width for cell in word if not cell.is_space)
        if lines[-1] and used + size > width:
            lines.append([])
            used = 0
        for cell in word:
            if used + cell.width > width + cell.is_space:
                lines.append([])
                used = 0
            lines[-1].append(cell)
            used += cell.width
        if word[-1].ends_line:
            lines.append([])
            used = 0
    return lines


def _words(cells: Sequence[Glyph]) -> list[list[Glyph]]:
    """Words with the white space behind them; a line end ends one too."""
    words = list[list[Glyph]]()
    for cell in cells:
        last = words[-1][-1] if words else None
        if last is None or last.ends_line or (last.is_space and not cell.is_space):
            words.append([])
        words[-1].append(cell)
    return words


def find_place(lines: Sequence[Sequence[Glyph]], end: int) -> tuple[int, int]:
    """Line and column behind the last character that ends there or before; 0 is the front."""
    place = (0, 0)
    for number, line in enumerate(lines):
        column = 0
        for cell in line:
            if cell.end > end:
                return place
            column += cell.width
            place = (number + 1, 0) if cell.ends_line else (number, column)
    return place


def join_styles(line: Sequence[Glyph]) -> list[tuple[str, str, int, int]]:
    """Text, style, first column and number of columns of each stretch of one style and of cells of one width."""
    found, column = list[tuple[str, str, int, int]](), 0
    for (style, _), group in groupby(line, lambda cell: (cell.style, cell.width)):
        same = list(group)
        width = sum(cell.width for cell in same)
        found.append(("".join(cell.text for cell in same), style, column, width))
        column += width
    return found
