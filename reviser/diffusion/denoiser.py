"""The blocks of `Transformer` looking both ways: a canvas with masked places in, what stands there out.

    canvas   the boat [M] still [M] the wall        hidden[i] has seen every place of its own canvas
    chosen            *         *                   log_scores: [2, V], one row for each chosen place

MASK is the id of CURSOR, which no text holds; padding is a token like any other here: it says where a text ends.
A score is m(y) >= 0, how much the model gives to token y at a place; they sum to 1 for MDLM, nearly so for SEDD.

>>> config = ModelConfig(num_text=257, pad=256, num_layers=2, width=64, num_heads=2, ff_width=256, context=99)
>>> model, canvas = Mdlm(config), torch.tensor([[104, config.alphabet.none, 105]])
>>> model.log_scores(canvas, torch.ones(1), Layout.of(torch.zeros(1, 3)), torch.tensor([1])).shape
torch.Size([1, 257])

Shape letters: B rows, T places, N chosen places, H heads, D head width, V text tokens, d width, c condition.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, partial
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.actions import Alphabet
from reviser.config import ModelConfig
from reviser.errors import ConfigError
from reviser.model import attention
from reviser.model.attention import Kernel, Layout, masked
from reviser.model.conditioning import CanvasInput
from reviser.model.layers import rotation, turned
from reviser.model.loss import Columns, Score, num_columns
from reviser.model.transformer import BLIND, Block, Transformer

SMALLEST = 1e-3
"""What would stay unmasked at level 1 for the network to read: sigma ends at log 1000, as in both papers' code."""
FREQUENCIES, CONDITION = 256, 128
"""Waves that encode sigma, and the width of what is made of them, as in the code of Lou et al. (2024)."""


class CanvasScorer(Protocol):
    """What bounds and samplers need from a denoiser."""

    @property
    def alphabet(self) -> Alphabet: ...

    @property
    def is_timed(self) -> bool:
        """Whether it reads the noise level; where not, its scores sum to 1 and change with the canvas alone."""
        ...

    def log_scores(self, tokens: Tensor, levels: Tensor, layout: Layout, chosen: Tensor) -> Tensor:
        """log m [N, V] at flat places of canvases [B, T], masked ones with the id `alphabet.none`; levels [B]."""
        ...


class Denoiser(Transformer, ABC):
    """What MDLM and SEDD share; abstract."""

    family = ""
    is_timed = False
    score: Score | None = None
    """The loss of a place and its gradient, where they are not those of a softmax (see loss.py)."""

    def __init__(self, config: ModelConfig) -> None:
        if config.canvas.kind != "none":
            raise ConfigError(f"model.canvas.kind={config.canvas.kind}: a denoiser sees the canvas anyway; set none")
        super().__init__(config)

    @property
    def alphabet(self) -> Alphabet:
        return self.config.alphabet

    def hidden(
        self, actions: Tensor, canvas: CanvasInput = BLIND, layout: Layout | None = None, levels: Tensor | None = None
    ) -> Tensor:
        """[B, T] canvases to [B, T, d], after the last norm; levels [B] is what a timed denoiser reads."""
        if layout is None:
            layout = Layout.of(torch.zeros_like(actions))
        kernel = choose(layout, self._dtype(actions.device), self.config.dropout if self.training else 0.0)
        return self._pass(actions, layout.positions, kernel, levels)

    def _pass(self, tokens: Tensor, positions: Tensor, kernel: Kernel, levels: Tensor | None) -> Tensor:
        return self._run(tokens, BLIND, positions, [kernel] * self.config.num_layers)

    @torch.no_grad()
    def log_scores(self, tokens: Tensor, levels: Tensor, layout: Layout, chosen: Tensor) -> Tensor:
        """log m [N, V] in float32 at flat places `chosen` [N]."""
        picked = self.hidden(tokens, BLIND, layout, levels).flatten(0, 1).index_select(0, chosen)
        return self.log_shares(F.linear(picked, self.head_weight)[..., : self.config.num_text].float())

    @abstractmethod
    def log_shares(self, logits: Tensor) -> Tensor:
        """log m [.., V] out of the head's scores."""


