"""Examples to rows: trajectories drawn, several to a row, none seeing another; arrays for the model out.

    row  START a b c M STOP' START d e f ... pad pad        labels are one action ahead of the inputs
    pos    0   1 2 3 4       0     1 2 3     0   1          segments 0 0 0 0 0 1 1 1 1 2 2

Packing many examples fills about 99 positions in 100; what is left over at the end and would not fill its rows can
be left out, for the next ones to be packed with. (STOP' is a label only: it is never fed.) Padding is an example of
its own, without labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.canvas import Rules
from reviser.config import CanvasConfig
from reviser.data.drawing import Orders, draw_examples, exact_log_q, history_sizes
from reviser.data.examples import Examples, draw_chances, join_examples
from reviser.data.filling import RowArrays, fill, learn_given, mark_mistakes
from reviser.data.workers import can_send
from reviser.orders.draw import Rows
from reviser.orders.kernels import jit
from reviser.orders.policies import Order, has_kernel
from reviser.orders.registry import order_name
from reviser.orders.replay import missing_operators
from reviser.orders.rng import Random

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of examples as the model reads them; the first axis of every array but `starts` is the row."""

    actions: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    valid: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int32]
    segments: npt.NDArray[np.int32]
    windows: npt.NDArray[np.int32] | None
    canvases: npt.NDArray[np.int32] | None
    cursors: npt.NDArray[np.int32] | None
    lives: npt.NDArray[np.int32] | None
    """How long each step's token stands, and where JUMPs go (replay.py); None where the rules have no JUMP."""
    num_actions: npt.NDArray[np.int64]
    """Positions of each row that carry actions."""
    places: npt.NDArray[np.int64]
    """Row, column and number of positions of each example."""
    log_q: npt.NDArray[np.float64]
    num_tokens: npt.NDArray[np.int64]
    """Target tokens of each example."""
    mistakes: npt.NDArray[np.int8] | None = None
    """[rows, columns] of drafts to edit: 1 where something is edited behind a column's token, 0 where nothing is; -1
    elsewhere. None where nobody asks."""

    @property
    def fill(self) -> float:
        """The share of positions that carry actions."""
        return float(self.num_actions.sum()) / self.actions.size


@dataclass(frozen=True, slots=True)
class Drawn:
    """Examples with a trajectory each, and how many positions each takes."""

    examples: Examples
    rows: Rows
    sizes: npt.NDArray[np.int64]

    def select(self, chosen: Array) -> Drawn:
        names = ("actions", "has_loss", "begins", "log_q")
        rows: dict[str, Any] = {name: getattr(self.rows, name)[chosen] for name in names}
        return Drawn(self.examples.select(chosen), Rows(**rows), self.sizes[chosen])


