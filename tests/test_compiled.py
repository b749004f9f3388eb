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


def compute(folder: Path, **changes: str) -> str:
    """What a process says that doubles 21, and how often it found the kernel in the cache."""
    (folder / "kernel.py").write_text(KERNEL)
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
