"""Lessons as rows of a batch, beside the rows that the teacher's examples fill.

A step's rows are in part lessons, in part fresh examples. Lessons are shuffled and packed anew each epoch, and rows
are filled when they are asked for, by number; so a stream of them continues from the number of a batch alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.data.batches import Batch, Batches, Position, _join
from reviser.data.packing import Drawn, Packed, Packer, fit, shuffle_rows
from reviser.data.slots import Slots
from reviser.orders.draw import Rows
from reviser.orders.kernels import jit
from reviser.orders.rng import Random
from reviser.own_states.lessons import Lessons
from reviser.own_states.seeds import Seeds

Array = npt.NDArray[Any]


class OwnRows:
    """An endless series of rows, the same for the same lessons and seed."""

    def __init__(self, lessons: Lessons, seeds: Seeds, packer: Packer, seed: int) -> None:
        self.lessons, self.seeds, self.packer, self.seed = lessons, seeds, packer, seed
        self._plans: dict[int, tuple[Array, Array, int]] = {}
        self._firsts = [0]

    def rows(self, first: int, count: int) -> Packed:
        """Rows first..first+count of the series."""
        pieces, epoch = [], bisect_right(self._firsts, first) - 1
        while count:
            order, places, num_rows = self._plan(epoch)
            begin = self._firsts[epoch]
            take = min(begin + num_rows - first, count)
            # A series that is continued walks over the epochs before.
            if take > 0:
                pieces.append(self._fill(order, places, first - begin, take))
                first, count = first + take, count - take
            epoch += 1
        return _join([(each, 0, len(each.actions)) for each in pieces], 0, 1)

    def _plan(self, epoch: int) -> tuple[Array, Array, int]:
        """The lessons of an epoch in their order, their places, and the number of rows."""
        if epoch not in self._plans:
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.lessons))
            places, num_rows = fit(self.lessons.sizes[order], self.packer.row)
            places = shuffle_rows(places, num_rows, Random.of(self.seed, epoch, 1))
            by_row = np.argsort(places[:, 0], kind="stable")
            self._plans[epoch] = order[by_row], places[by_row], num_rows
            # Earlier epochs are over; only how many rows they had still counts.
            self._plans = {each: plan for each, plan in self._plans.items() if each >= epoch - 1}
            if epoch + 1 == len(self._firsts):
                self._firsts.append(self._firsts[-1] + num_rows)
        return self._plans[epoch]

    def _fill(self, order: Array, places: Array, first: int, count: int) -> Packed:
        begin, end = np.searchsorted(places[:, 0], [first, first + count])
        chosen, put = order[begin:end], places[begin:end] - np.array([first, 0, 0])
        lessons, counts = self.lessons, np.diff(self.lessons.ends, prepend=0)[chosen]
        begins = (lessons.ends - np.diff(lessons.ends, prepend=0))[chosen]
        size = int(counts.max())
        actions, has_loss = np.zeros((len(chosen), size), np.int32), np.ones((len(chosen), size), np.uint8)
        spread(lessons.actions, begins, counts, actions)
        drawn = Rows(actions, has_loss, size - counts, np.zeros(len(chosen)))
        examples = self.seeds.examples(lessons.numbers[chosen])
        packed = self.packer.fill(Drawn(examples, drawn, lessons.sizes[chosen]), put, count)
        lives = np.zeros((0, 0, 3), np.int32) if packed.lives is None else packed.lives
        relabel(put, begins, counts, lessons.cuts[chosen], lessons.labels, lessons.landings, packed.labels, lives)
        return packed


@jit
def spread(flat: Array, begins: Array, counts: Array, rows: Array) -> None:
    """Stretches of a flat array into the ends of rows."""
    for i in range(len(begins)):
        for k in range(counts[i]):
            rows[i, rows.shape[1] - counts[i] + k] = flat[begins[i] + k]


@jit
def relabel(places: Array, begins: Array, counts: Array, cuts: Array, labels: Array, landings: Array, rows: Array,
            lives: Array) -> None:  # fmt: skip
    """Where the model acted, put the oracle's labels in place of what was done, with where those jump to."""
    for i in range(len(places)):
        row, first = places[i, 0], places[i, 1] + places[i, 2] - counts[i]
        for t in range(cuts[i]):
            rows[row, first + t] = labels[begins[i] + t]
            if len(lives):
                lives[row, first + t, 1] = landings[begins[i] + t, 0]
                lives[row, first + t, 2] = landings[begins[i] + t, 1]


class MixedBatches(Batches):
    """The teacher's batches, each with rows of own states behind its own."""

    def __init__(
        self,
        slots: Slots,
        packer: Packer,
        num_rows: int,
        seed: int,
        workers: int,
        position: Position,
        own: OwnRows,
        num_own: int,
        first: int,
    ) -> None:
        """`num_own` of the `num_rows` rows are own ones, and the first batch is number `first` of the round."""
        super().__init__(slots, packer, num_rows - num_own, seed, workers, position)
        self.own, self.num_own, self.first = own, num_own, first

    def __iter__(self) -> Iterator[Batch]:
        for number, batch in enumerate(super().__iter__(), self.first):
            more = self.own.rows(number * self.num_own, self.num_own)
            pieces = [(each, 0, len(each.actions)) for each in (batch.rows, more)]
            yield Batch(_join(pieces, 0, 1), batch.after)
