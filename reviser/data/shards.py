"""The data folder: documents as token ids, memory-mapped, read by number.

    data.json             counts, checksums, settings, sources; `complete` once all is written
    tokenizer.json        what made the ids
    train-00000.bin ...   token ids of whole documents end to end, uint16 or uint32, little-endian
    train.offsets.npy     uint64: where each document begins in the split, and the end of the last
    train.bytes.npy       uint32: how many bytes of UTF-8 each document's text has
    train.cuts.npy        uint32, where there are pairs: how many of a document's tokens are the text before an edit
    heldout...            the same for the documents held out

    document 0         1      2             offsets [0, 4, 6, 11], shards of 6 and 5 tokens:
    [t t t t][t t] | [t t t t t]            a document never crosses from one shard into the next
    train-00000.bin  train-00001.bin

A pair of texts, before and after an edit, is one document: first the ids of the one, then those of the other.

`Shards.open(folder, "train")[2]` is the third document's ids, a view into the file.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser import compiled, files
from reviser.config import from_dict
from reviser.errors import ConfigError, DataError, TokenizerError
from reviser.files import hash_file
from reviser.tokenizer import Tokenizer, load

FORMAT, VERSION = "reviser data", 1
HEADER = "data.json"
SPLITS = ("train", "heldout")
SHARD_NAME = re.compile(r"[a-z]+-\d{5,}\.bin")

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Input:
    """One file that went in."""

    path: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Shard:
    file: str
    num_documents: int
    num_tokens: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Split:
    num_documents: int
    num_tokens: int
    num_bytes: int
    shards: tuple[Shard, ...]
    offsets_sha256: str
    bytes_sha256: str
    num_pairs: int = 0
    cuts_sha256: str = ""
    """Empty where there are no pairs."""

    def as_json(self) -> dict[str, Any]:
        """Without what only a split with pairs has, where it has none: such splits are as they were before pairs."""
        parts = dataclasses.asdict(self)
        return parts if self.num_pairs else {k: v for k, v in parts.items() if k not in ("num_pairs", "cuts_sha256")}


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides, with the inputs, every byte of a data folder."""

    tokenizer_sha256: str
    num_text: int
    holdout: float
    field: str
    shard_tokens: int
    pair_holdout: float = 0.02
    """As `holdout`, of the pairs."""

    @property
    def dtype(self) -> str:
        return "uint16" if self.num_text <= 1 << 16 else "uint32"


