"""The board for a GPU: one Triton kernel where `Board` launches some sixty small ones, on the same cells.

    cells   . a b c d . . . . x      one program for each row: it reads what the row will be out of what it is,
    reads   . a b   c d . . .        here INSERT n, and the window, the validity mask and the landings after it as
    writes        n c d . . .        well; once all its threads have read, it writes the places that change

It knows INSERT, MOVE, JUMP, STOP, DELETE and REPLACE; rules with other operators need a `Board` (see backends.py).
Everything else is `Board`'s, and canvas.py defines what each action does. `valid`, `windows` and `landings` give the
kernel's own tensors, which the next action overwrites, and `apply` allocates nothing; so a step can be captured as a
CUDA graph.

Importing this needs Triton, which comes with torch for CUDA. Under TRITON_INTERPRET=1 the kernel runs on a CPU,
slowly, which is how it is tested.

Shape letters: B rows, L tokens that fit, W tokens of a window either side of the cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from reviser import actions as ids
from reviser.actions import Alphabet
from reviser.canvas import Canvas, Rules
from reviser.decoding.board import Board
from reviser.decoding.cpu import cells as base
from reviser.decoding.cpu.cells import NUMBERS, check_kernel_operators

STOPPING: tl.constexpr = tl.constexpr(base.STOP_ONLY)
INSERTING: tl.constexpr = tl.constexpr(base.INSERT_ONLY)
DELETING: tl.constexpr = tl.constexpr(base.DELETE_ONLY)
REPLACING: tl.constexpr = tl.constexpr(base.REPLACE_ONLY)
JUMPING: tl.constexpr = tl.constexpr(base.JUMP_ONLY)
TOKEN: tl.constexpr = tl.constexpr(base.TOKEN)
FIXED: tl.constexpr = tl.constexpr(base.FIXED_CELL)
CLOSED: tl.constexpr = tl.constexpr(base.CLOSED_CELL)
BIRTH_AT: tl.constexpr = tl.constexpr(base.BIRTH_AT)

DELETE: tl.constexpr = tl.constexpr(ids.DELETE)
STOP: tl.constexpr = tl.constexpr(ids.STOP)
MOVES: tl.constexpr = tl.constexpr(ids.MOVES)
REPLACE: tl.constexpr = tl.constexpr(ids.REPLACE)
JUMPS: tl.constexpr = tl.constexpr(ids.JUMPS)

LENGTH_LINE: tl.constexpr = tl.constexpr(NUMBERS.index("length"))
CURSOR_LINE: tl.constexpr = tl.constexpr(NUMBERS.index("cursor"))
REPLACING_LINE: tl.constexpr = tl.constexpr(NUMBERS.index("replacing"))
STOPPED_LINE: tl.constexpr = tl.constexpr(NUMBERS.index("stopped"))
CLOSED_LINE: tl.constexpr = tl.constexpr(NUMBERS.index("closed"))
LEFT_LINE: tl.constexpr = tl.constexpr(NUMBERS.index("left"))
ROOM_LINE: tl.constexpr = tl.constexpr(NUMBERS.index("room"))
AGE_LINE: tl.constexpr = tl.constexpr(NUMBERS.index("age"))


class GpuBoard(Board):
    """A board in a GPU's memory; `width` is that of the windows which every action brings up to date."""

    def __init__(
        self,
        alphabet: Alphabet,
        operators: Iterable[str],
        num_rows: int,
        max_length: int,
        device: torch.device | str = "cpu",
        width: int = 0,
    ) -> None:
        super().__init__(alphabet, check_kernel_operators(operators), num_rows, max_length, device)
        self.width = width
        self._masks, self._windows, self._landings = super().valid(), super().windows(width), super().landings()
        shown = self._masks, self._windows, self._landings
        self._given = self.cells, self.numbers, *shown, num_rows, max_length, alphabet.num_text
        block = triton.next_power_of_2(max_length + 3)
        self._flags: dict[str, Any] = {
            **{f"HAS_{name.upper()}": name in self.operators for name in ("move", "delete", "replace", "jump")},
            "WIDTH": width,
            "SHOWN": triton.next_power_of_2(2 * width),
            "BLOCK": block,
            "num_warps": min(max(block // 256, 1), 8),
        }

    def load(
        self,
        rows: Sequence[int],
        canvases: Sequence[Canvas],
        rules: Sequence[Rules],
        actions_left: Sequence[int],
        births: Sequence[Sequence[int]] | None = None,
        ages: Sequence[int] | None = None,
    ) -> None:
        super().load(rows, canvases, rules, actions_left, births, ages)
        self._masks.copy_(super().valid())
        self._windows.copy_(super().windows(self.width))
        if "jump" in self.operators:
            self._landings.copy_(super().landings())

    def valid(self) -> Tensor:
        """As the board's; overwritten by the next action."""
        return self._masks

    def landings(self) -> Tensor:
        """As the board's; overwritten by the next action."""
        return self._landings

    def apply(self, actions: Tensor) -> None:
        _apply[(len(self.cells),)](actions, actions.stride(0), *self._given, **self._flags)

    def windows(self, width: int) -> Tensor:
        """As the board's; overwritten by the next action where `width` is the board's own."""
        return self._windows if width == self.width else super().windows(width)


@triton.jit
def _apply(
    actions, stride, cells, numbers, masks, windows, landings, B, L, num_text,
    HAS_MOVE: tl.constexpr, HAS_DELETE: tl.constexpr, HAS_REPLACE: tl.constexpr, HAS_JUMP: tl.constexpr,
    WIDTH: tl.constexpr, SHOWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cells += row * (L + 3)
    numbers += row
    at, size = tl.load(numbers + CURSOR_LINE * B), tl.load(numbers + LENGTH_LINE * B)
    budget, age = tl.load(numbers + LEFT_LINE * B), tl.load(numbers + AGE_LINE * B)
    # Offset 0 is CURSOR's, which does nothing.
    offset = tl.where(budget > 0, tl.load(actions + row * stride) - num_text, 0)
    is_text = offset < 0
    cell = (offset + num_text) | (age << BIRTH_AT)

    # Cells begin + 1 .. cursor give way to cells begin + 1 .. end.
    begin = at
    if HAS_DELETE:
        begin -= (offset == DELETE).to(tl.int64)
    if HAS_REPLACE:
        begin -= tl.where(is_text, tl.load(numbers + REPLACING_LINE * B), 0)
    end = begin + is_text.to(tl.int64)
    places = tl.arange(0, BLOCK)
    changes = (places > begin) & (places <= tl.where(end == at, at, L + 1))
    if HAS_JUMP:
        row_after = _read(cells, places, places <= L + 1, cell, at, begin, end, L)
    else:
        row_after = _read(cells, places, changes, cell, at, begin, end, L)

    size = tl.minimum(tl.maximum(size + end - at, 0), L)
    goes_to = end
    if HAS_MOVE:
        goes_to += _distance(offset)
    if HAS_JUMP:
        goes_to = tl.where(offset >= JUMPS, offset - JUMPS, goes_to)
    goes_to = tl.minimum(tl.maximum(goes_to, 0), size)
    age += (budget > 0).to(tl.int64)
    budget = tl.where(offset == STOP, 0, budget - ((budget > 0) & (offset != 0)).to(tl.int64))
    was_stopped = tl.load(numbers + STOPPED_LINE * B)
    is_replacing = offset == REPLACE
    if WIDTH > 0:
        slots = tl.arange(0, SHOWN)
        near = tl.minimum(tl.maximum(goes_to + 1 - WIDTH + slots, 0), L + 1)
        is_in = slots < 2 * WIDTH
        shown = _read(cells, near, is_in, cell, at, begin, end, L) & TOKEN

    mask = tl.where(size < tl.load(numbers + ROOM_LINE * B), INSERTING, 0) | STOPPING
    if HAS_MOVE:
        mask |= _valid_moves(cells, goes_to, size, cell, at, begin, end, L)
    if HAS_DELETE or HAS_REPLACE:
        is_free = (goes_to > 0) & (_read(cells, goes_to, goes_to > 0, cell, at, begin, end, L) & FIXED == 0)
    if HAS_DELETE:
        is_open_left = _read(cells, goes_to - 1, goes_to > 0, cell, at, begin, end, L) & CLOSED == 0
        mask |= tl.where(is_free & is_open_left, DELETING, 0)
    if HAS_JUMP:
        mask |= tl.where(size > tl.load(numbers + CLOSED_LINE * B), JUMPING, 0)
    if HAS_REPLACE:
        mask |= tl.where(is_free & (budget > 1), REPLACING, 0)
        mask = tl.where(is_replacing, INSERTING, mask)
    mask = tl.where(budget > 0, mask, STOPPING)

    # The threads of a program do not go in step: none may write before the last has read.
    tl.debug_barrier()
    tl.store(cells + places, row_after, mask=changes)
    if HAS_REPLACE:
        tl.store(numbers + REPLACING_LINE * B, is_replacing.to(tl.int64))
    if WIDTH > 0:
        tl.store(windows + row * (2 * WIDTH) + slots, shown, mask=is_in)
    if HAS_JUMP:
        can_land = (places <= size) & (places != goes_to) & (row_after & CLOSED == 0) & (mask & JUMPING != 0)
        births = tl.where(can_land, row_after >> BIRTH_AT, -1)
        tl.store(landings + row * (L + 1) + places, births, mask=places <= L)
    tl.store(numbers + LENGTH_LINE * B, size)
    tl.store(numbers + CURSOR_LINE * B, goes_to)
    tl.store(numbers + LEFT_LINE * B, budget)
    tl.store(numbers + AGE_LINE * B, age)
    tl.store(numbers + STOPPED_LINE * B, was_stopped | (offset == STOP).to(tl.int64))
    tl.store(masks + row, mask)


@triton.jit
def _distance(offset):
    """How far a MOVE goes; 0 for any other action."""
    number = tl.minimum(tl.maximum(offset - MOVES, 0), REPLACE - MOVES)
    distance = (1 - 2 * (number % 2)) * (1 << (number // 2))
    return tl.where((offset >= MOVES) & (offset < REPLACE), distance, 0)


@triton.jit
def _valid_moves(cells, cursor, size, cell, at, begin, end, L):
    """The bits of the MOVEs that are valid after the action, with the cursor and the size of then."""
    numbers = tl.arange(0, 32)
    places = cursor + _distance(numbers + MOVES)
    is_there = (numbers < REPLACE - MOVES) & (places >= 0) & (places <= size)
    is_open = _read(cells, places, is_there, cell, at, begin, end, L) & CLOSED == 0
    bits = tl.full([32], 1, tl.int64) << (numbers + MOVES)
    return tl.sum(tl.where(is_there & is_open, bits, 0), axis=0)


@triton.jit
def _read(cells, places, wanted, cell, at, begin, end, L):
    """What places will hold after the action, out of the row before it; `cell` is what an INSERT writes."""
    is_edit = (places > begin) & (places <= end)
    source = tl.minimum(tl.where(places > end, places - (end - at), places), L + 1)
    return tl.where(is_edit, cell, tl.load(cells + source, mask=wanted, other=0))
