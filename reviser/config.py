"""Settings as frozen dataclasses: plain values in, one checked config out.

A config is a tree of frozen dataclasses, and there is no other list of settings. A recipe is a function that returns
a whole config; `override` changes single values by their dotted names and refuses names that do not exist.

>>> base = ModelConfig(num_text=257, pad=256, num_layers=2, width=64, num_heads=2, ff_width=256, context=128)
>>> override(base, ["width=128", "canvas.kind=window"]).canvas.kind
'window'
>>> override(base, ["widht=128"])
Traceback (most recent call last):
reviser.errors.ConfigError: no setting widht; did you mean width?
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import json
import os
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from reviser.actions import Alphabet, check_operators
from reviser.errors import ConfigError
from reviser.files import write_json

Config = TypeVar("Config")
FEW_SETTINGS = 12
"""An error lists at most this many; a run has several times as many."""
MOST_AHEAD = 8
"""The largest pointer_ahead."""
MOST = {"num_layers": 1000, "width": 1 << 20, "ff_width": 1 << 22, "pointer_width": 1 << 20, "num_text": 1 << 24,
        "context": 1 << 20, "max_length": 1 << 20}  # fmt: skip
"""Far beyond any model: a damaged file that claims more would be believed until memory runs out."""
SEAL = "settings_sha256"
"""In a file of settings, the checksum of all others; files of version 0.1 have none and are loaded unchecked."""
UNSEALED = frozenset({SEAL, "format", "version", "notes", "tokenizer_sha256", "weights_sha256"})
"""What is checked by itself, and notes, which are changed by hand."""


@dataclass(frozen=True)
class CanvasConfig:
    """How the model sees the canvas; `none` leaves it the history of actions alone, as in the paper."""

    kind: str = "none"
    """A name that model/canvas_kinds.py or a plugin knows, perhaps with settings: `distance:buckets=8`."""
    window: int = 4
    """Tokens on each side of the cursor (window, window-index, cross-window)."""
    slot_width: int = 64
    """Width of one token's embedding in the window (window, window-index, cross-window)."""
    projection: bool = False
    """Whether the pooled canvas passes the matrix W_m (pool)."""
    layers: int = 0
    """How many of the last layers look at the canvas; 0 is every layer (cross, cross-window)."""
    gate: Literal["none", "scalar", "mlp"] = "none"
    """What scales the update of each such layer (cross, cross-window)."""

    def __post_init__(self) -> None:
        _parse_canvas(self.kind)
        _at_least("canvas.window", self.window, 1)
        _at_least("canvas.slot_width", self.slot_width, 1)
        _at_least("canvas.layers", self.layers, 0)

    @property
    def has_windows(self) -> bool:
        return bool(_parse_canvas(self.kind).shows == "windows")

    @property
    def has_rows(self) -> bool:
        return bool(_parse_canvas(self.kind).shows == "rows")

    @property
    def has_cursor(self) -> bool:
        return bool(_parse_canvas(self.kind).sees_cursor)

    @property
    def has_cross(self) -> bool:
        return bool(_parse_canvas(self.kind).has_blocks)


def _parse_canvas(kind: str) -> Any:
    # By name, as a package's kinds are: they make modules of the model, and imports go from there to here.
    return importlib.import_module("reviser.model.canvas_kinds").parse_canvas(kind)


@dataclass(frozen=True)
class ModelConfig:
    """The Transformer: its alphabet, its shape and what it is shown.

    `norm="layer", qk_norm=False, activation="gelu"` is the architecture of the published checkpoints.
    """

    num_text: int
    pad: int
    num_layers: int
    width: int
    num_heads: int
    ff_width: int
    context: int
    """Positions of the history, START included."""
    max_length: int = 512
    """Tokens that the canvas may hold."""
    norm: Literal["layer", "rms"] = "rms"
    """`layer` comes with biases in norms and MLP, `rms` without any."""
    qk_norm: bool = True
    activation: Literal["gelu", "relu2", "swiglu"] = "relu2"
    positions: Literal["rope", "absolute"] = "rope"
    rope_theta: float = 10000.0
    tied: bool = True
    """Whether the output head is the action embedding."""
    dropout: float = 0.0
    operators: tuple[str, ...] = ("move",)
    pointer_width: int = 64
    """Width of the queries and keys that say where a JUMP goes; without the operator jump there are none."""
    pointer_ahead: int = 0
    """How many states behind the step that inserted a token its key takes in, so that it knows what follows."""
    canvas: CanvasConfig = field(default_factory=CanvasConfig)

    def __post_init__(self) -> None:
        for name in ("num_layers", "width", "num_heads", "ff_width", "max_length"):
            _at_least(name, getattr(self, name), 1)
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at most {most}")
        _at_least("context", self.context, 2)
        _at_least("rope_theta", self.rope_theta, 1)
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout is {self.dropout}; it must be at least 0 and below 1")
        self._check_heads()
        if self.canvas.layers > self.num_layers:
            raise ConfigError(f"canvas.layers is {self.canvas.layers}, but the model has {self.num_layers} layers")
        self._check_pointer()
        Alphabet(self.num_text, self.pad)

    def _check_pointer(self) -> None:
        _at_least("pointer_width", self.pointer_width, 1)
        if not 0 <= self.pointer_ahead <= MOST_AHEAD:
            raise ConfigError(f"pointer_ahead is {self.pointer_ahead}; it must be from 0 to {MOST_AHEAD}")
        enabled = check_operators(self.operators)
        if "jump" in enabled and (shared := enabled & {"copy", "paste"}):
            raise ConfigError(
                f"operators jump and {min(shared)} do not go together: JUMP names a place by the step that inserted "
                "the token there, and a PASTE inserts several in one step; leave one of them out"
            )

    def _check_heads(self) -> None:
        if self.width % self.num_heads:
            raise ConfigError(f"width {self.width} does not divide into {self.num_heads} heads (num_heads)")
        if self.positions == "rope" and self.head_width % 2:
            raise ConfigError(f"heads are {self.head_width} wide; rotary positions need an even width/num_heads")

    @property
    def alphabet(self) -> Alphabet:
        return Alphabet(self.num_text, self.pad)

    @property
    def has_jumps(self) -> bool:
        return "jump" in self.operators

    @property
    def head_width(self) -> int:
        return self.width // self.num_heads


