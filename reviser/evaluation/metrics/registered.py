"""Metrics of texts alone, by name: diversity, and whatever somebody registers.

A metric is a function from the texts of one system to numbers; it is asked about every system and the references:

>>> def shout(texts):
...     return {"shouting": quotient([each.prompt_id for each in texts], [each.text.isupper() for each in texts])}
>>> metric = Metric("shout", shout, {"shouting": "share in capitals"})
>>> one = Generation("ours", "p1", 0, "He said", " STOP", "", " stop", True, 1, 1)
>>> [(row["system"], row["shouting"]["value"]) for row in measure_systems([one], [metric])]
[('(reference)', 0.0), ('ours', 1.0)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reviser.errors import ConfigError, ReviserError
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import Measure, quotient
from reviser.evaluation.metrics import diversity
from reviser.evaluation.texts import by_system
from reviser.plugins import Registry

__all__ = ["METRICS", "Metric", "measure_systems", "register_metric", "Generation", "quotient"]

Values = Mapping[str, Measure | float | None]
MeasureTexts = Callable[[Sequence[Generation]], Values]


@dataclass(frozen=True)
class Metric:
    """A name, a function from one system's generations to numbers by key, and a heading for each key."""

    name: str
    measure: MeasureTexts
    columns: Mapping[str, str] = field(default_factory=dict)
    """Headings by key; a key without one is shown as it is."""


RESERVED = ("evalppl", "gaps", "mauve", "trajectories", "likelihood")
"""What `reviser.evaluate` knows under these names is measured in another way."""
OWN = ("system", "texts")
"""Fields of a row that are not a metric's."""


class _Metrics(Registry[Metric]):
    """Checks a metric before it is asked for, also one that a package announces, which may be a plain function."""

    def add(self, name: str, entry: Any) -> None:
        metric = entry if isinstance(entry, Metric) else Metric(name, entry)
        if name in RESERVED:
            raise ConfigError(f"reviser already measures {name!r}; give this metric another name")
        if not callable(metric.measure):
            raise ConfigError(
                f"metric {name!r} is {type(metric.measure).__name__}; register a function of one system's generations"
            )
        super().add(name, metric)

    def defined_by(self, entry: Metric) -> object:
        return entry.measure


METRICS = _Metrics("metric", "reviser.metrics")


def register_metric(name: str, measure: MeasureTexts, columns: Mapping[str, str] | None = None) -> None:
    """Make a metric known by name to `reviser.evaluate`, `reviser eval metrics` and reports.

    `measure` gets the generations of one system and returns numbers by key: `Measure`s (a value with its standard
    error, as `quotient` gives it), plain numbers, or None where there is nothing to measure. `columns` are the
    headings of keys.
    """
    if not isinstance(columns or {}, Mapping) or not all(isinstance(each, str) for each in (columns or {}).values()):
        raise ConfigError(f"metric {name!r}: columns must be a dictionary from key to heading, not {columns!r}")
    METRICS.add(name, Metric(name, measure, dict(columns or {})))


def measure_systems(generations: Sequence[Generation], metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """A row for every system, the references first."""
    chosen = list(metrics)
    return [_row(name, own, chosen) for name, own in by_system(generations).items()]


def _row(system: str, own: Sequence[Generation], metrics: Sequence[Metric]) -> dict[str, Any]:
    row: dict[str, Any] = {"system": system, "texts": len(own)}
    owners = dict.fromkeys(OWN, "the row itself")
    for metric in metrics:
        for key, value in _measure(metric, system, own).items():
            if owners.setdefault(str(key), f"metric {metric.name}") != f"metric {metric.name}":
                raise ConfigError(f"metric {metric.name} gives {key!r}, as {owners[key]} does; give it another key")
            row[str(key)] = _value(metric.name, key, value)
    return row


def _measure(metric: Metric, system: str, own: Sequence[Generation]) -> Values:
    try:
        found = metric.measure(own)
    except ReviserError:
        raise
    except Exception as error:
        raise ConfigError(
            f"metric {metric.name} failed on system {system} ({type(error).__name__}: {error}); fix it"
        ) from error
    if not isinstance(found, Mapping):
        raise ConfigError(f"metric {metric.name} returned {type(found).__name__}; return a dictionary of numbers")
    return found


def _value(name: str, key: str, value: Any) -> Any:
    """A number as a result holds it; also one of NumPy or torch."""
    if isinstance(value, Measure):
        return asdict(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    try:
        number = float("nan" if isinstance(value, str | bytes) else value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not math.isfinite(number):
        shown = value if isinstance(value, float) else type(value).__name__
        raise ConfigError(f"metric {name} gives {key} as {shown}; give a finite number, a Measure or None")
    return number


register_metric("diversity", diversity.measure, diversity.COLUMNS)
