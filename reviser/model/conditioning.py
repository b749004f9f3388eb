"""The modules of the built-in canvas inputs: a `CanvasInput` in, a `Memory` out, and the layers' blocks that use it.

Each step is shown the canvas after its own action, and at that step alone:

    action  START   INSERT a   INSERT b   MOVE -1        windows of one token each side, "." past an edge:
    canvas  |       a|         ab|        a|b            . .    a .    b .    a b

So nothing about a past step ever changes, and cached keys and values stay right.

canvas_kinds.py says which kind is made of which:

| kind | reader | block in the layers |
|---|---|---|
| window | `Window` | |
| window-index | `IndexedWindow` | |
| pool (the paper, A.2) | `Pool` | |
| cross (the paper, A.3) | `Pool` | `CrossPool` |
| cross-window | `WindowSlots` | `CrossWindow` |

What a plugin's kind makes is checked where a model is built (`make_reader`, `make_block`, `try_canvas`). The built-in
kinds are tested with the package, so nothing is called for them; a model on "meta" computes nothing and is tried once
it has storage.

Shape letters: B rows, T steps, W tokens each side, S = 2 W slots, R canvas places; d width, e slot width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.config import CanvasConfig, ModelConfig
from reviser.errors import ConfigError
from reviser.model.canvas_kinds import CanvasKind, canvas_of, describe, is_built_in
from reviser.model.layers import make_norm

if TYPE_CHECKING:
    from reviser.model.transformer import Transformer

ROWS, STEPS, PLACES = 2, 3, 4
"""The size of the canvases that are shown to try a kind; no two are the same, so that none is taken for another."""


@dataclass(frozen=True, eq=False)
class CanvasInput:
    """The canvas after each step, as the model's canvas kind wants it: windows, rows or neither, and the cursor."""

    windows: Tensor | None = None
    """[B, T, 2 W] int: canvas[u-W .. u-1], then canvas[u .. u+W-1]; `alphabet.none` past an edge."""
    rows: Tensor | None = None
    """[B, T, R] int: the canvas with CURSOR (`alphabet.none`) inserted at the cursor, then -1.

    R is at most `max_length + 1` and differs from call to call. A padded step has -1 everywhere.
    """
    cursors: Tensor | None = None
    """[B, T] int: the boundary at which the cursor stands, 0 at the front, n behind all n tokens of the canvas."""


@dataclass(frozen=True, eq=False)
class Memory:
    """What the layers may look at, read once for all of them."""

    vectors: Tensor
    """[B, T, d] where they are added to the input; whatever the kind's blocks want where it has blocks."""
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


class IndexedWindow(Window):
    """windows and cursors -> [B, T, d]: the window's vectors, each with that of the boundary at its cursor.

    Boundaries beyond `max_length` share the last row.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.boundaries = nn.Embedding(config.max_length + 1, config.width)

    def forward(self, canvas: CanvasInput, embedding: Tensor) -> Memory:
        cursors = _given(canvas.cursors, "cursors").clamp(0, self.boundaries.num_embeddings - 1)
        return Memory(super().forward(canvas, embedding).vectors + self.boundaries(cursors))


class Pool(nn.Module):
    """rows -> [B, T, d]: sum_i alpha_i z_i with z_i = E[c_i] + P[i] and alpha = softmax(<query, z_i>).

    One sum for each step, of its own canvas, as in the author's code. The paper prints one for all steps, of the
    newest canvas, which would change the input of every past step.

    The scores are looked up from E query and P query, and the sum over E is a weighted bag, so that nothing
    of size [B, T, R, d] exists.
    """

    def __init__(self, config: ModelConfig, has_projection: bool) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(config.width))
        self.positions = nn.Embedding(config.max_length + 1, config.width)
        self.projection = nn.Linear(config.width, config.width, bias=False) if has_projection else None

    def reset_parameters(self) -> None:
        nn.init.normal_(self.query, std=0.02)

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

    def reset_parameters(self) -> None:
        nn.init.normal_(self.places, std=0.02)
        nn.init.normal_(self.null, std=0.02)

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

    def reset_parameters(self) -> None:
        if self.scale is not None:
            nn.init.constant_(self.scale, 0.1)

    def forward(self, x: Tensor, update: Tensor) -> Tensor:
        if self.scale is not None:
            update = self.scale * update
        if self.inner is not None and self.outer is not None:
            update = self.outer(F.gelu(self.inner(x))).sigmoid() * update
        return x + update


def _given(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        raise ValueError(f"this model's canvas conditioning needs CanvasInput.{name}")
    return tensor


def make_reader(kind: CanvasKind, config: ModelConfig) -> nn.Module | None:
    """The kind's reader, which must be a module; None where there is nothing to see."""
    if is_built_in(kind):
        return kind.reader(config)
    made: Any = _call(config, "reader(config)", kind.reader, config)
    if made is None and kind.shows == "nothing" and not kind.sees_cursor and not kind.has_blocks:
        return None
    return _check_module(config, "reader", made)


