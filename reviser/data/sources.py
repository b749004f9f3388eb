"""Files and folders of text to a stream of documents, with what is wrong in them counted and named.

    .txt .md          one document, or several parted by lines that say <|endoftext|>
    .jsonl .json      one JSON object per line, its text in one field
    .parquet .arrow   one document per row; also the files of a dataset folder saved to disk

All but the last row may be packed as .gz, .xz or .zst. A folder is read recursively, in sorted order.

>>> from pathlib import Path; from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     _ = Path(folder, "a.jsonl").write_text('{"text": "Hello."}\\n{"title": "no text"}\\n')
...     bad = Complaints()
...     [document.text for document in read_documents([folder], complaints=bad)], bad.counts
(['Hello.'], {"no field 'text'": 1})
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple

from reviser.errors import DataError, MissingPackageError

KIND_OF_SUFFIX = {
    ".txt": "text",
    ".md": "text",
    ".jsonl": "lines",
    ".json": "lines",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
PACKINGS = (".gz", ".xz", ".zst")
SEPARATOR = b"<|endoftext|>"
NAMED_COMPLAINTS = 5
ROWS_AT_ONCE = 1000

# A dataset folder saved to disk describes itself in these, beside its .arrow files.
NOT_DOCUMENTS = frozenset({"dataset_info.json", "dataset_dict.json", "state.json"})


class Document(NamedTuple):
    text: str
    file: str
    line: int
    """The line its record stands on, or the row, from 1."""


class Record(NamedTuple):
    """One line, row or text of a source: a document's text, or what is wrong with it, or neither (blank)."""

    line: int
    text: str | None
    problem: str | None
    num_read: int
    """How many bytes of the file, packed as it is, have been read."""


@dataclass(frozen=True, slots=True)
class Source:
    path: Path
    kind: str
    packing: str

    @property
    def num_bytes(self) -> int:
        return self.path.stat().st_size


@dataclass(slots=True)
class Complaints:
    """How often each thing was wrong, and the first few in full."""

    counts: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def add(self, path: Path, line: int, problem: str) -> None:
        self.counts[problem] = self.counts.get(problem, 0) + 1
        if len(self.first) < NAMED_COMPLAINTS:
            self.first.append(f"{path}:{line}: {problem}")


def find_sources(paths: Iterable[str | Path]) -> list[Source]:
    """The files to read, in order; each path is a file of a known kind or a folder that holds some."""
    found = [source for path in paths for source in _find(Path(path))]
    if not found:
        raise DataError("no files to read; name files or folders")
    return found


def _find(path: Path) -> list[Source]:
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file() and not _is_hidden(file, path))
        sources = [source for source in map(_source, inside) if source and source.path.name not in NOT_DOCUMENTS]
        if not sources:
            raise DataError(f"{path}: the folder holds no file of text; kinds are {' '.join(KIND_OF_SUFFIX)}")
        return sources
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    source = _source(path)
    if source is None:
        kinds = f"{' '.join(KIND_OF_SUFFIX)}, the first four also with {' '.join(PACKINGS)}"
        raise DataError(f"{path}: not a kind of file that can be read; kinds are {kinds}")
    return [source]


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _source(path: Path) -> Source | None:
    packing = path.suffix if path.suffix in PACKINGS else ""
    kind = KIND_OF_SUFFIX.get(path.with_suffix("").suffix if packing else path.suffix)
    if kind is None or (packing and kind in ("parquet", "arrow")):
        return None
    return Source(path, kind, packing)


def read_documents(
    paths: Iterable[str | Path], field: str = "text", complaints: Complaints | None = None
) -> Iterator[Document]:
    """Every document of the files and folders, one at a time."""
    complaints = Complaints() if complaints is None else complaints
    for source in find_sources(paths):
        for record in read_records(source, field):
            if record.problem is not None:
                complaints.add(source.path, record.line, record.problem)
            elif record.text is not None:
                yield Document(record.text, str(source.path), record.line)


