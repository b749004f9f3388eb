"""What writing a text costs, by the paper's convention: shapes and lengths in, a `Cost` out.

One unit is a multiply-accumulate (MAC) of a matrix product, so a `Cost` has twice as many operations. Biases, norms,
activations, rotations, sampling and looking something up in a table are left out. Causal attention costs the pairs
that are seen, n (n + 1) / 2 of n positions, so that one masked pass and n steps with cached keys cost the same:

    L (4 n d^2 + n (n + 1) d + 2 n d d_ff)  +  n d |V|        n tokens left to right, the paper's AR baseline

flops_paper.py has the other methods of the paper. Here are our own systems, whose steps behave as the engine's do:

    history   START  p p p  a a a a     START and the prompt's actions are read, then `actions` of them are chosen;
    layers      x    x x x  x x x .     nobody reads what comes after the last one, so prompt + actions positions
    head                 x  x x x .     pass the layers, and the head scores once for each action

What looking at the canvas adds is for its kind to say (`macs` in model/canvas_kinds.py). The canvas is taken to grow
evenly from `prompt` to `prompt + tokens`.

>>> config = ModelConfig(num_text=49966, pad=0, num_layers=12, width=768, num_heads=12, ff_width=3072, context=256)
>>> round(flops(config, tokens=128).macs / 1e9, 4), round(flops(config, tokens=128, actions=160).macs / 1e9, 4)
(15.939, 19.9709)

Letters: n and m positions, d width, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reviser.config import CanvasConfig, ModelConfig
from reviser.errors import ConfigError
from reviser.model.canvas_kinds import canvas_of


@dataclass(frozen=True, slots=True)
class Shape:
    """As much of a Transformer as decides what it costs; lengths may be averages, so they need not be whole."""

    num_layers: int
    width: int
    ff_width: int
    vocabulary: int
    kv_width: int | None = None
    """Width of keys and of values, where several heads share them; None: the width itself."""
    num_mlp: int = 2
    """Matrices of the MLP; a gated one has 3."""

    @classmethod
    def of(cls, config: ModelConfig) -> Shape:
        """The trunk and head of one of our models, without its canvas."""
        num_mlp = 3 if config.activation == "swiglu" else 2
        return cls(config.num_layers, config.width, config.ff_width, config.alphabet.size, num_mlp=num_mlp)

    def dense(self, n: float) -> float:
        """Every product with a weight matrix of the layers: queries, output, keys, values, MLP."""
        d = self.width
        matrices = 2 * d * d + 2 * d * (self.kv_width or d) + self.num_mlp * d * self.ff_width
        return self.num_layers * n * matrices

    def pairs(self, count: float) -> float:
        """Scores and sums over `count` pairs of a query and a key; shared keys are still met by every head."""
        return self.num_layers * 2 * count * self.width

    def full(self, n: float) -> float:
        """One pass over n positions that all see each other."""
        return self.dense(n) + self.pairs(n * n)

    def behind(self, new: float, old: float) -> float:
        """`new` positions behind `old` cached ones, each seeing what stands before it."""
        return self.dense(new) + self.pairs(new * old + new * (new + 1) / 2)

    def causal(self, n: float) -> float:
        """n positions, each seeing what stands before it: in one pass, or step by step with cached keys."""
        return self.behind(n, 0)

    def cross(self, n: float, source: float) -> float:
        """Attention of every layer from n positions to `source` others."""
        projections = self.num_layers * 2 * (n + source) * self.width**2
        return projections + self.pairs(n * source)

    def head(self, m: float) -> float:
        """The scores of every token at m positions."""
        return m * self.width * self.vocabulary


@dataclass(frozen=True, slots=True)
class Cost:
    """Multiply-accumulates of writing a text, by where they are spent."""

    dense: float
    """Weight matrices of the layers."""
    attention: float
    canvas: float
    """What looking at the canvas adds."""
    head: float
    """Scores of all actions, those of where JUMPs go among them."""

    @property
    def macs(self) -> float:
        return self.dense + self.attention + self.canvas + self.head

    @property
    def flops(self) -> float:
        """Operations where a multiply-accumulate is two."""
        return 2 * self.macs


def flops(config: ModelConfig, tokens: int, *, actions: float | None = None, prompt: int = 0) -> Cost:
    """A model that writes `tokens` tokens by `actions` actions (None: one a token) after a prompt, keys cached.

    `actions` are those the model chooses, STOP among them where it is to count; an average need not be whole.
    """
    count = tokens if actions is None else actions
    _check(config, tokens, count, prompt)
    if count < tokens and "paste" not in config.operators:
        raise ConfigError(f"{tokens} tokens by {count:g} actions: a model without paste inserts one token an action")
    shape, positions = Shape.of(config), prompt + count
    # The canvas after START, after each token of the prompt, and after each action but the last; a place more for
    # the cursor.
    places = (prompt + 1) * (prompt + 2) / 2 + (count - 1) * (prompt + 1) + tokens * (count - 1) / 2
    attention = shape.pairs(positions * (positions + 1) / 2)
    canvas = canvas_of(config).macs(config, positions, places)
    head = shape.head(count) + _pointer_macs(config, positions, count, places)
    return Cost(shape.dense(positions), attention, canvas, head)


def _pointer_macs(config: ModelConfig, positions: float, actions: float, places: float) -> float:
    """Parts of keys for every position, and for every action a query against all places, as if each were a JUMP."""
    if not config.has_jumps:
        return 0.0
    vectors = positions * (1 + config.pointer_ahead) + actions
    return config.pointer_width * (vectors * config.width + places)


def left_to_right_flops(config: ModelConfig, tokens: int, *, prompt: int = 0) -> Cost:
    """The same layers and head, blind to the canvas, which writes a token an action."""
    return flops(replace(config, canvas=CanvasConfig(), operators=()), tokens, prompt=prompt)


def diffusion_flops(config: ModelConfig, tokens: int, *, steps: int, prompt: int = 0) -> Cost:
    """The same layers and head as a denoiser: `steps` full passes over prompt and text, scores where text is written.

    What a denoiser is told of the time costs a vector a step, not a position; it is left out, as in the paper.
    """
    _check(config, tokens, tokens, prompt)
    if steps < 1:
        raise ConfigError(f"{steps} steps; a diffusion model takes at least 1")
    shape, positions = Shape.of(config), prompt + tokens
    return Cost(steps * shape.dense(positions), steps * shape.pairs(positions**2), 0.0, steps * shape.head(tokens))


def _check(config: ModelConfig, tokens: int, actions: float, prompt: int) -> None:
    if not (tokens >= 1 and actions >= 1 and prompt >= 0):
        raise ConfigError(
            f"{tokens} tokens by {actions:g} actions after {prompt}; tokens and actions must be at least 1, "
            "the prompt at least 0"
        )
    if prompt + actions > config.context:
        raise ConfigError(
            f"{actions:g} actions after a prompt of {prompt} need {prompt + actions:g} positions, but the model's "
            f"context is {config.context}; ask for fewer tokens"
        )
    if prompt + tokens > config.max_length:
        raise ConfigError(
            f"a canvas of {prompt + tokens} tokens is more than the {config.max_length} that this model can hold; "
            "ask for fewer tokens"
        )
