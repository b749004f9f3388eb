"""Orders by name, as the command line and recipes write them.

    random-walk    runs    left-to-right    diff
    runs:jump=0.05,start=end                   a setting of the order's own
    0.7*runs:jump=0.05+0.3*left-to-right       a mixture

>>> parse_order("runs:jump=0.05,start=end")
Runs(jump=0.05, start='end', noise=0.0, noise_from='vocabulary')
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from reviser.errors import ConfigError
from reviser.orders.policies import Diff, LeftToRight, Mixture, Order, RandomWalk, Runs
from reviser.plugins import Registry

ORDERS = Registry[type[Any]]("order", "reviser.orders")
"""All orders by name; a package adds one with an entry point of this group."""


def register_order(name: str, order: type[Any]) -> None:
    """Make an order known by name to recipes, commands and files.

    An order is a frozen dataclass with `draw`, `log_q`, `needs` and `has_likelihood` (see `policies.Order`); its
    fields are the settings that may follow its name.
    """
    if not is_dataclass(order):
        raise ConfigError(
            f"order {name!r} is not a dataclass; decorate {order.__name__} with @dataclass(frozen=True)"
        )
    ORDERS.add(name, order)


for _name, _order in {"random-walk": RandomWalk, "runs": Runs, "left-to-right": LeftToRight, "diff": Diff}.items():
    register_order(_name, _order)


def parse_order(text: str) -> Order:
    """The order that a name stands for."""
    parts = text.split("+")
    if len(parts) == 1 and "*" not in text:
        return _parse_one(text)
    return Mixture(tuple(_parse_weighted(part) for part in parts))


def _parse_weighted(text: str) -> tuple[float, Order]:
    weight, star, name = text.partition("*")
    if not star:
        raise ConfigError(f"{text!r} in a mixture has no weight; write 0.7*runs+0.3*left-to-right")
    return _number(weight, "a weight"), _parse_one(name)


def _parse_one(text: str) -> Order:
    name, _, settings = text.strip().partition(":")
    kind = ORDERS[name]
    pairs = [setting.partition("=") for setting in settings.split(",") if setting]
    order: Order = kind(**{key: _parse_setting(name, kind, key, value) for key, _, value in pairs})
    return order


def _parse_setting(name: str, kind: type[Any], key: str, value: str) -> Any:
    known = {field.name: field.default for field in fields(kind)}
    if key not in known:
        raise ConfigError(f"{name} has no setting {key!r}; it has {', '.join(known) or 'none'}")
    if isinstance(known[key], str):
        return value
    return _number(value, key) if isinstance(known[key], float) else _whole_number(value, key)


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number, not {text!r}") from None


def _whole_number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{what} must be a whole number, not {text!r}") from None


def format_order(order: Order) -> str:
    """The name that `parse_order` reads back."""
    if isinstance(order, Mixture):
        return "+".join(f"{weight}*{format_order(part)}" for weight, part in order.parts)
    name = ORDERS.name_of(order)
    changed = []
    for item in fields(order):  # type: ignore[arg-type]
        value = getattr(order, item.name)
        if item.default is MISSING or value != item.default:
            changed.append(f"{item.name}={value}")
    return f"{name}:{','.join(changed)}" if changed else name


def order_name(order: Order) -> str:
    """What to call an order in a sentence: as `format_order` does, or by its class where it has no name."""
    try:
        return format_order(order)
    except ConfigError:
        return type(order).__name__
