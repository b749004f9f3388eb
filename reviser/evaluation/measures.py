"""Numbers with errors: means, quotients of sums, and differences of two systems over the prompts that both have.

The texts of one prompt hang together, so errors are taken over prompts, not over texts.

>>> Measure.of([1.0, 2.0, 3.0])
Measure(value=2.0, error=0.5773502691896257, n=3)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from reviser.errors import DataError


@dataclass(frozen=True, slots=True)
class Measure:
    """A number, its standard error (None where there is none) and how many things it was taken over."""

    value: float
    error: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Measure:
        """The mean of values; the error of a single one is None."""
        count = len(values)
        if not count:
            raise DataError("there is nothing to average; generate something first")
        mean = math.fsum(values) / count
        if count == 1:
            return cls(mean, None, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
        return cls(mean, math.sqrt(variance / count), count)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number that is no mean of its texts', and what it would be without each of them: the jackknife.

    None stands for a number that does not exist, such as the share of nothing.

    >>> Estimate(2.0, [2.5, 2.0, 1.5]).measure()
    Measure(value=2.0, error=0.5773502691896257, n=3)
    """

    value: float | None
    without: Sequence[float | None]

    def measure(self) -> Measure | None:
        """The number with the jackknife's standard error, that of a mean where it is one."""
        if self.value is None:
            return None
        known, count = [each for each in self.without if each is not None], len(self.without)
        if len(known) < count or count < 2:
            return Measure(self.value, None, count)
        mean = math.fsum(known) / count
        variance = (count - 1) / count * math.fsum((each - mean) ** 2 for each in known)
        return Measure(self.value, math.sqrt(variance), count)

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two systems on the same texts: what is hard for both does not count as error."""

        def less(one: float | None, another: float | None) -> float | None:
            return None if one is None or another is None else one - another

        without = [less(*pair) for pair in zip(self.without, other.without, strict=True)]
        return Estimate(less(self.value, other.value), without)


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over runs of something that is repeated, its standard deviation (None for one run) and their number."""

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def quotient(prompts: Sequence[str], tops: Sequence[float], bottoms: Sequence[float] | None = None) -> Measure | None:
    """Sum of tops over sum of bottoms (their number where none are given); None over nothing.

    The texts of one prompt hang together, so the standard error is that of sums over prompts, linearised:
    sqrt(P / (P - 1) * sum over prompts of (top - quotient * bottom)^2) / sum of bottoms, for P prompts.
    With one text a prompt and bottoms of 1 it is the standard error of a mean.

    >>> quotient(["p1", "p2", "p3"], [1.0, 2.0, 3.0])
    Measure(value=2.0, error=0.5773502691896257, n=3)
    """
    sums = sum_up(prompts, tops, [1.0] * len(tops) if bottoms is None else bottoms)
    if not math.fsum(bottom for _, bottom in sums.values()):
        return None
    value, rests = _rests(sums)
    return Measure(value, _error(rests), len(tops))


Sums = Mapping[str, Sequence[float]]
"""Of each prompt, the sum of tops and that of bottoms over its texts."""


def sum_up(prompts: Sequence[str], tops: Sequence[float], bottoms: Sequence[float]) -> dict[str, list[float]]:
    """What `difference` needs of a quotient; a result may hold it.

    >>> sum_up(["p1", "p2", "p1"], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    {'p1': [4.0, 2.0], 'p2': [2.0, 1.0]}
    """
    sums: dict[str, list[float]] = {}
    for prompt, top, bottom in zip(prompts, tops, bottoms, strict=True):
        both = sums.setdefault(prompt, [0.0, 0.0])
        both[0] += top
        both[1] += bottom
    return sums


def difference(one: Sums, other: Sums) -> Measure | None:
    """One quotient less another over the prompts that both have, None where there are none.

    What makes a prompt hard is hard for both, so the error is that of the prompts' own differences: mostly smaller
    than that of two quotients which have nothing to do with each other. `n` counts prompts, and `quotient`'s texts.

    >>> difference({"p1": [3.0, 1.0], "p2": [9.0, 1.0]}, {"p1": [1.0, 1.0], "p2": [7.0, 1.0]})
    Measure(value=2.0, error=0.0, n=2)
    """
    shared = [prompt for prompt in one if prompt in other]
    pair = [{prompt: sums[prompt] for prompt in shared} for sums in (one, other)]
    if any(not math.fsum(bottom for _, bottom in sums.values()) for sums in pair):
        return None
    (value, rests), (less, others) = map(_rests, pair)
    return Measure(value - less, _error([a - b for a, b in zip(rests, others, strict=True)]), len(shared))


def _rests(sums: Sums) -> tuple[float, list[float]]:
    """The quotient of all prompts together, and what each adds to it, to first order."""
    total = math.fsum(bottom for _, bottom in sums.values())
    value = math.fsum(top for top, _ in sums.values()) / total
    return value, [(top - value * bottom) / total for top, bottom in sums.values()]


def _error(rests: Sequence[float]) -> float | None:
    P = len(rests)
    return math.sqrt(P / (P - 1) * math.fsum(rest**2 for rest in rests)) if P > 1 else None
