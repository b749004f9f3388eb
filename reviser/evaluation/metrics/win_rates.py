"""Scores from judgments: win rates with intervals, the judge's position bias, Bradley-Terry strengths.

A tie is half a win. Judgments of the same prompt (several seeds, systems, both orders) are not independent, so
values are averaged within each prompt first and counted over prompts. Intervals are Wilson's, with n the number of
prompts: a prompt's mean lies in [0, 1] and varies no more than a coin with the same mean, so they are not too narrow
for ties or repeated prompts. Unlike a bootstrap's, they do not collapse if one side won everything.

>>> low, high = wilson(0.5, 100)
>>> f"{low:.4f} to {high:.4f}"
'0.4038 to 0.5962'
>>> wilson(1.0, 10)[0] < 0.75
True
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.errors import DataError
from reviser.evaluation.judges.arena import EMPTY, FAILED, POINTS, UNANSWERED, Judgment
from reviser.evaluation.measures import Measure

Z = NormalDist().inv_cdf(0.975)
"""For 95% intervals."""
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Share:
    """A share in [0, 1] with its 95% interval, its standard error and the number of prompts."""

    value: float
    low: float
    high: float
    error: float | None
    n: int

    @classmethod
    def over(cls, prompts: Mapping[str, Sequence[float]]) -> Share | None:
        """The mean over prompts of the mean of each prompt's values; None if there are no prompts."""
        if not prompts:
            return None
        measure = Measure.of([fmean(values) for values in prompts.values()])
        return cls(measure.value, *wilson(measure.value, measure.n), measure.error, measure.n)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95% interval for a share of n."""
    square = Z * Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = Z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two systems against each other; wins and losses are those of `system`."""

    system: str
    opponent: str
    wins: int
    ties: int
    losses: int
    failed: int
    unanswered: int
    win_rate: Share | None


def pairings(judgments: Sequence[Judgment]) -> list[Pairing]:
    """One row for every two systems that met."""
    met: dict[tuple[str, str], list[Judgment]] = defaultdict(list)
    order = {name: number for number, name in enumerate(systems_of(judgments))}
    for each in judgments:
        low, high = sorted((each.first, each.second), key=order.__getitem__)
        met[low, high].append(each)
    return [_pairing(*two, met[two]) for two in combinations(order, 2) if two in met]


def systems_of(judgments: Iterable[Judgment]) -> list[str]:
    """The names of all systems, sorted."""
    return sorted({name for each in judgments for name in (each.first, each.second)})


def _pairing(system: str, opponent: str, judgments: Sequence[Judgment]) -> Pairing:
    points = [_points(each, system) for each in judgments if each.verdict in POINTS]
    verdicts = [each.verdict for each in judgments]
    prompts = _by_prompt((each.prompt_id, _points(each, system)) for each in judgments if each.verdict in POINTS)
    return Pairing(
        system, opponent, points.count(1.0), points.count(0.5), points.count(0.0), verdicts.count(FAILED),
        verdicts.count(UNANSWERED), Share.over(prompts),
    )  # fmt: skip


def _points(judgment: Judgment, system: str) -> float:
    points = POINTS[judgment.verdict]
    return points if judgment.first == system else 1.0 - points


