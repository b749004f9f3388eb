"""A damaged cache of kernels is compiled again, and its kernels say the same."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
from reviser import compiled

@compiled.jit()
def double(value):
    return 2 * value

print(double(21), sum(double.stats.cache_hits.values()))
"""


def compute(folder: Path, program: str = KERNEL, **changes: str) -> str:
    """What a process says that makes 42 of a number, and how often it found the kernel in the cache."""
    (folder / "kernel.py").write_text(program)
    os.utime(folder / "kernel.py", (1, 1))
    words = [sys.executable, str(folder / "kernel.py")]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=environment | changes, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_damaged_cache_is_compiled_again(tmp_path: Path) -> None:
    assert (compute(tmp_path), compute(tmp_path)) == ("42 0", "42 1")
    files = sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert {path.suffix for path in files} == {".nbi", ".nbc"}
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
