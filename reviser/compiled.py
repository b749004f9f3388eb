"""Kernels compiled by numba, and kept in its cache on the disk with a checksum of each file.

numba believes whatever its cache holds: a file that a full disk cut short ends in a traceback, and one with a flipped
bit runs as machine code. Here a damaged file counts as one that is not there, so its kernel is compiled and kept
again. Where nothing can be kept, kernels are compiled each time.

numba also looks at a kernel's own file alone, although the code that it keeps holds what the kernel calls and the
constants that it reads, wherever they stand. Here a kernel that was kept is used only if all of that is unchanged.

And numba lets all processes that need a kernel at the same time compile it. They may then choose one name for what
they keep, and one of them find the other's code under its own types. Here they take turns: one compiles, the others
read, and the name of what is kept follows from its types.

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
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import caching, extending
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

from reviser import files

Function = TypeVar("Function", bound=Callable[..., Any])
DIGEST_BYTES = hashlib.sha256().digest_size
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""Of all kernels: other threads run beside them, and a division by zero is no error."""
PATIENCE = 120.0
"""Seconds to wait for a kernel that another process is compiling; then it is compiled here too."""


_CacheFile: Any = caching.IndexDataCacheFile  # untyped
_Intrinsic: Any = extending._Intrinsic


class CheckedCache(_CacheFile):  # type: ignore[misc]
    """numba's index and code files of one function, each with a checksum in front of what it pickles."""

    def __init__(self, kept: Any, function: Callable[..., Any]) -> None:
        super().__init__(kept._cache_path, kept._index_name.removesuffix(".nbi"), kept._source_stamp)
        self._function = function

    @cached_property
    def _stamp(self) -> bytes:
        return stamp_of(self._function)

    def _save_index(self, overloads: Any) -> None:
        self._source_stamp = self._stamp
        super()._save_index(overloads)

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
        return overloads if stamp == self._stamp else {}

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_unseal(Path(self._data_path(name)).read_bytes()))

    def save(self, key: Any, data: Any) -> None:
        name = self._data_name(int(hashlib.sha256(repr(key).encode()).hexdigest()[:15], 16))
        with contextlib.suppress(OSError):
            # On a full or read-only disk the kernel is there all the same; the next process compiles it again.
            self._save_data(name, data)
            self._save_index(self._load_index() | {key: name})


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
            kernel._cache._cache_file = CheckedCache(kernel._cache._cache_file, function)
            _take_turns(kernel)
        return cast(Function, kernel)

    return decorate


def _take_turns(kernel: Any) -> None:
    """Let one process compile a kernel while others wait for what it keeps.

    The kernels that it calls are compiled meanwhile, each in a turn of its own. None of them calls it back, so no two
    processes wait for each other.
    """
    cache, load, compile_now = kernel._cache, kernel._cache.load_overload, kernel.compile
    path = f"{cache._cache_file._index_path}.lock"
    turns: list[contextlib.ExitStack] = []

    def load_or_wait(signature: Any, target: Any) -> Any:
        found = load(signature, target)
        if found is None and len(turns) == 1:  # more where a kernel calls itself
            turns[0].enter_context(files.in_turn(path, PATIENCE))
            found = load(signature, target)
        return found

    def compile_in_turn(signature: Any) -> Any:
        with global_compiler_lock, contextlib.ExitStack() as turn:
            turns.append(turn)
            try:
                return compile_now(signature)
            finally:
                turns.pop()

    cache.load_overload, kernel.compile = load_or_wait, compile_in_turn


def stamp_of(function: Callable[..., Any]) -> bytes:
    """A hash of all that a kernel's code is made of: its file, the files of kernels that it calls, and the constants
    that any of them reads."""
    digest, waiting, seen = hashlib.sha256(), [function], set[Callable[..., Any]]()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        digest.update(_hash_source(each.__code__.co_filename))
        for name, value in _read_by(each):
            if isinstance(value, Dispatcher):
                waiting.append(value.py_func)
            elif isinstance(value, _Intrinsic):
                digest.update(_hash_source(value._defn.__code__.co_filename))
            elif isinstance(value, np.ndarray):
                digest.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
            elif isinstance(value, bool | int | float | str | bytes | tuple | np.generic):
                digest.update(f"{name} {value!r}".encode())
    return digest.digest()


def _read_by(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The names outside of a function that it reads, those of modules too, and what they stand for."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, ModuleType):
            yield from ((each, vars(value)[each]) for each in sorted(names & vars(value).keys()))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it is empty
            yield name, cell.cell_contents


@cache
def _hash_source(path: str) -> bytes:
    try:
        return hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError:  # no file, but typed in or read from an archive
        return path.encode()
