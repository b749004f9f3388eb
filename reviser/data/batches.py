"""Batches without end: shards in, packed rows out, drawn by background threads.

Blocks of slots are drawn and packed independently, so any number of workers gives the same rows in the same
order, and a stream continues from a `Position` alone. Kernels release the GIL, so threads are enough.

    epoch 0: slots shuffled -> block 0 | block 1 | ...  -> rows of block 0, rows of block 1, ... -> batches
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from reviser.data.examples import Slots
from reviser.data.packing import Packed, Packer
from reviser.errors import ConfigError
from reviser.trajectory.rng import Random

BLOCK = 2048
"""Examples drawn and packed together."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream stands: the next row to be given out."""

    epoch: int = 0
    block: int = 0
    row: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for one part of a step, and the position behind them."""

    rows: Packed
    after: Position


class Batches:
    """An endless stream of batches of `num_rows` rows; every `world`-th row from `rank` on is given out."""

    def __init__(
        self,
        slots: Slots,
        packer: Packer,
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
        if self.position.block >= -(-len(slots) // BLOCK):
            self.position = Position(self.position.epoch + 1)
        self.num_blocks = -(-len(slots) // BLOCK)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batches")
        self._ahead: deque[tuple[int, int, Future[Packed]]] = deque()
        self._depth = workers + 1
        self._orders: dict[int, np.ndarray] = {}

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __iter__(self) -> Iterator[Batch]:
        place = self.position
        while True:
            pieces, missing = [], self.num_rows
            while missing:
                packed = self._block(place.epoch, place.block)
                # Changed settings may have left a position behind the end of its block.
                take = max(min(missing, len(packed.actions) - place.row), 0)
                pieces.append((packed, place.row, place.row + take))
                missing -= take
                place = self._advance(place, take, len(packed.actions))
            self.position = place
            yield Batch(_join(pieces, self.rank, self.world), place)

    def _advance(self, place: Position, taken: int, size: int) -> Position:
        if place.row + taken < size:
            return Position(place.epoch, place.block, place.row + taken)
        if place.block + 1 < self.num_blocks:
            return Position(place.epoch, place.block + 1, 0)
        return Position(place.epoch + 1, 0, 0)

    def _block(self, epoch: int, block: int) -> Packed:
        """The rows of a block, and the next ones ordered from the workers."""
        while self._ahead and self._ahead[0][:2] != (epoch, block):
            self._ahead.popleft()[2].cancel()
        follow = (epoch, block) if not self._ahead else self._next(*self._ahead[-1][:2])
        while len(self._ahead) < self._depth:
            self._ahead.append((*follow, self._pool.submit(self._draw, *follow)))
            follow = self._next(*follow)
        return self._ahead[0][2].result()

    def _next(self, epoch: int, block: int) -> tuple[int, int]:
        return (epoch, block + 1) if block + 1 < self.num_blocks else (epoch + 1, 0)

    def _draw(self, epoch: int, block: int) -> Packed:
        # Another worker may replace the dictionary at any moment: look into it once.
        order = self._orders.get(epoch)
        if order is None:
            order = self.slots.shuffle(self.seed, epoch)
            self._orders = {epoch: order, **dict(list(self._orders.items())[:1])}
        chosen = order[block * BLOCK : (block + 1) * BLOCK]
        examples = self.slots.examples(chosen, self.seed, epoch)
        return self.packer.pack(examples, Random.of(self.seed, epoch, block, 1))


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
