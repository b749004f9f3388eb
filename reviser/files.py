"""Files written whole or not at all, hashed, and locked: the one place that knows how.

A file appears under its name only when all of it is on the disk; until then it is called `.NAME.PID.part`. A link is
written through to what it points at, a device or pipe is written to as it is, and an existing file keeps its
permissions.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     write_text(Path(folder, "new", "note.txt"), "Hi\\n")
...     sorted(path.name for path in Path(folder, "new").iterdir())
['note.txt']
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import stat
import struct
import time
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

try:
    import fcntl
except ImportError:  # Windows: what a killed process left stays
    fcntl = None  # type: ignore[assignment]

AnyPath = str | os.PathLike[str]
LOCK = ".lock"
"""The file in a folder that is locked."""
CHECKSUM = "checksum"
"""The field of a JSON object that says what all others are: 16 digits of a sha256."""

BAD_ARRAYS = (
    ValueError, KeyError, EOFError, TypeError, AttributeError, RuntimeError, OverflowError, struct.error, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip
"""What numpy and zipfile raise at a damaged .npz file, besides OSError."""


@contextmanager
def replacing(path: AnyPath) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends well; folders on the way are made."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file() and not target.is_dir():
        with target.open("wb") as file:
            yield file
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target, ".part")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            _claim(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.is_file():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def drop_half_line(path: AnyPath) -> None:
    """Cut off a last line that has no end, as a run leaves one that was killed while it wrote."""
    if not Path(path).exists():
        return
    whole = Path(path).read_bytes()
    end = whole.rfind(b"\n") + 1
    if end < len(whole):
        with Path(path).open("rb+") as file:
            file.truncate(end)


def remove_leftovers(target: Path, suffix: str) -> None:
    """Remove what killed processes left beside a file or folder that they were to replace: `.NAME.PID` and a suffix.

    Who writes holds a lock on it, which the system ends with the process.
    """
    for path in target.parent.glob(f".{glob.escape(target.name)}.*{suffix}"):
        if path.name[len(target.name) + 2 : -len(suffix)].isdigit():
            with suppress(OSError):
                handle = os.open(path, os.O_RDONLY)
                try:
                    _claim(handle)
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                finally:
                    os.close(handle)


def _claim(handle: int) -> None:
    """Lock a file or folder that is being written; OSError where another process has."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Mark a folder as being written, so that nobody takes it for a killed process's."""
    handle = os.open(folder, os.O_RDONLY) if fcntl is not None else None
    try:
        if handle is not None:
            _claim(handle)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def write_text(path: AnyPath, text: str, errors: str = "strict") -> None:
    """Write a text file in UTF-8."""
    data = text.encode("utf-8", errors)
    with replacing(path) as file:
        file.write(data)


def write_json(path: AnyPath, value: Any, indent: int = 1) -> None:
    """Write one JSON document, with a newline behind it."""
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False) + "\n", "backslashreplace")


def stamp(record: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a checksum of all that is in it.

    >>> is_intact(stamp({"text": "Hi"})), is_intact(stamp({"text": "Hi"}) | {"text": "Ho"}), is_intact({"text": "Hi"})
    (True, False, True)
    """
    return {**record, CHECKSUM: _checksum(record)}


def is_intact(record: Mapping[str, Any]) -> bool:
    """Whether a JSON object is as it was when it was stamped; one that never was has nothing to compare."""
    return CHECKSUM not in record or record[CHECKSUM] == _checksum(record)


def _checksum(record: Mapping[str, Any]) -> str:
    content = {name: value for name, value in record.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def hash_file(path: AnyPath) -> str:
    """The sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: AnyPath) -> Iterator[None]:
    """Keep other processes that lock the same file or folder out; BlockingIOError where one of them is in.

    The system ends the lock with the process, however it dies.
    """
    target = Path(path)
    lock = FileLock(target / LOCK if target.is_dir() else target.with_name(f".{target.name}.lock"))
    try:
        with warnings.catch_warnings():
            # Where the file system has no locks, filelock says so and uses a file that names the process instead.
            warnings.simplefilter("ignore")
            lock.acquire(timeout=0)
    except Timeout:
        raise BlockingIOError(f"{target} is locked by another process") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def in_turn(path: AnyPath, patience: float) -> Iterator[None]:
    """Wait while another process is in such a block with the same file, at most so many seconds; the file is made.

    Who has waited in vain goes on all the same, and so does everyone where nothing can be locked.
    """
    handle, end = None, time.monotonic() + patience
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        while _is_claimed(handle) and time.monotonic() < end:
            time.sleep(0.02)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _is_claimed(handle: int) -> bool:
    """Whether another process has locked a file; if not, it is locked now."""
    try:
        _claim(handle)
    except BlockingIOError:
        return True
    return False
