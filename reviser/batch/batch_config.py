"""What a batch may be told. Nothing heavy is loaded.

>>> BatchConfig("score").as_json()["job"]
'score'
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from reviser.decoding.presets import DEFAULT, LONGEST_GAP, Sampling
from reviser.errors import ConfigError
from reviser.proofreading.choices import Proofreading

Job = Literal["generate", "infill", "edit", "score"]
JOBS: tuple[Job, ...] = get_args(Job)
BLOCK_LINES = 1024
"""Lines of a block: few texts wait for its last one, and little is done again after a kill."""


@dataclass(frozen=True)
class BatchConfig:
    """What decides, with the model and the input, every byte of the output."""

    job: Job
    seed: int = 0
    n: int = 1
    best_of: int | None = 1
    """None: as many as are usual for gaps."""
    max_actions: int = 256
    max_tokens: int | None = None
    min_length: int = 0
    max_length: int | None = None
    sampling: Sampling = DEFAULT
    proofreading: Proofreading = field(default_factory=Proofreading)
    block_lines: int = BLOCK_LINES

    def __post_init__(self) -> None:
        if self.job not in JOBS:
            raise ConfigError(f"no job {self.job!r}; jobs are {', '.join(JOBS)}")
        for name in ("n", "max_actions", "block_lines"):
            self._check(name, getattr(self, name))
        for name in ("best_of", "max_tokens", "max_length"):
            if getattr(self, name) is not None:
                self._check(name, getattr(self, name))
        if self.max_length is not None and self.max_length < self.min_length:
            raise ConfigError(f"max_length={self.max_length} is less than min_length={self.min_length}")

    def _check(self, name: str, value: int) -> None:
        if value < 1:
            raise ConfigError(f"{name}={value} must be at least 1")

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON knows it."""
        parts = dataclasses.asdict(self)
        return parts | {"proofreading": parts["proofreading"] | {"words": list(self.proofreading.words)}}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The model, and how it computes; `rows` texts are decoded at once."""

    model: str | None = None
    device: str = "cpu"
    weights: Literal["auto", "int8", "float32"] = "auto"
    rows: int = 16

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ConfigError(f"rows={self.rows} must be at least 1")


def default_config(job: Job) -> BatchConfig:
    """As the command of that name writes where nothing else is said."""
    return BatchConfig(job, best_of=None, max_tokens=LONGEST_GAP) if job == "infill" else BatchConfig(job)
