"""Batches without end: shards in, packed rows out, drawn in the background.

Blocks of examples are drawn independently and packed one after another: examples at a block's end that would not
fill their rows are packed with the next block. So any number of workers gives the same rows in the same order, and
a stream continues from a `Position` alone, which names the examples carried over. Kernels release the GIL, so
threads are enough for them; what only Python can draw or fill is done in processes.

    epoch 0, slots shuffled | epoch 1 ...   ->   block 0 | block 1 | ...   ->   rows of block 0 | rows of block 1 ...
                                                       what it leaves over ->         is packed here
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from reviser.data.examples import Examples
from reviser.data.packing import Drawn, Packed, fit, join, shuffle_rows
from reviser.data.slots import Slots
from reviser.data.workers import Workers
from reviser.errors import ConfigError
from reviser.orders.rng import Random

BLOCK = 2048
"""Examples drawn and packed together."""

PART = 128
"""Examples that a process draws or fills at once; small, so that closing a stream need not wait."""

SPARE = 32
"""Fewer examples leave too little choice to fill a row well: they wait for the next block."""

Result = TypeVar("Result")
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

    def fill(self, drawn: Drawn, places: Numbers, num_rows: int) -> Packed:
        """The rows of examples whose places are chosen."""
        ...

    @property
    def slow_draw(self) -> str:
        """What is drawn without a kernel, so that processes should share it; empty where nothing is."""
        ...

    @property
    def slow_fill(self) -> str:
        """What is filled without a kernel; empty where nothing is."""
        ...

    def can_be_sent(self) -> bool:
        """Whether another process can have it."""
        ...


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Rows in the making, and the examples that they leave over."""

    number: int
    rows: Future[Packed]
    left: Future[Numbers]


class Batches:
    """An endless stream of batches of `num_rows` rows; every `world`-th row from `rank` on is given out.

    `note` is called once for each thing that has no kernel, with a line that says how fast it is without one.
    """

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
        note: Callable[[str], None] | None = None,
    ) -> None:
        if num_rows % world:
            raise ConfigError(f"{num_rows} rows do not divide over {world} processes; choose a multiple of {world}")
        self.slots, self.packer, self.num_rows, self.seed = slots, packer, num_rows, seed
        self.rank, self.world = rank, world
        self.position = position or Position()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batches")
        self._ahead: deque[RowBlock] = deque()
        self._depth = workers + 1
        is_slow = bool(packer.slow_draw or packer.slow_fill)
        self._workers = Workers(workers) if is_slow and packer.can_be_sent() else None
        self._note, self._noted = note, set[str]()
        self._orders: dict[int, npt.NDArray[np.int64]] = {}

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()
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
        places = shuffle_rows(places[has_place], num_rows, Random.of(self.seed, block, 1))
        return self._fill(drawn.select(has_place), places, num_rows)

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
        if not self.packer.slow_draw:
            return self.packer.draw(self.slots.examples(slots, self.seed, epochs))
        parts = range(0, len(numbers), PART)
        examples = [self.slots.examples(slots[k : k + PART], self.seed, epochs[k : k + PART]) for k in parts]
        done = self._map(_draw_part, [(self.packer, each) for each in examples])
        drawn = join([part for part, _ in done])
        self._tell(self.packer.slow_draw, drawn, sum(seconds for _, seconds in done))
        return drawn

    def _fill(self, drawn: Drawn, places: Numbers, num_rows: int) -> Packed:
        if not self.packer.slow_fill:
            return self.packer.fill(drawn, places, num_rows)
        step = max(num_rows * PART // BLOCK, 1)
        parts = []
        for first in range(0, max(num_rows, 1), step):
            chosen = (places[:, 0] >= first) & (places[:, 0] < first + step)
            moved = places[chosen] - np.array([first, 0, 0])
            parts.append((self.packer, drawn.select(chosen), moved, min(step, num_rows - first)))
        done = self._map(_fill_part, parts)
        self._tell(self.packer.slow_fill, drawn, sum(seconds for _, seconds in done))
        return _join([(packed, 0, len(packed.actions)) for packed, _ in done], 0, 1)

    def _map(self, function: Callable[..., Result], parts: list[tuple[Any, ...]]) -> list[Result]:
        if self._workers is None:
            return [function(*part) for part in parts]
        return self._workers.map(function, *zip(*parts, strict=True))

    def _tell(self, what: str, drawn: Drawn, seconds: float) -> None:
        """Say once how fast something is that has no kernel."""
        num_actions = drawn.rows.num_actions
        if self._note is not None and what not in self._noted and num_actions:
            self._noted.add(what)
            self._note(f"{what} has no kernel: {num_actions / max(seconds, 1e-9):,.0f} actions/s per worker")


def _draw_part(packer: RowPacker, examples: Examples) -> tuple[Drawn, float]:
    """Trajectories without the columns that none of them uses, and how long they took."""
    began = time.perf_counter()
    drawn = packer.draw(examples)
    return join([drawn]), time.perf_counter() - began


def _fill_part(packer: RowPacker, drawn: Drawn, places: Numbers, num_rows: int) -> tuple[Packed, float]:
    began = time.perf_counter()
    packed = packer.fill(drawn, places, num_rows)
    return packed, time.perf_counter() - began


def _join(pieces: list[tuple[Packed, int, int]], rank: int, world: int) -> Packed:
    """Rows of one or more blocks as one, without the tables of single examples."""

    def take(name: str) -> np.ndarray | None:
        arrays = [getattr(packed, name) for packed, _, _ in pieces]
        if arrays[0] is None:
            return None
        parts = [array[start:stop] for array, (_, start, stop) in zip(arrays, pieces, strict=True)]
        whole = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return np.ascontiguousarray(whole[rank::world])

    shown = ("windows", "canvases", "cursors", "lives", "mistakes")
    names = ("actions", "labels", "valid", "positions", "segments", *shown, "num_actions")
    none = {"places": np.empty((0, 3), np.int64), "log_q": np.empty(0), "num_tokens": np.empty(0, np.int64)}
    arrays: dict[str, Any] = {name: take(name) for name in names} | none
    return Packed(**arrays)
