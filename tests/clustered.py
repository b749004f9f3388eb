"""What tests let the processes of a cluster do; nothing heavy is loaded there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reviser.errors import ConfigError, DataError


def make_square(folder: str = "", dies: bool = False) -> Callable[[int], int]:
    """Squares a number; the first time that it is given a 5, or every time, its process dies."""

    def work(item: int) -> int:
        if item == 5 and folder:
            mark = Path(folder, f"seen{len(os.listdir(folder))}")
            mark.touch()
            if dies or mark.name == "seen0":
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01 * (item % 3))
        return item * item

    return work


def make_meeting(folder: str) -> Callable[[int], str]:
    """Names its node, once two nodes are there."""
    import ray

    def work(_: int) -> str:
        node = str(ray.get_runtime_context().get_node_id())
        Path(folder, node).touch()
        end = time.monotonic() + 60
        while len(os.listdir(folder)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        return node

    return work


def make_refusing() -> Callable[[int], int]:
    def work(item: int) -> int:
        raise DataError(f"item {item} is bad; give another")

    return work


def make_nothing() -> Callable[[int], int]:
    raise ConfigError("no worker here; add one")


def make_known(folder: Path, *arguments: Any) -> Any:
    """The worker of a batch, whose process is known by a file."""
    from reviser.batch.block_worker import make_worker

    (folder / str(os.getpid())).touch()
    return make_worker(*arguments)
