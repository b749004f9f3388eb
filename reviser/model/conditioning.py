"""What the model is shown of the canvas: one choice in the config, one small module for each.

A step's canvas is the one after its action, and it enters at that step alone:

    action  START   INSERT a   INSERT b   MOVE -1        windows of one token each side, "." past an edge:
    canvas  |       a|         ab|        a|b            . .    a .    b .    a b

So nothing about a past step ever changes, and cached keys and values stay right.

| kind | sees | enters |
|---|---|---|
| window | the tokens beside the cursor | added to the action's embedding |
| pool | the whole canvas, pooled by a learned query (the paper, A.2) | added to the action's embedding |
| cross | the same pooled vector (the paper, A.3) | in the layers, between attention and MLP |
| cross-window | the tokens beside the cursor | in the layers, by real attention over them |

Shape letters: B rows, T steps, W tokens each side, S = 2 W slots, R canvas places; d width, e slot width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.config import CanvasConfig, ModelConfig
from reviser.model.layers import make_norm


@dataclass(frozen=True, eq=False)
class CanvasInput:
    """The canvas after each step, as far as the model's conditioning wants it; nothing for `none`."""

    windows: Tensor | None = None
    """[B, T, 2 W] int: canvas[u-W .. u-1], then canvas[u .. u+W-1]; `alphabet.none` past an edge."""
    rows: Tensor | None = None
    """[B, T, R] int: the canvas with CURSOR inserted at the cursor, then -1."""


@dataclass(frozen=True, eq=False)
class Memory:
    """What the layers may look at, read once for all of them."""

    vectors: Tensor
    """[B, T, d], or [B, T, S + 1, e] for slots."""
    is_there: Tensor | None = None
    """[B, T, S + 1] bool: which slots hold something."""


class Window(nn.Module):
    """windows -> [B, T, d]: each slot in a small table, all slots side by side, one matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        canvas = config.canvas
        self.table = nn.Embedding(config.num_text + 1, canvas.slot_width)
        self.projection = nn.Linear(2 * canvas.window * canvas.slot_width, config.width, bias=False)

    def forward(self, canvas: CanvasInput, embedding: Tensor) -> Memory:
        return Memory(self.projection(self.table(_given(canvas.windows, "windows")).flatten(-2)))


class Pool(nn.Module):
    """rows -> [B, T, d]: sum_i alpha_i z_i with z_i = E[c_i] + P[i] and alpha = softmax(<query, z_i>).

    The scores are looked up from E query and P query, and the sum over E is a weighted bag, so that nothing
    of size [B, T, R, d] exists.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(config.width))
        self.positions = nn.Embedding(config.max_length + 1, config.width)
        has_projection = config.canvas.kind == "pool" and config.canvas.projection
        self.projection = nn.Linear(config.width, config.width, bias=False) if has_projection else None

    def forward(self, canvas: CanvasInput, embedding: Tensor) -> Memory:
        rows = _given(canvas.rows, "rows").long()
        B, T, R = rows.shape
        tokens, places = rows.clamp(min=0), self.positions.weight[:R]
        # Products and sums, since autocast would round a matmul's scores.
        token_scores = F.embedding(tokens, (embedding * self.query).sum(-1, keepdim=True))[..., 0]
        scores = token_scores + (places * self.query).sum(-1)
        # Not -inf: a padded step has no canvas at all, and its NaN would spread through the gradients.
        shares = scores.masked_fill(rows < 0, torch.finfo(scores.dtype).min).softmax(dim=-1)
        bags = F.embedding_bag(tokens.view(-1, R), embedding, mode="sum", per_sample_weights=shares.view(-1, R))
        pooled = bags.view(B, T, -1) + shares @ places
        return Memory(pooled if self.projection is None else self.projection(pooled))


