"""Which twin decodes: the plain parts, their numba twins on a CPU, their Triton twins on a GPU; all do the same.

| part | plain | CPU | GPU |
|---|---|---|---|
| the model's step | `Transformer` | `CpuStep` | `GpuStep` |
| the canvases | `Board` | `CpuBoard` | `GpuBoard` |
| choosing | `Chooser` | `CpuChooser` | `GpuChooser` |
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.decoding.board import Board
from reviser.decoding.cpu.board import CpuBoard
from reviser.decoding.cpu.sampling import CpuChooser
from reviser.decoding.cpu.step import Steps, steps_of
from reviser.decoding.drafts import DraftInputs
from reviser.decoding.sampling import Chooser, Sampling
from reviser.model.cache import Cache
from reviser.model.layers import FUSED
from reviser.model.transformer import Transformer


@runtime_checkable
class Reads(Protocol):
    """Steps that also read drafts straight into rows of a cache; without it the model reads them beside it."""

    def read(self, drafts: DraftInputs, rows: Tensor, cache: Cache) -> Tensor: ...


def steps_for(model: Transformer) -> Steps:
    """The quickest exact steps there are for a model."""
    if not _is_fused(model.embedding.weight.device):
        return steps_of(model)
    fused = _fused("step").GpuStep
    return cast(Steps, fused(model)) if fused.knows(model) else model


def board_for(rules: Rules, num_rows: int, longest: int, device: torch.device, window: int) -> Board:
    """An empty board for canvases of at most `longest` tokens."""
    given = rules.alphabet, rules.operators, num_rows, longest
    if device.type == "cpu":
        return CpuBoard(*given)
    return cast(Board, _fused("board").GpuBoard(*given, device, width=window)) if FUSED else Board(*given, device)


def chooser_for(sampling: Sampling, alphabet: Alphabet, device: torch.device) -> Chooser:
    if device.type == "cpu":
        return CpuChooser(sampling, alphabet, device)
    return (
        cast(Chooser, _fused("sampling").GpuChooser(sampling, alphabet, device))
        if FUSED
        else Chooser(sampling, alphabet, device)
    )


def _is_fused(device: torch.device) -> bool:
    return device.type == "cuda" and FUSED is not None


def _fused(part: str) -> Any:
    """A module that needs Triton, which not every machine has."""
    return importlib.import_module(f"reviser.decoding.gpu.{part}")
