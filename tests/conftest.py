"""Hypothesis without a deadline: the first call of a kernel compiles it."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("reviser", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "reviser")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of invented prose, in bytes."""
    from tiny import make_data

    return make_data(tmp_path_factory.mktemp("prose"))
