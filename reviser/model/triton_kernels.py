"""Three Triton kernels for training on a GPU: packed attention, GELU with its bias, and the scores of the loss.

Each equals a few plain lines elsewhere (`attention.reference`, `F.gelu`, `loss.score_chunk`). They know
what general kernels do not: that examples are short and lie side by side, that a bias's gradient can be summed where
it is made, that scores are needed once and may be overwritten by their gradient.

Importing this needs Triton, which comes with torch for CUDA; `attention.choose`, `Mlp` and `loss` do without where it
is missing. Under TRITON_INTERPRET=1 the kernels run on a CPU, slowly, which is how they are tested.

Shape letters: N flattened places, H heads, D head width, F units, C places of a chunk, R rows of the head.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from reviser.actions import NUM_SPECIAL, Alphabet

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
NEVER: tl.constexpr = tl.constexpr(-1e30)
"""Below every score, and not -inf, whose difference to itself is no number."""

PRECISION: tl.constexpr = tl.constexpr("ieee")
"""Float32 is multiplied as float32, not with ten bits; half precision does not mind."""

PLACES = 64
"""N must be a multiple of this."""


def fits(qkv: Tensor) -> bool:
    """Whether `packed_attention` takes heads of this shape [N, 3, H, D]."""
    N, _, _, D = qkv.shape
    return N % PLACES == 0 and D in (16, 32, 64, 128)


# ------------------------------------------------------------------------------------------------ attention


@triton.jit
def _kept(seed, rows, cols, h, N, H, dropout):
    """Which shares of a tile survive dropout, the same whenever it is asked."""
    offsets = (rows * H + h) * 1024 + (rows - cols)
    return tl.rand(seed, offsets, n_rounds=6) >= dropout


@triton.jit
def _turn(qkv, cos, sin, out, H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    """Queries and keys turned by their positions: dims j and j + D/2 are a pair."""
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    half = tl.arange(0, D // 2)
    c = tl.load(cos + rows[:, None] * (D // 2) + half[None, :])
    s = tl.load(sin + rows[:, None] * (D // 2) + half[None, :])
    for head in range(2 * H):
        read = qkv + rows[:, None] * (3 * H * D) + head * D + half[None, :]
        first = tl.load(read).to(tl.float32)
        second = tl.load(read + D // 2).to(tl.float32)
        write = out + rows[:, None] * (2 * H * D) + head * D + half[None, :]
        tl.store(write, (first * c - second * s).to(out.dtype.element_ty))
        tl.store(write + D // 2, (second * c + first * s).to(out.dtype.element_ty))


@triton.jit
def _store_turned_back(grad, out, rows, stride, cos, sin, TURNED: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    """Write the gradient [B, D] of a turned vector as that of the vector before turning."""
    d = tl.arange(0, D)
    if TURNED:
        half = tl.arange(0, D // 2)
        c = tl.load(cos + rows[:, None] * (D // 2) + half[None, :])
        s = tl.load(sin + rows[:, None] * (D // 2) + half[None, :])
        first, second = tl.split(tl.permute(tl.reshape(grad, (B, 2, D // 2)), (0, 2, 1)))
        at = out + rows[:, None] * stride + half[None, :]
        tl.store(at, (first * c + second * s).to(out.dtype.element_ty))
        tl.store(at + D // 2, (second * c - first * s).to(out.dtype.element_ty))
    else:
        tl.store(out + rows[:, None] * stride + d[None, :], grad.to(out.dtype.element_ty))


@triton.jit
def _attend(
    q, k, v, firsts, seed, out, lse, N, H, scale, qk_stride, v_stride, dropout,
    DROPS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    m, h = tl.program_id(0), tl.program_id(1)
    rows = m * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    begins = tl.load(firsts + rows)
    wide = rows.to(tl.int64)
    query = tl.load(q + wide[:, None] * qk_stride + h * D + d[None, :])
    mixed = tl.zeros((BM, D), tl.float32)
    top = tl.full((BM,), NEVER, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for n in range(tl.load(firsts + m * BM) // BN * BN, (m + 1) * BM, BN):
        cols = tl.multiple_of(n, BN) + tl.arange(0, BN)
        at = cols.to(tl.int64)
        key = tl.load(k + at[None, :] * qk_stride + h * D + d[:, None])
        sees = (cols[None, :] <= rows[:, None]) & (cols[None, :] >= begins[:, None])
        score = tl.where(sees, tl.dot(query, key, input_precision=PRECISION) * (scale * LOG2E), NEVER)
        higher = tl.maximum(top, tl.max(score, 1))
        share = tl.where(sees, tl.exp2(score - higher[:, None]), 0.0)
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(share, 1)
        if DROPS:
            kept = _kept(tl.load(seed), rows[:, None], cols[None, :], h, N, H, dropout)
            share = tl.where(kept, share / (1 - dropout), 0.0)
        value = tl.load(v + at[:, None] * v_stride + h * D + d[None, :])
        mixed = mixed * fade[:, None] + tl.dot(share.to(value.dtype), value, input_precision=PRECISION)
        top = higher
    at_out = out + wide[:, None] * (H * D) + h * D + d[None, :]
    tl.store(at_out, (mixed / total[:, None]).to(out.dtype.element_ty))
    tl.store(lse + h * N + rows, top + tl.log2(total))


@triton.jit
def _delta(out, grad, delta, N, H, D: tl.constexpr, BM: tl.constexpr):
    m, h = tl.program_id(0), tl.program_id(1)
    rows = m * BM + tl.arange(0, BM)
    at = rows.to(tl.int64)[:, None] * (H * D) + h * D + tl.arange(0, D)[None, :]
    product = tl.load(out + at).to(tl.float32) * tl.load(grad + at).to(tl.float32)
    tl.store(delta + h * N + rows, tl.sum(product, 1))


@triton.jit
def _key_gradients(
    q, k, v, firsts, lasts, seed, cos, sin, grad, lse, delta, out, N, H, scale, qk_stride, v_stride, dropout,
    DROPS: tl.constexpr, TURNED: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    n, h = tl.program_id(0), tl.program_id(1)
    cols = n * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    at = cols.to(tl.int64)
    key = tl.load(k + at[:, None] * qk_stride + h * D + d[None, :])
    value = tl.load(v + at[:, None] * v_stride + h * D + d[None, :])
    of_key = tl.zeros((BN, D), tl.float32)
    of_value = tl.zeros((BN, D), tl.float32)
    for m in range(n * BN // BM * BM, tl.load(lasts + n * BN + BN - 1), BM):
        rows = tl.multiple_of(m, BM) + tl.arange(0, BM)
        wide = rows.to(tl.int64)
        query = tl.load(q + wide[:, None] * qk_stride + h * D + d[None, :])
        begins = tl.load(firsts + rows)
        sees = (cols[:, None] <= rows[None, :]) & (cols[:, None] >= begins[None, :])
        score = tl.dot(key, tl.trans(query), input_precision=PRECISION) * (scale * LOG2E)
        share = tl.where(sees, tl.exp2(score - tl.load(lse + h * N + rows)[None, :]), 0.0)
        given = tl.load(grad + wide[:, None] * (H * D) + h * D + d[None, :])
        of_share = tl.dot(value, tl.trans(given), input_precision=PRECISION)
        dropped = share
        if DROPS:
            kept = _kept(tl.load(seed), rows[None, :], cols[:, None], h, N, H, dropout)
            dropped = tl.where(kept, share / (1 - dropout), 0.0)
            of_share = tl.where(kept, of_share / (1 - dropout), 0.0)
        of_value += tl.dot(dropped.to(given.dtype), given, input_precision=PRECISION)
        of_score = share * (of_share - tl.load(delta + h * N + rows)[None, :])
        of_key += tl.dot(of_score.to(query.dtype), query, input_precision=PRECISION)
    stride = 3 * H * D
    _store_turned_back(of_key * scale, out + (H + h) * D, at, stride, cos, sin, TURNED, D, BN)
    tl.store(out + at[:, None] * stride + (2 * H + h) * D + d[None, :], of_value.to(out.dtype.element_ty))


@triton.jit
def _query_gradients(
    q, k, v, firsts, seed, cos, sin, grad, lse, delta, out, N, H, scale, qk_stride, v_stride, dropout,
    DROPS: tl.constexpr, TURNED: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    m, h = tl.program_id(0), tl.program_id(1)
    rows = m * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    wide = rows.to(tl.int64)
    begins = tl.load(firsts + rows)
    query = tl.load(q + wide[:, None] * qk_stride + h * D + d[None, :])
    given = tl.load(grad + wide[:, None] * (H * D) + h * D + d[None, :])
    normaliser = tl.load(lse + h * N + rows)[:, None]
    offset = tl.load(delta + h * N + rows)[:, None]
    of_query = tl.zeros((BM, D), tl.float32)
    for n in range(tl.load(firsts + m * BM) // BN * BN, (m + 1) * BM, BN):
        cols = tl.multiple_of(n, BN) + tl.arange(0, BN)
        at = cols.to(tl.int64)
        key = tl.load(k + at[:, None] * qk_stride + h * D + d[None, :])
        value = tl.load(v + at[:, None] * v_stride + h * D + d[None, :])
        sees = (cols[None, :] <= rows[:, None]) & (cols[None, :] >= begins[:, None])
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * (scale * LOG2E)
        share = tl.where(sees, tl.exp2(score - normaliser), 0.0)
        of_share = tl.dot(given, tl.trans(value), input_precision=PRECISION)
        if DROPS:
            kept = _kept(tl.load(seed), rows[:, None], cols[None, :], h, N, H, dropout)
            of_share = tl.where(kept, of_share / (1 - dropout), 0.0)
        of_query += tl.dot((share * (of_share - offset)).to(key.dtype), key, input_precision=PRECISION)
    _store_turned_back(of_query * scale, out + h * D, wide, 3 * H * D, cos, sin, TURNED, D, BM)


@torch.library.custom_op("reviser::packed_attention", mutates_args=())
def packed_attention(
    qkv: Tensor, cos: Tensor, sin: Tensor, firsts: Tensor, lasts: Tensor, dropout: float, seed: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """[N, 3, H, D] to [N, H, D], log-sum-exps [H, N] and the turned queries and keys [N, 2, H, D].

    A place sees those from its `firsts` to itself; `lasts` is one past the end of its example. `cos` and `sin`
    [N, D/2] turn queries and keys; empty, they leave them. `seed` [1] decides what dropout keeps.
    """
    N, _, H, D = qkv.shape
    turned = _new(qkv, N if cos.numel() else 0, 2, H, D)
    if cos.numel():
        _turn[(N // 16,)](qkv, cos, sin, turned, H=H, D=D, BN=16, num_warps=4)
    q, k = (turned if cos.numel() else qkv).unbind(1)[:2]
    out, lse = _new(qkv, N, H, D), torch.empty(H, N, device=qkv.device)
    _attend[(N // 64, H)](
        q, k, qkv[:, 2], firsts, seed, out, lse, N, H, D**-0.5, q.stride(0), qkv.stride(0), dropout,
        DROPS=dropout > 0, D=D, BM=64, BN=32, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out, lse, turned


@packed_attention.register_fake
def _(
    qkv: Tensor, cos: Tensor, sin: Tensor, firsts: Tensor, lasts: Tensor, dropout: float, seed: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    N, _, H, D = qkv.shape
    turned = _new(qkv, N if cos.numel() else 0, 2, H, D)
    return _new(qkv, N, H, D), torch.empty(H, N, device=qkv.device), turned


@torch.library.custom_op("reviser::packed_attention_backward", mutates_args=())
def packed_attention_backward(
    grad: Tensor, qkv: Tensor, turned: Tensor, cos: Tensor, sin: Tensor, firsts: Tensor, lasts: Tensor, out: Tensor,
    lse: Tensor, dropout: float, seed: Tensor,
) -> Tensor:  # fmt: skip
    """The gradient [N, 3, H, D] of qkv."""
    N, _, H, D = qkv.shape
    q, k = (turned if cos.numel() else qkv).unbind(1)[:2]
    delta, result = torch.empty_like(lse), torch.empty_like(qkv)
    _delta[(N // PLACES, H)](out, grad, delta, N, H, D=D, BM=PLACES, num_warps=4)
    numbers = N, H, D**-0.5, q.stride(0), qkv.stride(0), dropout
    flags: dict[str, Any] = {"DROPS": dropout > 0, "TURNED": cos.numel() > 0, "D": D, "num_warps": 4, "num_stages": 3}
    given = cos, sin, grad, lse, delta, result, *numbers
    _key_gradients[(N // 64, H)](q, k, qkv[:, 2], firsts, lasts, seed, *given, BM=32, BN=64, **flags)
    _query_gradients[(N // 64, H)](q, k, qkv[:, 2], firsts, seed, *given, BM=64, BN=32, **flags)
    return result


@packed_attention_backward.register_fake
def _(
    grad: Tensor, qkv: Tensor, turned: Tensor, cos: Tensor, sin: Tensor, firsts: Tensor, lasts: Tensor, out: Tensor,
    lse: Tensor, dropout: float, seed: Tensor,
) -> Tensor:  # fmt: skip
    return torch.empty_like(qkv)


def _keep_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    qkv, cos, sin, firsts, lasts, ctx.dropout, seed = inputs
    out, lse, turned = output
    ctx.save_for_backward(qkv, turned, cos, sin, firsts, lasts, out, lse, seed)


def _attention_gradient(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    qkv, turned, cos, sin, firsts, lasts, out, lse, seed = ctx.saved_tensors
    result = packed_attention_backward(
        grad.contiguous(), qkv, turned, cos, sin, firsts, lasts, out, lse, ctx.dropout, seed
    )
    return result, None, None, None, None, None, None


packed_attention.register_autograd(_attention_gradient, setup_context=_keep_attention)


def _new(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device)


# ----------------------------------------------------------------------------------------------------- GELU


@triton.jit
def _normal(x):
    """Phi(x) and phi(x) of the normal distribution; Phi by Abramowitz and Stegun 7.1.26, within 1e-7."""
    tail = tl.exp2(x * x * (-0.5 * LOG2E))
    t = 1.0 / (1.0 + 0.2316418882663604 * tl.abs(x))
    series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    beyond = 0.5 * series * tail
    return tl.where(x < 0, beyond, 1.0 - beyond), tail * 0.3989422804014327


@triton.jit
def _gelu(x, bias, out, N, F, BN: tl.constexpr, BF: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    cols = tl.program_id(1) * BF + tl.arange(0, BF)
    at = rows[:, None] * F + cols[None, :]
    is_in = (rows[:, None] < N) & (cols[None, :] < F)
    shift = tl.load(bias + cols, mask=cols < F).to(tl.float32)
    value = tl.load(x + at, mask=is_in).to(tl.float32) + shift[None, :]
    below, _ = _normal(value)
    tl.store(out + at, (value * below).to(out.dtype.element_ty), mask=is_in)


@triton.jit
def _gelu_gradient(x, bias, grad, out, sums, N, F, BN: tl.constexpr, BF: tl.constexpr, STEPS: tl.constexpr):
    part = tl.program_id(0)
    cols = tl.program_id(1) * BF + tl.arange(0, BF)
    shift = tl.load(bias + cols, mask=cols < F).to(tl.float32)
    total = tl.zeros((BN, BF), tl.float32)
    for step in range(STEPS):
        rows = (part * STEPS + step).to(tl.int64) * BN + tl.arange(0, BN)
        at = rows[:, None] * F + cols[None, :]
        is_in = (rows[:, None] < N) & (cols[None, :] < F)
        value = tl.load(x + at, mask=is_in).to(tl.float32) + shift[None, :]
        below, density = _normal(value)
        result = tl.load(grad + at, mask=is_in, other=0.0).to(tl.float32) * (below + value * density)
        result = tl.where(is_in, result, 0.0)
        tl.store(out + at, result.to(out.dtype.element_ty), mask=is_in)
        total += result
    tl.store(sums + part * F + cols, tl.sum(total, 0), mask=cols < F)


GELU_CELLS, GELU_STEPS = 2048, 32
"""Values of a tile, and the tiles whose gradients one program adds up for the bias."""


@torch.library.custom_op("reviser::biased_gelu", mutates_args=())
def biased_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias) of [.., F], exact as F.gelu is."""
    flat, out = x.reshape(-1, x.shape[-1]), torch.empty_like(x, memory_format=torch.contiguous_format)
    N, F = flat.shape
    tile = _tile(F)
    _gelu[(triton.cdiv(N, tile["BN"]), triton.cdiv(F, tile["BF"]))](flat, bias, out, N, F, **tile, num_warps=4)
    return out