def _by_prompt(values: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    prompts: dict[str, list[float]] = defaultdict(list)
    for prompt, value in values:
        prompts[prompt].append(value)
    return prompts


def position_bias(judgments: Iterable[Judgment]) -> Share | None:
    """The share of wins that went to the text shown first, without ties; one half means no bias."""
    asked = (each for each in judgments if each.verdict in ("first", "second") and each.reply != EMPTY)
    return Share.over(_by_prompt((each.prompt_id, POINTS[each.verdict]) for each in asked))


def agreement(judgments: Iterable[Judgment]) -> Share | None:
    """How often the two verdicts on a pair shown in both orders agree."""
    known = {each.key: each for each in judgments if each.verdict in POINTS and each.reply != EMPTY}
    both = []
    for (first, second, prompt, seed), one in known.items():
        other = known.get((second, first, prompt, seed))
        if first < second and other is not None:
            both.append((prompt, float(_points(one, first) == _points(other, first))))
    return Share.over(_by_prompt(both))


@dataclass(frozen=True, slots=True)
class Strength:
    """A system's Bradley-Terry strength: P(i beats j) = 1 / (1 + exp(strength of j - strength of i))."""

    system: str
    strength: float
    """In nats; the mean over its group is 0."""
    error: float | None
    """Standard error, valid for several judgments of one prompt; None with a single prompt or system."""
    group: int
    """Strengths can be compared only within a group: between groups no pair met, or one side won every point."""


def strengths(judgments: Sequence[Judgment]) -> list[Strength]:
    """Fit strengths to all decided judgments, ties as half wins; the strongest comes first in each group."""
    names = systems_of(judgments)
    index = {name: number for number, name in enumerate(names)}
    decided = [each for each in judgments if each.verdict in POINTS]
    games = [(index[each.first], index[each.second], POINTS[each.verdict], each.prompt_id) for each in decided]
    table = _table(len(names), games)
    found = []
    for number, group in enumerate(_groups(table)):
        place = {system: at for at, system in enumerate(group)}
        inside = [(place[i], place[j], *rest) for i, j, *rest in games if i in place and j in place]
        theta = fit(table[np.ix_(group, group)])
        errors = _errors(theta, inside)
        ranked = sorted(range(len(group)), key=lambda at: -theta[at])
        found += [
            Strength(names[group[at]], float(theta[at]), None if errors is None else float(errors[at]), number)
            for at in ranked
        ]
    return found


def _table(count: int, games: Iterable[Any]) -> Array:
    """[i, j]: the points of i against j; a game is who was shown first and second, the first's points, the prompt."""
    table = np.zeros((count, count))
    for i, j, points, _ in games:
        table[i, j] += points
        table[j, i] += 1.0 - points
    return table


def _groups(table: Array) -> list[list[int]]:
    """Systems that have finite strengths together: each won a point from every other, perhaps through others.

    This is Ford's condition (1957) for the likelihood to have a maximum. Groups that beat others come first.
    """
    reach = (table > 0) | np.eye(len(table), dtype=bool)
    for middle in range(len(table)):
        reach |= reach[:, middle : middle + 1] & reach[middle : middle + 1]
    groups = {tuple(np.flatnonzero(row).tolist()) for row in reach & reach.T}
    return [list(group) for group in sorted(groups, key=lambda group: (-int(reach[group[0]].sum()), group))]


def fit(table: Array) -> Array:
    """Maximum-likelihood strengths with mean 0, by Newton's method; the systems must form one group."""
    theta = np.zeros(len(table))
    counts = table + table.T
    best = _log_likelihood(theta, table)
    for _ in range(200):
        chance = _chances(theta)
        gradient = (table - counts * chance).sum(1)
        if np.abs(gradient).max(initial=0.0) <= 1e-9 * max(1.0, counts.sum()):
            break
        step = np.linalg.pinv(_information(theta, counts)) @ gradient
        # The likelihood is concave, so some part of the step always helps.
        while (value := _log_likelihood(theta + step, table)) < best and np.abs(step).max() > 1e-12:
            step /= 2
        theta, best = theta + step, value
    return theta - theta.mean() if len(theta) else theta


def _chances(theta: Array) -> Array:
    """[i, j]: the probability that i beats j."""
    chances: Array = 1.0 / (1.0 + np.exp(theta[None, :] - theta[:, None]))
    return chances


def _log_likelihood(theta: Array, table: Array) -> float:
    return -float((table * np.logaddexp(0.0, theta[None, :] - theta[:, None])).sum())


def _information(theta: Array, counts: Array) -> Array:
    chance = _chances(theta)
    weights = counts * chance * chance.T
    information: Array = np.diag(weights.sum(1)) - weights
    return information


def _errors(theta: Array, games: Sequence[Any]) -> Array | None:
    """Standard errors by the sandwich H^-1 (sum over prompts of g g^T) H^-1 with P / (P - 1) for P prompts.

    For two systems and one judgment per prompt this is the textbook's 1 / (n p (1 - p)) times that factor. Unlike
    the textbook's formula, it does not treat ties and several judgments of one prompt as independent coins.
    """
    gradients: dict[str, Array] = defaultdict(lambda: np.zeros(len(theta)))
    chance, counts = _chances(theta), np.zeros((len(theta), len(theta)))
    for i, j, points, prompt in games:
        surprise = points - chance[i, j]
        gradients[prompt][i] += surprise
        gradients[prompt][j] -= surprise
        counts[i, j] += 1.0
        counts[j, i] += 1.0
    P = len(gradients)
    if P < 2:
        return None
    spread = sum((np.outer(g, g) for g in gradients.values()), np.zeros_like(counts)) * P / (P - 1)
    inverse = np.linalg.pinv(_information(theta, counts))
    errors: Array = np.sqrt(np.clip(np.diag(inverse @ spread @ inverse), 0.0, None))
    return errors


def score(judgments: Sequence[Judgment]) -> dict[str, Any]:
    """All scores as plain values for a result; `rows` are the pairings."""
    if not any(each.verdict in POINTS for each in judgments):
        raise DataError(
            f"of {len(judgments)} judgments none names a winner or a tie; judge more pairs, or choose another judge"
        )
    rows, names = pairings(judgments), systems_of(judgments)
    decided = {(each.system, each.opponent): each for each in rows if each.win_rate is not None}
    return {
        "rows": [asdict(each) for each in rows],
        "position_bias": _dict(position_bias(judgments)),
        "agreement": _dict(agreement(judgments)),
        "strengths": [asdict(each) for each in strengths(judgments)],
        "never_met": [list(two) for two in combinations(names, 2) if two not in decided],
        "empty": sum(each.reply == EMPTY for each in judgments),
        "failed": sum(each.failed for each in rows),
        "unanswered": sum(each.unanswered for each in rows),
    }


def _dict(share: Share | None) -> dict[str, Any] | None:
    return None if share is None else asdict(share)