@dataclass(frozen=True)
class Packer:
    """Draws trajectories for examples and packs them, by one order and one set of rules."""

    order: Order
    rules: Rules
    canvas: CanvasConfig
    row: int
    context: int | None = None
    """Longest example in positions; longer ones get a shorter target. None: no limit but the row."""
    longest_canvas: int = 512
    learn_given: float = 0.0
    """Share of examples of which what is given carries labels too, where the finished text has it."""
    told_order: Order | None = None
    """Draws the examples that are told to be written out of order."""
    marks_mistakes: int | None = None
    """Where it says of drafts what is edited: how many columns behind a place must be given too."""

    @property
    def orders(self) -> Orders:
        return Orders(self.order, self.told_order)

    @property
    def slow_draw(self) -> str:
        """The order, where it has no kernel."""
        slow = [order_name(each) for each in self.orders.all if not has_kernel(each)]
        return f"order {slow[0]}" if slow else ""

    @property
    def slow_fill(self) -> str:
        """The operators that the kernel does not know."""
        missing = missing_operators(self.rules)
        return f"operator {', '.join(missing)}" if missing else ""

    def can_be_sent(self) -> bool:
        """Whether another process can have it; one made in a notebook it cannot import."""
        return can_send(self, *map(type, self.orders.components))

    def pack(self, examples: Examples, shuffle: Random | None = None) -> Packed:
        """All examples in few rows, with their exact log q; `shuffle` puts the rows in a random order."""
        drawn = self.draw(examples)
        log_q = exact_log_q(self.orders, self.rules, drawn.examples, drawn.rows)
        drawn = replace(drawn, rows=replace(drawn.rows, log_q=log_q))
        places, num_rows = fit(drawn.sizes, self.row)
        return self.fill(drawn, places if shuffle is None else shuffle_rows(places, num_rows, shuffle), num_rows)

    def fill(self, drawn: Drawn, places: Array, num_rows: int) -> Packed:
        """The rows of examples whose places are chosen."""
        return self._fill(drawn.examples, drawn.rows, drawn.sizes, places, num_rows)

    def draw(self, examples: Examples) -> Drawn:
        """A trajectory for each example; what does not fit the context is drawn again, shorter."""
        rows = draw_examples(self.orders, self.rules, examples, self.row, self.context or self.row)
        return Drawn(examples, rows, history_sizes(examples, rows, self.rules))

    def _fill(self, examples: Examples, drawn: Rows, sizes: Array, places: Array, num_rows: int) -> Packed:
        width = self.canvas.window if self.canvas.has_windows else 0
        # Nobody knows how far an order of somebody's own fills the canvas before it ends with its target.
        longest = self.longest_canvas if not self.slow_draw else self.rules.max_length
        num_cells = longest + 1 if self.canvas.has_rows else 0
        has_cursors = self.canvas.has_cursor
        arrays = RowArrays.blank(num_rows, self.row, self.rules, width, num_cells, has_cursors)
        table = example_table(examples, places)
        fill(table, examples, drawn, self.rules, arrays, self.orders)
        if self.learn_given:
            is_chosen = draw_chances(self.learn_given, examples.states.copy())
            learn_given(table, is_chosen, examples.tokens, arrays.labels)
        mistakes = None
        if self.marks_mistakes is not None and arrays.lives.size:
            mistakes = np.full(arrays.actions.shape, -1, np.int8)
            given = sizes - (drawn.actions.shape[1] - drawn.begins)
            num_text = self.rules.alphabet.num_text
            mark_mistakes(table, given, sizes, arrays.labels, arrays.lives, self.marks_mistakes, num_text, mistakes)
        num_actions = np.bincount(places[:, 0], sizes, num_rows).astype(np.int64)
        mark_padding(
            num_actions, self.context or self.row, self.rules.alphabet.pad, self.rules.alphabet.none, arrays.actions,
            arrays.positions, arrays.segments, arrays.windows, arrays.canvases,
        )  # fmt: skip
        keep = slice(0, self.row)
        return Packed(
            arrays.actions[:, keep], arrays.labels[:, keep], arrays.valid[:, keep], arrays.positions[:, keep],
            arrays.segments[:, keep], arrays.windows[:, keep] if width else None,
            arrays.canvases[:, keep] if num_cells else None, arrays.cursors[:, keep] if has_cursors else None,
            arrays.lives[:, keep] if arrays.lives.size else None, num_actions, places, drawn.log_q, examples.length,
            None if mistakes is None else mistakes[:, keep],
        )  # fmt: skip


def example_table(examples: Examples, places: Array) -> npt.NDArray[np.int64]:
    """The table `fill_rows` reads, sorted so that each row fills from left to right."""
    order = np.lexsort((places[:, 1], places[:, 0]))
    rows = places[order, 0]
    is_new = np.ones(len(order), bool)
    is_new[1:] = rows[1:] != rows[:-1]
    index = np.arange(len(order))
    segment = index - np.maximum.accumulate(np.where(is_new, index, 0))
    parts = (
        examples.first, examples.prefix, examples.length, examples.suffix, examples.drafts, examples.drafted,
        examples.told,
    )  # fmt: skip
    columns = np.stack((rows, places[order, 1], segment, order, *(part[order] for part in parts)), axis=1)
    inner = examples.inner[order].reshape(len(order), 2 * examples.inner.shape[1])
    return np.concatenate([columns, inner], axis=1).astype(np.int64)


