"""The likelihood bound on held-out text: -log p(y) <= E_q [ -log p(A) + log q(A) ], one draw an example.

Comparable between orders, exact for left-to-right, per final token. The softmax always runs over valid
actions and there is no step budget: that is the model's probability of ending with y on the canvas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from reviser.canvas import Rules
from reviser.config import CanvasConfig
from reviser.data.examples import Examples, heldout_examples
from reviser.data.packing import Packed, Packer
from reviser.data.shards import Shards
from reviser.errors import ConfigError
from reviser.model.transformer import Transformer
from reviser.tokenizer import Tokenizer
from reviser.trajectory.orders import Order
from reviser.training.objective import label_nats, to_inputs

ROWS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Bound:
    """Mean over examples, with the standard error of the nats per token."""

    nats_per_token: float
    error: float
    bits_per_byte: float
    log_q_per_token: float
    num_examples: int

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nats_per_token, 700.0))


class Heldout:
    """A fixed set of held-out examples, ready to measure any model of its alphabet and canvas."""

    def __init__(
        self, shards: Shards, order: Order, rules: Rules, canvas: CanvasConfig, count: int, prefix: int, length: int,
        infill: bool = False,
    ) -> None:  # fmt: skip
        if not order.has_likelihood:
            raise ConfigError(
                f"{type(order).__name__} with noise or a step budget has no likelihood; measure with an order without"
            )
        examples = heldout_examples(shards, count, prefix, length, infill)
        longest = int((examples.prefix + examples.length + examples.suffix).max())
        # Rows much longer than the usual trajectory: no example is ever shortened to fit.
        packer = Packer(order, rules, canvas, row=8 * longest + 64, longest_canvas=longest)
        self.packed = _trim(packer.pack(_copy(examples)))
        self.num_bytes = _num_bytes(examples, shards.tokenizer)

    def measure(
        self, model: Transformer, device: torch.device, precision: str = "float32",
        trunk: Callable[..., Tensor] | None = None,
    ) -> Bound:  # fmt: skip
        """The bound of a model on these examples."""
        was_training = model.training
        model.eval()
        nats = np.zeros(self.packed.actions.shape)
        for start in range(0, len(nats), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                inputs = to_inputs(_rows(self.packed, part), self.packed.actions.shape[1], device)
                nats[part] = label_nats(model, inputs, trunk).float().cpu().numpy()
        model.train(was_training)
        return self._summarise(nats)

    def _summarise(self, nats: np.ndarray) -> Bound:
        packed = self.packed
        sums = np.array([nats[row, col : col + size].sum() for row, col, size in packed.places])
        total = sums + packed.log_q
        tokens = packed.num_tokens
        mean = float(total.sum() / tokens.sum())
        # A ratio of sums: the error of its linearisation.
        spread = (total - mean * tokens).std(ddof=1) if len(total) > 1 else math.nan
        return Bound(
            mean,
            float(spread * math.sqrt(len(total)) / tokens.sum()),
            float(total.sum() / math.log(2) / self.num_bytes),
            float(packed.log_q.sum() / tokens.sum()),
            len(total),
        )


def _copy(examples: Examples) -> Examples:
    return replace(examples, length=examples.length.copy(), states=examples.states.copy())


def _trim(packed: Packed) -> Packed:
    """Cut rows to the longest that is used, so that padding costs little."""
    size = int(packed.num_actions.max())
    cut = {
        name: None if getattr(packed, name) is None else getattr(packed, name)[:, :size]
        for name in ("actions", "labels", "valid", "positions", "segments", "windows", "canvases")
    }
    return replace(packed, **cut)


def _rows(packed: Packed, part: slice) -> Packed:
    names = ("actions", "labels", "valid", "positions", "segments", "windows", "canvases", "num_actions")
    cut = {name: None if getattr(packed, name) is None else getattr(packed, name)[part] for name in names}
    return replace(packed, **cut)


def _num_bytes(examples: Examples, tokenizer: Tokenizer) -> int:
    return sum(len(tokenizer.decode(examples.target(i).tolist()).encode()) for i in range(len(examples)))
