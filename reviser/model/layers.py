"""The parts that every block shares: norms, the MLP and rotary positions.

Two families, chosen by `config.norm`: `layer` is the published checkpoints' (LayerNorm, biases in norms and
MLP), `rms` has no bias anywhere. Both are pre-norm: x + f(norm(x)).
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.config import ModelConfig


def make_norm(config: ModelConfig, width: int) -> nn.LayerNorm | nn.RMSNorm:
    return nn.LayerNorm(width, eps=1e-5) if config.norm == "layer" else nn.RMSNorm(width, eps=1e-6)


def make_dropout(config: ModelConfig) -> nn.Module:
    return nn.Dropout(config.dropout) if config.dropout else nn.Identity()


class Mlp(nn.Module):
    """[.., d] -> [.., d] through `ff_width` units; swiglu has a second, gating set of them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation, has_bias = config.activation, config.norm == "layer"
        units = config.ff_width * (2 if config.activation == "swiglu" else 1)
        self.up = nn.Linear(config.width, units, bias=has_bias)
        self.down = nn.Linear(config.ff_width, config.width, bias=has_bias)
        self.dropout = make_dropout(config)

    def forward(self, x: Tensor) -> Tensor:
        units = self._activate(self.up(x))
        return cast(Tensor, self.dropout(self.down(self.dropout(units))))

    def _activate(self, units: Tensor) -> Tensor:
        if self.activation == "gelu":
            return F.gelu(units)
        if self.activation == "relu2":
            return F.relu(units).square()
        gate, value = units.chunk(2, dim=-1)
        return F.silu(gate) * value


Rotation = tuple[Tensor, Tensor]


def rotation(positions: Tensor, config: ModelConfig) -> Rotation:
    """cos and sin of every position's angles, each [.., T, 1, D/2] in float32.

    Computed, not stored: a buffer would be rounded by `model.to(torch.bfloat16)`.
    """
    D = config.head_width
    exponents = torch.arange(0, D, 2, dtype=torch.float32, device=positions.device) / D
    angles = positions[..., None].float() * (1.0 / config.rope_theta**exponents)
    return angles.cos()[..., None, :], angles.sin()[..., None, :]


def rotate(x: Tensor, turn: Rotation) -> Tensor:
    """Turn [.., T, H, D] by its positions; dims j and j + D/2 are a pair (the half-split layout)."""
    cos, sin = turn
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
