"""How boards hold canvases: one row of numbers for each, and back; board.py says what a cell is.

    line    length cursor clip .. age | clipboard | cells: the front, the tokens, `none` behind the end

>>> alphabet = Alphabet(num_text=257, pad=256)
>>> lines = lines_of([Canvas((72, 105), cursor=2)], [Rules(alphabet, max_length=4)], [9], alphabet.none, max_length=4)
>>> int(lines[0, NUMBERS.index("left")]), (lines[0, CELLS + 1 : CELLS + 3] & TOKEN).tolist()
(9, [72, 105])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.actions import (
    DELETE,
    JUMP,
    MAX_MOVE_EXPONENT,
    MOVES,
    NUM_SPECIAL,
    PASTE,
    REPLACE,
    SPAN_SIZES,
    STOP,
    Alphabet,
    check_operators,
)
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, check_marks

__all__ = ["Alphabet", "lines_of", "canvases_of", "check_fits", "check_kernel_operators", "NUMBERS", "CELLS"]

Array = npt.NDArray[Any]

CLIP = SPAN_SIZES[-1]
"""Tokens that fit the clipboard."""

MARKS_AT, BIRTH_AT = 20, 24
TOKEN = (1 << MARKS_AT) - 1
"""The bits of a cell that are its token."""
FIXED_CELL, CLOSED_CELL = FIXED << MARKS_AT, CLOSED << MARKS_AT

STOP_ONLY, INSERT_ONLY, PASTE_ONLY = 1 << STOP, 1 << NUM_SPECIAL, 1 << PASTE
DELETE_ONLY, REPLACE_ONLY, JUMP_ONLY = 1 << DELETE, 1 << REPLACE, 1 << JUMP
MOVE_BITS = [1 << (MOVES + number) for number in range(2 * (MAX_MOVE_EXPONENT + 1))]
NUMBERS = ("length", "cursor", "clip", "replacing", "stopped", "closed", "left", "room", "initial", "age")
"""What a board knows of a row beside its tokens, in the order of `Board.numbers`."""
SHOWN = 5
"""How many of them a canvas is read back from."""
CELLS = len(NUMBERS) + CLIP
"""Where the cells of a line begin."""
KERNEL_OPERATORS = frozenset({"move", "delete", "replace", "jump"})
"""What the boards of cpu/ and gpu/ know beside INSERT and STOP; rules that enable more need a `Board`."""


def check_kernel_operators(operators: Iterable[str]) -> frozenset[str]:
    """The operators, where the fast boards know all of them."""
    enabled = check_operators(operators)
    if unknown := enabled - KERNEL_OPERATORS:
        raise ValueError(f"no fast board for {', '.join(sorted(unknown))}; use Board")
    return enabled


def check_alphabet(alphabet: Alphabet) -> None:
    if alphabet.size > TOKEN:
        raise ValueError(f"{alphabet.size} actions do not fit the {MARKS_AT} bits of a token on a board")


def check_fits(canvas: Canvas, rules: Rules, alphabet: Alphabet, operators: frozenset[str], max_length: int) -> None:
    """Refuse a canvas that a board cannot hold."""
    size = len(canvas.tokens)
    if max(size, rules.max_length) > max_length:
        raise ValueError(f"{size} tokens of at most {rules.max_length} on a board for {max_length}")
    if rules.operators != operators or rules.alphabet != alphabet:
        raise ValueError(f"rules for {sorted(rules.operators)} on a board for {sorted(operators)}")
    if not canvas.is_open(canvas.cursor):
        raise ValueError(f"the cursor stands at boundary {canvas.cursor}, which is closed")


def lines_of(
    canvases: Sequence[Canvas],
    rules: Sequence[Rules],
    actions_left: Sequence[int],
    none: int,
    max_length: int,
    births: Sequence[Sequence[int]] | None = None,
    ages: Sequence[int] | None = None,
) -> Array:
    """[n, CELLS + max_length + 3]: what a board holds of canvases, as `Board.load` takes them."""
    first = len(NUMBERS)
    lines = np.full((len(canvases), CELLS + max_length + 3), none, np.int64)
    sizes = [len(canvas.tokens) for canvas in canvases]
    steps = np.arange(1, max_length + 1)
    born = [steps[:size] for size in sizes] if births is None else [np.array(each, np.int64) for each in births]
    following = [size + 1 for size in sizes] if ages is None else ages
    drafts = zip(lines, canvases, rules, actions_left, sizes, born, following, strict=True)
    for line, canvas, given, left, size, each, age in drafts:
        flags = canvas.is_replacing, canvas.is_stopped
        left = 0 if canvas.is_stopped else left
        line[:first] = size, canvas.cursor, len(canvas.clipboard), *flags, 0, left, given.max_length, size, age
        if canvas.clipboard:
            line[first : first + len(canvas.clipboard)] = canvas.clipboard
        line[CELLS + 1 : CELLS + 1 + size] = canvas.tokens
        line[CELLS + 1 : CELLS + 1 + size] |= each << BIRTH_AT
        if canvas.marks:
            line[CELLS : CELLS + 1 + size] |= np.array(canvas.marks) << MARKS_AT
    _count_closed(lines, canvases)
    return lines


def _count_closed(lines: Array, canvases: Sequence[Canvas]) -> None:
    """Fill in how many boundaries of each row are closed."""
    marks = lines[:, CELLS:] >> MARKS_AT
    is_closed = marks & CLOSED > 0
    lines[:, NUMBERS.index("closed")] = is_closed.sum(axis=1)
    for row in np.flatnonzero((is_closed & (marks & FIXED == 0))[:, 1:].any(axis=1)).tolist():
        check_marks(canvases[row].marks)


def canvases_of(lines: Array) -> list[Canvas]:
    """Canvases of lines that hold `SHOWN` numbers, the clipboard and the cells."""
    front, canvases = SHOWN + CLIP, []
    for line, (size, cursor, clip, replacing, stopped) in zip(lines, lines[:, :SHOWN].tolist(), strict=True):
        # Only what the canvas holds becomes Python's numbers: lines are long.
        cells, clipboard = line[front : front + 1 + size], line[SHOWN : SHOWN + clip].tolist()
        tokens, marks = (cells[1:] & TOKEN).tolist(), (cells >> MARKS_AT & (FIXED | CLOSED)).tolist()
        flags = bool(replacing), bool(stopped)
        canvases.append(Canvas(tuple(tokens), cursor, tuple(clipboard), *flags, tuple(marks)))
    return canvases
