"""What every suite is: a frozen dataclass of options that measures something and knows the command for it.

The fields are the only list of options there is. The command line makes its parser from them, planners make suites
directly, and `words` are the command that gives the same suite:

>>> @dataclass(frozen=True, kw_only=True)
... class Count(Suite):
...     name: ClassVar[str] = "count"
...     files: tuple[str, ...] = option(positional=True, help="what to count")
...     n: int | None = option(None, help="at most")
>>> Count(files=("a.txt", "b.txt"), n=3).words
('eval', 'count', 'a.txt', 'b.txt', '--n', '3')
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar

from reviser.errors import ConfigError

Advance = Callable[[int], None]


class Listener:
    """Hears how far long work is; this one says nothing."""

    def note(self, line: str) -> None:
        """One line about what is going on."""

    def count(self, title: str, total: int, things: str = "texts") -> AbstractContextManager[Advance]:
        """Gives a function that is called with how many more of `total` things are done."""
        return nullcontext(lambda _: None)


SILENT = Listener()


def option(
    default: Any = MISSING,
    *,
    help: str,
    positional: bool = False,
    metavar: str | None = None,
    choices: tuple[str, ...] | None = None,
    commas: int = 0,
    group: str = "",
) -> Any:
    """A field that the command line offers.

    `commas` joins a tuple into one word, -1 for any number of parts; other tuples are positional or repeated.
    """
    metadata = {
        "help": help, "positional": positional, "metavar": metavar, "choices": choices, "commas": commas,
        "group": group,
    }  # fmt: skip
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def flag_of(each: Field[Any]) -> str:
    return f"--{each.name.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One measurement."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    """One line for the list of suites."""
    description: ClassVar[str] = ""
    examples: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse options that cannot be used, before anything is loaded."""

    def run(self, listener: Listener = SILENT) -> dict[str, Any]:
        """The result's document."""
        raise TypeError(f"{type(self).__name__} measures nothing")

    @property
    def words(self) -> tuple[str, ...]:
        """The command that gives this suite, without `reviser`; options at their defaults are left out."""
        given = [each for each in fields(self) if getattr(self, each.name) != each.default]
        placed = [word for each in given if each.metadata["positional"] for word in self._values(each)]
        flags = [word for each in given if not each.metadata["positional"] for word in self._flags(each)]
        return ("eval", self.name, *placed, *flags)

    def _values(self, each: Field[Any]) -> list[str]:
        value = getattr(self, each.name)
        return [str(part) for part in value] if isinstance(value, tuple) else [str(value)]

    def _flags(self, each: Field[Any]) -> list[str]:
        flag, values = flag_of(each), self._values(each)
        if getattr(self, each.name) is True:
            return [flag]
        if each.metadata["commas"]:
            return [flag, ",".join(values)]
        return [word for value in values for word in (flag, value)]

    def at_least(self, least: float, *names: str) -> None:
        """Refuse options below a number; None is no number."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"--{name.replace('_', '-')} {value:g} must be at least {least:g}")