def make_block(kind: CanvasKind, config: ModelConfig) -> nn.Module | None:
    """The kind's part of a layer, which must be a module where the kind defines `block`."""
    if is_built_in(kind) or not kind.has_blocks:
        return kind.block(config)
    return _check_module(config, "block", _call(config, "block(config)", kind.block, config))


@torch.no_grad()
def try_canvas(model: Transformer) -> None:
    """Read a few empty canvases with the kind of a plugin; random numbers are drawn afterwards as if it had not."""
    config, embedding = model.config, model.embedding.weight
    if is_built_in(canvas_of(config)) or embedding.is_meta:
        return
    describe(config)
    if model.canvas is None:
        return
    with torch.random.fork_rng([embedding.device] if embedding.is_cuda else []):
        memory = _call(config, "the reader's forward", model.canvas, _show_empty(config, embedding.device), embedding)
        _check_memory(config, memory, is_added=model.is_canvas_added)
        if not model.is_canvas_added:
            x = torch.zeros(ROWS, STEPS, config.width, device=embedding.device, dtype=embedding.dtype)
            last: Any = model.blocks[-1]
            _check_shape(config, "the block's forward", _call(config, "the block's forward", last.cross, x, memory))


def _show_empty(config: ModelConfig, device: torch.device) -> CanvasInput:
    none = config.alphabet.none
    windows = torch.full((ROWS, STEPS, 2 * config.canvas.window), none, device=device)
    rows = torch.full((ROWS, STEPS, min(PLACES, config.max_length + 1)), -1, device=device)
    rows[..., 0] = none
    cursors = torch.zeros((ROWS, STEPS), dtype=torch.int64, device=device)
    shown = config.canvas.has_windows, config.canvas.has_rows, config.canvas.has_cursor
    parts = zip((windows, rows, cursors), shown, strict=True)
    return CanvasInput(*(part if is_shown else None for part, is_shown in parts))


def _call(config: ModelConfig, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:  # whatever a plugin raises
        said = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{_name(config)}: {what} failed ({type(error).__name__}: {said}); fix the plugin, or see where it "
            "happened with --debug"
        ) from error


def _check_module(config: ModelConfig, method: str, made: Any) -> nn.Module:
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{_name(config)}: {method}(config) gave {_type(made)}; it must return an nn.Module")
    return made


def _check_memory(config: ModelConfig, memory: Any, is_added: bool) -> None:
    what = "the reader's forward"
    if not isinstance(memory, Memory):
        raise ConfigError(f"{_name(config)}: {what} gave {_type(memory)}; it must return a Memory(vectors)")
    if is_added:
        _check_shape(config, f"{what}, in Memory.vectors,", memory.vectors)
    elif not isinstance(memory.vectors, Tensor):
        raise ConfigError(f"{_name(config)}: Memory.vectors is {_type(memory.vectors)}; it must be a Tensor")


def _check_shape(config: ModelConfig, what: str, found: Any) -> None:
    wanted = ROWS, STEPS, config.width
    if not isinstance(found, Tensor) or found.shape != wanted:
        shape = f"the shape {list(found.shape)}" if isinstance(found, Tensor) else _type(found)
        raise ConfigError(
            f"{_name(config)}: {what} gave {shape} for {ROWS} rows of {STEPS} steps; it must be {list(wanted)}, "
            "the last of them the model's width"
        )


def _name(config: ModelConfig) -> str:
    return f"canvas kind {config.canvas.kind.partition(':')[0]}"


def _type(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