def _at_least(name: str, value: float, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} is {value}; it must be at least {least}")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON values; tuples become lists."""
    return {f.name: _plain(getattr(config, f.name)) for f in fields(config)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def from_dict(cls: type[Config], values: dict[str, Any], prefix: str = "") -> Config:
    """A config of this class. A missing setting keeps its default; an unknown one is an error."""
    hints = _hints(cast(type, cls))
    if not isinstance(values, dict):
        raise ConfigError(f"{prefix.removesuffix('.') or 'what is set'} is {values!r}, and must be settings by name")
    for name in values:
        if name not in hints:
            raise _no_setting(prefix + name, [prefix + known for known in hints])
    for f in fields(cast(Any, cls)):
        if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"setting {prefix}{f.name} is missing")
    return cls(**{name: _checked(value, hints[name], prefix + name) for name, value in values.items()})


def override(config: Config, assignments: Iterable[str], **sections: Any) -> Config:
    """The config with every `name=value` applied at once; names are dotted, values are read by the field's type.

    `sections` take the place of whole groups of settings before that.
    """
    values = to_dict(config) | {name: to_dict(section) for name, section in sections.items()}
    for assignment in assignments:
        path, is_given, text = assignment.partition("=")
        if not is_given:
            raise ConfigError(f"{assignment!r} is not a setting; write name=value")
        kind = _kind_of(type(config), path.strip())
        *groups, name = path.strip().split(".")
        place = values
        for group in groups:
            place = place[group]
        place[name] = _parse(text.strip(), kind, path.strip())
    return from_dict(type(config), values)


def parse_setting(cls: type, path: str, text: str) -> Any:
    """The value of one setting of a class of settings, as `override` reads it."""
    try:
        kind = _kind_of(cls, path)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ConfigError(
            f"the types of the settings of {cls.__name__} cannot be read ({error}); import what its annotations name"
        ) from error
    return _checked(_parse(text.strip(), kind, path), kind, path)


def dump(config: Any, path: str | os.PathLike[str], **about: Any) -> None:
    """Write the config as JSON, whole or not at all; `about` goes first: the file's format and version."""
    values = about | to_dict(config)
    write_json(path, values | {SEAL: _hash_settings(values)}, indent=2)


def load(cls: type[Config], path: str | os.PathLike[str], **about: Any) -> Config:
    """Read a config that `dump` wrote; what it says of itself must be `about`, where it says anything."""
    return load_any(lambda _: cls, path, **about)


