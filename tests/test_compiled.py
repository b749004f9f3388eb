"""A damaged cache of kernels is compiled again, and its kernels say the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from reviser import files

KERNEL = """
from reviser import compiled

@compiled.jit()
def double(value):
    return 2 * value

print(double(21), sum(double.stats.cache_hits.values()))
"""


def start(folder: Path, program: str, *words: str, **changes: str) -> subprocess.Popen[str]:
    (folder / "kernel.py").write_text(program)
    os.utime(folder / "kernel.py", (1, 1))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, str(folder / "kernel.py"), *words],
        env=environment | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out.strip()


def compute(folder: Path, program: str = KERNEL, **changes: str) -> str:
    """What a process says that makes 42 of a number, and how often it found the kernel in the cache."""
    return finish(start(folder, program, **changes))


@pytest.mark.slow
def test_a_damaged_cache_is_compiled_again(tmp_path: Path) -> None:
    assert (compute(tmp_path), compute(tmp_path)) == ("42 0", "42 1")
    files = sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert {path.suffix for path in files} == {".nbi", ".nbc", ".lock"}
    files = [path for path in files if path.suffix != ".lock"]
    chance = random.Random(1)
    for path in files:
        good = path.read_bytes()
        for damaged in (b"", good[: len(good) // 2], flip(good, chance)):
            path.write_bytes(damaged)
            assert compute(tmp_path) == "42 0", path
            assert compute(tmp_path) == "42 1", "and kept again"


def flip(good: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(good))
    return good[:place] + bytes([good[place] ^ 16]) + good[place + 1 :]


CALLER = """
import parts, constants
from constants import STEP
from reviser import compiled

@compiled.jit()
def add(value):
    return parts.twice(value) + STEP + constants.MORE

print(add(20), sum(add.stats.cache_hits.values()))
"""
PARTS = """
from reviser import compiled
from inner import once
from machine import same

@compiled.jit()
def twice(value):
    return same(once(value)) + once(value)
"""
INNER = """
from reviser import compiled

@compiled.jit()
def once(value):
    return 1 * value
"""
MACHINE = """
from numba.extending import intrinsic

@intrinsic
def same(typing, value):
    return value(value), lambda context, builder, signature, given: builder.add(given[0], given[0].type(0))
"""
OTHERS = {
    "kernel": CALLER,
    "parts": PARTS,
    "inner": INNER,
    "machine": MACHINE,
    "constants": "STEP, MORE, OTHER = 2, 0, 0\n",
}


@pytest.mark.parametrize(
    ("file", "before", "after", "found"),
    [
        ("parts", "+ once(value)", "+ 3 * once(value)", "82 0"),
        ("machine", "type(0)", "type(7)", "49 0"),
        pytest.param("inner", "1 * value", "5 * value", "202 0", marks=pytest.mark.slow),
        pytest.param("constants", "= 2,", "= 4,", "44 0", marks=pytest.mark.slow),
        pytest.param("constants", "2, 0, 0", "2, 8, 0", "50 0", marks=pytest.mark.slow),
        ("constants", "2, 0, 0", "2, 0, 9", "42 1"),
    ],
)
def test_a_kernel_is_compiled_again_when_what_it_calls_or_reads_has_changed(
    file: str, before: str, after: str, found: str, tmp_path: Path
) -> None:
    for name, text in OTHERS.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert compute(tmp_path, CALLER) == "42 0"
    (tmp_path / f"{file}.py").write_text(OTHERS[file].replace(before, after))
    assert compute(tmp_path, CALLER) == found


def test_kernels_are_compiled_where_no_cache_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    assert compute(tmp_path, HOME="/proc/nowhere") == "42 0"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
def test_kernels_are_compiled_where_the_cache_is_full(tmp_path: Path) -> None:
    assert compute(tmp_path) == "42 0"
    for path in [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]:
        path.unlink()
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    limit += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    (tmp_path / "sitecustomize.py").write_text(limit)
    assert compute(tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path])) == "42 0"


TOGETHER = """
import sys, time
from pathlib import Path
from reviser import compiled

@compiled.jit()
def double(value):
    return 2 * value

Path(sys.argv[0] + ".ready-" + sys.argv[1]).touch()
while len(list(Path(sys.argv[0]).parent.glob("*.ready-*"))) < 3:
    time.sleep(0.001)
print(double(21), sum(double.stats.cache_hits.values()))
"""


def test_of_processes_that_need_a_kernel_at_once_one_compiles_it(tmp_path: Path) -> None:
    processes = [start(tmp_path, TOGETHER, str(number)) for number in range(3)]
    assert sorted(map(finish, processes)) == ["42 0", "42 1", "42 1"]


def test_processes_that_compile_for_other_types_do_not_take_each_others_kernels(tmp_path: Path) -> None:
    """Even if neither sees what the other has kept."""
    blind = KERNEL.replace("print(", "double._cache._cache_file._load_index = dict\ndouble(0.5)\nprint(")
    assert compute(tmp_path, blind) == "42 0"
    assert len([*(tmp_path / "cache").rglob("*.nbc")]) == 2


def test_a_kernel_is_compiled_where_another_process_never_ends_its_turn(tmp_path: Path) -> None:
    """As one that was stopped; who waits for it does so for a while only."""
    assert compute(tmp_path) == "42 0"
    [kept] = (tmp_path / "cache").rglob("*.nbi")
    kept.unlink()
    with files.in_turn(f"{kept}.lock", 0):
        hasty = KERNEL.replace("import compiled", "import compiled; compiled.PATIENCE = 0.1")
        assert compute(tmp_path, hasty) == "42 0"


def test_a_kernel_that_calls_itself_waits_for_nobody(tmp_path: Path) -> None:
    recursive = KERNEL.replace("return 2 * value", "return 2 + double(value - 1) if value > 0 else value")
    assert compute(tmp_path, recursive) == "42 0"
