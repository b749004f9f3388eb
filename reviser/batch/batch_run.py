"""A whole batch: blocks of a file in order to a model, its answers to the output; resumed where it stopped.

>>> run_batch(BatchConfig("score"), "texts.jsonl", "scores.jsonl")  # doctest: +SKIP
BatchResult(out='scores.jsonl', num_lines=120000, num_failed=3, failures='scores.failures.jsonl')
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from reviser import __version__
from reviser.batch.answer_tables import check_tables
from reviser.batch.batch_config import BatchConfig, ModelSpec
from reviser.batch.block_worker import BlockWorker, DoneBlock, identify_model, make_worker
from reviser.batch.input_lines import InputFile, LineBlock, check_kind, read_blocks
from reviser.batch.part_files import BatchState, OutputFile, PartFiles
from reviser.cluster import Actors, connected
from reviser.errors import DataError

AHEAD = 2
"""Blocks that are begun at a time, so that the rows of the model stay busy."""
Work = Callable[[LineBlock], DoneBlock]
DoBlocks = Callable[[Iterable[LineBlock]], Iterator[DoneBlock]]
"""What makes blocks done, in order."""


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What a report callback gets after each block."""

    num_lines: int
    num_failed: int
    share: float
    """Of the input, from 0 to 1."""
    lines_per_s: float
    left_s: float | None
    """Seconds left, at the speed so far."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a finished batch has made."""

    out: str
    num_lines: int
    """Answered or failed."""
    num_failed: int
    failures: str | None
    """The file of the lines that failed, where there are any."""


Report = Callable[[BatchProgress], None]


def run_batch(
    config: BatchConfig,
    source: str,
    out: str,
    spec: ModelSpec | None = None,
    *,
    ray: str | None = None,
    actors: Actors | None = None,
    report: Report | None = None,
) -> BatchResult:
    """Do a job for every line of `source`, into `out`; the same call resumes one that was killed.

    With `ray`, the address of a cluster, its processes work; they change nothing about what comes out.
    """
    spec = spec or ModelSpec()
    file, output = InputFile.of(source), OutputFile(out)
    check_kind(source, file.endings)
    if output.is_table:
        check_tables()
    model = identify_model(spec.model)
    settings = {
        "reviser": __version__,
        "config": config.as_json(),
        "model": model | {"device": spec.device.partition(":")[0], "weights": spec.weights},
        "input": file.identify(),
        "kind": "table" if output.is_table else "lines",
    }
    make = partial(make_worker, spec, config, model)
    with ExitStack() as held:
        do: DoBlocks
        if ray is None:
            do = partial(_do_here, make)
        else:
            cluster = held.enter_context(connected(ray))
            wanted = actors or Actors(num_gpus=int(spec.device.startswith("cuda")))
            do = partial(cluster.map_in_order, make, wanted=wanted)
        return write_batch(config, source, output, settings, do, report)


def write_batch(
    config: BatchConfig,
    source: str,
    output: OutputFile,
    settings: dict[str, Any],
    do: DoBlocks,
    report: Report | None = None,
) -> BatchResult:
    """`run_batch` with something else that does the blocks."""
    parts = PartFiles(output, settings)
    with parts.opened():
        if not parts.state.is_complete:
            blocks = read_blocks(source, config.block_lines, skip=parts.state.num_blocks)
            tell = _Teller(parts.state, report)
            # Made when the first block is there: at the end of the input nothing is loaded.
            with closing(_begin(do, blocks)) as done:
                for block in done:
                    parts.add(block)
                    tell(parts.state)
            if not parts.state.num_lines:
                parts.discard()
                raise DataError(f"{source}: no line in it; give a file of JSON lines or a table with rows")
        state = parts.state
        parts.finish(config.job)
    failures = output.failures if state.num_failed else None
    return BatchResult(output.name, state.num_lines, state.num_failed, failures)


def _begin(do: DoBlocks, blocks: Iterator[LineBlock]) -> Generator[DoneBlock, None, None]:
    first = next(blocks, None)
    if first is not None:
        yield from do(_chain(first, blocks))


def _chain(first: LineBlock, rest: Iterator[LineBlock]) -> Iterator[LineBlock]:
    yield first
    yield from rest


def _do_here(make: Callable[[], BlockWorker], blocks: Iterable[LineBlock]) -> Iterator[DoneBlock]:
    """In this process, a few blocks at a time."""
    with closing(make()) as worker, _pool() as pool:
        waiting: deque[Future[DoneBlock]] = deque()
        try:
            for block in blocks:
                waiting.append(pool.submit(worker, block))
                if len(waiting) >= AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            worker.close()
            raise


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="reviser-block")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Teller:
    """Tells how far a batch is, and how long it will take at the speed since this process began."""

    def __init__(self, state: BatchState, report: Report | None) -> None:
        self._report, self._begin_s = report, time.monotonic()
        self._first_lines, self._first_share = state.num_lines, state.share

    def __call__(self, state: BatchState) -> None:
        if self._report is None:
            return
        seconds = max(time.monotonic() - self._begin_s, 1e-9)
        gone = state.share - self._first_share
        left_s = seconds * (1 - state.share) / gone if gone > 0 else None
        lines_per_s = (state.num_lines - self._first_lines) / seconds
        self._report(BatchProgress(state.num_lines, state.num_failed, state.share, lines_per_s, left_s))
