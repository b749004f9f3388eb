"""The files of a data folder while it is being made: append, checkpoint, cut back to a checkpoint, finish.

Batches of token ids go in; the files that `shards` reads come out. Files are only ever appended to, so a checkpoint
is a list of lengths: what a killed process wrote beyond them is cut off, and the same bytes follow.

    train-00000.bin          tokens; the next shard begins once this one holds `shard_tokens`
    train.documents.part     uint32, tokens and text bytes of each document, until `finish`
    train.cuts.part          uint32, how many of its tokens are the text before an edit, until `finish`
    hashes.part              uint64 of each document seen, until `finish`
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from reviser.data.shards import HEADER, SPLITS, Settings, Shard, Split
from reviser.errors import DataError
from reviser.files import LOCK, hash_file, replacing
from reviser.tokenizer import FILE

SIZES = np.dtype([("tokens", "<u4"), ("bytes", "<u4")])


@dataclass(slots=True)
class SplitLengths:
    """How much of a split is written: documents and tokens per shard, the last one still growing."""

    num_bytes: int = 0
    shards: list[list[int]] = field(default_factory=lambda: [[0, 0]])

    @property
    def num_documents(self) -> int:
        return sum(documents for documents, _ in self.shards)

    @property
    def num_tokens(self) -> int:
        return sum(tokens for _, tokens in self.shards)

    def as_json(self) -> dict[str, Any]:
        return {"num_bytes": self.num_bytes, "shards": [list(shard) for shard in self.shards]}


def shard_name(split: str, number: int) -> str:
    return f"{split}-{number:05d}.bin"


def open_at(path: Path, length: int) -> IO[bytes]:
    """A file to append to, cut back to `length` bytes."""
    found = path.stat().st_size if path.exists() else 0
    if found < length:
        raise DataError(f"{path}: {found} bytes, but {length} were written; delete the folder and start over")
    file = open(path, "ab")  # noqa: SIM115, the writer closes it
    file.truncate(length)
    return file


def sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def save_array(path: Path, array: npt.NDArray[Any]) -> str:
    """Write an .npy file, whole or not at all; its sha256."""
    with replacing(path) as file:
        np.save(file, array)
    return hash_file(path)


_SPLITS = "|".join(SPLITS)
_PART = re.compile(rf"hashes\.part|(?:{_SPLITS})\.(?:documents|cuts)\.part|\.[\w.-]+\.\d+\.part")
_WHOLE = re.compile(rf"{HEADER}|{FILE}|(?:{_SPLITS})(?:-\d+\.bin|\.(?:offsets|bytes|cuts)\.npy)")


def is_part(path: Path) -> bool:
    """Whether a file is one that only an unfinished folder has, or that a killed process left."""
    return bool(_PART.fullmatch(path.name))


def is_own(path: Path) -> bool:
    """Whether a file in a data folder is one that `prepare` writes."""
    return path.name == LOCK or is_part(path) or bool(_WHOLE.fullmatch(path.name))


def remove_parts(folder: Path) -> None:
    """Remove what only an unfinished folder needs."""
    for path in filter(is_part, list(folder.iterdir())):
        path.unlink()


class SplitWriter:
    """Appends the documents of one split."""

    def __init__(self, folder: Path, split: str, settings: Settings, lengths: SplitLengths) -> None:
        self._folder, self._split, self._shard_tokens = folder, split, settings.shard_tokens
        self._dtype = np.dtype(settings.dtype).newbyteorder("<")
        self.lengths = lengths
        for path in folder.glob(f"{split}-*.bin"):
            if is_own(path) and int(path.stem.rpartition("-")[2]) >= len(lengths.shards):
                path.unlink()
        self._documents = open_at(self._documents_path, lengths.num_documents * SIZES.itemsize)
        self._cuts = open_at(self._cuts_path, lengths.num_documents * 4)
        self._tokens = self._open_shard()

    @property
    def _documents_path(self) -> Path:
        return self._folder / f"{self._split}.documents.part"

    @property
    def _cuts_path(self) -> Path:
        return self._folder / f"{self._split}.cuts.part"

    def _open_shard(self) -> IO[bytes]:
        number = len(self.lengths.shards) - 1
        path = self._folder / shard_name(self._split, number)
        return open_at(path, self.lengths.shards[number][1] * self._dtype.itemsize)

    def add(self, tokens: npt.NDArray[Any], num_bytes: int, cut: int = 0) -> None:
        """Append a document; of a pair, the first `cut` tokens are the text before the edit."""
        if self.lengths.shards[-1][1] >= self._shard_tokens:
            sync(self._tokens)
            self._tokens.close()
            self.lengths.shards.append([0, 0])
            self._tokens = self._open_shard()
        self._tokens.write(tokens.astype(self._dtype, copy=False).tobytes())
        self._documents.write(np.array((len(tokens), num_bytes), SIZES).tobytes())
        self._cuts.write(np.array(cut, "<u4").tobytes())
        self.lengths.num_bytes += num_bytes
        self.lengths.shards[-1][0] += 1
        self.lengths.shards[-1][1] += len(tokens)

    def sync(self) -> None:
        sync(self._tokens)
        sync(self._documents)
        sync(self._cuts)

    def close(self) -> None:
        self._tokens.close()
        self._documents.close()
        self._cuts.close()

    def finish(self) -> Split:
        """Write the index and the totals; doing it twice gives the same."""
        self.sync()
        numbers = range(len(self.lengths.shards) if self.lengths.num_documents else 0)
        if not numbers:
            (self._folder / shard_name(self._split, 0)).unlink()
        sizes, cuts = np.fromfile(self._documents_path, SIZES), np.fromfile(self._cuts_path, "<u4")
        # In place, for there may be a billion documents.
        offsets = np.zeros(len(sizes) + 1, np.uint64)
        np.cumsum(sizes["tokens"], dtype=np.uint64, out=offsets[1:])
        num_pairs = int((cuts > 0).sum())
        return Split(
            num_documents=self.lengths.num_documents,
            num_tokens=self.lengths.num_tokens,
            num_bytes=self.lengths.num_bytes,
            shards=tuple(self._finish_shard(number) for number in numbers),
            offsets_sha256=save_array(self._folder / f"{self._split}.offsets.npy", offsets),
            bytes_sha256=save_array(self._folder / f"{self._split}.bytes.npy", sizes["bytes"]),
            num_pairs=num_pairs,
            cuts_sha256=save_array(self._folder / f"{self._split}.cuts.npy", cuts) if num_pairs else "",
        )

    def _finish_shard(self, number: int) -> Shard:
        name = shard_name(self._split, number)
        num_documents, num_tokens = self.lengths.shards[number]
        return Shard(name, num_documents, num_tokens, hash_file(self._folder / name))


class FolderWriter:
    """Appends to all splits, and the hashes of what was seen, in step."""

    def __init__(self, folder: Path, settings: Settings, lengths: dict[str, SplitLengths], num_hashes: int) -> None:
        self._hashes_path = folder / "hashes.part"
        self._hashes = open_at(self._hashes_path, num_hashes * 8)
        self.splits = {name: SplitWriter(folder, name, settings, lengths[name]) for name in SPLITS}

    def read_hashes(self) -> npt.NDArray[np.uint64]:
        return np.fromfile(self._hashes_path, "<u8").astype(np.uint64, copy=False)

    def add_hashes(self, hashes: npt.NDArray[np.uint64]) -> None:
        self._hashes.write(hashes.astype("<u8", copy=False).tobytes())

    def sync(self) -> None:
        sync(self._hashes)
        for split in self.splits.values():
            split.sync()

    def close(self) -> None:
        self._hashes.close()
        for split in self.splits.values():
            split.close()
