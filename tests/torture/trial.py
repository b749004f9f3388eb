"""A trial and its tally: `@trial` names a function that tries something so many times and counts what went well."""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MOST_NAMED = 20
"""Failures that a tally keeps in full."""
HANG_S = 240
"""A command that takes longer hangs: on an idle machine none of them takes a tenth of that."""


def hang_s() -> float:
    """The same on a machine that has other things to do."""
    return HANG_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@dataclass
class Tally:
    """How often something was tried, and what went wrong."""

    tried: int = 0
    named: int = 0
    """Times that an error was told in one line; the others had no effect, or went well."""
    failures: list[str] = field(default_factory=list)
    num_failed: int = 0
    notes: dict[str, float] = field(default_factory=dict)
    """Other numbers worth keeping, by name."""

    def add(self, problem: str | None, is_named: bool = False) -> None:
        self.tried += 1
        self.named += is_named
        if problem is not None:
            self.num_failed += 1
            if len(self.failures) < MOST_NAMED:
                self.failures.append(problem)

    def merge(self, other: Tally) -> None:
        """Count what another has counted."""
        self.tried += other.tried
        self.named += other.named
        self.num_failed += other.num_failed
        self.failures = (self.failures + other.failures)[:MOST_NAMED]


@dataclass(frozen=True)
class Trial:
    """What is tried: `run(count, chance, place)` in an empty folder, with all its luck from one seed."""

    area: str
    name: str
    what: str
    full: int
    short: int
    run: Callable[[int, random.Random, Path], Tally]


TRIALS: list[Trial] = []


class Patience:
    """How long a trial may take that can be ended early."""

    seconds = math.inf
    _began = 0.0

    @classmethod
    def begin(cls) -> None:
        cls._began = time.monotonic()

    @classmethod
    def is_over(cls, share: float = 1.0) -> bool:
        """Whether that share of the time has passed."""
        return time.monotonic() - cls._began > share * cls.seconds


def trial(area: str, name: str, what: str, full: int, short: int = 1) -> Callable[[Any], Any]:
    """A decorator that registers a trial; `full` and `short` are how often each form tries it."""

    def add(run: Callable[[int, random.Random, Path], Tally]) -> Any:
        TRIALS.append(Trial(area, name, what, full, short, run))
        return run

    return add


@dataclass(frozen=True)
class Done:
    """A command that ended, or was ended."""

    words: tuple[str, ...]
    code: int | None
    """None where it hung."""
    out: str
    err: str

    @property
    def problem(self) -> str | None:
        """What is wrong with how it ended, whatever it said: nothing for 0, and for 1, 2 and 130 with one line."""
        shown = " ".join(self.words[:6])
        if self.code is None:
            return f"{shown}: hangs"
        if "Traceback" in self.err:
            return f"{shown}: a traceback: {self.err.strip().splitlines()[-1]}"
        if self.code not in (0, 1, 2, 130):
            return f"{shown}: ends with {self.code}: {self.err.strip()[-200:]}"
        errors = [line for line in self.err.splitlines() if line.startswith("error: ")]
        if self.code == 2 and len(errors) != 1:
            return f"{shown}: exit 2 with {len(errors)} lines of error: {self.err.strip()[-200:]}"
        return None

    @property
    def is_named(self) -> bool:
        return self.code == 2 and self.problem is None


def environment(**changes: str | None) -> dict[str, str]:
    """This process's, on one core, with some variables changed or left out."""
    base = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    return {name: value for name, value in (base | changes).items() if value is not None}


def reviser(*words: object) -> list[str]:
    """The words of a command."""
    return [sys.executable, "-m", "reviser", *map(str, words)]


def start(words: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, **options: Any) -> Any:
    """A process in a group of its own, so that it can be killed with all that it started."""
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options
    return subprocess.Popen(words, cwd=cwd, env=env or environment(), start_new_session=True, **given)


def kill(process: Any) -> bool:
    """SIGKILL for the whole group; whether it was still running."""
    was_running = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return was_running


def run(
    words: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, limit_s: float | None = None,
    **options: Any,
) -> Done:  # fmt: skip
    """A command to its end."""
    with start(words, cwd, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            out, err = process.communicate(timeout=limit_s or hang_s())
            code = process.returncode
        except subprocess.TimeoutExpired:
            kill(process)
            out, err, code = b"", b"", None
    short = [word for word in words if word not in (sys.executable, "-m")]
    return Done(tuple(short), code, *(each.decode("utf-8", "replace") for each in (out or b"", err or b"")))


LEFTOVER = re.compile(r"\.(part|new|old|tmp)$|\.tmp\.")


def files_of(folder: Path, leave: Iterable[str] = (".lock",)) -> dict[str, bytes]:
    """The files in a folder by name, with what they hold."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.name not in set(leave)}


def find_leftovers(folder: Path) -> list[str]:
    """Names that only something unfinished has."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if LEFTOVER.search(path.name)]
