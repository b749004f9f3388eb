"""Generations side by side: by system, over the same prompts, with the references as one more system.

>>> one = Generation("ours", "p1", 0, "Once", " upon a time", "", " there was", True, 3, 3)
>>> [(name, [each.text for each in texts]) for name, texts in by_system([one]).items()]
[('(reference)', [' there was']), ('ours', [' upon a time'])]
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Generation, read_generations

REFERENCE = "(reference)"
"""The human text, as a system."""
MIN_TEXTS = 100
"""What MAUVE needs on either side: of fewer it would make fewer than 10 clusters (n / 10), each of some 20 texts."""


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
