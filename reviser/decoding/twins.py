"""Which twin decodes: the plain parts, their numba twins on a CPU, their Triton twins on a GPU; all do the same.

| part | plain | CPU | GPU |
|---|---|---|---|
| the model's step | `Transformer` | `LeanStep` | `FusedStep` |
| the canvases | `Board` | `LeanBoard` | `FusedBoard` |
| choosing | `Chooser` | `LeanChooser` | `FusedChooser` |
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.decoding.board import Board
from reviser.decoding.lean import Steps, steps_of
from reviser.decoding.lean_board import LeanBoard
from reviser.decoding.lean_sampling import LeanChooser
from reviser.decoding.sampling import Chooser, Sampling
from reviser.decoding.seeds import SeedInputs
from reviser.model.cache import Cache
from reviser.model.layers import FUSED
from reviser.model.transformer import Transformer


@runtime_checkable
class Reads(Protocol):
    """Steps that also read seeds straight into rows of a cache; without it the model reads them beside it."""

    def read(self, seeds: SeedInputs, rows: Tensor, cache: Cache) -> Tensor: ...


def steps_for(model: Transformer) -> Steps:
    """The quickest exact steps there are for a model."""
    if not _is_fused(model.embedding.weight.device):
        return steps_of(model)
    fused = _fused("step").FusedStep
    return cast(Steps, fused(model)) if fused.knows(model) else model


def board_for(rules: Rules, num_rows: int, longest: int, device: torch.device, window: int) -> Board:
    """An empty board for canvases of at most `longest` tokens."""
    given = rules.alphabet, rules.operators, num_rows, longest
    if device.type == "cpu":
        return LeanBoard(*given)
    return cast(Board, _fused("board").FusedBoard(*given, device, width=window)) if FUSED else Board(*given, device)


def chooser_for(sampling: Sampling, alphabet: Alphabet, device: torch.device) -> Chooser:
    if device.type == "cpu":
        return LeanChooser(sampling, alphabet, device)
    return (
        cast(Chooser, _fused("sampling").FusedChooser(sampling, alphabet, device))
        if FUSED
        else Chooser(sampling, alphabet, device)
    )


def _is_fused(device: torch.device) -> bool:
    return device.type == "cuda" and FUSED is not None


def _fused(part: str) -> Any:
    """A module that needs Triton, which not every machine has."""
    return importlib.import_module(f"reviser.decoding.fused_{part}")
