"""Products for decoding on a GPU, with the norm before and the activation behind them in the same kernel.

    add_and_norm   x + branch, and its norm
    product        x + branch, and activation(norm(that) W^T + b), a row at a time
    activate       activation(x + b); a swiglu's gate too

A step of decoding multiplies so little that its time is the number of its kernels. Importing this needs Triton.
Shape letters: M rows, K inputs and N outputs of a product.
"""

from __future__ import annotations

from typing import cast

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from reviser.model.layers import RmsNorm
from reviser.model.triton_kernels import LOG2E, _normal

NO_NORM, LAYER_NORM, RMS_NORM = (tl.constexpr(i) for i in range(3))
NO_ACTIVATION, GELU, RELU2 = (tl.constexpr(i) for i in range(3))
ACTIVATIONS = {"gelu": 1, "relu2": 2, "swiglu": 0}


@triton.jit
def _norm(x, weight, bias, cols, is_in, K, eps, NORM: tl.constexpr):
    """A row [K] after its norm, in float32."""
    if NORM == LAYER_NORM:
        x = x - tl.sum(x, 0) / K
        x = tl.where(is_in, x, 0.0)
    x = x * tl.rsqrt(tl.sum(x * x, 0) / K + eps) * tl.load(weight + cols, mask=is_in, other=0.0).to(tl.float32)
    if NORM == LAYER_NORM:
        x = x + tl.load(bias + cols, mask=is_in, other=0.0).to(tl.float32)
    return x


@triton.jit
def _activated(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == GELU:
        below, _ = _normal(x)
        x = x * below
    if ACTIVATION == RELU2:
        x = tl.maximum(x, 0.0)
        x = x * x
    return x


@triton.jit
def _add_and_norm(
    x, branch, weight, bias, sums, out, K, eps, ADDS: tl.constexpr, NORM: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """sums = x + branch, out = norm(sums), for one row [K]."""
    row, cols = tl.program_id(0), tl.arange(0, BK)
    is_in, at = cols < K, row * K + cols
    value = tl.load(x + at, mask=is_in, other=0.0)
    if ADDS:
        value = (value.to(tl.float32) + tl.load(branch + at, mask=is_in, other=0.0).to(tl.float32)).to(value.dtype)
        tl.store(sums + at, value, mask=is_in)
    normed = _norm(value.to(tl.float32), weight, bias, cols, is_in, K, eps, NORM)
    tl.store(out + at, normed.to(out.dtype.element_ty), mask=is_in)


@triton.jit
def _product(
    x, branch, norm_weight, norm_bias, matrix, bias, sums, out, K, N, eps,
    ADDS: tl.constexpr, NORM: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """activation(norm(x + branch) matrix^T + bias) for one row and BN outputs; the first program keeps the sum."""
    part, row = tl.program_id(0), tl.program_id(1)
    cols = tl.arange(0, BK)
    is_in, at = cols < K, row * K + cols
    value = tl.load(x + at, mask=is_in, other=0.0)
    if ADDS:
        value = (value.to(tl.float32) + tl.load(branch + at, mask=is_in, other=0.0).to(tl.float32)).to(value.dtype)
        if part == 0:
            tl.store(sums + at, value, mask=is_in)
    vector = value.to(tl.float32)
    if NORM != NO_NORM:
        vector = _norm(vector, norm_weight, norm_bias, cols, is_in, K, eps, NORM).to(value.dtype).to(tl.float32)
    outs = part * BN + tl.arange(0, BN)
    weights = tl.load(
        matrix + outs[:, None].to(tl.int64) * K + cols[None, :], mask=(outs[:, None] < N) & is_in[None, :], other=0.0
    )
    result = tl.sum(weights.to(tl.float32) * vector[None, :], 1)
    if BIASED:
        result += tl.load(bias + outs, mask=outs < N, other=0.0).to(tl.float32)
    result = _activated(result.to(value.dtype).to(tl.float32), ACTIVATION)
    tl.store(out + row * N + outs, result.to(out.dtype.element_ty), mask=outs < N)


@triton.jit
def _activate(x, bias, out, N, BIASED: tl.constexpr, ACTIVATION: tl.constexpr, BN: tl.constexpr):
    """activation(x + bias) of one row's BN units; a swiglu's gate stands in the first half of 2 N units."""
    row, cols = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    is_in = cols < N
    if ACTIVATION == NO_ACTIVATION:
        gate = tl.load(x + row * 2 * N + cols, mask=is_in, other=0.0)
        value = tl.load(x + row * 2 * N + N + cols, mask=is_in, other=0.0).to(tl.float32)
        wide = gate.to(tl.float32)
        silu = (wide / (1.0 + tl.exp2(-wide * LOG2E))).to(gate.dtype).to(tl.float32)
        result = silu * value
    else:
        result = tl.load(x + row * N + cols, mask=is_in, other=0.0).to(tl.float32)
        if BIASED:
            result += tl.load(bias + cols, mask=is_in, other=0.0).to(tl.float32)
        result = _activated(result, ACTIVATION)
    tl.store(out + row * N + cols, result.to(out.dtype.element_ty), mask=is_in)


def add_and_norm(norm: nn.Module, x: Tensor, branch: Tensor | None) -> tuple[Tensor, Tensor]:
    """x plus its branch, and the norm of that."""
    sums, out, K = x if branch is None else torch.empty_like(x), torch.empty_like(x), x.shape[-1]
    kind, weight, bias, eps = _parts_of(norm)
    _add_and_norm[(len(x),)](
        x, x if branch is None else branch, weight, bias, sums, out, K, eps,
        ADDS=branch is not None, NORM=kind, BK=triton.next_power_of_2(K), num_warps=4,
    )  # fmt: skip
    return sums, out


def product(
    linear: nn.Linear,
    x: Tensor,
    branch: Tensor | None = None,
    norm: nn.Module | None = None,
    activation: int = 0,
) -> tuple[Tensor, Tensor]:
    """x plus its branch, and activation(linear(norm(that)))."""
    (N, K), M = linear.weight.shape, len(x)
    sums, out = x if branch is None else torch.empty_like(x), x.new_empty(M, N)
    kind, weight, bias, eps = (0, x, x, 0.0) if norm is None else _parts_of(norm)
    biases = x if linear.bias is None else linear.bias
    given = x, x if branch is None else branch, weight, bias, linear.weight, biases, sums, out
    flags = {"ADDS": branch is not None, "NORM": kind, "BIASED": linear.bias is not None, "ACTIVATION": activation}
    part = 4 if K <= 1024 else 1
    _product[(triton.cdiv(N, part), M)](
        *given, K, N, eps, **flags, BN=part, BK=triton.next_power_of_2(K), num_warps=4
    )
    return sums, out


def activate(bias: Tensor | None, units: Tensor, activation: int) -> Tensor:
    """activation(units + bias); half as many where the first half are a swiglu's gates."""
    N = units.shape[1] // (1 if activation else 2)
    out = units.new_empty(len(units), N)
    _activate[(len(units), triton.cdiv(N, 1024))](
        units, units if bias is None else bias, out, N,
        BIASED=bias is not None, ACTIVATION=activation, BN=1024, num_warps=4,
    )  # fmt: skip
    return out


def _parts_of(norm: nn.Module) -> tuple[int, Tensor, Tensor, float]:
    """Kind, weight, bias (or something to point at) and eps of a norm."""
    if isinstance(norm, RmsNorm):
        return 2, norm.weight, norm.weight, cast(float, norm.eps)
    assert isinstance(norm, nn.LayerNorm)
    return 1, norm.weight, norm.bias, norm.eps
