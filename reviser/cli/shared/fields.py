"""Options of the command line made from the fields of a dataclass, and the dataclass made from what was given."""

from __future__ import annotations

import argparse
import types
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from reviser.errors import ConfigError
from reviser.evaluation.suites.base import Suite, flag_of

AnySuite = TypeVar("AnySuite", bound=Suite)


def add_fields(parser: argparse.ArgumentParser, kind: type[Suite]) -> None:
    """An argument for every field."""
    hints = get_type_hints(kind)
    groups: dict[str, Any] = {"": parser}
    for each in fields(kind):
        title = each.metadata["group"]
        place = groups.setdefault(title, parser.add_argument_group(title) if title else parser)
        _add(place, each, _plain_type(hints[each.name]))


def from_args(kind: type[AnySuite], args: argparse.Namespace) -> AnySuite:
    """The suite that the arguments ask for; refused by its own checks."""
    hints = get_type_hints(kind)
    return kind(**{each.name: _value(each, hints[each.name], getattr(args, each.name)) for each in fields(kind)})


def _add(place: Any, each: Field[Any], kind: Any) -> None:
    meta, is_tuple = each.metadata, get_origin(kind) is tuple
    text = meta["help"].replace("%", "%%")
    if meta["positional"]:
        count = "*" if each.default == () else "+"
        place.add_argument(each.name, nargs=count, metavar=meta["metavar"], help=text)
        return
    is_required = each.default is MISSING
    if kind is bool:
        place.add_argument(flag_of(each), action="store_true", help=text)
    elif is_tuple and not meta["commas"]:
        place.add_argument(flag_of(each), action="append", required=is_required, metavar=meta["metavar"], help=text)
    else:
        # Numbers in commas are read by `_value`, whose error says what was meant.
        parse = str if is_tuple else kind
        place.add_argument(
            flag_of(each), type=parse, required=is_required, default=None if is_required else each.default,
            metavar=meta["metavar"], choices=meta["choices"], help=text,
        )  # fmt: skip


def _plain_type(kind: Any) -> Any:
    """X of `X | None`, anything else as it is."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind


def _value(each: Field[Any], kind: Any, given: Any) -> Any:
    if get_origin(_plain_type(kind)) is not tuple:
        return given
    if each.metadata["commas"] and isinstance(given, str):
        return parse_numbers(flag_of(each), given, each.metadata["commas"])
    if given is None or given == []:
        return each.default
    return tuple(given)


def parse_numbers(flag: str, text: str, count: int) -> tuple[int, ...]:
    """Whole numbers between commas; -1 takes any number of them."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or (count > 0 and len(numbers) != count):
        wanted = f"{count} whole numbers" if count > 0 else "whole numbers"
        raise ConfigError(f"{flag} {text} is not a list of {wanted}; write e.g. {flag} 8,48")
    return numbers


UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}


def parse_share(text: str, option: str = "--holdout") -> float:
    """0.5% or 0.005."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r} is not a share; write it as 0.5% or 0.005") from error


def parse_bytes(text: str) -> int:
    """200M, 1.5G or a plain number of bytes."""
    unit = UNITS.get(text[-1:].upper())
    try:
        count = int(float(text[:-1] if unit else text) * (unit or 1))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--limit-bytes {text!r} is not a size; write it as 200M, 1.5G or 5000") from error
    if count < 1:
        raise ConfigError(f"--limit-bytes {text} leaves nothing to read; it must be at least 1")
    return count
