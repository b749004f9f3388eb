"""The board for a CPU: one numba call where `Board` makes a dozen small tensors, on the same cells.

Few rows are a few hundred bytes, and an operator of torch takes microseconds whatever it works on; beside a step of
step.py that counts. It knows INSERT, MOVE, JUMP, STOP, DELETE and REPLACE; rules with other operators need a `Board`
(backends.py decides). Everything else is `Board`'s, and canvas.py defines what each action does.

>>> alphabet = Alphabet(num_text=257, pad=256)
>>> board = CpuBoard(alphabet, INSERT_MOVE, num_rows=1, max_length=16)
>>> board.load([0], [Canvas((72, 105), cursor=2)], [Rules(alphabet, max_length=16)], [9])
>>> board.apply(torch.tensor([33]))
>>> board.canvas(0).tokens, board.windows(2).tolist()
((72, 105, 33), [[105, 33, 257, 257]])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reviser import compiled
from reviser.actions import DELETE, INSERT_MOVE, JUMPS, MAX_MOVE_EXPONENT, MOVES, REPLACE, STOP, Alphabet
from reviser.canvas import Canvas, Rules
from reviser.decoding.board import (
    BIRTH_AT,
    CLOSED_CELL,
    DELETE_ONLY,
    FIXED_CELL,
    INSERT_ONLY,
    JUMP_ONLY,
    MOVE_BITS,
    NUMBERS,
    REPLACE_ONLY,
    STOP_ONLY,
    TOKEN,
    Board,
    check_kernel_operators,
)

__all__ = ["CpuBoard", "Canvas", "Rules", "INSERT_MOVE"]

Array = npt.NDArray[Any]

LENGTH, CURSOR, REPLACING, STOPPED, CLOSED, LEFT, ROOM, AGE = map(
    NUMBERS.index, ("length", "cursor", "replacing", "stopped", "closed", "left", "room", "age")
)
"""Lines of `Board.numbers`."""

BITS = {"move": sum(MOVE_BITS), "delete": DELETE_ONLY, "replace": REPLACE_ONLY, "jump": JUMP_ONLY}

jit = compiled.jit()


class CpuBoard(Board):
    """A board in the CPU's memory."""

    def __init__(self, alphabet: Alphabet, operators: Iterable[str], num_rows: int, max_length: int) -> None:
        super().__init__(alphabet, check_kernel_operators(operators), num_rows, max_length)
        # An array costs a call of a kernel some hundred nanoseconds, so there are few.
        self._state = self.cells.numpy(), self.numbers.numpy()
        self._enabled = STOP_ONLY | INSERT_ONLY | sum(BITS[name] for name in self.operators)

    def valid(self) -> Tensor:
        masks = np.empty(len(self.cells), np.int64)
        _find_valid(*self._state, self._enabled, masks)
        return torch.from_numpy(masks)

    def landings(self) -> Tensor:
        births = np.full((len(self.cells), self.max_length + 1), -1)
        if "jump" in self.operators:
            _find_landings(*self._state, births)
        return torch.from_numpy(births)

    def apply(self, actions: Tensor) -> None:
        _apply(*self._state, self.alphabet.num_text, np.ascontiguousarray(actions.numpy(), np.int64))

    def windows(self, width: int) -> Tensor:
        tokens = np.empty((len(self.cells), 2 * width), np.int64)
        _find_windows(*self._state, tokens)
        return torch.from_numpy(tokens)


@jit
def _find_valid(cells: Array, numbers: Array, enabled: int, masks: Array) -> None:
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
def _find_landings(cells: Array, numbers: Array, births: Array) -> None:
    """Into `births`, which are all -1."""
    for row in range(len(births)):
        if numbers[LEFT, row] <= 0 or numbers[REPLACING, row]:
            continue
        for place in range(numbers[LENGTH, row] + 1):
            if not cells[row, place] & CLOSED_CELL:
                births[row, place] = cells[row, place] >> BIRTH_AT
        births[row, numbers[CURSOR, row]] = -1


@jit
def _find_windows(cells: Array, numbers: Array, tokens: Array) -> None:
    width, last = tokens.shape[1] // 2, cells.shape[1] - 2
    for row in range(len(tokens)):
        first = numbers[CURSOR, row] + 1 - width
        for slot in range(2 * width):
            tokens[row, slot] = cells[row, min(max(first + slot, 0), last)] & TOKEN


@jit
def _apply(cells: Array, numbers: Array, num_text: int, actions: Array) -> None:
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
