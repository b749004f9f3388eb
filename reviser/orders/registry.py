"""Orders by name, as the command line and recipes write them.

    random-walk    runs    left-to-right    sentences    outline    ending    diff
    runs:jump=0.05,start=end                   a setting of the order's own
    0.7*runs:jump=0.05+0.3*left-to-right       a mixture

>>> parse_order("runs:jump=0.05,start=end")
Runs(jump=0.05, start='end', noise=0.0, noise_from='vocabulary', by='moves')
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from reviser.actions import check_operators
from reviser.config import parse_setting
from reviser.errors import ConfigError, ReviserError
from reviser.orders.policies import Diff, LeftToRight, Mixture, Order, RandomWalk, Runs
from reviser.orders.sentences import Ending, Outline, Sentences
from reviser.plugins import Registry

MEMBERS = ("draw", "log_q", "needs", "has_likelihood")


class _Orders(Registry[type[Any]]):
    """Checks an order before anything is built on it, also one that a package announces."""

    def add(self, name: str, entry: type[Any]) -> None:
        _check_class(name, entry)
        super().add(name, entry)


ORDERS = _Orders("order", "reviser.orders")
"""All orders by name; a package adds one with an entry point of this group."""


def register_order(name: str, order: type[Any]) -> None:
    """Make an order known by name to recipes, commands and files.

    An order is a frozen dataclass with `draw`, `log_q`, `needs` and `has_likelihood` (see `policies.Order`); its
    fields are the settings that may follow its name.
    """
    ORDERS.add(name, order)


def _check_class(name: object, order: Any) -> None:
    if not isinstance(name, str):
        raise ConfigError(f"an order is called {name!r}; its name must be a text, and come before its class")
    if not isinstance(order, type):
        remedy = f"its class {type(order).__name__}" if is_dataclass(order) else "a class"
        raise ConfigError(f"order {name!r} is {order!r}; register {remedy}, which must be a frozen dataclass")
    if "__dataclass_fields__" not in vars(order):
        raise ConfigError(
            f"order {name!r} is not a dataclass; decorate {order.__name__} with @dataclass(frozen=True)"
        )
    missing = [each for each in MEMBERS if not hasattr(order, each)]
    if hasattr(order, "pick") and not hasattr(order, "components"):
        missing.append("components, which goes with pick")
    if missing:
        raise ConfigError(f"order {name!r}: {order.__name__} has no {', '.join(missing)}; an order must define it")
    for method in ("draw", "log_q"):
        if not callable(getattr(order, method)):
            raise ConfigError(f"order {name!r}: {order.__name__}.{method} is not a method; define it with def")
    bare = [f.name for f in fields(order) if f.init and f.default is MISSING and f.default_factory is MISSING]
    if bare:
        raise ConfigError(f"order {name!r}: give the setting {bare[0]} of {order.__name__} a default")


register_order("random-walk", RandomWalk)
register_order("runs", Runs)
register_order("left-to-right", LeftToRight)
register_order("sentences", Sentences)
register_order("outline", Outline)
register_order("ending", Ending)
register_order("diff", Diff)


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
    values = _parse_settings(name, kind, [setting.strip() for setting in settings.split(",") if setting.strip()])
    try:
        order: Order = kind(**values)
        _check_made(name, order)
    except ReviserError:
        raise
    except Exception as error:
        raise ConfigError(
            f"order {text.strip()} cannot be made ({summarise_error(error)}); fix {kind.__name__}"
        ) from error
    return order


def _parse_settings(name: str, kind: type[Any], settings: Sequence[str]) -> dict[str, Any]:
    """The values of SETTING=VALUE by name, of the types that the order's class says."""
    known, values = [f.name for f in fields(kind) if f.init], dict[str, Any]()
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals:
            raise ConfigError(f"{setting!r} after order {name} is not a setting; write {name}:SETTING=VALUE")
        if key not in known:
            raise ConfigError(f"{name} has no setting {key!r}; it has {', '.join(known) or 'none'}")
        if key in values:
            raise ConfigError(f"order {name}: the setting {key} is given twice; give it once")
        try:
            values[key] = parse_setting(kind, key, text)
        except ConfigError as error:
            raise ConfigError(f"order {name}: {error}") from error
    return values


def _check_made(name: str, order: Order) -> None:
    """Refuse an order whose members do not say what they should; they may be properties."""
    needs: object = order.needs
    if not isinstance(needs, Set):
        raise ConfigError(f"order {name}: needs is {needs!r}; it must be a frozenset of operators, e.g. {{'move'}}")
    try:
        check_operators(needs)
    except ConfigError as error:
        raise ConfigError(f"order {name}: needs has an {error}") from error
    if not isinstance(order.has_likelihood, bool):
        raise ConfigError(f"order {name}: has_likelihood is {order.has_likelihood!r}; it must be True or False")


def summarise_error(error: BaseException) -> str:
    """The error of somebody's own code, for one line: ZeroDivisionError: division by zero."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number, not {text!r}") from None


def format_order(order: Order) -> str:
    """The name that `parse_order` reads back."""
    if isinstance(order, Mixture):
        return "+".join(f"{weight}*{format_order(part)}" for weight, part in order.parts)
    name = ORDERS.name_of(order)
    changed = []
    for item in fields(order):  # type: ignore[arg-type]
        value = getattr(order, item.name)
        if item.init and value != _default(item):
            changed.append(f"{item.name}={value}")
    return f"{name}:{','.join(changed)}" if changed else name


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


def order_name(order: Order) -> str:
    """What to call an order in a sentence: as `format_order` does, or by its class where it has no name."""
    try:
        return format_order(order)
    except ConfigError:
        return type(order).__name__
