"""Pairs: two systems' texts for one prompt, in the order in which a judge sees them.

Which text is shown first is drawn from (seed, systems, prompt) alone. Neither the order of the files nor an
interrupted run changes it.

>>> def text(system, words):
...     return Generation(system, "p1", 0, "Once", words, "", "", True, 2, 2)
>>> [pair] = make_pairs([text("a", " upon a"), text("b", " there was")], seed=1)
>>> pair.key, pair.swapped.key
(('a', 'b', 'p1', 0), ('b', 'a', 'p1', 0))
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from reviser.errors import DataError
from reviser.evaluation.generations import Generation

Key = tuple[str, str, str, int]
"""The system shown first, the one shown second, the prompt's id and the seed."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts for one prompt, in the order in which they are shown."""

    first: Generation
    second: Generation

    @property
    def key(self) -> Key:
        return self.first.system, self.second.system, self.first.prompt_id, self.first.seed

    @property
    def swapped(self) -> Pair:
        return Pair(self.second, self.first)

    @property
    def digest(self) -> str:
        """A hash of everything the judge sees, so that a judgment is never taken for one of other texts."""
        seen = [self.first.prefix, self.first.suffix, self.first.text, self.second.text]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


def make_pairs(
    generations: Sequence[Generation], seed: int = 0, both_orders: bool = False, limit: int | None = None
) -> list[Pair]:
    """Pair up the texts of every two systems for the same prompt and seed; `limit` keeps only the first prompts."""
    by_system = _by_system(generations)
    spots = dict.fromkeys((each.prompt_id, each.seed) for each in generations)
    pairs: list[Pair] = []
    prompts: set[str] = set()
    for spot in spots:
        # By prompt and not by system: an interrupted run then leaves all systems equally far.
        met = [texts[spot] for texts in by_system.values() if spot in texts]
        if len(met) < 2 or (limit is not None and len(prompts | {spot[0]}) > limit):
            continue
        prompts.add(spot[0])
        pairs += [_in_order(Pair(*two), seed) for two in combinations(met, 2)]
    if not pairs:
        raise DataError(f"{' and '.join(by_system)} share no prompt and seed; generate them from the same prompts")
    return [each for pair in pairs for each in (pair, pair.swapped)] if both_orders else pairs


def _by_system(generations: Sequence[Generation]) -> dict[str, dict[tuple[str, int], Generation]]:
    systems: dict[str, dict[tuple[str, int], Generation]] = {}
    prompts: dict[str, Generation] = {}
    for each in generations:
        texts, spot = systems.setdefault(each.system, {}), (each.prompt_id, each.seed)
        if spot in texts:
            raise DataError(
                f"system {each.system} wrote prompt {each.prompt_id}, seed {each.seed} twice; "
                "give each file once, and give each system its own name"
            )
        known = prompts.setdefault(each.prompt_id, each)
        if (known.prefix, known.suffix) != (each.prefix, each.suffix):
            raise DataError(
                f"prompt {each.prompt_id} of {known.system} and of {each.system} are two texts; "
                "generate both from the same prompts"
            )
        texts[spot] = each
    if len(systems) < 2:
        found = f"only {next(iter(systems))}" if systems else "no generation at all"
        raise DataError(
            f"an arena needs at least two systems, but the files hold {found}; give another system's file"
        )
    return systems


def _in_order(pair: Pair, seed: int) -> Pair:
    """The pair or its swap, by a coin that is the same for both."""
    low, high = sorted((pair, pair.swapped), key=lambda each: each.key)
    coin = hashlib.sha256(json.dumps([seed, *low.key]).encode()).digest()[0] & 1
    return (low, high)[coin]


def refuse_empty(pairs: Iterable[Pair]) -> None:
    """Raise an error if a text is empty or only white space."""
    empty = {each.key: each for pair in pairs for each in (pair.first, pair.second) if not each.text.strip()}
    if empty:
        one = next(iter(empty.values()))
        count = "1 empty generation" if len(empty) == 1 else f"{len(empty)} empty generations, the first"
        raise DataError(
            f"{count} by {one.system} for prompt {one.prompt_id}, seed {one.seed}; "
            "generate again, or count empty texts as losses with --empty lose"
        )
