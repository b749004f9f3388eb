"""Threads that run one numba kernel together: member 0 is the caller, the others wait for it between calls.

A kernel gets (member, size, arrivals, ...) and releases the GIL. Its members count themselves into `arrivals` and
wait for one another there, which takes well under a microsecond; a parallel loop for each matrix would take ten, and
numba's own threads end the process after a fork or under two callers at once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

RELEASED = 1 << 62
"""More arrivals than any kernel waits for."""

Call = Callable[[int], None]


class KernelThreads:
    """`size` threads, the caller's among them; one kernel at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._calls: list[SimpleQueue[Call]] = [SimpleQueue() for _ in range(size - 1)]
        for member, calls in enumerate(self._calls, start=1):
            name = f"reviser-step-{member}"
            threading.Thread(target=_serve, args=(member, calls), name=name, daemon=True).start()

    def run(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """kernel(member, size, arrivals, *arguments) in every member at once; raises what any of them raises."""
        arrivals, failures = np.zeros(1, np.int64), []

        def help_caller(member: int) -> None:
            try:
                kernel(member, self.size, arrivals, *arguments)
            except BaseException as error:
                failures.append(error)
                arrivals[0] = RELEASED

        with self._lock:
            try:
                for calls in self._calls:
                    calls.put(help_caller)
                kernel(0, self.size, arrivals, *arguments)
            except BaseException:
                # The others must not wait for a caller that was interrupted, nor it for one of them that failed.
                arrivals[0] = RELEASED
                raise
        if failures:
            raise failures[0]


def _serve(member: int, calls: SimpleQueue[Call]) -> None:
    while True:
        calls.get()(member)


@cache
def threads_of(size: int) -> KernelThreads:
    """The process's own team of that size."""
    return KernelThreads(size)


def num_threads() -> int:
    """How many threads a step may use: what torch was told, where it is in use; else OMP_NUM_THREADS, or one for each
    core."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    return _default_threads()


@cache
def _default_threads() -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(asked) if asked.isdigit() and int(asked) else _count_cores()


def _count_cores() -> int:
    """Cores that this process may run on; two threads of one core would only wait for each other."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    cores = set()
    for number in os.sched_getaffinity(0):
        try:
            cores.add(Path(siblings.format(number)).read_text())
        except OSError:
            cores.add(str(number))
    return len(cores)


if hasattr(os, "register_at_fork"):
    # A fork takes no threads along.
    os.register_at_fork(after_in_child=threads_of.cache_clear)
