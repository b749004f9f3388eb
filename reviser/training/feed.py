"""The next step's tensors, made in the background while the device works on this one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from reviser.data.batches import Batch, Batches
from reviser.training.objective import Part


@dataclass(frozen=True)
class Work:
    """What one step computes: its parts, on the host, and how long the step waited for them."""

    batches: list[Batch]
    inputs: list[Part]
    waited_s: float


class Works(Protocol):
    """An endless stream of steps' work."""

    def __iter__(self) -> Iterator[Work]: ...

    def close(self) -> None: ...


class Feed:
    """An endless stream of steps' work, one step ahead of whoever takes it; a step has `num_parts` batches."""

    def __init__(self, stream: Batches, num_parts: int, prepare: Callable[[Batch], Part]) -> None:
        self.stream, self.num_parts, self.prepare = stream, num_parts, prepare
        self._batches = iter(stream)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="feed")

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.stream.close()

    def __iter__(self) -> Iterator[Work]:
        ahead = self._pool.submit(self._prepare)
        while True:
            began = time.perf_counter()
            batches, inputs = ahead.result()
            waited = time.perf_counter() - began
            ahead = self._pool.submit(self._prepare)
            yield Work(batches, inputs, waited)

    def _prepare(self) -> tuple[list[Batch], list[Part]]:
        batches = list(islice(self._batches, self.num_parts))
        return batches, [self.prepare(each) for each in batches]
