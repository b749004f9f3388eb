"""What a report is made of: sections, tables, plots, and how a number is written.

A value with a standard error ends where its error does: at the error's first digit, at the second where that is a 1.

>>> show(32.13, 0.59), show(174.93, 2.76), show(1.5958, 0.0137)
('32.1 ± 0.6', '175 ± 3', '1.596 ± 0.014')
>>> show(1605.2837), show(0.13816), show(128), show(None)
('1,605', '0.1382', '128', '-')
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

Row = Mapping[str, Any]
Cell = Callable[[Any], str]
"""From a row of a result to the text of one column."""
NOTHING = "-"
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?( (±|sd|to|million|\().*)?")
LARGEST = 1e15
"""From here on numbers are written with an exponent."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with what it is called, how it is written and, where known, the ends of its whisker."""

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """Values side by side, from zero on."""

    title: str
    bars: tuple[Bar, ...]
    most: float | None = None
    """Where the axis ends; the longest bar or whisker, where that is None."""
    mark: float | None = None
    """A value to compare with, drawn as a line."""


@dataclass(frozen=True, slots=True)
class Point:
    label: str
    x: Bar
    y: Bar


@dataclass(frozen=True, slots=True)
class Scatter:
    """Two values of each system against each other."""

    title: str
    x_title: str
    y_title: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are read; notes are lines below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    plot: Bars | Scatter | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """What one result says, and how it came about: command, commit, hardware, date and more."""

    name: str
    """The file's name without its ending."""
    source: str
    kind: str
    tables: tuple[Table, ...]
    about: dict[str, str] = field(default_factory=dict)


def tabulate(
    title: str,
    rows: Sequence[Any],
    columns: Mapping[str, Cell],
    notes: Sequence[str] = (),
    plot: Bars | Scatter | None = None,
) -> Table:
    """A table of rows; a column that no row has anything for is left out."""
    cells = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    kept = {name: texts for name, texts in cells.items() if any(text != NOTHING for text in texts)}
    lines = tuple(zip(*kept.values(), strict=True))
    has_plot = plot is not None and (len(plot.bars) if isinstance(plot, Bars) else len(plot.points)) > 1
    return Table(title, tuple(kept), lines, tuple(notes), plot if has_plot else None)


def show(value: float | None, error: float | None = None) -> str:
    """A number as it is read, with its standard error where there is one."""
    if value is None:
        return NOTHING
    if error is None or not math.isfinite(error) or not math.isfinite(value):
        return _show_plain(value)
    if error <= 0:
        return f"{_show_plain(value)} ± {error:g}"
    decimals = _decimals(error)
    if decimals > 12 or max(abs(value), error) >= LARGEST:
        return f"{value:.4g} ± {error:.2g}"
    return f"{_fixed(value, decimals)} ± {_fixed(error, decimals)}"


def _decimals(error: float) -> int:
    """Decimal places up to the last digit that an error leaves; below zero for errors of 20 and more."""
    exponent = math.floor(math.log10(error))
    return -exponent + (error < 2 * 10.0**exponent)


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def _show_plain(value: float) -> str:
    """Four digits, or all of a whole number's."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(value)))
    if not -5 < exponent < 15:
        return f"{value:.4g}"
    return f"{value:,.{max(3 - exponent, 0)}f}"


def percent(share: float | None, error: float | None = None) -> str:
    """
    >>> percent(0.5321), percent(0.5321, 0.014)
    ('53.2%', '53.2 ± 1.4%')
    """
    if share is None:
        return NOTHING
    return f"{100 * share:.1f}%" if error is None else f"{show(100 * share, 100 * error)}%"


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number, with its error or unit."""
    return cell == NOTHING or NUMBER.fullmatch(cell) is not None


def numeric_columns(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Which columns hold numbers alone."""
    return [all(map(is_number, column)) for column in zip(*rows, strict=True)]


def is_measure(value: Any) -> bool:
    return isinstance(value, Mapping) and "value" in value


def show_any(value: Any) -> str:
    """Whatever a result may hold, as one line of text."""
    if value is None or isinstance(value, str):
        return NOTHING if value is None else " ".join(value.split())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return show(value)
    if is_measure(value):
        return _show_measure(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {show_any(part)}" for key, part in value.items())
    return ", ".join(show_any(part) for part in value) if value else NOTHING


def _show_measure(measure: Row) -> str:
    if measure.get("error") is None and measure.get("low") is not None:
        return _show_interval(*(float(measure[key]) for key in ("value", "low", "high")))
    return show(measure["value"], measure.get("error"))


def _show_interval(value: float, low: float, high: float) -> str:
    """To the digits that a quarter of the interval leaves.

    >>> _show_interval(11.0, 6.254, 18.63), _show_interval(0.5, 0.45, 0.55)
    ('11 (6 to 19)', '0.50 (0.45 to 0.55)')
    """
    if not high > low:
        return f"{show(value)} ({show(low)} to {show(high)})"
    decimals = min(_decimals((high - low) / 4), 12)
    return f"{_fixed(value, decimals)} ({_fixed(low, decimals)} to {_fixed(high, decimals)})"


def add_column(columns: dict[str, Cell], heading: Any, key: str) -> None:
    """A column of a key under a heading or, where that is taken, under the key itself.

    >>> columns = {"system": get("system")}
    >>> for key, heading in (("a", "commas"), ("b", "commas"), ("c", 3), ("d", "system")):
    ...     add_column(columns, heading, key)
    >>> list(columns)
    ['system', 'commas', 'b', '3', 'd']
    """
    numbered = (f"{key} ({number})" for number in count(2))
    name = next(each for each in chain([str(heading), key], numbered) if each not in columns)
    columns[name] = get(key)


def get(key: str, cell: Callable[[Any], str] = show_any) -> Cell:
    """A column that some rows may lack."""
    return lambda row: NOTHING if row.get(key) is None else cell(row[key])


def bar(label: str, value: float, error: float | None = None, text: str | None = None) -> Bar:
    """A bar whose whisker is one standard error to either side."""
    low, high = (None, None) if error is None else (value - error, value + error)
    return Bar(label, value, show(value, error) if text is None else text, low, high)
