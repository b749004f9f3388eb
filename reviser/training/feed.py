"""The next step's tensors, made in the background while the device works on this one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import torch

from reviser.data.batches import Batch, Batches
from reviser.training.objective import Inputs, host_inputs
from reviser.training.settings import RunConfig


@dataclass(frozen=True)
class Work:
    """What one step computes: its parts, on the host, and how long the step waited for them."""

    batches: list[Batch]
    inputs: list[Inputs]
    waited_s: float


class Feed:
    """An endless stream of steps' work, one step ahead of whoever takes it."""

    def __init__(self, stream: Batches, settings: RunConfig, device: torch.device) -> None:
        self.stream, self.settings, self.is_pinned = stream, settings, device.type == "cuda"
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

    def _prepare(self) -> tuple[list[Batch], list[Inputs]]:
        context, train = self.settings.model.context, self.settings.train
        batches = list(islice(self._batches, train.accumulate))
        return batches, [host_inputs(each.rows, context, train.masked, self.is_pinned) for each in batches]
