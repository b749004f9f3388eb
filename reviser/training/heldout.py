"""The likelihood bound on held-out text: -log p(y) <= E_q [ -log p(A) + log q(A) ], one draw an example.

Comparable between orders, exact for left-to-right, per final token. The softmax always runs over valid
actions and there is no step budget: that is the model's probability of ending with y on the canvas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from reviser.actions import JUMPS, MOVES, REPLACE, Alphabet
from reviser.canvas import Rules
from reviser.config import CanvasConfig, ModelConfig
from reviser.data.examples import Examples, heldout_examples
from reviser.data.packing import Packed, Packer
from reviser.data.shards import Shards
from reviser.errors import ConfigError
from reviser.model.transformer import Transformer
from reviser.orders.policies import Order
from reviser.tokenizer import Tokenizer
from reviser.training.objective import label_nats, to_inputs

ROWS_AT_ONCE = 32
Nats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bound:
    """Mean over examples, with the standard error of the nats per token (None for a single example)."""

    nats_per_token: float
    error: float | None
    bits_per_byte: float
    log_q_per_token: float
    num_examples: int

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.nats_per_token, 700.0))

    def metrics(self, job: str) -> dict[str, float | None]:
        """Its numbers by their names in metrics; those of the job `continue` have no prefix."""
        before = "" if job == "continue" else f"{job}_"
        return {
            f"{before}bound_nats_per_token": self.nats_per_token,
            f"{before}bound_error": self.error,
            f"{before}bound_perplexity": self.perplexity,
            f"{before}bits_per_byte": self.bits_per_byte,
        }


class Texts(Protocol):
    """Held-out texts, ready for a model to score."""

    def score(
        self, model: Transformer, device: torch.device, precision: str = "float32", rank: int = 0, world: int = 1
    ) -> Nats:
        """What each text costs; one of several processes scores every `world`-th and leaves 0 elsewhere."""
        ...

    def summarise(self, nats: Nats) -> Bound: ...


class Sampled:
    """Examples with a trajectory each, ready for any model of their alphabet and canvas to score."""

    def __init__(self, examples: Examples, order: Order, rules: Rules, canvas: CanvasConfig) -> None:
        check_likelihood(order)
        longest = int((examples.prefix + np.maximum(examples.length, examples.drafted) + examples.suffix).max())
        if longest > rules.max_length:
            raise ConfigError(
                f"held-out texts of {longest} tokens do not fit a canvas of {rules.max_length}; measure shorter ones"
            )
        packer = Packer(order, rules, canvas, row=8 * longest + 64, longest_canvas=longest)
        self.packed = _trim(_pack_whole(packer, examples))
        self.longest = int(self.packed.places[:, 2].max())

    def check_fits(self, config: ModelConfig) -> None:
        """Refuse a model whose table of positions is too short."""
        if config.positions == "absolute" and self.longest > config.context:
            raise ConfigError(
                f"held-out trajectories take up to {self.longest} positions and the model has a table of "
                f"{config.context}; measure shorter texts"
            )

    def is_insert_last(self, alphabet: Alphabet) -> npt.NDArray[np.bool_]:
        """[examples] whether a trajectory ends with an INSERT and its STOP, or writes nothing at all."""
        places, labels = self.packed.places, self.packed.labels
        last = labels[places[:, 0], places[:, 1] + places[:, 2] - 2]
        found: npt.NDArray[np.bool_] = (last < alphabet.num_text) | (self.packed.num_tokens == 0)
        return found

    def score(
        self, model: Transformer, device: torch.device, precision: str = "float32", rank: int = 0, world: int = 1
    ) -> Nats:
        """-log p of each example; one of several processes scores every `world`-th row and leaves 0 elsewhere."""
        nats: Nats = self.score_kinds(model, device, precision, rank, world).sum(axis=1)
        return nats

    def score_kinds(
        self, model: Transformer, device: torch.device, precision: str = "float32", rank: int = 0, world: int = 1
    ) -> Nats:
        """[examples, 3] what the INSERTs of each cost, what its MOVEs and JUMPs, and what all else."""
        self.check_fits(model.config)
        was_training = model.training
        model.eval()
        nats = np.zeros(self.packed.actions.shape)
        for start in range(rank, len(nats), ROWS_AT_ONCE * world):
            part = slice(start, start + ROWS_AT_ONCE * world, world)
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                inputs = to_inputs(take_rows(self.packed, part), self.longest, device)
                nats[part] = label_nats(model, inputs).float().cpu().numpy()
        model.train(was_training)
        alphabet, labels = model.config.alphabet, self.packed.labels
        is_insert, is_edit = (
            labels < alphabet.num_text,
            (labels < alphabet.num_text + MOVES)
            | ((labels >= alphabet.num_text + REPLACE) & (labels < alphabet.num_text + JUMPS)),
        )
        kinds = [nats * which for which in (is_insert, ~is_edit, is_edit & ~is_insert)]
        return np.array(
            [[kind[row, col : col + size].sum() for kind in kinds] for row, col, size in self.packed.places]
        )


class Heldout(Sampled):
    """A fixed set of held-out examples, one trajectory each."""

    def __init__(
        self, examples: Examples, tokenizer: Tokenizer, order: Order, rules: Rules, canvas: CanvasConfig
    ) -> None:
        super().__init__(examples, order, rules, canvas)
        self.num_bytes = count_bytes(examples, tokenizer)

    @classmethod
    def of(
        cls, shards: Shards, order: Order, rules: Rules, canvas: CanvasConfig, count: int, prefix: int, length: int,
        infill: bool = False, cut_stops: bool = True,
    ) -> Heldout:  # fmt: skip
        """Texts to continue, or gaps to fill."""
        check_likelihood(order)
        examples = heldout_examples(shards, count, prefix, length, infill, cut_stops)
        return cls(examples, shards.tokenizer, order, rules, canvas)

    def measure(self, model: Transformer, device: torch.device, precision: str = "float32") -> Bound:
        """The bound of a model on these examples."""
        return self.summarise(self.score(model, device, precision))

    def summarise(self, nats: Nats) -> Bound:
        """The bound, given -log p of each example."""
        packed = self.packed
        return summarise(nats + packed.log_q, packed.log_q, packed.num_tokens, self.num_bytes)


def check_likelihood(order: Order) -> None:
    """Refuse an order whose trajectories have no log q."""
    if not order.has_likelihood:
        raise ConfigError(
            f"{type(order).__name__} with noise or a step budget has no likelihood; "
            "measure with an order that has neither"
        )


def summarise(nats: Nats, log_q: Nats, tokens: npt.NDArray[np.int64], num_bytes: int) -> Bound:
    """The bound over texts: what each costs in nats, log q of what was drawn for it, and its tokens."""
    mean = float(nats.sum() / tokens.sum())
    # A ratio of sums: the error of its linearisation.
    spread = (nats - mean * tokens).std(ddof=1) if len(nats) > 1 else None
    return Bound(
        mean,
        None if spread is None else float(spread * math.sqrt(len(nats)) / tokens.sum()),
        float(nats.sum() / math.log(2) / num_bytes),
        float(log_q.sum() / tokens.sum()),
        len(nats),
    )


def _pack_whole(packer: Packer, examples: Examples) -> Packed:
    """Rows long enough for every trajectory: a target that had to be shortened would be a step budget."""
    while True:
        names = ("length", "states", "drafts", "drafted")
        copied = replace(examples, **{name: getattr(examples, name).copy() for name in names})
        packed = packer.pack(copied)
        if np.array_equal(packed.num_tokens, examples.length):
            return packed
        packer = replace(packer, row=2 * packer.row)


def _trim(packed: Packed) -> Packed:
    """Cut rows to the longest that is used, and padding's positions to those of examples."""
    cut = take_rows(packed, slice(None), slice(int(packed.num_actions.max())))
    return replace(cut, positions=cut.positions % int(packed.places[:, 2].max()))


def take_rows(packed: Packed, rows: slice, columns: slice = slice(None)) -> Packed:
    """Some of the rows, and of their columns; where examples are is told of all of them still."""
    shown = ("windows", "canvases", "cursors", "lives", "mistakes")
    names = ("actions", "labels", "valid", "positions", "segments", *shown)
    arrays = {name: getattr(packed, name) for name in names}
    cut: dict[str, Any] = {name: None if array is None else array[rows, columns] for name, array in arrays.items()}
    return replace(packed, num_actions=packed.num_actions[rows], **cut)


def count_bytes(examples: Examples, tokenizer: Tokenizer) -> int:
    """Bytes of the targets' text. A target may begin or end inside a character, so decoding it would add U+FFFD."""
    targets = [examples.target(i).tolist() for i in range(len(examples))]
    if tokenizer.is_byte_level:
        return sum(len(tokenizer.bytes_of(token)) for target in targets for token in target)
    return sum(len(tokenizer.decode(target).encode()) for target in targets)
