"""A step on a GPU as one CUDA graph: the host asks for it once instead of launching hundreds of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

WARMUP = 2
"""Runs before the capture: kernels are compiled and libraries set up in them."""


class Graph:
    """Calls `step` as it is at first, then replays what it launched.

    `step` must work in place on tensors that stay where they are, and must not ask the device for a value.
    """

    def __init__(self, step: Callable[[], object], pool: Any = None) -> None:
        """Graphs of one `pool` share the memory they work in, so none may keep anything there."""
        self.step, self.pool, self.runs = step, pool, 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.runs < WARMUP:
            self.runs += 1
            self.step()
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=self.pool):
                self.step()
        self._graph.replay()
