"""Sources to batches of new documents, and batches to token ids in any number of processes, in order.

A document whose text was seen before is dropped; one whose hash falls below the held-out share is held out.
Each batch carries the cursor behind it, from which reading can start again.

>>> Seen(np.array([3], np.uint64)).add(np.array([1, 3, 1], np.uint64)).tolist()
[True, False, False]
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, parent_process
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reviser.cluster import Actors, connected
from reviser.data.sources import Complaints, Record, Source, read_records
from reviser.errors import DataError
from reviser.tokenizer import Tokenizer

Ids = list[npt.NDArray[np.uint32]]


class SourceText(NamedTuple):
    """A document's text; of a pair, also the one before the edit, and what it is held out with."""

    text: str
    before: str | None = None
    group: str = ""

    @property
    def identity(self) -> bytes:
        return (self.text if self.before is None else f"{self.before}\0{self.text}").encode()


@dataclass(slots=True)
class Cursor:
    """How far the sources have been read, and what was found on the way."""

    source: int = 0
    record: int = 0
    num_duplicates: int = 0
    num_hashes: int = 0
    complaints: Complaints = field(default_factory=Complaints)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(parts: dict[str, Any]) -> Cursor:
        return Cursor(**parts | {"complaints": Complaints(**parts["complaints"])})


@dataclass(frozen=True, slots=True)
class TextBatch:
    """New documents, and where the sources stand behind them."""

    texts: list[SourceText]
    hashes: npt.NDArray[np.uint64]
    is_heldout: list[bool]
    cursor: Cursor
    num_read: int