def join(parts: Sequence[Drawn]) -> Drawn:
    """Examples that a packer drew apart as one, in this order."""
    longest = max(part.rows.actions.shape[1] - int(part.rows.begins.min()) for part in parts)
    rows = [_widen(part.rows, longest) for part in parts]
    names = ("actions", "has_loss", "begins", "log_q")
    joined: dict[str, Any] = {name: np.concatenate([getattr(each, name) for each in rows]) for name in names}
    together = join_examples([part.examples for part in parts])
    return Drawn(together, Rows(**joined), np.concatenate([part.sizes for part in parts]))


def _widen(rows: Rows, size: int) -> Rows:
    """The same trajectories, which end with their rows, in rows of another size."""
    more = size - rows.actions.shape[1]
    if more <= 0:
        return Rows(rows.actions[:, -more:], rows.has_loss[:, -more:], rows.begins + more, rows.log_q)
    wider = ((0, 0), (more, 0))
    return Rows(np.pad(rows.actions, wider), np.pad(rows.has_loss, wider), rows.begins + more, rows.log_q)


def fit(sizes: Array, row: int, spare: int = 0) -> tuple[Array, int]:
    """Row, column and size of each example, and how many rows; all 0 for those that are left out.

    Only where `spare` is given are any left out: the last ones, fewer than `spare` or less than two rows of them.
    """
    places = np.zeros((len(sizes), 3), np.int64)
    return places, _fit(sizes, row, spare, places)


def shuffle_rows(places: Array, num_rows: int, rng: Random) -> Array:
    """The same places with the rows in a random order."""
    order = np.random.default_rng(rng.state).permutation(num_rows)
    return np.concatenate([order[places[:, :1]], places[:, 1:]], axis=1)


@jit
def _fit(sizes: Array, row: int, spare: int, places: Array) -> Any:
    """Rows are filled one after another: with examples as they come while several more have room, at last with the
    pair that fills the row best: where lengths hardly differ, best fit leaves several times as much empty. A row
    begins with the first that has no place, so none waits for long."""
    heads = np.full(row + 1, -1, np.int64)  # examples without a place, by size, as linked lists
    following = np.full(len(sizes), -1, np.int64)
    for i in range(len(sizes) - 1, -1, -1):
        following[i] = heads[sizes[i]]
        heads[sizes[i]] = i
    most = np.empty(row + 1, np.int64)
    num_rows, room, coming, largest, rest = 0, 0, 0, row, sizes.sum()
    for num_done in range(len(sizes)):
        while heads[largest] < 0:
            largest -= 1
        while places[coming, 2]:
            coming += 1
        size = sizes[coming] if room > 2 * largest else _choose_pair(room, heads, following, most)
        if not size:
            if spare and (len(sizes) - num_done < spare or rest < 2 * row):
                break
            num_rows, room, size = num_rows + 1, row, sizes[coming]
        i = heads[size]
        heads[size] = following[i]
        places[i, 0], places[i, 1], places[i, 2] = num_rows - 1, row - room, size
        room -= size
        rest -= size
    return num_rows


@jit
def _choose_pair(room: int, heads: Array, following: Array, most: Array) -> Any:
    """The larger size of the two at hand that fill a room best, or of the one; 0 where none fits."""
    best = 0
    for size in range(room + 1):
        best = size if heads[size] >= 0 else best
        most[size] = best
    chosen, filled = 0, 0
    for size in range(best, 0, -1):
        if heads[size] < 0:
            continue
        other = most[min(room - size, size)]
        if other == size and following[heads[size]] < 0:
            other = most[size - 1]
        if size + other > filled:
            chosen, filled = size, size + other
    return chosen


@jit
def mark_padding(ends: Array, limit: int, pad: int, none: int, actions: Array, positions: Array, segments: Array,
                  windows: Array, canvases: Array) -> None:  # fmt: skip
    """What stands behind the last example of a row: a segment of its own that shows nothing.

    Its positions restart at `limit`, so that a table of positions has them all.
    """
    for r in range(len(ends)):
        last = segments[r, ends[r] - 1] if ends[r] else -1
        for c in range(ends[r], actions.shape[1]):
            actions[r, c], positions[r, c], segments[r, c] = pad, (c - ends[r]) % limit, last + 1
            windows[r, c] = none
            canvases[r, c] = -1
