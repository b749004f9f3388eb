"""MAUVE: how much the texts of a system and the references cover the same ground.

Both sets are turned into features (features.py), clustered together, and their histograms over clusters compared; 1
says alike, 0 says apart (Pillutla et al. 2021; the `mauve-text` package, GPL-3, does everything after the features).
Features are those of a text's first 100 tokens; an empty text has some too, for it is what the system wrote. Prefixes
are left out: they are the same on both sides.

    texts [n] -> features [n, D] -> clusters, n / 10 of them -> two histograms -> MAUVE, once a clustering seed

The number rises and falls with n, features, tokens and clusters: compare it where all are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from statistics import fmean
from typing import Any

from reviser.errors import DataError
from reviser.evaluation.evaluators import require
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import Spread
from reviser.evaluation.metrics.features import Features
from reviser.evaluation.texts import MIN_TEXTS, REFERENCE, by_seed, by_system

STEADY_TEXTS = 1000
"""What the method's authors advise at least (github.com/krishnap25/mauve, best practices)."""


def compare(
    ours: Features, references: Features, seeds: Sequence[int], num_clusters: int | None = None
) -> list[float]:
    """MAUVE for each clustering seed; n / 10 clusters by default."""
    require("mauve")
    from mauve import compute_mauve

    clusters = num_clusters or max(2, round(min(len(ours), len(references)) / 10))
    with _quiet_libraries():
        found = [compute_mauve(references, ours, num_buckets=clusters, seed=seed) for seed in seeds]
    return [float(each.mauve) for each in found]


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Nothing on the file behind stderr, where faiss complains about n / 10 clusters, the method's own rule."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


def check_counts(generations: Sequence[Generation], minimum: int = MIN_TEXTS) -> None:
    """Refuse what is too little to compare: each seed of each system is compared by itself."""
    systems = by_system(generations)
    if REFERENCE not in systems:
        raise DataError(
            "no generation has a reference, so there is nothing to compare with; use prompts that have one"
        )
    for name, own in systems.items():
        for seed, part in by_seed(own).items():
            if len(part) < minimum:
                told = "the references are" if name == REFERENCE else f"system {name}, seed {seed}, has"
                raise DataError(
                    f"{told} {len(part)} texts; MAUVE over fewer than {minimum} says nothing (it clusters n / 10 "
                    f"ways, and {STEADY_TEXTS} or more are advised); generate more"
                )


def summarise(
    generations: Sequence[Generation], features: dict[str, Features], seeds: Sequence[int], num_clusters: int | None
) -> list[dict[str, Any]]:
    """A row a system; `features` holds each system's, in the order of `by_system`."""
    systems = by_system(generations)
    places = {each.prompt_id: index for index, each in enumerate(systems.pop(REFERENCE))}
    return [
        _row(name, own, features[name], features[REFERENCE], places, seeds, num_clusters)
        for name, own in systems.items()
    ]


def _row(
    name: str,
    own: Sequence[Generation],
    ours: Features,
    references: Features,
    places: dict[str, int],
    seeds: Sequence[int],
    num_clusters: int | None,
) -> dict[str, Any]:
    """Each of the system's seeds against the references of the prompts it has."""
    found, counts = [], []
    for seed in by_seed(own):
        mine = [index for index, each in enumerate(own) if each.seed == seed]
        theirs = [places[own[index].prompt_id] for index in mine if own[index].prompt_id in places]
        found.append(compare(ours[mine], references[theirs], seeds, num_clusters))
        counts.append((len(mine), len(theirs)))
    over_seeds = Spread.of([fmean(values) for values in found])
    over_clusterings = Spread.of([fmean(column) for column in zip(*found, strict=True)])
    error = over_seeds.deviation / len(found) ** 0.5 if over_seeds.deviation is not None else None
    return {
        "system": name,
        "seeds": list(by_seed(own)),
        "texts": min(count for count, _ in counts),
        "references": min(count for _, count in counts),
        "empty": sum(not each.text.strip() for each in own),
        "clusters": num_clusters or max(2, round(min(map(min, counts)) / 10)),
        "mauve": {"value": over_seeds.mean, "error": error, "n": len(found)},
        "mauve_over_seeds": asdict(over_seeds),
        "mauve_over_clusterings": asdict(over_clusterings),
    }
