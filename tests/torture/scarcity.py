"""Too little of something: every command says so in one line or does its work, and nothing whole is harmed."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from reviser.model.folder import checkpoint_steps
from torture.forked import Forked, Ways
from torture.trial import Done, Tally, environment, find_leftovers, hang_s, reviser, run, trial
from torture.world import world

NOBODY = 65534
ABORTED = re.compile(
    r"memory allocation of \d+ bytes failed|cannot allocate memory for thread-local data"
    r"|what\(\):  std::bad_alloc|LLVM ERROR: out of memory"
)
"""How packages in Rust, the C library, C++ and LLVM end a process that is out of memory; nobody can catch it."""


def commands(place: Path) -> dict[str, list[str]]:
    """Commands that write, each into a place of its own."""
    model, common = str(world().model), ["--seed", "1", "--max-actions", "8"]
    return {
        "prepare": ["prepare-often", str(world().corpus), str(place / "data"), "1"],
        "tokenizer": ["data", "tokenizer", str(world().corpus), "--size", "300", "--out", str(place / "tokenizer")],
        "train": world().train_words(place / "run"),
        "generate": [
            "generate",
            "The",
            "--model",
            model,
            *common,
            "--out",
            str(place / "t.jsonl"),
            "--html",
            str(place / "t.html"),
        ],
        "eval": world().eval_words(place / "made.jsonl", place / "result.json"),
        "pack": ["pack", model, str(place / "packed"), "--weights", "int8"],
        "report": ["report", str(world().result), "--html", str(place / "r.html"), "--markdown", str(place / "r.md")],
        "infill": ["infill", "The ___ sea.", "--model", model, *common, "--json"],
        "show": ["trajectory", "show", str(world().trajectories), "--tokenizer", "bytes"],
        "info": ["info", model],
    }


def check(tally: Tally, what: str, done: Done, place: Path) -> None:
    """Count how a command ended; what it leaves must be whole."""
    left = [name for name in find_leftovers(place) if not name.startswith(("data", "run"))]
    problem = done.problem or (f"left over: {', '.join(left)}" if left else None)
    tally.add(problem and f"{what}: {problem}", done.is_named)


def each_command(place: Path, names: str = "") -> Iterator[tuple[str, list[str], Path]]:
    for name in names.split() or commands(place):
        folder = place / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        folder.chmod(0o777)
        yield name, commands(folder)[name], folder


@trial("scarcity", "full disk", "no file may grow beyond a random size", 60, 3)
def full_disk(count: int, chance: random.Random, place: Path) -> Tally:
    """RLIMIT_FSIZE makes a write fail in its middle, as a full disk does; afterwards the same command succeeds."""
    tally = Tally()
    names = "prepare tokenizer train generate eval pack report"
    for number in range(count):
        name = chance.choice(names.split())
        for what, words, folder in each_command(place, name):
            ways = Ways({"RLIMIT_FSIZE": int(10 ** chance.uniform(0, 5))})
            done = Forked(words, environment(), ways=ways).finish(hang_s())
            check(tally, f"{what} {number}", done, folder)
            if done.code != 0:
                done = Forked(again(what, words, folder), environment()).finish(hang_s())
                problem = done.problem or done.err[-200:]
                tally.add(None if done.code == 0 else f"{what} {number} afterwards: {problem}")
    return tally


def again(what: str, words: list[str], folder: Path) -> list[str]:
    """What a user does once there is room: the same command, or what the error said."""
    if what == "train" and checkpoint_steps(folder / "run"):
        return ["train", "--resume", str(folder / "run")]
    for name in ("run", "packed"):
        shutil.rmtree(folder / name, ignore_errors=True)
    return words


@trial("scarcity", "full standard output", "/dev/full, a closed pipe, a slow reader", 1)
def standard_output(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for _ in range(count):
        for what, words, folder in each_command(place, "generate report infill show info"):
            words = [word for word in words if word not in ("--html", "--markdown", "--out") and "/t." not in word]
            words = [word for word in words if not word.endswith(("r.html", "r.md"))]
            check(
                tally,
                f"{what} > /dev/full",
                Forked(words, environment(), ways=Ways(out="/dev/full")).finish(hang_s()),
                folder,
            )
            done = run(["sh", "-c", f"{subprocess.list2cmdline(reviser(*words))} | head -c 1 >/dev/null"])
            is_bad = "Traceback" in done.err or "Exception" in done.err
            tally.add(f"{what} | head: {done.err[-200:]}" if is_bad else None)
            done = run(["sh", "-c", f"{subprocess.list2cmdline(reviser(*words))} >&-"])
            tally.add(done.problem and f"{what} >&-: {done.problem}", done.is_named)
            done = run(["sh", "-c", f"{subprocess.list2cmdline(reviser(*words))} 2>&-"])
            tally.add(done.problem and f"{what} 2>&-: {done.problem}", done.is_named)
            done = run(["sh", "-c", f"{subprocess.list2cmdline(reviser(*words))} | (sleep 1; cat >/dev/null)"])
            tally.add(done.problem and f"{what} | slow: {done.problem}")
    return tally


@trial("scarcity", "read-only places", "another user's folder as the output", 1)
def read_only(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    if os.getuid() != 0:
        return tally
    place.chmod(0o755)
    for path in (world().root, *world().root.rglob("*")):
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
    for _ in range(count):
        for what, words, folder in each_command(place):
            folder.chmod(0o555)
            done = Forked(words, environment(HOME="/nonexistent"), ways=Ways(user=NOBODY)).finish(hang_s())
            check(tally, f"{what} into a read-only folder", done, folder)
            is_writing = what not in ("infill", "show", "info")
            if is_writing and done.code == 0:
                tally.add(f"{what}: a folder that cannot be written to makes no difference")
    return tally


@trial("scarcity", "descriptors", "few open files", 30, 4)
def descriptors(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for _ in range(count):
        limit = chance.randint(5, 40)
        for what, words, folder in each_command(place, chance.choice(list(commands(place)))):
            done = Forked(words, environment(), ways=Ways({"RLIMIT_NOFILE": limit})).finish(hang_s())
            check(tally, f"{what} with {limit} descriptors", done, folder)
    return tally


@trial("scarcity", "memory", "a random amount of address space", 30, 3)
def memory(count: int, chance: random.Random, place: Path) -> Tally:
    tally, aborted = Tally(), 0
    for _ in range(count):
        limit = int(2 ** chance.uniform(20, 31))
        for what, words, folder in each_command(place, chance.choice(list(commands(place)))):
            done = Forked(words, environment(), ways=Ways({"RLIMIT_AS": limit})).finish(hang_s())
            if ABORTED.search(done.err):
                aborted += 1
                tally.add(None)
            else:
                check(tally, f"{what} with {limit >> 20} MiB more", done, folder)
    tally.notes["aborted by a library"] = aborted
    return tally


@trial("scarcity", "environments", "no HOME, C locale, no cache for kernels, one column, no variables at all", 1)
def environments(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    changes: list[dict[str, str | None]] = [
        {"HOME": None, "USER": None, "LOGNAME": None},
        {"HOME": "/nonexistent"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        {"COLUMNS": "1", "LINES": "1"},
        {"TERM": "dumb", "NO_COLOR": "1"},
        {"TZ": "Nowhere/Nothing"},
    ]
    for _ in range(count):
        for change in changes:
            for what, words, folder in each_command(place, "generate report infill show info prepare"):
                check(tally, f"{what} with {change}", Forked(words, environment(**change)).finish(hang_s()), folder)
        # These two take a process that compiles: kernels of forked ones are there already.
        cache = place / "cache"
        cache.write_text("not a folder")
        for change in ({"NUMBA_CACHE_DIR": str(cache), "HOME": "/proc"}, {"PATH": "/nonexistent"}):
            for what in ("infill", "show"):
                done = run(reviser(*commands(place)[what]), env=environment(**change))
                check(tally, f"{what} with {change}", done, place / "nothing")
    return tally


@trial("scarcity", "clock", "time goes back each time it is asked for", 1)
def clock(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    for _ in range(count):
        for what, words, folder in each_command(place):
            ways = Ways(clock_s=chance.choice([1, 3600, 1e6]))
            check(tally, f"{what} back in time", Forked(words, environment(), ways=ways).finish(hang_s()), folder)
    return tally


@trial("scarcity", "two at once", "the same command twice on one folder", 8, 1)
def two_at_once(count: int, chance: random.Random, place: Path) -> Tally:
    """One of them does the work and the other says why it does not, or both come to the same end."""
    tally = Tally()
    for _ in range(count):
        for what, words, folder in each_command(place, "prepare train eval generate tokenizer report"):
            first = Forked(words, environment())
            time.sleep(chance.random() * 2)
            second = Forked(words, environment())
            ends = [each.finish(hang_s()) for each in (first, second)]
            for done in ends:
                check(tally, f"{what} twice", done, folder)
            if all(done.code != 0 for done in ends):
                tally.add(f"{what} twice: neither came to its end: {ends[0].err[-200:]} {ends[1].err[-200:]}")
            if what == "eval":
                lines = (folder / "made.jsonl").read_text().splitlines()
                tally.add(None if len(set(lines)) == len(lines) == 24 else f"eval twice: {len(lines)} generations")
    return tally
