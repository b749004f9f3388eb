"""Hypothesis without a deadline: the first call of a kernel compiles it."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("reviser", deadline=None)
settings.load_profile("reviser")
