"""Trajectories into rows: every array that the model reads, written by a kernel or by the plain executor.

The kernel knows INSERT, MOVE, STOP, DELETE and REPLACE. Where the rules enable another operator, canvas.py writes the
rows, some hundred times slower: operators are tried out there before they deserve a kernel. On the kernel's own
operators both write the same arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.actions import EVERYTHING
from reviser.canvas import Canvas, Rules, apply, valid_mask
from reviser.data.examples import Examples
from reviser.errors import ActionError, DataError
from reviser.orders.checked import explain_replay
from reviser.orders.draw import Rows
from reviser.orders.policies import Order, has_kernel
from reviser.orders.record import Trajectory
from reviser.orders.registry import order_name
from reviser.orders.replay import fill_rows, missing_operators, operator_bits

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowArrays:
    """What the model reads of rows, one column wider than they are: the kernel writes one past an example's end."""

    actions: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    valid: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int32]
    segments: npt.NDArray[np.int32]
    windows: npt.NDArray[np.int32]
    canvases: npt.NDArray[np.int32]

    @classmethod
    def blank(cls, num_rows: int, row: int, rules: Rules, width: int, num_cells: int) -> RowArrays:
        """Nothing but padding; `width` tokens at either side of the cursor, `num_cells` of a canvas."""
        alphabet, shape = rules.alphabet, (num_rows, row + 1)
        return cls(
            np.full(shape, alphabet.pad, np.int32),
            np.full(shape, -1, np.int32),
            np.full(shape, EVERYTHING, np.int64),
            np.zeros(shape, np.int32),
            np.full(shape, -1, np.int32),
            np.full((*shape, 2 * width), alphabet.none, np.int32),
            np.full((*shape, num_cells), -1, np.int32),
        )


def fill(table: Array, examples: Examples, drawn: Rows, rules: Rules, arrays: RowArrays, order: Order) -> None:
    """Write examples that an order drew into blank rows; each line of `table` is what `fill_rows` reads."""
    write = fill_by_executor if missing_operators(rules) else fill_by_kernel
    bad = write(table, examples, drawn, rules, arrays)
    if bad >= 0:
        i = int(table[bad, 3])
        reason = _explain(examples, i, tuple(drawn[i].tolist()), rules)
        advice = "" if has_kernel(order) else "; fix its draw"
        raise DataError(
            f"order {order_name(order)}: an example of document {int(examples.document[i])} does not replay: "
            f"{reason}{advice}"
        )


def fill_by_kernel(table: Array, examples: Examples, drawn: Rows, rules: Rules, arrays: RowArrays) -> int:
    """Write all examples; returns the first line whose trajectory does not lead to its text, or -1."""
    width = arrays.windows.shape[2] // 2
    bad: int = fill_rows(
        table, examples.tokens, drawn.actions, drawn.has_loss, drawn.begins, rules.alphabet.num_text,
        np.array([0, 0, rules.max_length, operator_bits(rules)]), width,
        np.empty(rules.max_length + 2 * width + 1, np.int32), np.empty(arrays.actions.shape[1], np.int32),
        arrays.actions, arrays.labels, arrays.valid, arrays.positions, arrays.segments, arrays.windows,
        arrays.canvases,
    )  # fmt: skip
    return bad


def fill_by_executor(table: Array, examples: Examples, drawn: Rows, rules: Rules, arrays: RowArrays) -> int:
    """`fill_by_kernel` for all operators, one action after another."""
    masks: dict[tuple[object, ...], int] = {}
    for line, (row, col, segment, i) in enumerate(table[:, :4].tolist()):
        draft = examples.draft(i, rules)
        num_drafted, history = len(draft.actions), (*draft.actions, *drawn[i].tolist())
        here = slice(col, col + len(history))
        is_learned = np.concatenate([np.zeros(num_drafted, bool), drawn.has_loss[i, drawn.begins[i] :] > 0])
        arrays.actions[row, here] = (rules.alphabet.start, *history[:-1])
        arrays.labels[row, here] = np.where(is_learned, history, -1)
        arrays.positions[row, here] = range(len(history))
        arrays.segments[row, here] = segment
        canvas = Canvas()
        for allowed, part in ((draft.rules.for_draft(), history[:num_drafted]), (draft.rules, history[num_drafted:])):
            for action in part:
                arrays.valid[row, col] = _mask(canvas, allowed, masks)
                _show(canvas, rules.alphabet.none, arrays.windows[row, col], arrays.canvases[row, col])
                try:
                    canvas = apply(canvas, action, allowed)
                except ActionError:
                    return line
                col += 1
        if canvas.tokens != examples.text(i):
            return line
    return -1


def _mask(canvas: Canvas, rules: Rules, known: dict[tuple[object, ...], int]) -> int:
    """`valid_mask`, which takes long and is the same for all canvases that are alike in these respects."""
    cursor, length = canvas.cursor, len(canvas.tokens)
    reach, forth, room = cursor - rules.prefix, length - rules.suffix - cursor, rules.max_length - length
    can_paste = 0 < len(canvas.clipboard) <= room
    # Moves are powers of two, and no action spans more than 8 tokens.
    alike = (
        rules.operators, canvas.is_replacing, canvas.is_stopped, room > 0, can_paste, min(cursor, 8), min(reach, 8),
        reach.bit_length(), forth.bit_length(),
    )  # fmt: skip
    if alike not in known:
        known[alike] = valid_mask(canvas, rules)
    return known[alike]


def _show(canvas: Canvas, none: int, window: Array, cells: Array) -> None:
    """A canvas as the model sees it: the tokens beside the cursor, and all tokens with a mark at the cursor."""
    if len(window):
        window[:] = canvas.window(len(window) // 2, none)
    if len(cells):
        shown = (*canvas.tokens[: canvas.cursor], none, *canvas.tokens[canvas.cursor :])[: len(cells)]
        cells[: len(shown)] = shown


def _explain(examples: Examples, i: int, actions: tuple[int, ...], rules: Rules) -> str:
    drawn = Trajectory(examples.draft(i, rules), actions, (True,) * len(actions))
    return explain_replay(drawn, examples.text(i)) or "its rows could not be filled"
