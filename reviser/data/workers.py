"""Processes for work that only Python can do: in threads it would hold the interpreter's lock and stall training.

A worker ignores Ctrl-C, which its parent handles, ends with its parent, and loads the plugin files of its parent, so
that what they define can be sent to it.

    workers = Workers(4)
    workers.map(math.factorial, [5, 6])        # [120, 720]
    workers.close()
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from reviser.errors import DataError
from reviser.plugins import load_inherited

Result = TypeVar("Result")


class Workers:
    """Some processes, started when there is work for them; any thread may give them some."""

    def __init__(self, count: int) -> None:
        # Spawned, not forked: torch and a progress bar run threads, which a fork would leave locked.
        self._pool = ProcessPoolExecutor(count, get_context("spawn"), start_worker)

    def map(self, function: Callable[..., Result], *arguments: Iterable[Any]) -> list[Result]:
        """What the function gives for each set of arguments, in order."""
        try:
            return list(self._pool.map(function, *arguments))
        except BrokenProcessPool:
            raise DataError(
                "a process that draws trajectories ended, perhaps for lack of memory; lower data.workers; a script "
                "that trains needs `if __name__ == '__main__':` around its calls, since each process imports it"
            ) from None

    def close(self) -> None:
        """End the processes, after what they are doing now."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load_inherited()


def _end_with_parent() -> None:
    # A killed parent tells its workers nothing; they would wait for work for ever.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def can_send(value: object, *kinds: type) -> bool:
    """Whether a worker can read a value with instances of these classes; it cannot import a notebook."""
    if any(kind.__module__ == "__main__" for kind in kinds):
        return False
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True