def load_any(choose: Callable[[dict[str, Any]], type[Config]], path: str | os.PathLike[str], **about: Any) -> Config:
    """The same for a file whose settings say what they are of."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the config {path} is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"the config {path} must be a JSON object of settings")
    found, seal = _hash_settings(values), values.pop(SEAL, None)
    for name, wanted in about.items():
        if (said := values.pop(name, wanted)) != wanted:
            raise ConfigError(f"the config {path} has the {name} {said!r}; this version reads {wanted!r}")
    config = from_dict(choose(values), values)
    if seal not in (None, found):
        raise ConfigError(
            f"the settings in {Path(path).name} are not those that were saved (their sha256 is {found[:12]}...); "
            f"copy the file again or, if you changed them on purpose, remove {SEAL} from it"
        )
    return config


def _hash_settings(values: dict[str, Any]) -> str:
    sealed = {name: value for name, value in values.items() if name not in UNSEALED}
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()


@cache
def _hints(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _leaves(cls: type, prefix: str = "") -> Iterator[str]:
    for name, kind in _hints(cls).items():
        if is_dataclass(kind):
            yield from _leaves(cast(type, kind), f"{prefix}{name}.")
        else:
            yield prefix + name


def _kind_of(cls: type, path: str) -> Any:
    """The type of one setting, by its dotted name."""
    kind: Any = cls
    for name in path.split("."):
        if not is_dataclass(kind) or name not in _hints(cast(type, kind)):
            raise _no_setting(path, list(_leaves(cls)))
        kind = _hints(cast(type, kind))[name]
    if is_dataclass(kind):
        names = list(_leaves(cast(type, kind), path + "."))
        shown = ", ".join(names if len(names) <= FEW_SETTINGS else [*names[:5], "..."])
        raise ConfigError(f"{path} is a group of settings; set one of {shown}")
    return kind


def _no_setting(path: str, known: Sequence[str]) -> ConfigError:
    ranked = sorted(known, key=lambda other: -_likeness(path, other))
    if _likeness(path, ranked[0]) >= 0.6:
        return ConfigError(f"no setting {path}; did you mean {ranked[0]}?")
    if len(known) <= FEW_SETTINGS:
        return ConfigError(f"no setting {path}; settings are {', '.join(known)}")
    near = [other for other in ranked[:5] if _likeness(path, other) >= 0.4]
    nearest = f"the nearest are {', '.join(near)}; " if near else ""
    return ConfigError(f"no setting {path}; {nearest}`reviser train RECIPE --show` prints all of them")


def _likeness(path: str, other: str) -> float:
    """How much a dotted name resembles another, as a whole or without its groups; 1 is equal."""
    pairs = (path, other), (path.rpartition(".")[2], other.rpartition(".")[2])
    return max(difflib.SequenceMatcher(None, one, two).ratio() for one, two in pairs)


def _optional(kind: Any) -> Any:
    """X of `X | None`; None for any other type."""
    if get_origin(kind) not in (Union, types.UnionType):
        return None
    inner = [arg for arg in get_args(kind) if arg is not type(None)]
    return inner[0] if len(inner) == 1 else None


def _items(kind: Any, count: int, path: str) -> tuple[Any, ...]:
    """The types of a tuple's items, `count` of which are given."""
    args = get_args(kind)
    if len(args) == 2 and args[1] is Ellipsis:
        return (args[0],) * count
    if len(args) != count:
        raise ConfigError(f"{path} needs {len(args)} values, not {count}")
    return args


def _wanted(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (tuple, list, dict):
        return "an object" if get_origin(kind) is dict else "a list"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    if kind in names or is_dataclass(kind):
        return names.get(kind, "a group of settings")
    return f"of the type {getattr(kind, '__name__', kind)}, which no text stands for"


def _wrong(path: str, value: Any, kind: Any) -> ConfigError:
    return ConfigError(f"{path} is {value!r}; it must be {_wanted(kind)}")


def _checked(value: Any, kind: Any, path: str) -> Any:
    """A value out of JSON as the field's type."""
    if _optional(kind) is not None:
        return None if value is None else _checked(value, _optional(kind), path)
    if is_dataclass(kind) and isinstance(value, dict):
        return from_dict(cast(type, kind), value, path + ".")
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        kinds = _items(kind, len(value), path)
        return tuple(_checked(item, of, path) for item, of in zip(value, kinds, strict=True))
    if get_origin(kind) is list and isinstance(value, list):
        return [_checked(item, get_args(kind)[0], path) for item in value]
    if get_origin(kind) is dict and isinstance(value, dict):
        return {name: _checked(item, get_args(kind)[1], f"{path}.{name}") for name, item in value.items()}
    if get_origin(kind) is Literal and value in get_args(kind):
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            return float(value)
    if kind in (int, bool, str) and type(value) is kind:
        return value
    raise _wrong(path, value, kind)


def _parse(text: str, kind: Any, path: str) -> Any:
    """A value from the command line as plain JSON of the field's type."""
    if _optional(kind) is not None:
        return None if text.lower() == "none" else _parse(text, _optional(kind), path)
    if get_origin(kind) is tuple:
        parts = [part.strip() for part in text.split(",")] if text else []
        return [_parse(part, of, path) for part, of in zip(parts, _items(kind, len(parts), path), strict=True)]
    if get_origin(kind) is Literal:
        found = [choice for choice in get_args(kind) if str(choice) == text]
        value = found[0] if found else None
    elif kind is bool:
        value = {"true": True, "false": False}.get(text.lower())
    elif kind in (int, float):
        value = _number(text, kind)
    else:
        value = text
    if value is None:
        raise _wrong(path, text, kind)
    return value


def _number(text: str, kind: type[int] | type[float]) -> int | float | None:
    try:
        return kind(text)
    except ValueError:
        return None


def parse_jobs(jobs: str) -> dict[str, tuple[float, ...]]:
    """The numbers of a model's jobs, by name, as its folder keeps them; settings that are no numbers are left out.

    >>> parse_jobs("gap=1,63 infill=0.4 rewrites=False")
    {'gap': (1.0, 63.0), 'infill': (0.4,)}
    """
    found = {}
    for part in jobs.split():
        name, _, value = part.partition("=")
        try:
            found[name] = tuple(float(number) for number in value.split(","))
        except ValueError:
            continue
    return found
