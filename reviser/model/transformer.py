"""One plain Transformer over the history of edit actions: actions and canvas in, hidden and logits out.

    actions  START  INSERT a  MOVE -1     hidden[t] has seen actions 0..t and the canvas after each of them;
    hidden     h0      h1        h2       logits(hidden[t]) are the scores of action t + 1

>>> config = ModelConfig(num_text=257, pad=256, num_layers=2, width=64, num_heads=2, ff_width=256, context=99)
>>> model = Transformer(config)
>>> model(torch.tensor([[config.alphabet.start, 104, 105]])).shape
torch.Size([1, 3, 291])
>>> num_parameters(config)
117376

`config` chooses between the architecture of the published checkpoints and a modern one (see `ModelConfig`).
Shape letters: B rows, T or S positions, H heads, D head width, d width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from reviser.config import ModelConfig
from reviser.errors import ConfigError
from reviser.model.attention import Kernel, Layout, choose
from reviser.model.cache import Cache
from reviser.model.canvas_kinds import CanvasKind, canvas_of, num_looking
from reviser.model.conditioning import CanvasInput, Memory, make_block, make_reader, try_canvas
from reviser.model.layers import Mlp, RmsNorm, Rotation, make_dropout, make_norm, rotation
from reviser.model.pointer import Pointer

ROW_MULTIPLE = 128
"""Action rows are padded to a multiple of this: a GPU multiplies aligned shapes about twice as fast."""

BLIND = CanvasInput()


@runtime_checkable
class Resets(Protocol):
    """A module that draws its own weights, by torch's usual name for it."""

    def reset_parameters(self) -> None: ...


class SelfAttention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.shape = (3, config.num_heads, config.head_width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.q_norm = RmsNorm(config.head_width, eps=1e-6) if config.qk_norm else None
        self.k_norm = RmsNorm(config.head_width, eps=1e-6) if config.qk_norm else None
        self.dropout = make_dropout(config)

    def forward(self, x: Tensor, turn: Rotation | None, kernel: Kernel) -> Tensor:
        return cast(Tensor, self.dropout(self.out(kernel(self.heads(x), turn).flatten(-2))))

    def heads(self, x: Tensor) -> Tensor:
        """Queries, keys and values as one [.., 3, H, D]."""
        qkv = self.qkv(x).unflatten(-1, self.shape)
        if self.q_norm is not None and self.k_norm is not None:
            q, k, v = qkv.unbind(dim=-3)
            qkv = torch.stack([self.q_norm(q), self.k_norm(k), v], dim=-3)
        return cast(Tensor, qkv)


class Block(nn.Module):
    """Self-attention, then the canvas where this layer looks at it, then the MLP; each adds to x."""

    def __init__(self, config: ModelConfig, kind: CanvasKind, layer: int) -> None:
        super().__init__()
        self.attention_norm = make_norm(config, config.width)
        self.attention = SelfAttention(config)
        self.cross = make_block(kind, config) if layer >= config.num_layers - num_looking(config) else None
        self.mlp_norm = make_norm(config, config.width)
        self.mlp = Mlp(config)

    def forward(self, x: Tensor, turn: Rotation | None, memory: Memory | None, kernel: Kernel) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turn, kernel)
        if self.cross is not None and memory is not None:
            x = self.cross(x, memory)
        return x + cast(Tensor, self.mlp(self.mlp_norm(x)))


