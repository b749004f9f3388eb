"""The parts that every block shares: norms, the MLP and rotary positions.

Two families, chosen by `config.norm`: `layer` is the published checkpoints' (LayerNorm, biases in norms and
MLP), `rms` has no bias anywhere. Both are pre-norm: x + f(norm(x)).
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.config import ModelConfig


def _find_fused() -> ModuleType | None:
    if not torch.cuda.is_available():
        return None
    try:
        return importlib.import_module("reviser.model.triton_kernels")
    except ImportError:
        return None


FUSED = _find_fused()
"""triton_kernels.py, where there is a GPU and Triton; found here, since a compiler cannot follow an import."""


class RmsNorm(nn.RMSNorm):
    """Computed in float32 whatever comes in; torch's own refuses its fast path to mixed dtypes, with a warning."""

    def forward(self, x: Tensor) -> Tensor:
        weight = None if self.weight is None else self.weight.float()
        return F.rms_norm(x.float(), list(self.normalized_shape), weight, self.eps).to(x.dtype)


def make_norm(config: ModelConfig, width: int) -> nn.LayerNorm | RmsNorm:
    return nn.LayerNorm(width, eps=1e-5) if config.norm == "layer" else RmsNorm(width, eps=1e-6)


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
        return cast(Tensor, self.dropout(self.down(self.dropout(self._activate(x)))))

    def _activate(self, x: Tensor) -> Tensor:
        """The units' values."""
        is_fused = x.is_cuda and self.training
        if FUSED is not None and is_fused and self.activation == "gelu" and self.up.bias is not None:
            return cast(Tensor, FUSED.biased_gelu(F.linear(x, self.up.weight), self.up.bias))
        units: Tensor = self.up(x)
        if self.activation == "gelu":
            return F.gelu(units)
        if self.activation == "relu2":
            return F.relu(units).square()
        gate, value = units.chunk(2, dim=-1)
        return F.silu(gate) * value


Rotation = tuple[Tensor, Tensor]


def rotation(positions: Tensor, config: ModelConfig) -> Rotation:
    """cos and sin of every position's angles, each [.., T, 1, D/2] in float32.

    Computed, not stored: a buffer would be rounded by `model.to(torch.bfloat16)` and lost on the meta device.
    """
    # Outside of the compiler the plain function: the first call of a custom operator imports the compiler.
    compute = _cos_sin if torch.compiler.is_compiling() else _angles
    cos, sin = compute(positions, config.head_width, config.rope_theta)[..., None, :].unbind()
    return cos, sin


def _angles(positions: Tensor, D: int, theta: float) -> Tensor:
    """[2, .., T, D/2]: cos and sin."""
    exponents = torch.arange(0, D, 2, dtype=torch.float32, device=positions.device) / D
    angles = positions[..., None].float() * (1.0 / theta**exponents)
    return torch.stack([angles.cos(), angles.sin()])


@torch.library.custom_op(
    "reviser::cos_sin", mutates_args=(), schema="(Tensor positions, int D, float theta) -> Tensor"
)
def _cos_sin(positions: Tensor, D: int, theta: float) -> Tensor:
    """`_angles` as an operator of its own, or the compiler would compute it again in every layer."""
    return _angles(positions, D, theta)


@_cos_sin.register_fake
def _(positions: Tensor, D: int, theta: float) -> Tensor:
    return torch.empty(2, *positions.shape, D // 2, dtype=torch.float32, device=positions.device)


def rotate(x: Tensor, turn: Rotation) -> Tensor:
    """Turn [.., T, H, D] by its positions; dims j and j + D/2 are a pair (the half-split layout)."""
    cos, sin = turn
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def turned(qkv: Tensor, turn: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values out of [.., T, 3, H, D], the first two turned by their positions."""
    q, k, v = qkv.unbind(dim=-3)
    return (q, k, v) if turn is None else (rotate(q, turn), rotate(k, turn), v)
