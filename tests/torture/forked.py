"""Real processes that start in milliseconds: forked from one that has imported everything and has done nothing else.

Python, torch and numba take seconds to import, and a trial starts hundreds of processes. A forked one is as real: it
has its own memory, files and locks, and dies of SIGKILL like any other.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["torture.preloaded"])


@dataclass(frozen=True)
class Ways:
    """What is scarce for a process."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """Resource limits by name, such as RLIMIT_NOFILE; RLIMIT_AS counts beyond what the process has already."""
    out: str = os.devnull
    """Where its standard output goes."""
    cwd: str | None = None
    clock_s: float = 0.0
    """How far the clock jumps each time it is looked at."""
    user: int | None = None
    """Whom it runs as."""


def _work(words: Sequence[str], env: Mapping[str, str], err: str, ways: Ways) -> None:
    """What the new process does: a command, with its errors in a file."""
    os.setsid()
    for name in set(os.environ) - set(env):
        del os.environ[name]
    os.environ.update(env)
    for number, name in ((0, os.devnull), (1, ways.out), (2, err)):
        os.dup2(os.open(name, os.O_WRONLY if number == 2 else os.O_RDWR | os.O_CREAT), number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, "r" if number == 0 else "w", encoding="ascii" if env.get("LC_ALL") == "C" else "utf-8")  # noqa: SIM115
        for number in range(3)
    )
    sys.argv = ["reviser", *words]
    _restrict(ways)
    # multiprocessing would wait for what the command has started, and print the tracebacks of its errors its own way.
    code = 1
    try:
        from reviser.cli import main

        code = prepare_often(*words[1:]) if words[0] == "prepare-often" else main(list(words))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _restrict(ways: Ways) -> None:
    if ways.cwd is not None:
        os.chdir(ways.cwd)
    if "RLIMIT_FSIZE" in ways.limits:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write fails like one to a full disk
    for name, value in ways.limits.items():
        used = _address_space() if name == "RLIMIT_AS" else 0
        resource.setrlimit(getattr(resource, name), (used + value, used + value))
    if ways.clock_s:
        start, calls = time.time(), itertools.count()
        time.time = lambda: start - ways.clock_s * next(calls)
    if ways.user is not None:
        os.setgroups([])
        os.setgid(ways.user)
        os.setuid(ways.user)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def prepare_often(source: str, out: str, workers: str) -> int:
    """As `reviser data prepare`, which keeps what it has every ten seconds; here after every batch."""
    import reviser.cli
    from reviser.data import corpus

    corpus.CHECKPOINT_S, corpus.BATCH_CHARACTERS = 0.0, 3000
    corpus.prepare.__kwdefaults__ |= {"checkpoint_s": 0.0, "batch_characters": 3000, "shard_tokens": 20000}
    words = ["data", "prepare", source, out, "--tokenizer", "bytes", "--holdout", "0.1", "--workers", workers]
    return reviser.cli.main(words)


class Forked:
    """A command in one process, or in several that work together."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str], num_processes: int = 1, ways: Ways | None = None
    ) -> None:
        words, self._ways = [str(word) for word in words], ways or Ways()
        self.words = tuple(words)
        self._folder = tempfile.TemporaryDirectory(prefix="torture-err-")
        # Pipes, so that a limit on the size of files does not count for what is said about it.
        self._errors = [Path(self._folder.name, str(rank)) for rank in range(num_processes)]
        for path in self._errors:
            os.mkfifo(path, 0o666)
        Path(self._folder.name).chmod(0o755)
        self._readers = [os.open(path, os.O_RDONLY | os.O_NONBLOCK) for path in self._errors]
        self._said = b""
        environments = [dict(env)] if num_processes == 1 else _ranks(env, num_processes)
        self._processes = [
            CONTEXT.Process(target=_work, args=(words, each, str(err), self._ways))
            for each, err in zip(environments, self._errors, strict=True)
        ]
        for process in self._processes:
            process.start()

    def kill(self) -> bool:
        """SIGKILL for each with all that it started; whether any was still running."""
        was_running = any(process.is_alive() for process in self._processes)
        for process in self._processes:
            for send in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    send(process.pid, signal.SIGKILL)
        self._end()
        return was_running

    def _end(self) -> None:
        for process in self._processes:
            process.join()
        self._read()
        for reader in self._readers:
            os.close(reader)
        self._folder.cleanup()

    def _read(self) -> None:
        for reader in self._readers:
            with contextlib.suppress(BlockingIOError):
                while data := os.read(reader, 1 << 16):
                    self._said += data

    def finish(self, limit_s: float) -> Any:
        """Wait for the end; a `Done`."""
        from torture.trial import Done

        until = time.monotonic() + limit_s
        while any(process.is_alive() for process in self._processes) and time.monotonic() < until:
            self._processes[0].join(0.05)
            self._read()
        if is_hanging := any(process.is_alive() for process in self._processes):
            self.kill()
        else:
            self._end()
        codes = [process.exitcode for process in self._processes]
        worst = None if is_hanging else max(codes, key=lambda code: abs(code or 0))
        return Done(self.words, worst, "", self._said.decode("utf-8", "replace"))


def _ranks(env: Mapping[str, str], count: int) -> list[dict[str, str]]:
    """What torchrun tells each process."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return [dict(env) | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
