"""The board for a CPU: the kernels of array_board.py where `Board` makes a dozen small tensors, on the same cells.

It knows INSERT, MOVE, JUMP, STOP, DELETE and REPLACE; rules with other operators need a `Board`, as backends.py
decides. Everything else is `Board`'s.

>>> alphabet = Alphabet(num_text=257, pad=256)
>>> board = CpuBoard(alphabet, INSERT_MOVE, num_rows=1, max_length=16)
>>> board.load([0], [Canvas((72, 105), cursor=2)], [Rules(alphabet, max_length=16)], [9])
>>> board.apply(torch.tensor([33]))
>>> board.canvas(0).tokens, board.windows(2).tolist()
((72, 105, 33), [[105, 33, 257, 257]])
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from reviser.actions import INSERT_MOVE, Alphabet
from reviser.canvas import Canvas, Rules
from reviser.decoding.board import Board
from reviser.decoding.cpu import array_board as kernels
from reviser.decoding.cpu.cells import check_kernel_operators

__all__ = ["CpuBoard", "Canvas", "Rules", "INSERT_MOVE"]


class CpuBoard(Board):
    """A board in the CPU's memory."""

    def __init__(self, alphabet: Alphabet, operators: Iterable[str], num_rows: int, max_length: int) -> None:
        super().__init__(alphabet, check_kernel_operators(operators), num_rows, max_length)
        # An array costs a call of a kernel some hundred nanoseconds, so there are few.
        self._state = self.cells.numpy(), self.numbers.numpy()
        self._enabled = kernels.enabled_bits(self.operators)

    def valid(self) -> Tensor:
        masks = np.empty(len(self.cells), np.int64)
        kernels.find_valid(*self._state, self._enabled, masks)
        return torch.from_numpy(masks)

    def landings(self) -> Tensor:
        births = np.full((len(self.cells), self.max_length + 1), -1)
        if "jump" in self.operators:
            kernels.find_landings(*self._state, births)
        return torch.from_numpy(births)

    def apply(self, actions: Tensor) -> None:
        kernels.execute(*self._state, self.alphabet.num_text, np.ascontiguousarray(actions.numpy(), np.int64))

    def windows(self, width: int) -> Tensor:
        tokens = np.empty((len(self.cells), 2 * width), np.int64)
        kernels.find_windows(*self._state, tokens)
        return torch.from_numpy(tokens)

    def repeated(self, size: int) -> Tensor:
        tokens = np.full((len(self.cells), self.max_length), self.alphabet.pad)
        kernels.find_repeats(*self._state, size, tokens)
        return torch.from_numpy(tokens)
