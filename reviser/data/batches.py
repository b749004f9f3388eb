"""Batches without end: shards in, packed rows out, drawn by background threads.

Blocks of examples are drawn independently and packed one after another: examples at a block's end that would not
fill their rows are packed with the next block. So any number of workers gives the same rows in the same order, and
a stream continues from a `Position` alone, which names the examples carried over. Kernels release the GIL, so
threads are enough.

    epoch 0, slots shuffled | epoch 1 ...   ->   block 0 | block 1 | ...   ->   rows of block 0 | rows of block 1 ...
                                                       what it leaves over ->         is packed here
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from reviser.data.examples import Examples, Slots
from reviser.data.packing import Drawn, Packed, fit, join
from reviser.errors import ConfigError
from reviser.orders.rng import Random

BLOCK = 2048
"""Examples drawn and packed together."""

SPARE = 32
"""Fewer examples leave too little choice to fill a row well: they wait for the next block."""

Numbers = npt.NDArray[np.int64]
"""Examples by number: epoch times the number of slots, plus the slot."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream stands: the next row to be given out, and what its block took over from those before."""

    block: int = 0
    row: int = 0
    carried: tuple[int, ...] = ()

    @staticmethod
    def from_json(parts: dict[str, Any]) -> Position:
        return Position(**parts | {"carried": tuple(parts["carried"])})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def epoch(self, num_slots: int) -> int:
        """The epoch in which its block begins."""
        return self.block * BLOCK // num_slots


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for one part of a step, and the position behind them."""

    rows: Packed
    after: Position


class RowPacker(Protocol):
    """Turns examples into rows: `packing.Packer` for trajectories, `diffusion.canvases.CanvasPacker` for canvases."""

    @property
    def row(self) -> int:
        """Positions of a row."""
        ...

    def draw(self, examples: Examples) -> Drawn:
        """What is random about each example, and how many positions it takes."""
        ...

    def fill(self, drawn: Drawn, places: Numbers, num_rows: int, shuffle: Random | None = None) -> Packed:
        """The rows of examples whose places are chosen."""
        ...


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows in the making, and the examples that they leave over."""

    number: int
    rows: Future[Packed]
    left: Future[Numbers]


class Batches:
    """An endless stream of batches of `num_rows` rows; every `world`-th row from `rank` on is given out."""

    def __init__(
        self,
        slots: Slots,
        packer: RowPacker,
        num_rows: int,
        seed: int = 0,
        workers: int = 1,
        position: Position | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if num_rows % world:
            raise ConfigError(f"{num_rows} rows do not divide over {world} processes; choose a multiple of {world}")
        self.slots, self.packer, self.num_rows, self.seed = slots, packer, num_rows, seed
        self.rank, self.world = rank, world
        self.position = position or Position()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batches")
        self._ahead: deque[RowBlock] = deque()
        self._depth = workers + 1
        self._orders: dict[int, npt.NDArray[np.int64]] = {}

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __iter__(self) -> Iterator[Batch]:
        place = self.position
        while True:
            pieces, missing = [], self.num_rows
            while missing:
                block = self._block(place)
                packed = block.rows.result()
                # Changed settings may have left a position behind the end of its block.
                take = max(min(missing, len(packed.actions) - place.row), 0)
                pieces.append((packed, place.row, place.row + take))
                missing -= take
                place = self._advance(place, take, block)
            self.position = place
            yield Batch(_join(pieces, self.rank, self.world), place)

    def _advance(self, place: Position, taken: int, block: RowBlock) -> Position:
        if place.row + taken < len(block.rows.result().actions):
            return replace(place, row=place.row + taken)
        return Position(place.block + 1, 0, tuple(block.left.result().tolist()))

    def _block(self, place: Position) -> RowBlock:
        """The block a position lies in, and the next ones ordered from the workers."""
        if self._ahead and self._ahead[0].number < place.block:
            self._ahead.popleft()
        while len(self._ahead) < self._depth:
            self._ahead.append(self._order(place))
        return self._ahead[0]

    def _order(self, place: Position) -> RowBlock:
        """The block behind the last one ordered; with none before it, that of a position."""
        before: Future[Numbers] = Future()
        left: Future[Numbers] = Future()
        if self._ahead:
            number, before = self._ahead[-1].number + 1, self._ahead[-1].left
        else:
            number = place.block
            before.set_result(np.array(place.carried, np.int64))
        return RowBlock(number, self._pool.submit(self._pack, number, before, left), left)

    def _pack(self, block: int, before: Future[Numbers], left: Future[Numbers]) -> Packed:
        """Draw a block, then wait for what those before it leave over, and hand on what it leaves itself."""
        try:
            numbers = self._numbers(block)
            drawn = self._draw(numbers)
            # Blocks are begun in order: another worker is at the one before, or has done it.
            carried = before.result()
            if len(carried):
                numbers, drawn = np.concatenate([carried, numbers]), join([self._draw(carried), drawn])
            places, num_rows = fit(drawn.sizes, self.packer.row, SPARE)
        except BaseException as error:
            left.set_exception(error)
            raise
        has_place = places[:, 2] > 0
        left.set_result(numbers[~has_place])
        shuffle = Random.of(self.seed, block, 1)
        return self.packer.fill(drawn.select(has_place), places[has_place], num_rows, shuffle)

    def _numbers(self, block: int) -> Numbers:
        """The examples of a block: those of an epoch, and of the next ones where it ends."""
        size, first = len(self.slots), block * BLOCK
        last = first + BLOCK
        epochs = range(first // size, -(-last // size))
        orders = [self._shuffle(epoch)[max(first - epoch * size, 0) : last - epoch * size] for epoch in epochs]
        return np.concatenate([epoch * size + order for epoch, order in zip(epochs, orders, strict=True)])

    def _shuffle(self, epoch: int) -> npt.NDArray[np.int64]:
        # Another worker may replace the dictionary at any moment: look into it once.
        order = self._orders.get(epoch)
        if order is None:
            order = self.slots.shuffle(self.seed, epoch)
            self._orders = {epoch: order, **dict(list(self._orders.items())[:1])}
        return order

    def _draw(self, numbers: Numbers) -> Drawn:
        """Examples with their trajectories, each of which depends on its number alone."""
        epochs, slots = np.divmod(numbers, len(self.slots))
        return self.packer.draw(self.slots.examples(slots, self.seed, epochs))


def _join(pieces: list[tuple[Packed, int, int]], rank: int, world: int) -> Packed:
    """Rows of one or more blocks as one, without the tables of single examples."""

    def take(name: str) -> np.ndarray | None:
        arrays = [getattr(packed, name) for packed, _, _ in pieces]
        if arrays[0] is None:
            return None
        parts = [array[start:stop] for array, (_, start, stop) in zip(arrays, pieces, strict=True)]
        whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return np.ascontiguousarray(whole[rank::world])

    names = ("actions", "labels", "valid", "positions", "segments", "windows", "canvases", "num_actions")
    none = {"places": np.empty((0, 3), np.int64), "log_q": np.empty(0), "num_tokens": np.empty(0, np.int64)}
    arrays: dict[str, Any] = {name: take(name) for name in names} | none
    return Packed(**arrays)
