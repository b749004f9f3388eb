"""One process at a time: a lock on a file or folder, which the system ends with the process however it dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock; a BlockingIOError where another process holds it. A file is made where none is.

    Windows and some file systems have no such locks: there nothing is held.
    """
    if sys.platform == "win32":
        yield
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # ENOLCK, ENOSYS or ENOTSUP, by the file system
        yield
    finally:
        os.close(handle)
