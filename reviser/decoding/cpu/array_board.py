"""The board of `Board`'s rows in arrays, without torch: a numba kernel for each thing that is asked of it.

Few rows are a few hundred bytes, and an operator of torch takes microseconds whatever it works on; beside a step of
kernel_model.py that counts. It knows INSERT, MOVE, JUMP, STOP, DELETE and REPLACE; canvas.py defines what each does.

>>> alphabet = Alphabet(num_text=257, pad=256)
>>> board = ArrayBoard(alphabet, INSERT_MOVE, num_rows=1, max_length=16)
>>> board.load([0], [Canvas((72, 105), cursor=2)], [Rules(alphabet, max_length=16)], [9])
>>> board.apply(np.array([33]))
>>> board.canvas(0).tokens, board.windows(2).tolist()
((72, 105, 33), [[105, 33, 257, 257]])

Shape letters: B rows, L tokens that fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from reviser import compiled
from reviser.actions import DELETE, INSERT_MOVE, JUMPS, MAX_MOVE_EXPONENT, MOVES, REPLACE, STOP, Alphabet
from reviser.canvas import Canvas, Rules
from reviser.decoding.cpu.cells import (
    BIRTH_AT,
    CELLS,
    CLIP,
    CLOSED_CELL,
    DELETE_ONLY,
    FIXED_CELL,
    INSERT_ONLY,
    JUMP_ONLY,
    MOVE_BITS,
    NUMBERS,
    REPLACE_ONLY,
    SHOWN,
    STOP_ONLY,
    TOKEN,
    Array,
    canvases_of,
    check_alphabet,
    check_fits,
    check_kernel_operators,
    lines_of,
)

__all__ = ["ArrayBoard", "enabled_bits", "INSERT_MOVE"]

LENGTH, CURSOR, REPLACING, STOPPED, CLOSED, LEFT, ROOM, INITIAL, AGE = map(
    NUMBERS.index, ("length", "cursor", "replacing", "stopped", "closed", "left", "room", "initial", "age")
)
"""Lines of the numbers."""

BITS = {"move": sum(MOVE_BITS), "delete": DELETE_ONLY, "replace": REPLACE_ONLY, "jump": JUMP_ONLY}

jit = compiled.jit()


def enabled_bits(operators: Iterable[str]) -> int:
    """The mask of all that may ever be valid."""
    return STOP_ONLY | INSERT_ONLY | sum(BITS[name] for name in operators)


class ArrayBoard:
    """B canvases under the rules of one model; rows that nothing was loaded into are idle."""

    def __init__(self, alphabet: Alphabet, operators: Iterable[str], num_rows: int, max_length: int) -> None:
        check_alphabet(alphabet)
        self.alphabet, self.operators, self.max_length = alphabet, check_kernel_operators(operators), max_length
        self.cells = np.full((num_rows, max_length + 3), alphabet.none, np.int64)
        self.clipboard = np.full((num_rows, CLIP), alphabet.none, np.int64)
        self.numbers = np.zeros((len(NUMBERS), num_rows), np.int64)
        self.cursor, self.left = self.numbers[CURSOR], self.numbers[LEFT]
        self._enabled = enabled_bits(self.operators)

    def load(
        self,
        rows: Sequence[int],
        canvases: Sequence[Canvas],
        rules: Sequence[Rules],
        actions_left: Sequence[int],
        births: Sequence[Sequence[int]] | None = None,
        ages: Sequence[int] | None = None,
    ) -> None:
        """As `Board.load`."""
        for canvas, given in zip(canvases, rules, strict=True):
            check_fits(canvas, given, self.alphabet, self.operators, self.max_length)
        how = self.alphabet.none, self.max_length, births, ages
        lines, first = lines_of(canvases, rules, actions_left, *how), len(NUMBERS)
        self.numbers[:, rows] = lines[:, :first].T
        self.clipboard[rows], self.cells[rows] = lines[:, first:CELLS], lines[:, CELLS:]

    def canvas(self, row: int) -> Canvas:
        return self.canvases([row])[0]

    def canvases(self, rows: Sequence[int]) -> list[Canvas]:
        numbers = self.numbers[:SHOWN, rows].T
        return canvases_of(np.concatenate([numbers, self.clipboard[rows], self.cells[rows]], axis=1))

    @property
    def grown(self) -> Array:
        """[B] how many tokens longer the canvas is than when it was loaded."""
        grown: Array = self.numbers[LENGTH] - self.numbers[INITIAL]
        return grown

    def valid(self) -> Array:
        """[B] masks, as `Board.valid`."""
        masks = np.empty(len(self.cells), np.int64)
        find_valid(self.cells, self.numbers, self._enabled, masks)
        return masks

    def landings(self) -> Array:
        """[B, L + 1], as `Board.landings`."""
        births = np.full((len(self.cells), self.max_length + 1), -1)
        if "jump" in self.operators:
            find_landings(self.cells, self.numbers, births)
        return births

    def apply(self, actions: Array) -> None:
        """Execute one action [B] in each row that is not idle."""
        execute(self.cells, self.numbers, self.alphabet.num_text, actions)

    def windows(self, width: int) -> Array:
        """[B, 2 width], as `Board.windows`."""
        tokens = np.empty((len(self.cells), 2 * width), np.int64)
        find_windows(self.cells, self.numbers, tokens)
        return tokens

    def repeated(self, size: int) -> Array:
        """[B, L], as `Board.repeated`."""
        tokens = np.full((len(self.cells), self.max_length), self.alphabet.pad)
        find_repeats(self.cells, self.numbers, size, tokens)
        return tokens


@jit
def find_valid(cells: Array, numbers: Array, enabled: int, masks: Array) -> None:
    for row in range(len(masks)):
        cursor, length, left = numbers[CURSOR, row], numbers[LENGTH, row], numbers[LEFT, row]
        mask = STOP_ONLY
        if left > 0 and numbers[REPLACING, row]:
            mask = INSERT_ONLY
        elif left > 0:
            mask |= _find_moves(cells[row], cursor, length)
            if length < numbers[ROOM, row]:
                mask |= INSERT_ONLY
            # The cursor stands at one of the open boundaries.
            if length > numbers[CLOSED, row]:
                mask |= JUMP_ONLY
            if cursor and not cells[row, cursor] & FIXED_CELL:
                mask |= REPLACE_ONLY if left > 1 else 0
                mask |= 0 if cells[row, cursor - 1] & CLOSED_CELL else DELETE_ONLY
        masks[row] = mask & enabled


@jit
def _find_moves(cells: Array, cursor: int, length: int) -> int:
    mask = 0
    for exponent in range(MAX_MOVE_EXPONENT + 1):
        forth, back = cursor + (1 << exponent), cursor - (1 << exponent)
        if forth <= length and not cells[forth] & CLOSED_CELL:
            mask |= 1 << (MOVES + 2 * exponent)
        if back >= 0 and not cells[back] & CLOSED_CELL:
            mask |= 2 << (MOVES + 2 * exponent)
    return mask


@jit
def find_landings(cells: Array, numbers: Array, births: Array) -> None:
    """Into `births`, which are all -1."""
    for row in range(len(births)):
        if numbers[LEFT, row] <= 0 or numbers[REPLACING, row]:
            continue
        for place in range(numbers[LENGTH, row] + 1):
            if not cells[row, place] & CLOSED_CELL:
                births[row, place] = cells[row, place] >> BIRTH_AT
        births[row, numbers[CURSOR, row]] = -1


@jit
def find_windows(cells: Array, numbers: Array, tokens: Array) -> None:
    width, last = tokens.shape[1] // 2, cells.shape[1] - 2
    for row in range(len(tokens)):
        first = numbers[CURSOR, row] + 1 - width
        for slot in range(2 * width):
            tokens[row, slot] = cells[row, min(max(first + slot, 0), last)] & TOKEN


@jit
def find_repeats(cells: Array, numbers: Array, size: int, tokens: Array) -> None:
    """The last tokens of n-grams that an INSERT may repeat, into `tokens`, which are all `pad`."""
    for row in range(len(tokens)):
        own, cursor = cells[row], numbers[CURSOR, row]
        left = cursor - numbers[REPLACING, row]
        if left < size - 1:
            continue
        for last in range(size, numbers[LENGTH, row] + 1):
            # The n-gram lies whole on one side of the cursor.
            if last <= left or last - size >= cursor:
                same = 1
                while same < size and not (own[last - same] ^ own[left + 1 - same]) & TOKEN:
                    same += 1
                if same == size:
                    tokens[row, last - 1] = own[last] & TOKEN


@jit
def execute(cells: Array, numbers: Array, num_text: int, actions: Array) -> None:
    for row in range(len(actions)):
        if numbers[LEFT, row] <= 0:
            continue
        offset, cursor, length = actions[row] - num_text, numbers[CURSOR, row], numbers[LENGTH, row]
        is_text = offset < 0
        removed = numbers[REPLACING, row] if is_text else int(offset == DELETE)
        begin, growth = cursor - removed, int(is_text) - removed
        # An invalid action may spoil its row, never the memory behind it.
        if begin >= 0 and length + growth <= cells.shape[1] - 3:
            _shift_tail(cells[row], cursor, length, growth, num_text)
            if is_text:
                cells[row, begin + 1] = actions[row] | numbers[AGE, row] << BIRTH_AT
            length += growth
            goes_to = offset - JUMPS if offset >= JUMPS else cursor + growth + _distance(offset)
            numbers[LENGTH, row], numbers[CURSOR, row] = length, min(max(goes_to, 0), length)
        numbers[REPLACING, row] = offset == REPLACE
        numbers[STOPPED, row] |= offset == STOP
        numbers[AGE, row] += 1
        numbers[LEFT, row] = 0 if offset == STOP else numbers[LEFT, row] - (offset != 0)


@jit
def _distance(offset: int) -> int:
    """How far a MOVE goes; 0 for any other action."""
    if offset < MOVES or offset >= REPLACE:
        return 0
    distance = 1 << ((offset - MOVES) >> 1)
    return -distance if (offset - MOVES) & 1 else distance


@jit
def _shift_tail(cells: Array, cursor: int, length: int, growth: int, none: int) -> None:
    """Move the tokens right of the cursor, and leave `none` behind the end."""
    if growth > 0:
        for place in range(length, cursor, -1):
            cells[place + growth] = cells[place]
    elif growth < 0:
        for place in range(cursor + 1, length + 1):
            cells[place + growth] = cells[place]
        for place in range(length + growth + 1, length + 1):
            cells[place] = none
