"""Judges that somebody registers by name: a function from all texts for one prompt to a number for each.

>>> @JUDGES.register("doctest-shouting")
... def shouting(texts):
...     return [each.text.isupper() for each in texts]
>>> texts = [Generation(name, "p1", 0, "He", text, "", "", True, 1, 1) for name, text in (("a", " NO"), ("b", " no"))]
>>> ask(shouting, "doctest-shouting", texts)
[1.0, 0.0]
>>> [made.verdict for made in ScoringJudge("doctest-shouting").judge([Pair(*texts)])]
['first']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from reviser.errors import ConfigError, ReviserError
from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.judgments import Judgment
from reviser.evaluation.judges.pairs import Pair
from reviser.plugins import Registry

__all__ = ["JUDGES", "ScoringJudge", "ask", "register_judge", "Generation", "Pair"]

ScoreTexts = Callable[[Sequence[Generation]], Sequence[float]]
OWN = ("http", "critic", "likelihood")
"""Judges that reviser has itself."""


class _Judges(Registry[ScoreTexts]):
    """Checks a judge before it is asked for, also one that a package announces."""

    def add(self, name: str, entry: Any) -> None:
        if name in OWN:
            raise ConfigError(f"reviser already has a judge {name!r}; give this one another name")
        if not callable(entry):
            raise ConfigError(f"judge {name!r} is {type(entry).__name__}; register a function of one prompt's texts")
        super().add(name, entry)


JUDGES = _Judges("judge", "reviser.judges")


def register_judge(name: str, judge: ScoreTexts) -> None:
    """Make a judge known by name to `reviser eval arena --judge` and to reinforcement learning (`ppo.judge`).

    `judge` gets the generations for one prompt and returns a number for each; more is better, equal numbers tie.
    """
    JUDGES.add(name, judge)


def ask(judge: ScoreTexts, name: str, texts: Sequence[Generation]) -> list[float]:
    """What a registered judge says, checked."""
    try:
        found = [float(each) for each in judge(texts)]
    except ReviserError:
        raise
    except Exception as error:
        raise ConfigError(f"judge {name} failed ({type(error).__name__}: {error}); fix it") from error
    if len(found) != len(texts) or not all(map(math.isfinite, found)):
        raise ConfigError(f"judge {name} returned {found} for {len(texts)} texts; return a finite number for each")
    return found


class ScoringJudge:
    """A registered judge in the arena: of two texts the one with the higher number wins."""

    def __init__(self, name: str) -> None:
        self.function, self.registered = JUDGES[name], name
        self.name = f"registered {name}"
        self.sha256: str | None = None

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        for pair in pairs:
            first, second = ask(self.function, self.registered, [pair.first, pair.second])
            verdict = "tie" if first == second else "first" if first > second else "second"
            yield Judgment.of(pair, verdict, f"{first:g} and {second:g}", self.name)
