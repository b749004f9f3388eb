"""One model that scores or embeds texts, loaded; and the sha256 that weights are known by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from reviser.errors import CheckpointError
from reviser.files import hash_file

Kind = Literal["causal", "masked", "encoder"]
SHIFTED = ("Dream",)
"""Masked models made from causal ones: what stands at a position is predicted at the one before."""


@dataclass(frozen=True)
class Evaluator:
    """A loaded model with its tokenizer, and what it is."""

    name: str
    sha256: str
    kind: Kind
    model: Any
    tokenizer: Any
    limit: int
    """Tokens it reads at most."""
    has_start: bool = False
    """Whether texts begin with the start token although the tokenizer does not put it there."""
    known: dict[tuple[int, ...], tuple[float, ...]] = field(default_factory=dict, repr=False, compare=False)
    """Of a causal model: the ids it has read, and -log p of each but the first."""

    @property
    def is_shifted(self) -> bool:
        return self.model.config.model_type in SHIFTED

    @property
    def device(self) -> torch.device:
        found: torch.device = self.model.device
        return found

    @property
    def about(self) -> dict[str, Any]:
        """For a result document."""
        dtype = str(self.model.dtype).removeprefix("torch.")
        return {"name": self.name, "kind": self.kind, "sha256": self.sha256, "dtype": dtype}


def hash_weights(folder: Path) -> str:
    """The sha256 of a folder's weights; of the list of their names and sums where there are several files."""
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    if not files:
        raise CheckpointError(f"{folder} holds no weights (*.safetensors or *.bin); give a `transformers` folder")
    sums = [hash_file(file) for file in files]
    if len(sums) == 1:
        return sums[0]
    lines = "".join(f"{each}  {file.name}\n" for each, file in zip(sums, files, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()