class WindowSlots(nn.Module):
    """windows -> [B, T, S + 1, e]: a vector for each slot, of its token and its place.

    The extra slot is a learned one that is always there, so that an empty canvas has something to attend to.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        canvas = config.canvas
        self.none = config.alphabet.none
        self.table = nn.Embedding(config.num_text + 1, canvas.slot_width)
        self.places = nn.Parameter(torch.empty(2 * canvas.window, canvas.slot_width))
        self.null = nn.Parameter(torch.empty(1, canvas.slot_width))

    def forward(self, canvas: CanvasInput, embedding: Tensor) -> Memory:
        windows = _given(canvas.windows, "windows")
        null = self.null.expand(*windows.shape[:2], 1, -1)
        vectors = torch.cat([self.table(windows) + self.places, null], dim=2)
        return Memory(vectors, F.pad(windows != self.none, (0, 1), value=True))


class CrossPool(nn.Module):
    """The paper's A.3: an update of [B, T, d] from the pooled vector mu_t of the same step.

    As printed, keys and values are n copies of mu_t. All scores of a query are then equal, the softmax is
    uniform whatever W_Q and W_K are, and the update is mu_t W_V: this computes just that, with W_V alone.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.value = nn.Linear(config.width, config.width, bias=False)
        self.gate = Gate(config.width, config.canvas)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        return cast(Tensor, self.gate(x, self.value(memory.vectors)))


class CrossWindow(nn.Module):
    """Attention from each step to the slots of its own window.

    The slots are keys and values themselves, in e dimensions for every head: W_K is part of `query` (into
    h e dimensions) and W_V part of `out`, which is the same function and keeps no [B, T, S, d].
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads, self.slot_width = config.num_heads, config.canvas.slot_width
        self.norm = make_norm(config, config.width)
        self.query = nn.Linear(config.width, self.num_heads * self.slot_width, bias=False)
        self.out = nn.Linear(self.num_heads * self.slot_width, config.width, bias=False)
        self.gate = Gate(config.width, config.canvas)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        slots, is_there = memory.vectors, _given(memory.is_there, "windows")
        queries = self.query(self.norm(x)).unflatten(-1, (self.num_heads, self.slot_width))
        scores = (queries @ slots.transpose(-1, -2).to(queries.dtype)).float() / self.slot_width**0.5
        shares = scores.masked_fill(~is_there[..., None, :], -torch.inf).softmax(dim=-1).to(queries.dtype)
        return cast(Tensor, self.gate(x, self.out((shares @ slots.to(queries.dtype)).flatten(-2))))


class Gate(nn.Module):
    """x plus its update, scaled by 1, by a learned number, or by sigma(W2 gelu(W1 x)) at each step."""

    def __init__(self, width: int, canvas: CanvasConfig) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(())) if canvas.gate == "scalar" else None
        self.inner = nn.Linear(width, max(1, width // 8), bias=False) if canvas.gate == "mlp" else None
        self.outer = nn.Linear(max(1, width // 8), 1, bias=False) if canvas.gate == "mlp" else None

    def forward(self, x: Tensor, update: Tensor) -> Tensor:
        if self.scale is not None:
            update = self.scale * update
        if self.inner is not None and self.outer is not None:
            update = self.outer(F.gelu(self.inner(x))).sigmoid() * update
        return x + update


def make_reader(config: ModelConfig) -> Window | Pool | WindowSlots | None:
    """The module that reads a `CanvasInput`, where the config wants one."""
    if config.canvas.kind == "none":
        return None
    if config.canvas.kind == "window":
        return Window(config)
    return WindowSlots(config) if config.canvas.kind == "cross-window" else Pool(config)


def make_cross(config: ModelConfig, layer: int) -> CrossPool | CrossWindow | None:
    """The canvas block of one layer, where the config puts one there."""
    last = config.canvas.layers or config.num_layers
    if not config.canvas.has_cross or layer < config.num_layers - last:
        return None
    return CrossPool(config) if config.canvas.kind == "cross" else CrossWindow(config)


def _given(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        raise ValueError(f"this model's canvas conditioning needs CanvasInput.{name}")
    return tensor
