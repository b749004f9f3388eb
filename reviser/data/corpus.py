"""Documents to token shards: `prepare` reads files of text and writes a data folder.

    sources -> batches of new documents -> token ids (in workers) -> shards
               drop duplicates, hold out      in order

A document is dropped when its text was seen before, and held out when a hash of its text falls below the
held-out share: neither depends on order or on the number of workers. A pair of texts, before and after an edit, is a
document too; pairs with the same source and message are held out together. The process can be killed at any moment;
the same call resumes the folder, and every byte of it is the same either way.

    header = prepare(["corpus/"], "data/web", load("gpt2"), holdout=0.005, workers=8)
    header.splits["train"].num_tokens
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reviser.cluster import Actors
from reviser.config import from_dict
from reviser.data.shard_writer import FolderWriter, SplitLengths, is_own, is_part, remove_parts
from reviser.data.shards import (
    FORMAT,
    HEADER,
    SPLITS,
    VERSION,
    Header,
    Input,
    Settings,
    read_header,
    read_json,
    write_json,
)
from reviser.data.sources import Source, find_sources
from reviser.data.stream import Cursor, Ids, Seen, TextBatch, encode_in_order, encode_on_cluster, read_batches
from reviser.errors import ConfigError, DataError
from reviser.files import LOCK, hash_file, locked
from reviser.tokenizer import Tokenizer

BATCH_CHARACTERS = 1 << 20
SHARD_TOKENS = 1 << 25
CHECKPOINT_S = 10.0


@dataclass(frozen=True, slots=True)
class PrepareProgress:
    """What a report callback gets after each batch."""

    num_read: int
    num_to_read: int
    num_documents: int
    num_tokens: int
    num_bytes: int


Report = Callable[[PrepareProgress], None]


def prepare(
    paths: Iterable[str | Path],
    out: str | Path,
    tokenizer: Tokenizer,
    *,
    holdout: float = 0.005,
    pair_holdout: float = 0.02,
    workers: int = 1,
    field: str = "text",
    shard_tokens: int = SHARD_TOKENS,
    checkpoint_s: float = CHECKPOINT_S,
    batch_characters: int = BATCH_CHARACTERS,
    report: Report | None = None,
    ray: str | None = None,
) -> Header:
    """Make or resume the data folder `out`.

    `workers` and the last four arguments do not change what it holds. With `ray`, the address of a cluster, as many
    of its processes tokenize, and with 0 workers as many as it has cores.
    """
    for name, share in (("holdout", holdout), ("pair_holdout", pair_holdout)):
        if not 0 <= share < 1:
            raise ConfigError(f"{name} is {share}; it must be a share from 0 to below 1, such as 0.005 or 0.5%")
    if workers < (ray is None):
        raise ConfigError(f"workers is {workers}; it must be at least 1")
    folders, out = [Path(path) for path in paths], Path(out)
    for path in folders:
        if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
            raise DataError(f"{out}: lies inside {path}, one of the inputs; choose a folder outside it")
    sources = find_sources(folders)
    inputs = tuple(map(_describe_input, sources))
    settings = Settings(tokenizer.sha256, tokenizer.num_text, holdout, field, shard_tokens, pair_holdout)
    with _own(out):
        _check_begun(out, settings, inputs)
        if _is_complete(out):
            remove_parts(out)
            return read_header(out)
        with closing(_Job(out, sources, settings, inputs)) as job:
            tokenizer.save(out)
            encode = partial(_encode, tokenizer, workers, ray)
            job.run(encode, batch_characters, checkpoint_s, report or _say_nothing)
            return job.finish()


Encoded = Generator[tuple[TextBatch, Ids], None, None]


def _encode(tokenizer: Tokenizer, workers: int, ray: str | None, batches: Iterator[TextBatch]) -> Encoded:
    """Batches with their ids, made here or elsewhere."""
    if ray is None:
        return encode_in_order(tokenizer, batches, workers)
    return encode_on_cluster(tokenizer, batches, ray, Actors(workers))


def _say_nothing(progress: PrepareProgress) -> None:
    pass


def _describe_input(source: Source) -> Input:
    try:
        return Input(str(source.path), source.num_bytes, hash_file(source.path))
    except OSError as error:
        raise DataError(f"{source.path}: cannot be read ({error.strerror}); check the file") from error


@contextmanager
def _own(out: Path) -> Iterator[None]:
    """Make the folder and keep a second process off it; the lock ends with the process."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: is a file, but the output is a folder; choose another name")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with locked(out):
            yield
    except BlockingIOError as error:
        raise DataError(f"{out}: another process is preparing this folder; wait for it or choose another") from error
    except OSError as error:
        raise DataError(
            f"{out}: cannot be written ({error.strerror}); fix that and run the same command again"
        ) from error


