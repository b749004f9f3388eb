"""Which implementation decodes: the plain parts, numba kernels on a CPU, Triton kernels on a GPU; results are equal.

| part | plain | CPU | GPU |
|---|---|---|---|
| the model's step | `Transformer` | `CpuStep` | `GpuStep` |
| the canvases | `Board` | `CpuBoard` | `GpuBoard` |
| choosing | `Chooser` | `CpuChooser` | `GpuChooser` |

The fast boards know INSERT, MOVE, JUMP, STOP, DELETE and REPLACE; rules with any other operator get a `Board`.
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
from reviser.decoding.cpu.cells import KERNEL_OPERATORS
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
    """The fastest exact steps for a model."""
    if not _has_triton(model.embedding.weight.device):
        return steps_of(model)
    kernels = _gpu("step").GpuStep
    return cast(Steps, kernels(model)) if kernels.knows(model) else model


def board_for(rules: Rules, num_rows: int, longest: int, device: torch.device, window: int) -> Board:
    """An empty board for canvases of at most `longest` tokens."""
    given = rules.alphabet, rules.operators, num_rows, longest
    if rules.operators <= KERNEL_OPERATORS:
        if device.type == "cpu":
            return CpuBoard(*given)
        if _has_triton(device):
            return cast(Board, _gpu("board").GpuBoard(*given, device, width=window))
    return Board(*given, device)


def chooser_for(sampling: Sampling, alphabet: Alphabet, device: torch.device) -> Chooser:
    """What chooses actions on a device."""
    if device.type == "cpu":
        return CpuChooser(sampling, alphabet, device)
    kind = _gpu("sampling").GpuChooser if _has_triton(device) else Chooser
    return cast(Chooser, kind(sampling, alphabet, device))


def _has_triton(device: torch.device) -> bool:
    return device.type == "cuda" and FUSED is not None


def _gpu(part: str) -> Any:
    """A module that needs Triton, which not every machine has."""
    return importlib.import_module(f"reviser.decoding.gpu.{part}")
