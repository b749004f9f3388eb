"""Kernels compiled by numba, and kept in its cache on the disk with a checksum of each file.

numba believes whatever its cache holds: a file that a full disk cut short ends in a traceback, and one with a flipped
bit runs as machine code. Here a damaged file counts as one that is not there, so its kernel is compiled and kept
again. Where nothing can be kept, kernels are compiled each time.

>>> @jit()
... def double(value):
...     return 2 * value
>>> double(3)
6
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching

Function = TypeVar("Function", bound=Callable[..., Any])
DIGEST_BYTES = hashlib.sha256().digest_size
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""Of all kernels: other threads run beside them, and a division by zero is no error."""


_CacheFile: Any = caching.IndexDataCacheFile  # untyped


class CheckedCache(_CacheFile):  # type: ignore[misc]
    """numba's index and code files of one function, each with a checksum in front of what it pickles."""

    def _dump(self, obj: Any) -> bytes:
        content: bytes = super()._dump(obj)
        return hashlib.sha256(content).digest() + content

    def _load_index(self) -> dict[Any, Any]:
        version = pickle.dumps(self._version, protocol=-1)
        try:
            content = _unseal(Path(self._index_path).read_bytes().removeprefix(version))
        except OSError:
            return {}
        stamp, overloads = pickle.loads(content)
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_unseal(Path(self._data_path(name)).read_bytes()))

    def save(self, key: Any, data: Any) -> None:
        try:
            super().save(key, data)
        except OSError:  # a full or read-only disk: the kernel is there, and only the next process compiles it again
            return


def _unseal(sealed: bytes) -> bytes:
    digest, content = sealed[:DIGEST_BYTES], sealed[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise OSError("damaged")  # numba takes that for a file that is not there
    return content


def jit(**options: Any) -> Callable[[Function], Function]:
    """A decorator that compiles a function when it is first called; `options` are numba's."""

    def decorate(function: Function) -> Function:
        kernel: Any = numba.njit(**OPTIONS | options)(function)
        with contextlib.suppress(RuntimeError):  # no place to keep it can be written to
            kernel.enable_caching()
            kernel._cache._cache_file = _check(kernel._cache._cache_file)
        return cast(Function, kernel)

    return decorate


def _check(kept: Any) -> Any:
    return CheckedCache(kept._cache_path, kept._index_name.removesuffix(".nbi"), kept._source_stamp)