def _is_complete(out: Path) -> bool:
    return (out / HEADER).exists() and bool(read_json(out).get("complete"))


_REMEDY = "repeat the first command exactly, choose another folder, or delete this one"


def _check_begun(out: Path, settings: Settings, inputs: tuple[Input, ...]) -> None:
    """Refuse a folder that was started with other settings or inputs, or is no data folder."""
    if not (out / HEADER).exists():
        # A process killed at its first step leaves its lock and a part of a file.
        if any(path.name != LOCK and not is_part(path) for path in out.iterdir()):
            raise DataError(f"{out}: not empty and not a data folder; choose another folder")
        return
    begun = read_json(out)
    try:
        before_settings = dict(begun["settings"])
        before_all = [each["sha256"] for each in begun["inputs"]]
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{out / HEADER}: damaged, no settings and inputs in it; delete the folder") from None
    for name, now in dataclasses.asdict(settings).items():
        # Folders of version 0.1 know no pairs.
        before = before_settings.get(name, now if name == "pair_holdout" else None)
        if before != now:
            raise DataError(f"{out}: started with {name} {before}, now {now}; {_REMEDY}")
    if len(inputs) != len(before_all):
        raise DataError(f"{out}: started with {len(before_all)} files, now {len(inputs)}; {_REMEDY}")
    for now_input, sha256 in zip(inputs, before_all, strict=True):
        if now_input.sha256 != sha256:
            raise DataError(f"{out}: {now_input.path} has changed since this folder was started; {_REMEDY}")


@dataclass
class _Progress:
    """Where an unfinished folder stands, as its data.json says it."""

    cursor: Cursor = field(default_factory=Cursor)
    num_tokenless: int = 0
    splits: dict[str, SplitLengths] = field(default_factory=dict)


def _read_progress(out: Path) -> _Progress:
    try:
        progress = from_dict(_Progress, read_json(out).get("progress") or {})
        counts = [progress.cursor.source, progress.cursor.record, progress.cursor.num_hashes]
        for each in progress.splits.values():
            counts += [count for documents, tokens in each.shards for count in (documents, tokens)]
        if not 0 <= min(counts) <= max(counts) < 1 << 62 or not all(each.shards for each in progress.splits.values()):
            raise ValueError("counts out of range, or no shard")
    except (ConfigError, ValueError, TypeError) as error:
        raise DataError(f"{out / HEADER}: damaged ({error}); delete the folder and prepare it again") from None
    return progress