@dataclass(frozen=True, slots=True)
class Header:
    """data.json of a complete folder."""

    settings: Settings
    inputs: tuple[Input, ...]
    splits: dict[str, Split]
    num_bad: dict[str, int]
    first_bad: tuple[str, ...]
    num_duplicates: int

    @property
    def sha256(self) -> str:
        """Equal for folders with the same documents in the same order and splits, wherever they lie."""
        splits = {name: split.as_json() for name, split in self.splits.items()}
        text = json.dumps([self.settings.tokenizer_sha256, splits], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        first = {"format": FORMAT, "version": VERSION, "complete": True, "dtype": self.settings.dtype}
        return first | dataclasses.asdict(self) | {"splits": {k: split.as_json() for k, split in self.splits.items()}}


def read_json(folder: Path) -> dict[str, Any]:
    """data.json as it stands, complete or not, of this format and version."""
    path = folder / HEADER
    if not path.is_file():
        raise DataError(f"{folder}: not a data folder: it has no {HEADER}; make one with: reviser data prepare")
    try:
        parts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged ({error}); prepare the folder again") from error
    if not isinstance(parts, dict) or parts.get("format") != FORMAT:
        raise DataError(f"{path}: not the header of a data folder; make one with: reviser data prepare")
    if parts.get("version") != VERSION:
        found = parts.get("version")
        raise DataError(f"{path}: version {found}, but this program reads version {VERSION}; prepare it again")
    if not files.is_intact(parts):
        raise DataError(f"{path}: damaged, its checksum is not that of what it says; prepare the folder again")
    return parts


def read_header(folder: str | Path) -> Header:
    """The header of a complete data folder."""
    folder = Path(folder)
    parts = read_json(folder)
    if not parts.get("complete"):
        raise DataError(f"{folder}: preparation has not finished; run the same reviser data prepare command again")
    names = {each.name for each in dataclasses.fields(Header)}
    try:
        header = from_dict(Header, {name: value for name, value in parts.items() if name in names})
        _check_splits(header.splits)
    except ConfigError as error:
        raise DataError(f"{folder / HEADER}: damaged ({error}); prepare the folder again") from error
    return header


def _check_splits(splits: dict[str, Split]) -> None:
    if lacking := [name for name in SPLITS if name not in splits]:
        raise ConfigError(f"splits.{lacking[0]} is missing")
    for name, split in splits.items():
        parts: list[Split | Shard] = [split, *split.shards]
        for part in parts:
            if min(part.num_documents, part.num_tokens) < 0:
                raise ConfigError(f"splits.{name} has counts below 0")
        if other := [shard.file for shard in split.shards if not SHARD_NAME.fullmatch(shard.file)]:
            raise ConfigError(f"splits.{name} names the file {other[0]!r}, which is no shard of this folder")


def write_json(folder: Path, parts: dict[str, Any]) -> None:
    """Replace data.json, whole or not at all."""
    files.write_json(folder / HEADER, files.stamp(parts))


@compiled.jit()
def copy_stretches(
    tokens: npt.NDArray[Any], places: npt.NDArray[Any], sizes: npt.NDArray[Any], to: npt.NDArray[Any],
    out: npt.NDArray[np.int32],
) -> None:  # fmt: skip
    """out[to[i]:] = tokens[places[i]:] for sizes[i] tokens, for each i."""
    for i in range(len(places)):
        for k in range(sizes[i]):
            out[to[i] + k] = tokens[places[i] + k]


class Shards:
    """The documents of one split, by number."""

    def __init__(self, folder: str | Path, split: str = "train") -> None:
        self.folder, self.split = Path(folder), split
        if split not in SPLITS:
            raise DataError(f"no split {split!r}; splits are {', '.join(SPLITS)}")
        self.header = read_header(folder)
        self._counts = self.header.splits[split]
        if not self._counts.num_documents:
            raise DataError(
                f"{self.folder}: no document in split {split}; prepare more text or choose another --holdout"
            )
        self.offsets: npt.NDArray[np.uint64] = self._load(f"{split}.offsets.npy")
        self.byte_counts: npt.NDArray[np.uint32] = self._load(f"{split}.bytes.npy")
        none = np.zeros(len(self.byte_counts), np.uint32)
        self.cuts: npt.NDArray[np.uint32] = self._load(f"{split}.cuts.npy") if self._counts.num_pairs else none
        """Of a pair, how many of its tokens are the text before the edit; 0 for other documents."""
        self._tokens = [self._map(shard) for shard in self._counts.shards]
        self._first = np.cumsum([0, *(shard.num_documents for shard in self._counts.shards)])
        self._check_index()

    @classmethod
    def open(cls, folder: str | Path, split: str = "train") -> Shards:
        return cls(folder, split)

    def __reduce__(self) -> tuple[type[Shards], tuple[Path, str]]:
        # Another process maps the files again instead of receiving a copy of them.
        return Shards, (self.folder, self.split)

    def _load(self, name: str) -> npt.NDArray[Any]:
        path = self.folder / name
        try:
            array: npt.NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
        except Exception as error:  # a damaged header of an .npy file raises almost anything
            raise DataError(f"{path}: missing or damaged ({error}); prepare the folder again") from error
        wanted = self._counts.num_documents + name.endswith(".offsets.npy")
        if array.shape != (wanted,):
            raise DataError(f"{path}: holds {array.size} numbers, not {wanted}; prepare the folder again")
        kind = np.dtype(np.uint64 if name.endswith(".offsets.npy") else np.uint32)
        if array.dtype != kind:
            raise DataError(f"{path}: holds {array.dtype} numbers, not {kind}; prepare the folder again")
        return array

    def _check_index(self) -> None:
        """Refuse an index that leads outside the shards: what copies tokens trusts it, whatever checksums say."""
        path = self.folder / f"{self.split}.offsets.npy"
        if self._first[-1] != self._counts.num_documents:
            raise DataError(
                f"{self.folder / HEADER}: the shards of split {self.split} hold {self._first[-1]} documents, "
                f"the split {self._counts.num_documents}; prepare the folder again"
            )
        ends = np.cumsum([0, *(shard.num_tokens for shard in self._counts.shards)])
        if not np.array_equal(self.offsets[self._first].astype(np.int64), ends):
            raise DataError(f"{path}: the shards do not begin where it says; prepare the folder again")
        if (fallen := np.flatnonzero(self.offsets[1:] < self.offsets[:-1])).size:
            raise DataError(f"{path}: document {fallen[0]} ends before it begins; prepare the folder again")
        if self._counts.num_pairs and (self.cuts > self.offsets[1:] - self.offsets[:-1]).any():
            raise DataError(
                f"{self.folder / self.split}.cuts.npy: a text before an edit is longer than its document; "
                "prepare the folder again"
            )

    def _map(self, shard: Shard) -> Tokens:
        path, dtype = self.folder / shard.file, np.dtype(self.header.settings.dtype).newbyteorder("<")
        found, wanted = path.stat().st_size if path.is_file() else 0, shard.num_tokens * dtype.itemsize
        if found != wanted:
            raise DataError(f"{path}: {found} bytes, but {wanted} were written; prepare the folder again")
        return np.memmap(path, dtype, mode="r").view(np.ndarray)

    @property
    def plain(self) -> npt.NDArray[np.int64]:
        """The documents that are no pairs."""
        return np.flatnonzero(self.cuts == 0)

    def __len__(self) -> int:
        return self._counts.num_documents

    def __getitem__(self, document: int) -> Tokens:
        """The ids of one document, a read-only view into its shard."""
        if not 0 <= document < len(self):
            raise IndexError(f"document {document} of {len(self)}")
        shard = int(np.searchsorted(self._first, document, side="right")) - 1
        base, start, end = (int(self.offsets[i]) for i in (self._first[shard], document, document + 1))
        return self._tokens[shard][start - base : end - base]

    def gather(
        self, documents: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        """The tokens start..start+size of each document, end to end; quick, and other threads run meanwhile."""
        ends = np.cumsum(sizes)
        out = np.empty(int(ends[-1]) if len(ends) else 0, np.int32)
        shards = np.searchsorted(self._first, documents, side="right") - 1
        offsets = self.offsets.astype(np.int64, copy=False)
        for shard in np.unique(shards):
            chosen = shards == shard
            base = offsets[self._first[shard]]
            places = offsets[documents[chosen]] - base + starts[chosen]
            copy_stretches(self._tokens[shard], places, sizes[chosen], (ends - sizes)[chosen], out)
        return out

    @property
    def num_tokens(self) -> int:
        return self._counts.num_tokens

    @property
    def total_bytes(self) -> int:
        """Bytes of UTF-8 in all documents together."""
        return self._counts.num_bytes

    def num_bytes(self, document: int) -> int:
        """Bytes of UTF-8 in one document's text."""
        return int(self.byte_counts[document])

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many tokens each document has."""
        offsets = self.offsets.astype(np.int64)
        return offsets[1:] - offsets[:-1]

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        return self._load_tokenizer()

    def _load_tokenizer(self) -> Tokenizer:
        path = self.folder / "tokenizer.json"
        try:
            tokenizer = load(path)
        except TokenizerError as error:
            raise DataError(f"{error}; prepare the folder again") from error
        if tokenizer.sha256 != self.header.settings.tokenizer_sha256:
            raise DataError(f"{path}: not the tokenizer that made the ids; prepare the folder again")
        return tokenizer

    def verify(self) -> None:
        """Read everything and compare with the checksums; the first damaged file is an error."""
        wanted = {shard.file: shard.sha256 for shard in self._counts.shards}
        wanted[f"{self.split}.offsets.npy"] = self._counts.offsets_sha256
        wanted[f"{self.split}.bytes.npy"] = self._counts.bytes_sha256
        if self._counts.num_pairs:
            wanted[f"{self.split}.cuts.npy"] = self._counts.cuts_sha256
        for name, sha256 in wanted.items():
            if hash_file(self.folder / name) != sha256:
                raise DataError(
                    f"{self.folder / name}: damaged, its sha256 is not {sha256}; prepare the folder again"
                )
        for shard, tokens in zip(self._counts.shards, self._tokens, strict=True):
            if tokens.max() >= self.header.settings.num_text:
                raise DataError(
                    f"{self.folder / shard.file}: token {tokens.max()}, but the tokenizer has "
                    f"{self.header.settings.num_text}; prepare the folder again"
                )
        self._load_tokenizer()
