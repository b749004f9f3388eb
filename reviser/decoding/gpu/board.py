"""The board for a GPU: one Triton kernel where `Board` launches some sixty small ones, on the same cells.

    cells   . a b c d . . . . x      one program for each row: it reads what the row will be out of what it is,
    reads   . a b   c d . . .        here INSERT n, and the window and the validity mask after it as well;
    writes        n c d . . .        once all its threads have read, it writes the places that change

It knows INSERT, MOVE, STOP, DELETE and REPLACE; rules with other operators need a `Board` (backends.py decides).
Everything else is `Board`'s, and canvas.py defines what each action does. `valid` and `windows` give the
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

from reviser.actions import Alphabet
from reviser.canvas import Canvas, Rules
from reviser.decoding.board import INSERT_ONLY, REPLACE_ONLY, STOP_ONLY, Board, check_kernel_operators

STOPPING: tl.constexpr = tl.constexpr(STOP_ONLY)
INSERTING: tl.constexpr = tl.constexpr(INSERT_ONLY)
ALL_BUT_REPLACING: tl.constexpr = tl.constexpr(~REPLACE_ONLY)

STATE = ("cells", "length", "cursor", "replacing", "stopped", "prefix", "suffix", "left", "room")
TABLES = ("back", "forth", "removed", "written", "distance", "cost")


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
        self._masks, self._windows = super().valid(), super().windows(width)
        state = [getattr(self, name) for name in STATE]
        # Triton reads bytes as they are, while bools differ between its versions.
        state = [each.view(torch.uint8) if each.dtype == torch.bool else each for each in state]
        tables = [getattr(self, f"_{name}") for name in TABLES]
        ids = alphabet.none, alphabet.stop, alphabet.replace
        self._given = *state, *tables, self._masks, self._windows, max_length, *ids
        block = triton.next_power_of_2(max_length + 3)
        self._flags: dict[str, Any] = {
            "IS_PLAIN": self._is_plain,
            "HAS_REPLACE": "replace" in self.operators,
            "WIDTH": width,
            "SHOWN": triton.next_power_of_2(2 * width),
            "BLOCK": block,
            "num_warps": min(max(block // 256, 1), 8),
        }

    def load(
        self, rows: Sequence[int], canvases: Sequence[Canvas], rules: Sequence[Rules], actions_left: Sequence[int]
    ) -> None:
        super().load(rows, canvases, rules, actions_left)
        self._masks.copy_(super().valid())
        self._windows.copy_(super().windows(self.width))

    def valid(self) -> Tensor:
        """As the board's; overwritten by the next action."""
        return self._masks

    def apply(self, actions: Tensor) -> None:
        _apply[(len(self.cells),)](actions, actions.stride(0), *self._given, **self._flags)

    def windows(self, width: int) -> Tensor:
        """As the board's; overwritten by the next action where `width` is the board's own."""
        return self._windows if width == self.width else super().windows(width)


@triton.jit
def _apply(
    actions, stride, cells, length, cursor, replacing, stopped, prefix, suffix, left, room,
    back, forth, removed, written, distance, cost, masks, windows, L, none, stop, replace,
    IS_PLAIN: tl.constexpr, HAS_REPLACE: tl.constexpr, WIDTH: tl.constexpr, SHOWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cells += row * (L + 3)
    at, size, budget = tl.load(cursor + row), tl.load(length + row), tl.load(left + row)
    action = tl.where(budget > 0, tl.load(actions + row * stride), none)

    # Cells begin + 1 .. cursor give way to cells begin + 1 .. end.
    begin, amount = at, (action < none).to(tl.int64)
    if not IS_PLAIN:
        begin -= tl.load(removed + action)
        amount = tl.load(written + action)
    if HAS_REPLACE:
        begin -= tl.where(action < none, tl.load(replacing + row), 0).to(tl.int64)
    end = begin + amount
    places = tl.arange(0, BLOCK)
    changes = (places > begin) & (places <= tl.where(end == at, at, L + 1))
    tokens = _read(cells, places, changes, action, at, begin, end, L)

    size = tl.minimum(tl.maximum(size + end - at, 0), L)
    goes_to = tl.minimum(tl.maximum(end + tl.load(distance + action), 0), L)
    budget = tl.maximum(budget - tl.load(cost + action), 0)
    was_stopped = tl.load(stopped + row)
    if WIDTH > 0:
        offsets = tl.arange(0, SHOWN)
        near = tl.minimum(tl.maximum(goes_to + 1 - WIDTH + offsets, 0), L + 1)
        is_in = offsets < 2 * WIDTH
        shown = _read(cells, near, is_in, action, at, begin, end, L)
    reach, ahead = goes_to - tl.load(prefix + row), size - tl.load(suffix + row) - goes_to
    mask = tl.load(back + tl.minimum(tl.maximum(reach, 0), L)) | tl.load(forth + tl.minimum(tl.maximum(ahead, 0), L))
    is_replacing = action == replace
    mask |= tl.where(size < tl.load(room + row), INSERTING, 0)
    if HAS_REPLACE:
        mask = tl.where(budget < 2, mask & ALL_BUT_REPLACING, mask)
        mask = tl.where(is_replacing, INSERTING, mask)
    mask = tl.where(budget > 0, mask, STOPPING)

    # The threads of a program do not go in step: none may write before the last has read.
    tl.debug_barrier()
    tl.store(cells + places, tokens, mask=changes)
    if HAS_REPLACE:
        tl.store(replacing + row, is_replacing.to(tl.uint8))
    if WIDTH > 0:
        tl.store(windows + row * (2 * WIDTH) + offsets, shown, mask=is_in)
    tl.store(length + row, size)
    tl.store(cursor + row, goes_to)
    tl.store(left + row, budget)
    tl.store(stopped + row, was_stopped | (action == stop).to(tl.uint8))
    tl.store(masks + row, mask)


@triton.jit
def _read(cells, places, wanted, action, at, begin, end, L):
    """The tokens that places will hold after the action, out of the row before it."""
    is_edit = (places > begin) & (places <= end)
    source = tl.minimum(tl.where(places > end, places - (end - at), places), L + 1)
    return tl.where(is_edit, action, tl.load(cells + source, mask=wanted, other=0))