class _Job:
    """One unfinished folder, from its last checkpoint on."""

    def __init__(self, out: Path, sources: list[Source], settings: Settings, inputs: tuple[Input, ...]) -> None:
        self._out, self._sources, self._settings, self._inputs = out, sources, settings, inputs
        progress = _read_progress(out) if (out / HEADER).exists() else _Progress()
        self._cursor, self._num_tokenless = progress.cursor, progress.num_tokenless
        self._lengths = {name: progress.splits.get(name, SplitLengths()) for name in SPLITS}
        self._save_state(self._state())
        self._writer = FolderWriter(out, settings, self._lengths, self._cursor.num_hashes)

    def close(self) -> None:
        self._writer.close()

    def _state(self) -> dict[str, Any]:
        splits = {name: each.as_json() for name, each in self._lengths.items()}
        return {"cursor": self._cursor.as_json(), "num_tokenless": self._num_tokenless, "splits": splits}

    def _save_state(self, state: dict[str, Any]) -> None:
        first = {"format": FORMAT, "version": VERSION, "complete": False}
        inputs = [dataclasses.asdict(each) for each in self._inputs]
        settings = dataclasses.asdict(self._settings)
        write_json(self._out, first | {"settings": settings, "inputs": inputs, "progress": state})

    def run(
        self,
        encode: Callable[[Iterator[TextBatch]], Encoded],
        batch_characters: int,
        checkpoint_s: float,
        report: Report,
    ) -> None:
        seen = Seen(self._writer.read_hashes())
        ahead = Cursor.from_json(self._cursor.as_json())
        field, holdouts = self._settings.field, (self._settings.holdout, self._settings.pair_holdout)
        batches = read_batches(self._sources, field, holdouts, ahead, seen, batch_characters)
        state, saved_at = self._state(), time.monotonic()
        try:
            with closing(encode(batches)) as encoded:
                for batch, ids in encoded:
                    self._write(batch, ids)
                    state = self._state()
                    if time.monotonic() - saved_at >= checkpoint_s:
                        self._checkpoint(state)
                        saved_at = time.monotonic()
                    report(self._progress(batch.num_read))
        except KeyboardInterrupt:
            self._checkpoint(state)
            raise
        self._checkpoint(state)

    def _checkpoint(self, state: dict[str, Any]) -> None:
        self._writer.sync()
        self._save_state(state)

    def _write(self, batch: TextBatch, ids: Ids) -> None:
        arrays = iter(ids)
        for each, is_heldout in zip(batch.texts, batch.is_heldout, strict=True):
            parts = [next(arrays)] if each.before is None else [next(arrays), next(arrays)]
            if all(map(len, parts)):
                split = self._writer.splits["heldout" if is_heldout else "train"]
                num_bytes, cut = len(each.identity) - len(parts) + 1, len(parts[0]) if len(parts) > 1 else 0
                split.add(np.concatenate(parts), num_bytes, cut)
            else:
                self._num_tokenless += 1
        self._writer.add_hashes(batch.hashes)
        self._cursor = batch.cursor

    def _progress(self, num_read: int) -> PrepareProgress:
        return PrepareProgress(
            num_read=num_read,
            num_to_read=sum(each.num_bytes for each in self._inputs),
            num_documents=sum(each.num_documents for each in self._lengths.values()),
            num_tokens=sum(each.num_tokens for each in self._lengths.values()),
            num_bytes=sum(each.num_bytes for each in self._lengths.values()),
        )

    def finish(self) -> Header:
        """Write what only a finished folder has; doing it twice gives the same."""
        complaints = self._cursor.complaints
        tokenless = {"no tokens": self._num_tokenless} if self._num_tokenless else {}
        if not any(each.num_documents for each in self._lengths.values()):
            self._remove()
            first = complaints.first[0] if complaints.first else "the tokenizer gives no token for any of them"
            raise DataError(f"no document in the input ({len(self._inputs)} files); {first}")
        header = Header(
            settings=self._settings,
            inputs=self._inputs,
            splits={name: self._writer.splits[name].finish() for name in SPLITS},
            num_bad=complaints.counts | tokenless,
            first_bad=tuple(complaints.first),
            num_duplicates=self._cursor.num_duplicates,
        )
        write_json(self._out, header.as_json())
        remove_parts(self._out)
        return header

    def _remove(self) -> None:
        for path in filter(is_own, list(self._out.iterdir())):
            path.unlink()
        with suppress(OSError):  # something else lies there
            self._out.rmdir()
