"""Examples to rows of canvases: prefix, room and suffix of several examples to a row, none seeing another.

    row     p p t t t . . s s  p t t t t t  pad pad      p, s: given; t: the target; . : padding that ends it
    labels  - - t t t . . - -  - t t t t t  -   -        what may be masked, and is learned then

The examples are the ones a Reviser learns from, drawn from the same slots with the same streams. A room is as long as
its target for half of them, and for the others longer by anything up to the longest room there is (the longest
continuation and its end; twice the longest gap and its end). So a denoiser learns both to fill a room and to end a
text before the room does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from reviser.actions import EVERYTHING, Alphabet
from reviser.data.examples import NEAR, Examples, JobConfig
from reviser.data.packing import Drawn, Packed, example_table, fit, mark_padding
from reviser.errors import ConfigError
from reviser.orders.draw import Rows
from reviser.orders.kernels import _below, jit

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CanvasPacker:
    """Puts examples on canvases and packs them (`data.batches.RowPacker`); what it draws is each room's length."""

    alphabet: Alphabet
    row: int
    context: int
    """Places of the longest canvas."""
    longest_room: int
    """Places of a continuation's room."""
    longest_gap: int
    """Places of a room with text behind it."""

    @classmethod
    def of(cls, alphabet: Alphabet, jobs: JobConfig, row: int, context: int) -> CanvasPacker:
        """Rooms as the jobs want them."""
        return cls(alphabet, row, context, jobs.length[1] + NEAR + 1, 2 * jobs.gap[1] + 1)

    def pack(self, examples: Examples) -> Packed:
        """All examples in few rows."""
        drawn = self.draw(examples)
        return self.fill(drawn, *fit(drawn.sizes, self.row))

    def draw(self, examples: Examples) -> Drawn:
        """A room for each example; targets that do not fit are cut."""
        given = examples.prefix + examples.suffix
        limit = self.context - given
        if len(examples) and limit.min() < 1:
            raise ConfigError(
                f"an example of {int(given.max())} prompt tokens does not fit {self.context} places; "
                "raise model.context or shorten jobs.prefix and jobs.suffix"
            )
        cut = replace(examples, length=np.minimum(examples.length, limit), states=examples.states.copy())
        rooms = np.empty(len(cut), np.int64)
        longest = np.where(cut.suffix > 0, self.longest_gap, self.longest_room)
        _draw_rooms(cut.length, np.minimum(limit, longest), cut.states, rooms)
        count = len(cut)
        none = Rows(np.empty((count, 0), np.int32), np.empty((count, 0), np.uint8), np.zeros(count, np.int64),
                    np.zeros(count))  # fmt: skip
        return Drawn(cut, none, given + rooms)

    slow_draw: ClassVar[str] = ""
    slow_fill: ClassVar[str] = ""

    def can_be_sent(self) -> bool:
        return True

    def fill(self, drawn: Drawn, places: Array, num_rows: int) -> Packed:
        """The rows of examples whose places are chosen."""
        examples, sizes, alphabet, shape = drawn.examples, drawn.sizes, self.alphabet, (num_rows, self.row)
        tokens, labels = np.full(shape, alphabet.pad, np.int32), np.full(shape, -1, np.int32)
        positions, segments = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        table = example_table(examples, places)
        _fill_canvases(table, sizes[table[:, 3]], examples.tokens, alphabet.pad, tokens, labels, positions, segments)
        num_places = np.bincount(places[:, 0], sizes, num_rows).astype(np.int64)
        nothing = np.empty((*shape, 0), np.int32)
        mark_padding(num_places, self.context, alphabet.pad, alphabet.none, tokens, positions, segments,
                      nothing, nothing)  # fmt: skip
        valid = np.full(shape, EVERYTHING, np.int64)
        return Packed(tokens, labels, valid, positions, segments, None, None, None, None, num_places, places,
                      drawn.rows.log_q, examples.length)  # fmt: skip


@jit
def _draw_rooms(lengths: Array, longest: Array, states: Array, rooms: Array) -> None:
    rng = np.empty(1, np.uint64)
    for i in range(len(lengths)):
        rng[0] = states[i]
        spare = longest[i] - lengths[i]
        is_longer = _below(rng, 2) == 1 and spare > 0
        rooms[i] = lengths[i] + (1 + _below(rng, spare) if is_longer else 0)
        states[i] = rng[0]


@jit
def _fill_canvases(
    table: Array, sizes: Array, source: Array, pad: int, tokens: Array, labels: Array, positions: Array,
    segments: Array,
) -> None:  # fmt: skip
    """Each line of the table: row, column, segment, example; where its tokens begin; prefix, target, suffix."""
    for i in range(len(table)):
        row, col, segment, first = table[i, 0], table[i, 1], table[i, 2], table[i, 4]
        prefix, target, suffix = table[i, 5], table[i, 6], table[i, 7]
        room = sizes[i] - prefix - suffix
        for k in range(sizes[i]):
            is_end = prefix + target <= k < prefix + room
            # Behind the room the suffix continues where the target ended.
            place = k if k < prefix + target else k - room + target
            token = pad if is_end else source[first + place]
            tokens[row, col + k] = token
            labels[row, col + k] = token if prefix <= k < prefix + room else -1
            positions[row, col + k] = k
            segments[row, col + k] = segment
