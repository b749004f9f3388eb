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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from reviser.errors import ConfigError
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


METRICS = Registry[Metric]("metric", "reviser.metrics")


def register_metric(name: str, measure: MeasureTexts, columns: Mapping[str, str] | None = None) -> None:
    """Make a metric known by name to `reviser.evaluate`, `reviser eval metrics` and reports.

    `measure` gets the generations of one system and returns numbers by key: `Measure`s (a value with its standard
    error, as `quotient` gives it), plain numbers, or None where there is nothing to measure.
    """
    METRICS.add(name, Metric(name, measure, dict(columns or {})))


def measure_systems(generations: Sequence[Generation], metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """A row for every system, the references first."""
    chosen = list(metrics)
    return [
        {"system": name, "texts": len(own)} | {key: value for each in chosen for key, value in _plain(each, own)}
        for name, own in by_system(generations).items()
    ]


def _plain(metric: Metric, own: Sequence[Generation]) -> list[tuple[str, Any]]:
    """A metric's numbers of one system as a result holds them."""
    found = metric.measure(own)
    if not isinstance(found, Mapping):
        raise ConfigError(f"metric {metric.name} returned {type(found).__name__}; return a dictionary of numbers")
    return [(str(key), _value(metric.name, key, value)) for key, value in found.items()]


def _value(name: str, key: str, value: Any) -> Any:
    if isinstance(value, Measure):
        return asdict(value)
    if value is None or isinstance(value, bool | int | float):
        return None if value is None else float(value)
    raise ConfigError(f"metric {name} gives {key} as {type(value).__name__}; give a number, a Measure or None")


register_metric("diversity", diversity.measure, diversity.COLUMNS)
