"""Ranks to rewards: 1 - (r - 1) / (K - 1) for rank r of K texts; texts that tie share the mean of their ranks.

>>> rank_rewards([0.2, 0.9, 0.2, 0.1])
[0.5, 1.0, 0.5, 0.0]

A guard comes first, since a judge alone can be played: the likelihood of a text that repeats itself is high. Texts
that it refuses rank below all others, whatever the judge says of them, and tie among themselves:

>>> guarded_rewards([5.0, 0.9, 0.2], [False, True, True])
[0.0, 1.0, 0.5]
"""

from __future__ import annotations

from collections.abc import Sequence

from reviser.own_states.ppo_settings import GuardConfig


def mean_ranks(scores: Sequence[float]) -> list[float]:
    """The rank of each score, 1 for the highest; equal scores share the mean of the ranks that they take."""
    order = sorted(scores, reverse=True)
    first = {score: place for place, score in reversed(list(enumerate(order, 1)))}
    return [first[score] + (order.count(score) - 1) / 2 for score in scores]


def rank_rewards(scores: Sequence[float]) -> list[float]:
    """The paper's preference reward of each of K texts, of which more is better."""
    if len(scores) < 2:
        raise ValueError(f"{len(scores)} texts have no ranks")
    return [1 - (rank - 1) / (len(scores) - 1) for rank in mean_ranks(scores)]


def guarded_rewards(scores: Sequence[float], is_sound: Sequence[bool]) -> list[float]:
    """`rank_rewards`, with texts that are not sound below all that are."""
    # Not by a score below all others: the judge's own may be infinite.
    sound = sorted({score for score, passes in zip(scores, is_sound, strict=True) if passes})
    places = {score: float(place) for place, score in enumerate(sound)}
    return rank_rewards([places[score] if passes else -1.0 for score, passes in zip(scores, is_sound, strict=True)])


def passes_guard(before: Sequence[int], written: Sequence[int], has_stopped: bool, guard: GuardConfig) -> bool:
    """Whether what was written behind `before` may be ranked by the judge: neither too short nor too long, ended by
    the writer where that is asked for, and not repeating itself or what stands before it."""
    if not guard.least <= len(written) <= guard.most or (guard.ends and not has_stopped):
        return False
    return share_repeated(before, written, guard.gram) <= guard.repeats


def share_repeated(before: Sequence[int], written: Sequence[int], size: int) -> float:
    """Of the n-grams that end in what was written, the share that stood before in the text.

    >>> share_repeated([1, 2], [3, 1, 2, 3], 2)  # (2, 3), (3, 1), (1, 2), (2, 3)
    0.5
    """
    tokens = [*before, *written]
    seen: set[tuple[int, ...]] = set()
    num_repeated = num_grams = 0
    for end in range(size, len(tokens) + 1):
        gram = tuple(tokens[end - size : end])
        if end > len(before):
            num_grams += 1
            num_repeated += gram in seen
        seen.add(gram)
    return num_repeated / max(num_grams, 1)