def read_records(source: Source, field: str, skip: int = 0) -> Iterator[Record]:
    """The records of one file, without the first `skip`, which are read over."""
    read = {"text": _read_text, "lines": _read_lines, "parquet": _read_parquet, "arrow": _read_arrow}[source.kind]
    try:
        yield from itertools.islice(read(source, field), skip, None)
    except (EOFError, OSError, zlib.error, lzma.LZMAError, _DamageError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise DataError(f"{source.path}: cannot be read to its end ({reason}); get the file again") from error


class _DamageError(Exception):
    """A packed or columnar file that another library could not read."""


def _read_text(source: Source, field: str) -> Iterator[Record]:
    with open(source.path, "rb") as packed:
        lines: list[bytes] = []
        start = 1
        for number, line in enumerate(_unpack(packed, source), start=1):
            if line.strip() == SEPARATOR:
                yield _text_record(start, lines, packed.tell())
                lines, start = [], number + 1
            else:
                lines.append(line)
        yield _text_record(start, lines, packed.tell())


def _text_record(start: int, lines: list[bytes], num_read: int) -> Record:
    if not any(line.strip() for line in lines):
        return Record(start, None, None, num_read)
    try:
        text = b"".join(lines).decode("utf-8-sig" if start == 1 else "utf-8")
    except UnicodeDecodeError as error:
        return Record(start + error.object[: error.start].count(b"\n"), None, "not UTF-8", num_read)
    return Record(start, text.removesuffix("\n").removesuffix("\r"), None, num_read)


def _read_lines(source: Source, field: str) -> Iterator[Record]:
    with open(source.path, "rb") as packed:
        for number, line in enumerate(_unpack(packed, source), start=1):
            yield _line_record(number, line, field, packed.tell())


def _line_record(number: int, line: bytes, field: str, num_read: int) -> Record:
    if not line.strip():
        return Record(number, None, None, num_read)
    try:
        value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        return Record(number, None, "not UTF-8", num_read)
    except (ValueError, RecursionError):
        return Record(number, None, "not JSON", num_read)
    if not isinstance(value, dict) or field not in value:
        return Record(number, None, f"no field {field!r}", num_read)
    return _value_record(number, value[field], field, num_read)


def _value_record(number: int, value: Any, field: str, num_read: int) -> Record:
    problem = None
    if not isinstance(value, str):
        problem = f"field {field!r} is {'null' if value is None else type(value).__name__}, not text"
    elif not value.strip():
        problem = "empty"
    elif not _is_unicode(value):
        problem = "a lone surrogate, which is not valid Unicode"
    return Record(number, None if problem else value, problem, num_read)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unpack(packed: IO[bytes], source: Source) -> IO[bytes]:
    if source.packing == ".gz":
        return gzip.open(packed)
    if source.packing == ".xz":
        return lzma.open(packed)
    return io.BufferedReader(_Zstd(packed), 1 << 20) if source.packing == ".zst" else packed


class _Zstd(io.RawIOBase):
    """Unpacks .zst; unlike the package's own stream it notices when the file is cut short."""

    def __init__(self, packed: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingPackageError("zstandard", "reading .zst files", "pip install zstandard") from error
        self._packed, self._library = packed, zstandard
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._is_inside = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = (self._frame.unused_data if self._frame.eof else b"") or self._packed.read(1 << 18)
            if not data:
                if self._is_inside:
                    raise EOFError("the file ends inside a frame")
                return 0
            self._ready = memoryview(self._feed(data))
        num = min(len(buffer), len(self._ready))
        buffer[:num], self._ready = self._ready[:num], self._ready[num:]
        return num

    def _feed(self, data: bytes) -> bytes:
        if self._frame.eof:
            self._frame = self._library.ZstdDecompressor().decompressobj()
        try:
            out = self._frame.decompress(data)
        except self._library.ZstdError as error:
            raise _DamageError(str(error)) from error
        self._is_inside = not self._frame.eof
        return out


def _import_pyarrow(*modules: str) -> list[ModuleType]:
    import importlib

    try:
        return [importlib.import_module(module) for module in ("pyarrow", *modules)]
    except ImportError as error:
        raise MissingPackageError("pyarrow", "reading .parquet and .arrow files", "pip install pyarrow") from error


def _read_parquet(source: Source, field: str) -> Iterator[Record]:
    pyarrow, parquet = _import_pyarrow("pyarrow.parquet")
    try:
        with parquet.ParquetFile(source.path) as table:
            _check_column(source, field, table.schema_arrow.names)
            batches = table.iter_batches(batch_size=ROWS_AT_ONCE, columns=[field])
            yield from _rows(source, field, batches, table.metadata.num_rows)
    except pyarrow.ArrowException as error:
        raise _DamageError(str(error)) from error


def _read_arrow(source: Source, field: str) -> Iterator[Record]:
    pyarrow, ipc = _import_pyarrow("pyarrow.ipc")
    try:
        with pyarrow.memory_map(os.fspath(source.path)) as mapped:
            is_file = mapped.read(6) == b"ARROW1"
            mapped.seek(0)
            reader = ipc.open_file(mapped) if is_file else ipc.open_stream(mapped)
            _check_column(source, field, reader.schema.names)
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            columns = (batch.select([field]) for batch in batches)
            yield from _rows(source, field, columns, None)
    except pyarrow.ArrowException as error:
        raise _DamageError(str(error)) from error


def _check_column(source: Source, field: str, names: list[str]) -> None:
    if field not in names:
        raise DataError(f"{source.path}: no column {field!r}; its columns are {', '.join(names)}")


def _rows(source: Source, field: str, batches: Iterable[Any], num_rows: int | None) -> Iterator[Record]:
    ...
