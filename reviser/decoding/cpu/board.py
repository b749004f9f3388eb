"""The board for a CPU: one numba call where `Board` makes a dozen small tensors, on the same cells.

Few rows are a few hundred bytes, and an operator of torch takes microseconds whatever it works on; beside a step of
step.py that counts. It knows INSERT, MOVE, STOP, DELETE and REPLACE; rules with other operators need a `Board`
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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numba import njit
from torch import Tensor

from reviser.actions import INSERT_MOVE, Alphabet
from reviser.canvas import Canvas, Rules
from reviser.decoding.board import INSERT_ONLY, REPLACE_ONLY, STOP_ONLY, Board, check_kernel_operators

__all__ = ["CpuBoard", "Canvas", "Rules", "INSERT_MOVE"]

Array = npt.NDArray[Any]


class State(NamedTuple):
    """The board's tensors that change, as arrays."""

    cells: Array
    length: Array
    cursor: Array
    replacing: Array
    stopped: Array
    prefix: Array
    suffix: Array
    left: Array
    room: Array


class Tables(NamedTuple):
    """What the board knows of every reach and every action."""

    back: Array
    forth: Array
    removed: Array
    written: Array
    distance: Array
    cost: Array


class Marks(NamedTuple):
    """The ids that mean more than their tables say."""

    none: int
    stop: int
    replace: int


jit = njit(nogil=True, cache=True, error_model="numpy")


class CpuBoard(Board):
    """A board in the CPU's memory."""

    def __init__(self, alphabet: Alphabet, operators: Iterable[str], num_rows: int, max_length: int) -> None:
        super().__init__(alphabet, check_kernel_operators(operators), num_rows, max_length)
        self._state = State(*(getattr(self, name).numpy() for name in State._fields))
        self._tables = Tables(*(getattr(self, f"_{name}").numpy() for name in Tables._fields))
        self._marks = Marks(alphabet.none, alphabet.stop, alphabet.replace)

    def valid(self) -> Tensor:
        masks = np.empty(len(self.cells), np.int64)
        _find_valid(self._state, self._tables, masks)
        return torch.from_numpy(masks)

    def apply(self, actions: Tensor) -> None:
        _apply(self._state, self._tables, self._marks, np.ascontiguousarray(actions.numpy(), np.int64))

    def windows(self, width: int) -> Tensor:
        tokens = np.empty((len(self.cells), 2 * width), np.int64)
        _find_windows(self._state, tokens)
        return torch.from_numpy(tokens)


@jit
def _find_valid(state: State, tables: Tables, masks: Array) -> None:
    last = len(tables.back) - 1
    for row in range(len(masks)):
        cursor, length, room = state.cursor[row], state.length[row], state.room[row]
        reach, ahead = cursor - state.prefix[row], length - state.suffix[row] - cursor
        mask = tables.back[min(max(reach, 0), last)] | tables.forth[min(max(ahead, 0), last)]
        if length < room:
            mask |= INSERT_ONLY
        if state.left[row] < 2:
            mask &= ~REPLACE_ONLY
        if state.replacing[row]:
            mask = INSERT_ONLY
        masks[row] = mask if state.left[row] > 0 else STOP_ONLY


@jit
def _find_windows(state: State, tokens: Array) -> None:
    width, last = tokens.shape[1] // 2, state.cells.shape[1] - 2
    for row in range(len(tokens)):
        for slot in range(2 * width):
            tokens[row, slot] = state.cells[row, min(max(state.cursor[row] + slot + 1 - width, 0), last)]


@jit
def _apply(state: State, tables: Tables, marks: Marks, actions: Array) -> None:
    for row in range(len(actions)):
        action = actions[row]
        if state.left[row] <= 0:
            continue
        removed, written = tables.removed[action], tables.written[action]
        if state.replacing[row] and action < marks.none:
            removed += 1
        begin, growth = state.cursor[row] - removed, written - removed
        # An invalid action may spoil its row, never the memory behind it.
        if begin >= 0 and state.length[row] + growth <= state.cells.shape[1] - 3:
            _shift_tail(state, marks, row, growth)
            if written:
                state.cells[row, begin + 1] = action
            state.length[row] += growth
            state.cursor[row] = min(max(begin + written + tables.distance[action], 0), state.length[row])
        state.replacing[row] = action == marks.replace
        state.stopped[row] |= action == marks.stop
        state.left[row] = max(state.left[row] - tables.cost[action], 0)


@jit
def _shift_tail(state: State, marks: Marks, row: int, growth: int) -> None:
    """Move the tokens right of the cursor, and leave `none` behind the end."""
    first, last = state.cursor[row] + 1, state.length[row]
    if growth > 0:
        for place in range(last, first - 1, -1):
            state.cells[row, place + growth] = state.cells[row, place]
    elif growth < 0:
        for place in range(first, last + 1):
            state.cells[row, place + growth] = state.cells[row, place]
        for place in range(last + growth + 1, last + 1):
            state.cells[row, place] = marks.none