class Seen:
    """The hashes of all documents so far, 8 bytes each, in sorted runs that are merged as they grow; 16 while the
    longest are merged.

    64 bits: among 100 million documents the chance that any one is dropped wrongly is about 1 in 4,000, among a
    billion 1 in 37.
    """

    def __init__(self, hashes: npt.NDArray[np.uint64]) -> None:
        self._runs = [np.sort(hashes)] if len(hashes) else []

    def add(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of them are new; of equal ones the first."""
        is_new = np.zeros(len(hashes), bool)
        is_new[np.unique(hashes, return_index=True)[1]] = True
        for run in self._runs:
            is_new &= run[np.minimum(np.searchsorted(run, hashes), len(run) - 1)] != hashes
        if is_new.any():
            self._runs.append(np.sort(hashes[is_new]))
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2]):
            merged = np.concatenate(self._runs[-2:])
            merged.sort()
            self._runs[-2:] = [merged]
        return is_new


def read_batches(
    sources: list[Source],
    field: str,
    holdouts: tuple[float, float],
    cursor: Cursor,
    seen: Seen,
    num_characters: int,
) -> Iterator[TextBatch]:
    """Everything behind `cursor`, in batches of about `num_characters`; the last may hold no document.

    `holdouts`: the share held out of documents, and of pairs.
    """
    texts: list[SourceText] = []
    num_pending, num_read = 0, 0
    for record, num_read in _read_from(sources, field, cursor):
        if record.problem is not None:
            cursor.complaints.add(sources[cursor.source].path, record.line, record.problem)
        elif record.text is not None:
            texts.append(SourceText(record.text, record.before, record.group))
            num_pending += len(record.text) + len(record.before or "")
        if num_pending >= num_characters:
            yield _new_documents(texts, holdouts, cursor, seen, num_read)
            texts, num_pending = [], 0
    yield _new_documents(texts, holdouts, cursor, seen, num_read)


def _read_from(sources: list[Source], field: str, cursor: Cursor) -> Iterator[tuple[Record, int]]:
    """Each record behind the cursor, which moves along, and the bytes read of all sources."""
    num_before = sum(source.num_bytes for source in sources[: cursor.source])
    while cursor.source < len(sources):
        source = sources[cursor.source]
        for record in read_records(source, field, skip=cursor.record):
            cursor.record += 1
            yield record, num_before + record.num_read
        num_before += source.num_bytes
        cursor.source, cursor.record = cursor.source + 1, 0


def _new_documents(
    texts: list[SourceText], holdouts: tuple[float, float], cursor: Cursor, seen: Seen, num_read: int
) -> TextBatch:
    digests = [hashlib.blake2b(each.identity, digest_size=16).digest() for each in texts]
    identity = np.frombuffer(b"".join(each[:8] for each in digests), "<u8").astype(np.uint64)
    is_new = seen.add(identity)
    cursor.num_duplicates += len(texts) - int(is_new.sum())
    cursor.num_hashes += int(is_new.sum())
    kept = [(text, digest) for text, digest, keep in zip(texts, digests, is_new, strict=True) if keep]
    is_heldout = [_is_heldout(text, digest, holdouts) for text, digest in kept]
    return TextBatch([text for text, _ in kept], identity[is_new], is_heldout, copy.deepcopy(cursor), num_read)


def _is_heldout(text: SourceText, digest: bytes, holdouts: tuple[float, float]) -> bool:
    """By lot: a document's own, or that of all pairs of its group."""
    if text.group:
        digest = hashlib.blake2b(text.group.encode(errors="replace"), digest_size=16).digest()
    share = holdouts[0] if text.before is None else holdouts[1]
    return int.from_bytes(digest[8:], "little") < int(share * 2**64)


def encode_in_order(
    tokenizer: Tokenizer, batches: Iterable[TextBatch], workers: int
) -> Generator[tuple[TextBatch, Ids], None, None]:
    """Each batch with the ids of its texts; with more than one worker, in that many processes."""
    if workers == 1:
        yield from ((batch, encode_texts(tokenizer, batch.texts)) for batch in batches)
        return
    # Spawned, not forked: `tokenizers` and a progress bar may run threads, which a fork would leave locked.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (tokenizer,))
    waiting: deque[tuple[TextBatch, Future[Ids]]] = deque()
    try:
        for batch in batches:
            waiting.append((batch, pool.submit(_encode, batch.texts)))
            if len(waiting) > 2 * workers:
                yield _next_result(waiting)
        while waiting:
            yield _next_result(waiting)
    except BrokenProcessPool as error:
        raise DataError(
            "a worker process died, perhaps for lack of memory; run it again with fewer --workers"
        ) from error
    except (KeyboardInterrupt, GeneratorExit):
        # Nobody needs what they do now, and while one waits for them a second Ctrl-C would come in between.
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _next_result(waiting: deque[tuple[TextBatch, Future[Ids]]]) -> tuple[TextBatch, Ids]:
    batch, future = waiting.popleft()
    return batch, future.result()


def encode_on_cluster(
    tokenizer: Tokenizer, batches: Iterator[TextBatch], address: str, wanted: Actors
) -> Generator[tuple[TextBatch, Ids], None, None]:
    """The same on the processes of a Ray cluster: only texts and ids travel, and no process sees a file."""
    sent: deque[TextBatch] = deque()

    def texts() -> Iterator[list[SourceText]]:
        for batch in batches:
            sent.append(batch)
            yield batch.texts

    with connected(address) as cluster:
        for ids in cluster.map_in_order(partial(_make_encoder, tokenizer), texts(), wanted):
            yield sent.popleft(), ids


def _make_encoder(tokenizer: Tokenizer) -> Callable[[list[SourceText]], Ids]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return partial(encode_texts, tokenizer)


_worker_tokenizer: list[Tokenizer] = []
"""Set once in each worker process."""


def _start_worker(tokenizer: Tokenizer) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker_tokenizer[:] = [tokenizer]


def _end_with_parent() -> None:
    # A killed parent cannot stop its workers, which would wait for work forever.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(texts: list[SourceText]) -> Ids:
    return encode_texts(_worker_tokenizer[0], texts)


def encode_texts(tokenizer: Tokenizer, texts: list[SourceText]) -> Ids:
    """The ids of each text; of a pair, two arrays one after the other: those before the edit, those after it."""
    flat = [part for each in texts for part in ((each.text,) if each.before is None else (each.before, each.text))]
    return tokenizer.encode_arrays(flat)
