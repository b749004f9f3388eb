"""Causal self-attention, plain and packed: the one place that chooses a kernel.

A kernel takes queries, keys and values as one [B, T, 3, H, D] (rows, positions, heads, head width), turns the first
two by their positions where there is a rotation, and gives [B, T, H, D]. Without a `Layout` each row is one example.
With one, several examples share a row and none sees another:

    row       a a a b b c c c        b's second position attends to b's two positions alone
    segments  0 0 0 1 1 2 2 2        positions restart: 0 1 2 0 1 0 1 2

>>> layout = Layout.of(torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2]]))
>>> layout.positions.tolist(), layout.starts.tolist()
([[0, 1, 2, 0, 1, 0, 1, 2]], [0, 3, 5, 8])
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from reviser.model.layers import FUSED, Rotation, turned

Kernel = Callable[[Tensor, Rotation | None], Tensor]


def _find_varlen() -> ModuleType | None:
    # Where nothing would use it, it is left out: it imports torch's compiler, which takes as long as torch itself.
    if not torch.cuda.is_available():
        return None
    try:
        return importlib.import_module("torch.nn.attention.varlen")
    except ImportError:
        return None


VARLEN = _find_varlen()
"""torch's variable-length kernel, where there is a GPU and torch has it."""
# torch 2.10 has `is_causal`; later versions say the same with a window.
_has_flag = VARLEN is not None and "is_causal" in inspect.signature(VARLEN.varlen_attn).parameters
_CAUSAL: dict[str, Any] = {"is_causal": True} if _has_flag else {"window_size": (-1, 0)}


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the examples of packed rows begin and end."""

    positions: Tensor
    """[B, T] int64: 0, 1, 2, ... from the beginning of each example."""
    segments: Tensor
    """[B, T] int: which example of its row a position belongs to, never decreasing along the row."""
    starts: Tensor
    """[N + 1] int32: where each example begins in the flattened B*T places, then B*T, repeated to a fixed
    length. Every place belongs to an example, padding to one of its own: a kernel leaves others unwritten."""
    longest: int
    """No example is longer, padding included; T is always right."""

    @classmethod
    def of(cls, segments: Tensor, num_starts: int | None = None) -> Layout:
        """The layout of rows given by segments alone; `starts` gets the fixed length `num_starts`."""
        B, T = segments.shape
        is_first = torch.ones_like(segments, dtype=torch.bool)
        is_first[:, 1:] = segments[:, 1:] != segments[:, :-1]
        place = torch.arange(T, device=segments.device).expand(B, T)
        positions = place - torch.where(is_first, place, 0).cummax(dim=1).values
        starts = is_first.flatten().nonzero().flatten().to(torch.int32)
        count = max(num_starts or 0, len(starts) + 1)
        return cls(positions, segments, F.pad(starts, (0, count - len(starts)), value=B * T), T)

    def mask(self) -> Tensor:
        """[B, 1, T, T] bool: whether the query (row) may see the key (column)."""
        T = self.segments.shape[1]
        causal = torch.ones(T, T, dtype=torch.bool, device=self.segments.device).tril()
        return (causal & (self.segments[:, :, None] == self.segments[:, None, :]))[:, None]


def choose(layout: Layout | None, device: torch.device, dtype: torch.dtype, dropout: float) -> Kernel:
    """The kernel for all layers of one forward pass."""
    if layout is None:
        return _turning(partial(_causal, dropout=dropout))
    if device.type == "cuda" and dtype in (torch.float16, torch.bfloat16):
        if FUSED is not None:
            return partial(_fused, layout=layout, bounds=bounds(layout), dropout=dropout)
        return _packed(layout, dropout)
    return _turning(partial(masked, mask=layout.mask(), dropout=dropout))


def _packed(layout: Layout, dropout: float) -> Kernel:
    """For half precision on CUDA; torch's own packed kernels know no dropout."""
    if dropout > 0:
        return _turning(partial(masked, mask=layout.mask(), dropout=dropout))
    if VARLEN is not None:
        return _turning(partial(varlen, layout=layout))
    return _turning(partial(documents, block_mask=block_mask(layout)))


def _turning(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Kernel:
    return lambda qkv, turn: attend(*turned(qkv, turn))


def reference(q: Tensor, k: Tensor, v: Tensor, layout: Layout | None = None) -> Tensor:
    """What all kernels compute, written out."""
    T, D = q.shape[1], q.shape[3]
    mask = torch.ones(T, T, dtype=torch.bool, device=q.device).tril() if layout is None else layout.mask()
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / D**0.5
    shares = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", shares, v)


def _causal(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True).transpose(1, 2)


def masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
    """Attention under a dense mask: any device, any dtype, O(T^2) memory."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout).transpose(1, 2)


def bounds(layout: Layout) -> tuple[Tensor, Tensor]:
    """For each flattened place [B * T] int32: where its example begins, and one past where it ends."""
    places = torch.arange(layout.positions.numel(), dtype=torch.int32, device=layout.starts.device)
    number = torch.searchsorted(layout.starts, places, right=True)
    return layout.starts[number - 1], layout.starts[number]


def _fused(
    qkv: Tensor, turn: Rotation | None, layout: Layout, bounds: tuple[Tensor, Tensor], dropout: float
) -> Tensor:
    """The kernel of triton_kernels.py over the flattened rows, where it takes their shape."""
    flat = qkv.flatten(0, 1).contiguous()
    if FUSED is None or not FUSED.fits(flat):
        return _packed(layout, dropout)(qkv, turn)
    cos, sin = (each.flatten(0, -2) for each in turn) if turn is not None else (flat.new_empty(0, 0),) * 2
    seed = torch.randint(1 << 31, (1,), device=qkv.device) if dropout else bounds[0][:1]
    return cast(Tensor, FUSED.packed_attention(flat, cos, sin, *bounds, dropout, seed)[0]).view(qkv[:, :, 0].shape)


def varlen(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    """The variable-length flash kernel over the flattened rows: CUDA, half precision, torch 2.10 or later."""
    assert VARLEN is not None
    starts, longest = layout.starts, layout.longest
    flat = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
    return cast(Tensor, VARLEN.varlen_attn(*flat, starts, starts, longest, longest, **_CAUSAL)).view_as(q)


def documents(q: Tensor, k: Tensor, v: Tensor, block_mask: flex.BlockMask) -> Tensor:
    """Block-sparse attention inside documents, for CUDA without the variable-length kernel."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return _compiled_flex()(q, k, v, block_mask=block_mask).transpose(1, 2)


def block_mask(layout: Layout) -> flex.BlockMask:
    segments, (B, T) = layout.segments, layout.segments.shape

    def sees(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (segments[b, query] == segments[b, key])

    return flex.create_block_mask(sees, B, None, T, T, device=str(segments.device))


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    # Uncompiled, flex_attention builds the whole score matrix.
    return torch.compile(flex.flex_attention, dynamic=False)
