"""Hypothesis without a deadline: the first call of a kernel compiles it."""

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Before anything imports Triton: without a GPU its kernels run in its interpreter (test_fused.py).
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tools")]
settings.register_profile("reviser", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "reviser")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of invented prose, in bytes."""
    from tiny import make_data

    return make_data(tmp_path_factory.mktemp("prose"))


@pytest.fixture(scope="session")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the hard settings that nothing interrupted."""
    from tiny import HARD, start

    out = tmp_path_factory.mktemp("whole") / "run"
    assert start(data, out, *HARD) == 0
    return out


@pytest.fixture(scope="session")
def half(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after 4 of its steps."""
    from tiny import HARD, start

    out = tmp_path_factory.mktemp("half") / "run"
    assert start(data, out, *HARD, more=["--steps", 4]) == 0
    return out
