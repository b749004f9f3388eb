"""Rankers: several texts for one prompt in, a number for each out; more is better and equal numbers tie.

| ranker | asks | numbers |
|---|---|---|
| `likelihood:EVALUATOR` | a causal model, e.g. smollm2 or reviser:FOLDER | bits per byte saved |
| `critic:EVALUATOR` | a chat model on this machine, about every two texts | pairs won, ties as half |
| `http:MODEL@URL` | a chat endpoint, about every two texts | pairs won, ties as half |
| `NAME` | a function that `register_judge` knows | its own |

>>> count_points(3, [(0, 1, "first"), (0, 2, "tie"), (1, 2, "second")])
[1.5, 0.0, 1.5]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Protocol

from reviser.errors import ConfigError
from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.arena import POINTS, Judge, decide_empty
from reviser.evaluation.judges.pairs import Pair
from reviser.evaluation.judges.registered_judges import JUDGES, OWN, ask

if TYPE_CHECKING:
    from reviser.evaluation.evaluator import Evaluator
    from reviser.evaluation.metrics.evalppl import Score

Group = Sequence[Generation]
"""All texts for one prompt."""


class Ranker(Protocol):
    name: str

    def score(self, groups: Sequence[Group]) -> list[list[float]]:
        """A number for each text of each group."""
        ...


class RegisteredRanker:
    """A function that somebody registered."""

    def __init__(self, name: str) -> None:
        self.function, self.name = JUDGES[name], name

    def score(self, groups: Sequence[Group]) -> list[list[float]]:
        return [ask(self.function, self.name, group) for group in groups]


class LikelihoodRanker:
    """Minus the bits per byte of each text; of a text written into a gap, those of what follows the gap."""

    def __init__(self, evaluator: Evaluator, batch: int = 32) -> None:
        self.evaluator, self.batch, self.name = evaluator, batch, f"likelihood:{evaluator.name}"

    def score(self, groups: Sequence[Group]) -> list[list[float]]:
        from reviser.evaluation.metrics.evalppl import score

        flat = [_as_scored(each) for group in groups for each in group]
        found = iter(score(self.evaluator, flat, self.batch))
        # Its memory is for texts that are asked about again; these are not.
        self.evaluator.known.clear()
        return [[_as_number(next(found)) for _ in group] for group in groups]


def _as_number(score: Score) -> float:
    return -score.bits_per_byte if score.num_bytes else -math.inf


def _as_scored(text: Generation) -> Generation:
    """Scored is the suffix where there is one, as the likelihood judge of the arena does it."""
    return replace(text, prefix=text.prefix + text.text, text=text.suffix, suffix="") if text.suffix else text


class PairwiseRanker:
    """How many of its pairs each text wins, by a judge of pairs; ties, and pairs left unanswered, count half."""

    def __init__(self, judge: Judge, name: str) -> None:
        self.judge, self.name = judge, name

    def score(self, groups: Sequence[Group]) -> list[list[float]]:
        pairs = [pair for number, group in enumerate(groups) for pair in _pair_up(group, number)]
        decided = list(decide_empty(pairs, self.judge.name))
        known = {each.key for each in decided}
        decided += self.judge.judge([pair for pair in pairs if pair.key not in known])
        met: list[list[tuple[int, int, str]]] = [[] for _ in groups]
        for each in decided:
            met[int(each.prompt_id)].append((int(each.first), int(each.second), each.verdict))
        return [count_points(len(group), own) for group, own in zip(groups, met, strict=True)]


def _pair_up(group: Group, number: int) -> list[Pair]:
    """Every two texts, under names by which their places are found again; which is shown first alternates."""
    named = [replace(each, system=str(place), prompt_id=str(number)) for place, each in enumerate(group)]
    pairs = [Pair(*two) for two in combinations(named, 2)]
    return [pair if (place + number) % 2 else pair.swapped for place, pair in enumerate(pairs)]


def count_points(size: int, met: Iterable[tuple[int, int, str]]) -> list[float]:
    """The points of each text, given who met whom with what verdict."""
    points = [0.0] * size
    for first, second, verdict in met:
        won = POINTS.get(verdict, 0.5)
        points[first] += won
        points[second] += 1 - won
    return points


def check_judge(spec: str) -> None:
    """A judge that cannot be meant is an error; nothing is loaded."""
    kind, has_more, rest = spec.partition(":")
    if has_more and kind in OWN and rest and ("@" in rest or kind != "http"):
        return
    if not has_more and spec in JUDGES:
        return
    known = "".join(f", {name}" for name in JUDGES)
    raise ConfigError(
        f"no judge {spec!r}; write likelihood:MODEL, critic:MODEL, http:MODEL@URL or the name of a registered "
        f"judge{known and ' (' + known[2:] + ')'}; --plugin FILE loads a file that registers one"
    )


def open_ranker(spec: str, device: str = "cpu") -> Ranker:
    """The ranker of a name."""
    check_judge(spec)
    kind, _, rest = spec.partition(":")
    if not rest:
        return RegisteredRanker(spec)
    if kind == "http":
        return PairwiseRanker(_open_chat(rest), spec)
    from reviser.evaluation.evaluators import load

    evaluator = load(rest, "causal", device)
    if kind == "likelihood":
        return LikelihoodRanker(evaluator)
    from reviser.evaluation.judges.critic import CriticJudge

    return PairwiseRanker(CriticJudge(evaluator), spec)


def _open_chat(rest: str) -> Judge:
    from reviser.evaluation.judges.chat import ChatJudge
    from reviser.evaluation.judges.endpoint import Endpoint, read_key

    model, _, url = rest.partition("@")
    return ChatJudge(Endpoint(url, model, read_key(None)))