class Mdlm(Denoiser):
    """Sahoo et al. (2024): a softmax over the text tokens, blind to time: the masked places show it already."""

    family = "mdlm"

    def log_shares(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(dim=-1)


class Modulation(nn.Module):
    """A condition [B, c] to `count` vectors [B, 1, d] that shift and scale every place of a row; 0 at first."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.linear = nn.Linear(CONDITION, count * width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        return cast(Tensor, self.linear(condition))[:, None].chunk(self.count, dim=-1)


class Sedd(Denoiser):
    """Lou et al. (2024), absorbing: ratios of probabilities; it reads sigma through every norm (adaLN).

    The ratio of token y to MASK at a masked place is m(y) / (e^sigma - 1), and m need not sum to 1: the score entropy
    teaches it. Branches begin at zero as the blocks have it, so a gate is 1 and what the condition adds.
    """

    family, is_timed = "sedd", True

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.waves = nn.Sequential(nn.Linear(FREQUENCIES, CONDITION), nn.SiLU(), nn.Linear(CONDITION, CONDITION))
        for layer in (self.waves[0], self.waves[2]):
            nn.init.normal_(cast(nn.Linear, layer).weight, std=0.02)
            nn.init.zeros_(cast(nn.Linear, layer).bias)
        self.modulations = nn.ModuleList(Modulation(config.width, 6) for _ in range(config.num_layers))
        self.last = Modulation(config.width, 2)
        self.score = score_entropy

    def log_shares(self, logits: Tensor) -> Tensor:
        # Fresh weights give every token about 1 / V, as in the authors' code.
        return logits - math.log(self.config.num_text)

    def _pass(self, tokens: Tensor, positions: Tensor, kernel: Kernel, levels: Tensor | None) -> Tensor:
        if levels is None:
            raise ValueError("SEDD reads the noise level of each row; give levels")
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(positions)
        x = self.dropout(x).to(self._dtype(tokens.device))
        turn = rotation(positions, self.config) if self.positions is None else None
        condition = F.silu(self.waves(sinusoids(sigma(levels)).to(x.dtype)))
        for block, modulation in zip(self.blocks, self.modulations, strict=True):
            shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation(condition)
            own = cast(Block, block)
            seen = own.attention(own.attention_norm(x) * (1 + scale) + shift, turn, kernel)
            x = x + (1 + gate) * seen
            x = x + (1 + mlp_gate) * own.mlp(own.mlp_norm(x) * (1 + mlp_scale) + mlp_shift)
        shift, scale = self.last(condition)
        return cast(Tensor, self.norm(x) * (1 + scale) + shift)


FAMILIES: dict[str, type[Denoiser]] = {kind.family: kind for kind in (Mdlm, Sedd)}


def sigma(levels: Tensor) -> Tensor:
    """The total noise of a level, -log of what stays, kept finite at level 1."""
    return -torch.log1p(-(1 - SMALLEST) * levels)


def sinusoids(values: Tensor) -> Tensor:
    """[B] numbers as [B, 256] cosines and sines of falling frequency."""
    half = FREQUENCIES // 2
    rates = torch.exp(-math.log(10000.0) * torch.arange(half, device=values.device) / half)
    angles = values[:, None].float() * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def score_entropy(
    logits: Tensor, labels: Tensor, valid: Tensor | None, weights: Tensor, columns: Columns
) -> tuple[Tensor, Tensor]:
    """sum m - log m(label) - 1 of each place [C], and weights times its gradient by the logits [C, rows].

    That is the score entropy of Lou et al. times e^sigma - 1; it is least, and the nats of the label, where m sums to
    1. As `loss.score_chunk`, for log m = logits - log V.
    """
    num_text = num_columns(columns)
    scores = logits.float() - math.log(num_text)
    is_text = torch.arange(logits.shape[1], device=logits.device) < num_text
    shares = scores.exp().where(is_text, 0.0)
    places = labels.clamp(min=0)[:, None]
    is_label = torch.arange(logits.shape[1], device=logits.device) == places
    values = shares.sum(dim=-1) - scores.gather(1, places)[:, 0] - 1
    gradient = (shares - is_label.float()) * weights[:, None]
    return values.where(labels >= 0, 0.0), gradient.to(logits.dtype)


def choose(layout: Layout, dtype: torch.dtype, dropout: float) -> Kernel:
    """The kernel for all layers of one pass: every place sees its own canvas, both ways."""
    device = layout.segments.device
    if device.type != "cuda" or dtype == torch.float32 or dropout > 0 or attention.VARLEN is None:
        return _turning(partial(masked, mask=sees(layout), dropout=dropout))
    return _turning(partial(_varlen, layout=layout))


def sees(layout: Layout) -> Tensor:
    """[B, 1, T, T] bool: whether two places belong to one canvas."""
    return (layout.segments[:, :, None] == layout.segments[:, None, :])[:, None]


def _turning(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Kernel:
    return lambda qkv, turn: attend(*turned(qkv, turn))


def _varlen(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    """The variable-length flash kernel without a window: CUDA, half precision, torch 2.10 or later."""
    assert attention.VARLEN is not None
    starts, longest = layout.starts, layout.longest
    flat = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
    return cast(Tensor, attention.VARLEN.varlen_attn(*flat, starts, starts, longest, longest)).view_as(q)


@cache
def num_parameters(family: str, config: ModelConfig) -> int:
    """Weights of a denoiser, without the rows that only pad its table."""
    with torch.device("meta"):
        model = FAMILIES[family](config)
    padding = len(model.embedding.weight) - config.alphabet.size
    num_tables = 1 if config.tied else 2
    return sum(p.numel() for p in model.parameters()) - num_tables * padding * config.width
