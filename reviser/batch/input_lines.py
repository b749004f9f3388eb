"""A file to blocks of numbered lines: JSON lines, also compressed, or the rows of a Parquet file.

The file is a local path or a URL that fsspec opens (s3://, gs://, hf://, https://, memory://, ...). It is read as it
is needed, and never held in memory. A line that cannot be read becomes one with a problem; blank lines count, and are
left out.

>>> import tempfile, pathlib
>>> with tempfile.TemporaryDirectory() as folder:
...     path = pathlib.Path(folder, "in.jsonl")
...     _ = path.write_text('{"text": "One."}\\n\\n{"text": \\n')
...     [(line.number, line.value, line.problem) for line in next(read_blocks(str(path), 10)).lines]
[(1, {'text': 'One.'}, None), (3, None, 'not JSON')]
"""

from __future__ import annotations

import importlib
import itertools
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

from reviser.data.sources import LONGEST_LINE
from reviser.data.unpack import PACKINGS, unpack
from reviser.errors import DataError, MissingPackageError

LINES, TABLE = (".jsonl", ".json", ".ndjson"), ".parquet"
ROWS_AT_ONCE = 1000


class Line(NamedTuple):
    """One line, or row, of the input: its fields, or what is wrong with it."""

    number: int
    """From 1."""
    value: dict[str, Any] | None
    problem: str | None
    text: str
    """As it stands in the input; of a row, its JSON."""


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Lines that follow each other, and how far the file has been read behind them."""

    number: int
    lines: tuple[Line, ...]
    num_lines: int
    """With blank ones."""
    share: float
    """Of the file, from 0 to 1."""


class InputFile(NamedTuple):
    """A file wherever it lies: the file system of fsspec and the path there."""

    name: str
    system: Any
    path: str

    @classmethod
    def of(cls, name: str) -> InputFile:
        system, path = find_file_system(name)
        try:
            is_file = system.isfile(path)
        except Exception as error:  # each file system has errors of its own
            raise DataError(f"{name}: cannot be read ({_first_line(error)}); check the path and access") from None
        if not is_file:
            raise DataError(f"{name}: no such file; give a file of JSON lines or a Parquet file")
        return cls(name, system, path)

    @property
    def endings(self) -> tuple[str, str]:
        """Its kind, and how it is compressed."""
        pure = PurePosixPath(self.path.lower())
        packing = pure.suffix if pure.suffix in PACKINGS else ""
        return (pure.with_suffix("") if packing else pure).suffix, packing

    @property
    def num_bytes(self) -> int:
        return int(self.system.size(self.path) or 0)

    def identify(self) -> dict[str, Any]:
        """What tells it from another file: its size, and its sha256 or, elsewhere, what its system knows it by."""
        is_local = self.system.protocol in ("file", "local") or "file" in self.system.protocol
        if is_local:
            from reviser.files import hash_file

            return {"num_bytes": self.num_bytes, "sha256": hash_file(self.path)}
        try:
            key = str(self.system.ukey(self.path))
        except Exception:  # not every file system has one
            key = ""
        return {"num_bytes": self.num_bytes, "key": key}


def find_file_system(name: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path there."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(name)
    except (ImportError, ValueError) as error:
        raise DataError(f"{name}: cannot be opened ({_first_line(error)}); fsspec must know such addresses") from None
    return system, str(path)


def check_kind(name: str, endings: tuple[str, str]) -> None:
    kind, packing = endings
    if kind not in (*LINES, TABLE) or (kind == TABLE and packing):
        raise DataError(
            f"{name}: this kind of file cannot be read; give {' '.join(LINES)} (also {' '.join(PACKINGS)}) or {TABLE}"
        )


def read_blocks(name: str, block_lines: int, skip: int = 0) -> Iterator[LineBlock]:
    """The file in blocks of as many lines, behind the first `skip` blocks."""
    file = InputFile.of(name)
    check_kind(name, file.endings)
    read = _read_rows if file.endings[0] == TABLE else _read_lines
    first = skip * block_lines
    try:
        for number, batch in enumerate(_batches(read(file, first), block_lines), skip):
            lines = tuple(line for line, _ in batch if line is not None)
            yield LineBlock(number, lines, len(batch), batch[-1][1])
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: cannot be read to its end ({_first_line(error)}); get the file again") from error


Read = tuple[Line | None, float]
"""A line, None where it is blank, and the share of the file that has been read."""


def _batches(lines: Iterator[Read], count: int) -> Iterator[list[Read]]:
    while batch := list(itertools.islice(lines, count)):
        yield batch


def _read_lines(file: InputFile, skip: int) -> Iterator[Read]:
    num_bytes = max(file.num_bytes, 1)
    with file.system.open(file.path, "rb") as packed:
        opened = unpack(packed, file.endings[1])
        for number in itertools.count(1):
            line, is_whole = _next_line(opened)
            if not line:
                return
            if number > skip:
                yield _parse(number, line, is_whole), min(packed.tell() / num_bytes, 1.0)


def _next_line(file: IO[bytes]) -> tuple[bytes, bool]:
    """A line, or the beginning of one that is too long."""
    line = file.readline(LONGEST_LINE)
    if len(line) < LONGEST_LINE or line.endswith(b"\n"):
        return line, True
    rest = line
    while rest and not rest.endswith(b"\n"):
        rest = file.readline(1 << 20)
    return line[:1000], False


def _parse(number: int, line: bytes, is_whole: bool) -> Line | None:
    if not line.strip():
        return None
    text = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r\n")
    if not is_whole:
        return Line(number, None, f"a line of more than {LONGEST_LINE >> 20} MiB", text)
    try:
        value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        return Line(number, None, "not UTF-8", text)
    except (ValueError, RecursionError):
        return Line(number, None, "not JSON", text)
    if not isinstance(value, dict):
        return Line(number, None, "not a JSON object", text)
    return Line(number, value, None, text)


def _read_rows(file: InputFile, skip: int) -> Iterator[Read]:
    try:
        pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise MissingPackageError("pyarrow", "a Parquet file", "pip install 'reviser[train]'") from None
    with file.system.open(file.path, "rb") as opened:
        try:
            table = parquet.ParquetFile(opened)
            total, number = table.metadata.num_rows, 0
            for batch in table.iter_batches(batch_size=ROWS_AT_ONCE):
                if number + batch.num_rows <= skip:
                    number += batch.num_rows
                    continue
                for row in batch.to_pylist():
                    number += 1
                    if number > skip:
                        yield _parse_row(number, row), number / total
        except pyarrow.ArrowException as error:
            raise OSError(str(error)) from error


def _parse_row(number: int, row: dict[str, Any]) -> Line:
    # A column that a row has nothing in is a field that it lacks.
    value = {name: field for name, field in row.items() if field is not None}
    return Line(number, value, None, json.dumps(value, ensure_ascii=False, default=str))


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).split("\n")[0].rstrip(".")
