"""MAUVE: how much the texts of a system and the references cover the same ground.

Both sets are embedded, clustered together, and their histograms over clusters compared; 1 says alike, 0 says apart
(Pillutla et al. 2021; the `mauve-text` package, GPL-3, does everything after the embedding). A text's features are
the mean of the encoder's last states over its first 100 tokens and the special ones around them; an empty text has
features too, for it is what the system wrote. Prefixes are left out: they are the same on both sides.

    texts [n] -> features [n, D] -> clusters, n / 10 of them -> two histograms -> MAUVE, once a clustering seed

The number rises and falls with n, features, tokens and clusters: compare it where all are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reviser.errors import DataError
from reviser.evaluation.evaluators import Evaluator, require
from reviser.evaluation.records import Generation
from reviser.evaluation.texts import REFERENCE, Spread, by_seed, by_system

MIN_TEXTS = 100
"""Fewer on either side are refused: with n / 10 clusters there would be fewer than 10, each of some 20 texts."""
STEADY_TEXTS = 1000
"""What the method's authors advise at least (github.com/krishnap25/mauve, best practices)."""
Features = npt.NDArray[np.float32]


def embed(
    encoder: Evaluator,
    texts: Sequence[str],
    num_tokens: int = 100,
    batch: int = 32,
    advance: Callable[[int], None] = lambda _: None,
) -> Features:
    """[n, D]: the mean state of each text's first tokens."""
    tokenizer = encoder.tokenizer
    room = min(num_tokens + tokenizer.num_special_tokens_to_add(), encoder.limit)
    order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
    features: dict[int, Features] = {}
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        rows = [tokenizer(texts[index].strip(), truncation=True, max_length=room)["input_ids"] for index in part]
        if encoder.has_start:
            rows = [[tokenizer.bos_token_id, *row] for row in rows]
        features |= zip(part, _states(encoder, rows), strict=True)
        advance(len(part))
    return np.stack([features[index] for index in range(len(texts))])


def _states(encoder: Evaluator, rows: Sequence[Sequence[int]]) -> Features:
    # An empty text without special tokens is one padding token, the same for every such text.
    T = max(1, *map(len, rows))
    ids = torch.tensor([[*row, *[0] * (T - len(row))] for row in rows], device=encoder.device)
    lengths = torch.tensor([max(1, len(row)) for row in rows], device=encoder.device)
    mask = torch.arange(T, device=encoder.device) < lengths[:, None]
    with torch.inference_mode():
        states = encoder.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state.float()
    mean: Features = ((states * mask[..., None]).sum(1) / lengths[:, None]).cpu().numpy()
    return mean


def compare(
    ours: Features, references: Features, seeds: Sequence[int], num_clusters: int | None = None
) -> list[float]:
    """MAUVE for each clustering seed; n / 10 clusters unless told."""
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