class Transformer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        rows = -(-config.alphabet.size // ROW_MULTIPLE) * ROW_MULTIPLE
        self.embedding = nn.Embedding(rows, config.width)
        self.positions = nn.Embedding(config.context, config.width) if config.positions == "absolute" else None
        kind = canvas_of(config)
        self.is_canvas_added = not kind.has_blocks
        self.canvas = make_reader(kind, config)
        self.dropout = make_dropout(config)
        self.blocks = nn.ModuleList(Block(config, kind, layer) for layer in range(config.num_layers))
        self.norm = make_norm(config, config.width)
        self.head = None if config.tied else nn.Linear(config.width, rows, bias=False)
        self.pointer = Pointer(config) if config.has_jumps else None
        self._check_canvas()
        self.initialise()
        try_canvas(self)

    @property
    def head_weight(self) -> Tensor:
        """[rows, d]: the output matrix, with rows behind `alphabet.size` that mean nothing."""
        return self.embedding.weight if self.head is None else self.head.weight

    def forward(self, actions: Tensor, canvas: CanvasInput = BLIND, layout: Layout | None = None) -> Tensor:
        """[B, T] actions to the [B, T, V + 34] scores of each next action, with one score for all JUMPs."""
        return self.logits(self.hidden(actions, canvas, layout))

    def hidden(self, actions: Tensor, canvas: CanvasInput = BLIND, layout: Layout | None = None) -> Tensor:
        """[B, T] actions to [B, T, d], after the last norm; all positions at once."""
        T, dropout = actions.shape[1], self.config.dropout if self.training else 0.0
        if layout is None and self.config.context < T:
            raise ValueError(f"{T} positions, but the model's context is {self.config.context}")
        positions = torch.arange(T, device=actions.device) if layout is None else layout.positions
        kernel = choose(layout, actions.device, self._dtype(actions.device), dropout)
        return self._run(actions, canvas, positions, [kernel] * self.config.num_layers)

    def logits(self, hidden: Tensor) -> Tensor:
        """[.., d] to [.., V + 34]."""
        return F.linear(hidden, self.head_weight)[..., : self.config.alphabet.size]

    @torch.no_grad()
    def step(
        self,
        actions: Tensor,
        canvas: CanvasInput,
        cache: Cache,
        counts: Tensor | None = None,
        span: int | None = None,
    ) -> Tensor:
        """Append [B, S] actions to the cached rows; [B, S, d] as `hidden` gives it for them.

        `counts` [B] says how many of a row's S actions are real (None: all); what comes out of the rest means
        nothing. No row may grow beyond `cache.context`. `span` bounds the length of every row afterwards, so
        that fewer slots are read.
        """
        S = actions.shape[1]
        positions, slots = cache.places(S, counts)
        bias = cache.bias(positions, min(span or cache.context, cache.context))
        layers = range(self.config.num_layers)
        kernels = [partial(cache.attend, layer=layer, slots=slots, bias=bias) for layer in layers]
        hidden = self._run(actions, canvas, positions.clamp(max=self.config.context - 1), kernels)
        if self.pointer is not None:
            cache.point(self.pointer.parts(hidden), slots)
        cache.lengths.add_(S if counts is None else counts)
        return hidden

    def _run(self, actions: Tensor, canvas: CanvasInput, positions: Tensor, kernels: Sequence[Kernel]) -> Tensor:
        x, memory = self.embedding(self.rows_of(actions)), None
        if self.positions is not None:
            x = x + self.positions(positions)
        if self.canvas is not None:
            memory = self.canvas(canvas, self.embedding.weight)
            x = x + memory.vectors if self.is_canvas_added else x
        x = self.dropout(x)
        # Under autocast the sums between layers are in half precision too: 5% quicker to train.
        x = x.to(self._dtype(x.device))
        turn = rotation(positions, self.config) if self.positions is None else None
        for block, kernel in zip(self.blocks, kernels, strict=True):
            x = block(x, turn, memory, kernel)
        return cast(Tensor, self.norm(x))

    def rows_of(self, actions: Tensor) -> Tensor:
        """The row of each action in the embedding; all JUMPs share one."""
        return actions if self.pointer is None else actions.clamp(max=self.config.alphabet.size - 1)

    def _check_canvas(self) -> None:
        """A model folder holds parameters alone, so a buffer would be missing after loading."""
        for name, _ in self.named_buffers():
            raise ConfigError(
                f"canvas kind {self.config.canvas.kind}: {name} is a buffer, which model folders do not hold; make "
                "it an nn.Parameter or compute it in forward"
            )

    def _dtype(self, device: torch.device) -> torch.dtype:
        """What the matrix products compute in."""
        is_mixed = torch.is_autocast_enabled(device.type)
        return torch.get_autocast_dtype(device.type) if is_mixed else self.embedding.weight.dtype

    @torch.no_grad()
    def initialise(self) -> None:
        """Fresh weights: `layer` as its author has it, `rms` with residual branches that start at zero.

        Modules other than matrices and tables draw what they own themselves, by `reset_parameters`.
        """
        is_modern = self.config.norm == "rms"
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(std=module.in_features**-0.5 if is_modern else 0.02)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(std=0.02)
            elif isinstance(module, Resets):
                module.reset_parameters()
        # Parents come before their parts in modules(), so blocks need a second round.
        for module in self.modules() if is_modern else ():
            if isinstance(module, Block):
                module.attention.out.weight.zero_()
                module.mlp.down.weight.zero_()
        self.head_weight.normal_(std=0.02)
        for weight in (self.embedding.weight, self.head_weight):
            weight[self.config.alphabet.size :].zero_()


def make_meta(config: ModelConfig) -> Transformer:
    """A model without storage, to count or to fill with weights that there are already."""
    with torch.device("meta"), _Undrawn():
        return Transformer(config)


class _Undrawn(TorchFunctionMode):
    """Draws no weights: on "meta" that would import torch's compiler, which takes as long as torch itself."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if getattr(func, "__name__", "") in ("normal_", "uniform_", "kaiming_uniform_"):
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@cache
def num_parameters(config: ModelConfig) -> int:
    """Weights of the model, without the rows that only pad its action table."""
    model = make_meta(config)
    padding = len(model.embedding.weight) - config.alphabet.size
    num_tables = 1 if config.tied else 2
    return sum(p.numel() for p in model.parameters()) - num_tables * padding * config.width


@cache
def num_multiplied(config: ModelConfig) -> int:
    """Weights that every position is multiplied with: all but the tables it looks up; the head counts."""
    tables = [module for module in make_meta(config).modules() if isinstance(module, nn.Embedding)]
    looked_up = sum(table.weight.numel() for table in tables[1:])
    embedding = 0 if config.tied else config.alphabet.size * config.width
    return num_parameters(config) - looked_up - embedding


def flops_per_position(config: ModelConfig, mean_context: float) -> float:
    """Training operations of one position, 6 N + 12 L d T by the usual count.

    T is the length of the sequences, attention counted in full although half of it is masked; a forward pass
    alone is a third of this.
    """
    attention = 12 * config.num_layers * config.width * mean_context
    return 6.0 * num_multiplied(config) + attention
