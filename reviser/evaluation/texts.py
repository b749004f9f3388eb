"""Generations side by side: by system, over the same prompts, with the references as one more system.

>>> one = Generation("ours", "p1", 0, "Once", " upon a time", "", " there was", True, 3, 3)
>>> [(name, [each.text for each in texts]) for name, texts in by_system([one]).items()]
[('(reference)', [' there was']), ('ours', [' upon a time'])]
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from reviser.errors import ConfigError, DataError
from reviser.evaluation.records import Generation, Measure, read_generations

REFERENCE = "(reference)"
"""The human text, as a system."""


def read_texts(paths: Iterable[str | os.PathLike[str]], num_prompts: int | None = None) -> list[Generation]:
    """The generations of all files for the first `num_prompts` prompts; a text may not come twice."""
    if num_prompts is not None and num_prompts < 1:
        raise ConfigError(f"--n {num_prompts} must be at least 1")
    names = [str(path) for path in paths]
    generations = [each for name in names for each in read_generations(name)]
    if not generations:
        raise DataError(f"{', '.join(names)}: no generations; write some with `reviser eval continuation`")
    check(generations)
    kept = set(list(prompts_of(generations))[:num_prompts])
    return [each for each in generations if each.prompt_id in kept]


def check(generations: Sequence[Generation]) -> None:
    """Refuse what would be counted wrongly."""
    seen: set[tuple[str, str, int]] = set()
    for each in generations:
        if each.system == REFERENCE:
            raise DataError(f"a system is called {REFERENCE}, which means the references; rename it")
        if each.key in seen:
            raise DataError(
                f"system {each.system} has two texts for prompt {each.prompt_id} and seed {each.seed}; keep one"
            )
        seen.add(each.key)
    first = prompts_of(generations)
    for each in generations:
        known = first[each.prompt_id]
        if (each.prefix, each.suffix, each.reference) != (known.prefix, known.suffix, known.reference):
            raise DataError(
                f"prompt {each.prompt_id} of system {each.system} is not the one of system {known.system}; "
                "compare generations of the same prompts"
            )


def prompts_of(generations: Iterable[Generation]) -> dict[str, Generation]:
    """The first generation of each prompt, in the order in which prompts come."""
    first: dict[str, Generation] = {}
    for each in generations:
        first.setdefault(each.prompt_id, each)
    return first


def references_of(generations: Iterable[Generation]) -> list[Generation]:
    """Each prompt's reference, where it has one, as if a system had written it."""
    return [
        replace(each, system=REFERENCE, text=each.reference, seed=0, record=None)
        for each in prompts_of(generations).values()
        if each.reference
    ]


def by_system(generations: Sequence[Generation]) -> dict[str, list[Generation]]:
    """Each system's generations, the references first where there are any."""
    systems: dict[str, list[Generation]] = {}
    for each in [*references_of(generations), *generations]:
        systems.setdefault(each.system, []).append(each)
    return systems


def lay_out(generations: Sequence[Generation]) -> list[Generation]:
    """All texts, system after system."""
    return [each for own in by_system(generations).values() for each in own]


def by_seed(generations: Iterable[Generation]) -> dict[int, list[Generation]]:
    seeds: dict[int, list[Generation]] = {}
    for each in generations:
        seeds.setdefault(each.seed, []).append(each)
    return dict(sorted(seeds.items()))


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
