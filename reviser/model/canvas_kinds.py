"""Canvas inputs by name: what the model is shown of the canvas, without torch.

`--set model.canvas.kind=NAME` and a model folder's config.json choose one; settings of its own may follow the name:

    none    window    pool    cross    cross-window    window-index
    distance:buckets=8                                 a kind from a plugin, with a setting

A `CanvasKind` says what it needs to see, what it costs and what the model card says of it, and makes its modules.
Only the modules need torch: preparing data and `reviser info` do without. Those of the built-in kinds are in
conditioning.py. `register_canvas` adds a kind; docs/extending.md shows a complete one.

>>> parse_canvas("cross-window").shows
'windows'
>>> parse_canvas("widnow")  # doctest: +ELLIPSIS
Traceback (most recent call last):
reviser.errors.ConfigError: canvas.kind is 'widnow'; kinds are none, window, pool, cross, cross-window...

Letters: d width, h heads, W window, e slot width.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from reviser.config import ModelConfig, override
from reviser.errors import ConfigError
from reviser.plugins import Registry

if TYPE_CHECKING:
    from torch import nn

Shows = Literal["nothing", "windows", "rows"]


@dataclass(frozen=True)
class CanvasKind(ABC):
    """One way to show the canvas to the model. Its fields are settings that may follow its name."""

    shows: ClassVar[Shows] = "nothing"
    """`windows`: the tokens beside the cursor; `rows`: the whole canvas (see `conditioning.CanvasInput`)."""

    sees_cursor: ClassVar[bool] = False
    """Whether it also sees where the cursor stands, counted from the front, whatever it `shows`."""

    @abstractmethod
    def reader(self, config: ModelConfig) -> nn.Module | None:
        """A module from a `CanvasInput` and the embedding table to a `Memory`; None for a model that sees nothing.

        Without a `block`, the memory's vectors [B, T, d] are added to the embeddings of the actions.
        """

    def block(self, config: ModelConfig) -> nn.Module | None:
        """A module from x [B, T, d] and the `Memory` to x, between attention and MLP of a layer.

        A kind that defines it enters there and not at the input, in the last `canvas.layers` layers (0: in all).
        """
        return None

    @abstractmethod
    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        """Multiply-accumulates of `positions` steps; `places` is the size of their canvases, added up.

        A canvas of n tokens has n + 1 places, one for the cursor. Looking something up in a table costs nothing.
        """

    @abstractmethod
    def sentence(self, config: ModelConfig) -> str:
        """What the model card says the model sees."""

    @property
    def has_blocks(self) -> bool:
        return type(self).block is not CanvasKind.block


class _Kinds(Registry[type[CanvasKind]]):
    """Checks a kind before anything is built on it, also one that a package announces."""

    def add(self, name: str, entry: type[CanvasKind]) -> None:
        _check_kind(name, entry)
        super().add(name, entry)


CANVASES = _Kinds("canvas kind", "reviser.canvases")
"""All canvas inputs by name; a package adds one with an entry point of this group."""


def register_canvas(name: str, kind: type[CanvasKind]) -> None:
    """Make a canvas input known by name to recipes, commands and model folders."""
    CANVASES.add(name, kind)


def _check_kind(name: str, kind: type[CanvasKind]) -> None:
    if not (isinstance(kind, type) and issubclass(kind, CanvasKind)):
        raise ConfigError(f"canvas kind {name!r} is {kind!r}; register a subclass of CanvasKind")
    if "__dataclass_fields__" not in vars(kind):
        raise ConfigError(f"canvas kind {name!r}: decorate {kind.__name__} with @dataclass(frozen=True)")
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise ConfigError(f"canvas kind {name!r}: {kind.__name__} has no {missing}; a kind must define every one")
    if kind.shows not in get_args(Shows):
        allowed = ", ".join(get_args(Shows))
        raise ConfigError(
            f"canvas kind {name!r}: {kind.__name__}.shows is {kind.shows!r}; it must be one of {allowed}"
        )
    bare = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    if bare:
        raise ConfigError(f"canvas kind {name!r}: give the setting {bare[0]} of {kind.__name__} a default")


def parse_canvas(text: str) -> CanvasKind:
    """The kind that `NAME` or `NAME:SETTING=VALUE,...` stands for."""
    name, colon, settings = text.partition(":")
    if name not in CANVASES:
        raise ConfigError(
            f"canvas.kind is {name!r}; kinds are {', '.join(CANVASES)}; a file that registers another is loaded with "
            "--plugin FILE"
        )
    return _make(name, CANVASES[name], tuple(settings.split(",")) if colon else ())


@lru_cache(maxsize=64)
def _make(name: str, kind: type[CanvasKind], settings: tuple[str, ...]) -> CanvasKind:
    known = [f.name for f in fields(kind)]
    for setting in settings:
        key, equals, _ = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting!r} after canvas kind {name} is not a setting; write {name}:SETTING=VALUE")
        if key.strip() not in known:
            raise ConfigError(f"canvas kind {name} has no setting {key!r}; it has {', '.join(known) or 'none'}")
    try:
        return override(kind(), settings)
    except ConfigError as error:
        raise ConfigError(f"canvas kind {name}: {error}") from error


def canvas_of(config: ModelConfig) -> CanvasKind:
    """What a model is shown of the canvas."""
    return parse_canvas(config.canvas.kind)


def is_built_in(kind: CanvasKind) -> bool:
    """Whether it comes with the package, so that nobody need check it."""
    return type(kind).__module__ == __name__


def describe(config: ModelConfig) -> str:
    """What the model card says the model sees; a plugin that says no text is an error."""
    sentence: Any = canvas_of(config).sentence(config)
    if not isinstance(sentence, str):
        name = config.canvas.kind.partition(":")[0]
        raise ConfigError(f"canvas kind {name}: sentence(config) gave {sentence!r}; it must return a text (str)")
    return sentence


def num_looking(config: ModelConfig) -> int:
    """How many layers look at the canvas, where its kind has blocks."""
    return config.canvas.layers or config.num_layers


@dataclass(frozen=True)
class NoCanvas(CanvasKind):
    """The history of actions alone, as in the paper's experiments."""

    def reader(self, config: ModelConfig) -> nn.Module | None:
        return None

    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        return 0.0

    def sentence(self, config: ModelConfig) -> str:
        return "nothing but its history of actions"


