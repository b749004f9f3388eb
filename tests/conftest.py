"""What all tests share: hypothesis without a deadline, for the first call of a kernel compiles it; one thread for
each of several pytest-xdist workers; and expensive folders, made once for all of them."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

# Before torch, numba and OpenMP count the cores: workers share them, and so do the processes that tests start.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

# Before anything imports Triton: without a GPU its kernels run in its interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tools")]
# `make test` tries fewer cases of each law than `make test-all`, where a test does not say how many.
for profile, more in (("quick", {"max_examples": 25}), ("whole", {"max_examples": 100})):
    settings.register_profile(profile, deadline=None, derandomize=bool(os.environ.get("CI")), **more)
settings.load_profile("quick")


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first worker to ask for it fills, and all of them then read."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with FileLock(root / f"{name}.lock"):
        if not done.exists():
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of invented prose, in bytes."""
    from tiny import make_data

    return make_once(tmp_path_factory, "prose", make_data) / "data"


@pytest.fixture(scope="session")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the hard settings that nothing interrupted."""
    return _run(data, tmp_path_factory, "whole")


@pytest.fixture(scope="session")
def half(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after 4 of its steps."""
    return _run(data, tmp_path_factory, "half", "--steps", 4)


def _run(data: Path, factory: pytest.TempPathFactory, name: str, *more: object) -> Path:
    from tiny import HARD, start

    def make(folder: Path) -> None:
        assert start(data, folder / "run", *HARD, more=more) == 0

    return make_once(factory, name, make) / "run"


@pytest.fixture(scope="module")
def browser():
    """Chromium, for the tests of one file."""
    from chromium import Browser

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        opened = Browser(Path(folder))
        yield opened
        opened.close()