@biased_gelu.register_fake
def _(x: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("reviser::biased_gelu_backward", mutates_args=())
def biased_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and, as float32 sums [parts, F], of the bias."""
    flat = x.reshape(-1, x.shape[-1])
    N, F = flat.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    sums, tile = torch.empty(_parts(N, F), F, device=x.device), _tile(F)
    grid = len(sums), triton.cdiv(F, tile["BF"])
    _gelu_gradient[grid](flat, bias, grad, out, sums, N, F, **tile, STEPS=GELU_STEPS, num_warps=4)
    return out, sums


@biased_gelu_backward.register_fake
def _(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    N, F = x.numel() // x.shape[-1], x.shape[-1]
    sums = torch.empty(_parts(N, F), F, device=x.device)
    return torch.empty_like(x, memory_format=torch.contiguous_format), sums


def _keep_gelu(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gelu_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, bias = ctx.saved_tensors
    of_x, sums = biased_gelu_backward(grad.contiguous(), x, bias)
    return of_x, sums.sum(dim=0).to(bias.dtype)


biased_gelu.register_autograd(_gelu_backward, setup_context=_keep_gelu)


def _tile(F: int) -> dict[str, int]:
    """Wide tiles, unless narrower ones leave less of the last one empty."""
    columns = 1024 if F % 1024 == 0 else 512
    return {"BN": GELU_CELLS // columns, "BF": columns}


def _parts(N: int, F: int) -> int:
    return -(-N // (_tile(F)["BN"] * GELU_STEPS))


# ------------------------------------------------------------------------------------------- scores of the loss


@triton.jit
def _scores(at, cols, bits, num_text, size, pad, MASKED: tl.constexpr, SPECIAL: tl.constexpr):
    """A row's logits in float32, -inf for what is invalid and for rows behind the alphabet."""
    x = tl.load(at + cols, mask=cols < size, other=float("-inf")).to(tl.float32)
    if MASKED:
        # Shifts of 32 bits are cheap; a special action's bit is in one half or the other.
        special = cols - num_text
        half = tl.where(special < 32, bits.to(tl.int32), (bits >> 32).to(tl.int32))
        is_on = tl.where(special < 0, (bits >> SPECIAL).to(tl.int32), half >> (special & 31)) & 1
        x = tl.where((is_on != 0) & (cols != pad), x, float("-inf"))
    return x


@triton.jit
def _score(
    logits, labels, valid, weights, nats, stride, num_text, size, pad, R,
    MASKED: tl.constexpr, SPECIAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One place: a first pass over its row finds the normaliser, a second writes the gradient."""
    row = tl.program_id(0).to(tl.int64)
    at = logits + row * stride
    label, weight = tl.load(labels + row), tl.load(weights + row)
    bits = tl.load(valid + row) if MASKED else label
    offsets = tl.arange(0, BLOCK)
    top, total = tl.full((), NEVER, tl.float32), tl.full((), 0.0, tl.float32)
    for start in range(0, R, BLOCK):
        x = _scores(at, start + offsets, bits, num_text, size, pad, MASKED, SPECIAL)
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp2((top - higher) * LOG2E) + tl.sum(tl.exp2(x * LOG2E - higher * LOG2E), 0)
        top = higher
    normaliser = top + tl.log(total)
    one = tl.maximum(label, 0) + tl.arange(0, 1)
    picked = tl.sum(_scores(at, one, bits, num_text, size, pad, MASKED, SPECIAL), 0)
    tl.store(nats + row, tl.where(label >= 0, normaliser - picked, 0.0))
    # The weight is part of the exponent, and the label is corrected afterwards: fewer operations for all the others.
    base = normaliser * LOG2E - tl.where(weight > 0, tl.log2(tl.where(weight > 0, weight, 1.0)), float("-inf"))
    for start in range(0, R, BLOCK):
        cols = start + offsets
        x = _scores(at, cols, bits, num_text, size, pad, MASKED, SPECIAL)
        tl.store(at + cols, tl.exp2(x * LOG2E - base).to(logits.dtype.element_ty), mask=cols < R)
    tl.debug_barrier()
    corrected = tl.exp2(picked * LOG2E - base) - weight
    tl.store(at + one, (corrected + tl.zeros((1,), tl.float32)).to(logits.dtype.element_ty), mask=one == label)


def score(
    logits: Tensor, labels: Tensor, valid: Tensor | None, weights: Tensor, columns: Alphabet | int
) -> tuple[Tensor, Tensor]:
    """What `loss.score_chunk` gives; the logits [C, R] are overwritten by the gradient.

    The mask of a place without a label must allow something.
    """
    C, R = logits.shape
    nats = torch.empty(C, device=logits.device)
    masks = labels if valid is None else valid
    # Without a mask the kernel reads the size alone.
    if isinstance(columns, int):
        num_text = size = pad = columns
    else:
        num_text, size, pad = columns.num_text, columns.size, columns.pad
    _score[(C,)](
        logits, labels, masks, weights, nats, logits.stride(0), num_text, size, pad, R,
        MASKED=valid is not None, SPECIAL=NUM_SPECIAL, BLOCK=4096, num_warps=16,
    )  # fmt: skip
    return nats, logits