@dataclass(frozen=True)
class WindowCanvas(CanvasKind):
    """`canvas.window` tokens on each side of the cursor, through one matrix."""

    shows = "windows"

    def reader(self, config: ModelConfig) -> nn.Module:
        from reviser.model.conditioning import Window

        return Window(config)

    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        return positions * 2 * config.canvas.window * config.canvas.slot_width * config.width

    def sentence(self, config: ModelConfig) -> str:
        return f"{config.canvas.window} tokens on each side of the cursor, added to its input"


@dataclass(frozen=True)
class IndexedWindowCanvas(WindowCanvas):
    """The same window and where the cursor stands, by a row of a table for each boundary."""

    sees_cursor = True

    def reader(self, config: ModelConfig) -> nn.Module:
        from reviser.model.conditioning import IndexedWindow

        return IndexedWindow(config)

    def sentence(self, config: ModelConfig) -> str:
        return f"{config.canvas.window} tokens on each side of the cursor and the cursor's index, added to its input"


@dataclass(frozen=True)
class PoolCanvas(CanvasKind):
    """The whole canvas, pooled by a learned query (the paper, A.2).

    The paper prints x_tau = e_tau + mu_t: the summary of the newest canvas is added at every step of the history.
    Here, as in its author's code, each step has the summary of its own canvas, so cached keys and values stay right.
    """

    shows = "rows"

    def reader(self, config: ModelConfig) -> nn.Module:
        from reviser.model.conditioning import Pool

        return Pool(config, has_projection=config.canvas.projection)

    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        # A score and a part of the sum for each place. The code looks scores up and makes two sums, of tokens and of
        # positions, which is as much; the product of table and query depends on the weights alone.
        projection = positions * config.width * config.width if config.canvas.projection else 0.0
        return 2 * places * config.width + projection

    def sentence(self, config: ModelConfig) -> str:
        return "the whole canvas, pooled to one vector and added to its input"


@dataclass(frozen=True)
class CrossCanvas(CanvasKind):
    """The same pooled vector inside the layers (the paper, A.3)."""

    shows = "rows"

    def reader(self, config: ModelConfig) -> nn.Module:
        from reviser.model.conditioning import Pool

        return Pool(config, has_projection=False)

    def block(self, config: ModelConfig) -> nn.Module:
        from reviser.model.conditioning import CrossPool

        return CrossPool(config)

    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        block = config.width * config.width + _gate_macs(config)
        return 2 * places * config.width + num_looking(config) * positions * block

    def sentence(self, config: ModelConfig) -> str:
        return "the whole canvas, pooled to one vector, in its layers"


@dataclass(frozen=True)
class CrossWindowCanvas(CanvasKind):
    """`canvas.window` tokens on each side of the cursor, by attention inside the layers."""

    shows = "windows"

    def reader(self, config: ModelConfig) -> nn.Module:
        from reviser.model.conditioning import WindowSlots

        return WindowSlots(config)

    def block(self, config: ModelConfig) -> nn.Module:
        from reviser.model.conditioning import CrossWindow

        return CrossWindow(config)

    def macs(self, config: ModelConfig, positions: float, places: float) -> float:
        # Queries, 2 W + 1 slots in h e dimensions, a matrix out.
        queries = config.num_heads * config.canvas.slot_width
        slots = 2 * queries * (2 * config.canvas.window + 1)
        return num_looking(config) * positions * (2 * config.width * queries + slots + _gate_macs(config))

    def sentence(self, config: ModelConfig) -> str:
        return f"{config.canvas.window} tokens on each side of the cursor, by attention in its layers"


def _gate_macs(config: ModelConfig) -> int:
    inner = max(1, config.width // 8)
    return config.width * inner + inner if config.canvas.gate == "mlp" else 0


register_canvas("none", NoCanvas)
register_canvas("window", WindowCanvas)
register_canvas("pool", PoolCanvas)
register_canvas("cross", CrossCanvas)
register_canvas("cross-window", CrossWindowCanvas)
register_canvas("window-index", IndexedWindowCanvas)
