"""Compressed and columnar files to plain streams: .gz, .xz and .zst to bytes, .parquet and .arrow to values.

A file that is damaged or cut short raises EOFError, OSError or the format's own error; it never just ends early.

>>> import gzip, io
>>> unpack(io.BytesIO(gzip.compress(b"text")), ".gz").read()
b'text'
"""

from __future__ import annotations

import gzip
import importlib
import io
import lzma
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from reviser.errors import DataError, MissingPackageError

PACKINGS = (".gz", ".xz", ".zst")
ROWS_AT_ONCE = 1000
PACKED_AT_ONCE = 1 << 11
"""Bytes that are unpacked at once; of a .zst file four of them can become 128 KiB."""
MOST_MEMORY = 1 << 28
"""Bytes that unpacking an .xz file may take: `xz -9` asks for 65 MiB, and a hostile file for 4 GiB."""


def unpack(packed: IO[bytes], packing: str) -> IO[bytes]:
    """What a compressed file holds; the file itself where `packing` is empty."""
    if packing == ".gz":
        return cast(IO[bytes], gzip.open(packed))
    if packing == ".xz":
        return _stream(packed, partial(lzma.LZMADecompressor, memlimit=MOST_MEMORY), lzma.LZMAError)
    if packing == ".zst":
        library = _import("zstandard", "reading .zst files")
        return _stream(packed, lambda: library.ZstdDecompressor().decompressobj(), library.ZstdError)
    return packed


def _stream(packed: IO[bytes], begin: Callable[[], Any], failure: type[Exception]) -> IO[bytes]:
    return io.BufferedReader(_Frames(packed, begin, failure), 1 << 20)


class _Frames(io.RawIOBase):
    """A file of compressed frames, unpacked bit by bit; one that is cut short is noticed."""

    def __init__(self, packed: IO[bytes], begin: Callable[[], Any], failure: type[Exception]) -> None:
        self._packed, self._begin, self._failure = packed, begin, failure
        self._frame = begin()
        self._is_inside = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = (self._frame.unused_data if self._frame.eof else b"") or self._packed.read(PACKED_AT_ONCE)
            if not data and self._is_inside:
                raise EOFError("it ends inside a frame")
            if not data:
                return 0
            self._ready = memoryview(self._feed(data))
        num = min(len(buffer), len(self._ready))
        buffer[:num], self._ready = self._ready[:num], self._ready[num:]
        return num

    def _feed(self, data: bytes) -> bytes:
        if self._frame.eof:
            self._frame = self._begin()
            data = data.lstrip(b"\0")  # which may stand between the frames of an .xz file
        try:
            out: bytes = self._frame.decompress(data)
        except self._failure as error:
            if "Memory usage limit" in str(error):
                raise DataError(
                    f"{getattr(self._packed, 'name', 'the file')}: unpacking it takes more than "
                    f"{MOST_MEMORY >> 20} MiB of memory; pack it with a smaller dictionary, as xz -9 does"
                ) from None
            raise OSError(str(error)) from error
        self._is_inside = not self._frame.eof and (self._is_inside or bool(data))
        return out


def read_column(path: Path, name: str) -> Iterator[tuple[Any, int]]:
    """Each value of one column of a .parquet or .arrow file, with about how many bytes have been read."""
    pyarrow = _import("pyarrow", "reading .parquet and .arrow files")
    read = _read_parquet if path.suffix == ".parquet" else _read_arrow
    try:
        for batch, num_read in read(path, name):
            for value in batch.column(name).to_pylist():
                yield value, num_read
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from error


def _read_parquet(path: Path, name: str) -> Iterator[tuple[Any, int]]:
    parquet = importlib.import_module("pyarrow.parquet")
    num_bytes, num_done = path.stat().st_size, 0
    with parquet.ParquetFile(path) as table:
        _check_column(path, name, table.schema_arrow.names)
        for batch in table.iter_batches(batch_size=ROWS_AT_ONCE, columns=[name]):
            num_done += batch.num_rows
            yield batch, num_bytes * num_done // table.metadata.num_rows


def _read_arrow(path: Path, name: str) -> Iterator[tuple[Any, int]]:
    pyarrow, ipc = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.ipc")
    with pyarrow.memory_map(os.fspath(path)) as mapped:
        is_stream = mapped.read(6) != b"ARROW1"
        mapped.seek(0)
        reader = ipc.open_stream(mapped) if is_stream else ipc.open_file(mapped)
        _check_column(path, name, reader.schema.names)
        if is_stream:
            yield from ((batch, mapped.tell()) for batch in reader)
        else:
            num, num_bytes = reader.num_record_batches, mapped.size()
            yield from ((reader.get_batch(i), num_bytes * (i + 1) // num) for i in range(num))


def _check_column(path: Path, name: str, names: list[str]) -> None:
    if name not in names:
        raise DataError(f"{path}: no column {name!r}; its columns are {', '.join(names)}")


def _import(package: str, needed_for: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackageError(package, needed_for, f"pip install {package}") from error
