"""A second opinion on edits: is the text more probable to the model with them than without?

Whether to change something and how, a model says by its actions. How well a text reads, the same model says when it
writes from left to right. The two err in different places, so together they tell right edits from wrong ones better:

    log-odds of an edit  =  bias + actions * log-odds of its actions + reading * nats that the text gains

The nats that belong to an edit are those from its beginning to the next edit. The three numbers are a `Weighing`.
That of a proofreader was fitted to made errors and clean text (tools/fit_rereading.py, LOG.md), so an edit's
probability says how many such edits are right. Where whole stretches are written anew, a shorter text would always
gain: there each character less must gain what a character of the text costs on average.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from reviser.proofreading.choices import CORRECTING, Proofreading, Weighing
from reviser.proofreading.edits import Edit, apply_edits, shift
from reviser.tokenizer import Tokenizer

Read = Callable[[Sequence[Sequence[int]], Sequence[int]], Sequence[Sequence[float]]]
"""Texts as tokens, and the token of each from which on log-probabilities are wanted. An empty list is the answer for
a text that is too long to read."""
Shown = tuple[str, str, str, Sequence[Edit]]
"""The context on the left, a text, the context on the right, and edits of the text."""
MOST = 10.0
"""Nats beyond which a gain or loss counts no more."""


def weigh(
    texts: Sequence[Shown], tokenizer: Tokenizer, read: Read, weighing: Weighing = CORRECTING
) -> list[list[Edit]]:
    """The edits of each text with their probabilities after reading it with and without them."""
    gains = iter(find_gains([each for each in texts if each[3]], tokenizer, read, weighing.rewrites))
    return [
        [
            replace(edit, probability=judge(edit.probability, gain, weighing))
            for edit, gain in zip(edits, next(gains), strict=True)
        ]
        if edits
        else []
        for _, _, _, edits in texts
    ]


def judge(probability: float, gain: float, weighing: Weighing = CORRECTING) -> float:
    """How probable an edit is, given that of its actions and what the text gains."""
    p = min(max(probability, 1e-9), 1 - 1e-6)
    reading = weighing.reading * max(min(gain, MOST), -MOST)
    odds = weighing.bias + weighing.actions * math.log(p / (1 - p)) + reading
    return 1 / (1 + math.exp(-odds))


def scan_for(how: Proofreading) -> float:
    """How probable an edit's actions must be at least for the edit to have a chance: a model can pass over others."""
    p = min(max(how.min_probability, 1e-9), 1 - 1e-9)
    odds = math.log(p / (1 - p))
    if how.reread:
        odds = (odds - how.weighing.bias - how.weighing.reading * MOST) / how.weighing.actions
    return max(1 / (1 + math.exp(-odds)), how.weighing.least_scan)


def find_gains(
    texts: Sequence[Shown], tokenizer: Tokenizer, read: Read, at_equal_length: bool = False
) -> list[list[float]]:
    """The nats that each edit of each text gains; 0 where the text is too long to read. Every text has an edit.

    `at_equal_length` takes what a character of the text costs on average off the gain for each that an edit drops,
    and adds it for each that an edit adds.
    """
    pairs = [_Pair(*each, tokenizer) for each in texts]
    # Other edits of the same place have the same text before them, which is read once.
    asked = list(dict.fromkeys((tuple(side), pair.begin) for pair in pairs for side in (pair.old, pair.new)))
    scores = dict(zip(asked, read([tokens for tokens, _ in asked], [begin for _, begin in asked]), strict=True))
    return [
        pair.gains(scores[tuple(pair.old), pair.begin], scores[tuple(pair.new), pair.begin], at_equal_length)
        for pair in pairs
    ]


class _Pair:
    """A text before and after its edits, as tokens."""

    def __init__(self, left: str, text: str, right: str, edits: Sequence[Edit], tokenizer: Tokenizer) -> None:
        whole, moved = left + text + right, shift(edits, len(left))
        self.old, self.new = (tokenizer.encode(each) for each in (whole, apply_edits(whole, moved)))
        growths = [0, *accumulate(edit.growth for edit in moved)]
        self.growths = [edit.growth for edit in moved]
        self.old_starts = [edit.start for edit in moved]
        self.new_starts = [edit.start + growth for edit, growth in zip(moved, growths, strict=False)]
        self.old_ends, self.new_ends = (
            list(accumulate(map(len, tokenizer.pieces(side)))) for side in (self.old, self.new)
        )
        # Tokens that end before the first edit are the same on both sides.
        self.begin = min(
            bisect_right(self.old_ends, self.old_starts[0]), bisect_right(self.new_ends, self.new_starts[0])
        )
        while self.begin and self.old[: self.begin] != self.new[: self.begin]:
            self.begin -= 1

    def gains(self, old: Sequence[float], new: Sequence[float], at_equal_length: bool = False) -> list[float]:
        if not old or not new:
            return [0.0] * len(self.old_starts)
        before = self._sum(old, self.old_ends[self.begin :], self.old_starts)
        after = self._sum(new, self.new_ends[self.begin :], self.new_starts)
        size = self.old_ends[-1] - (self.old_ends[self.begin - 1] if self.begin else 0)
        rate = -sum(old) / size if at_equal_length else 0.0
        return [b - a + rate * more for a, b, more in zip(before, after, self.growths, strict=True)]

    @staticmethod
    def _sum(scores: Sequence[float], ends: Sequence[int], starts: Sequence[int]) -> list[float]:
        """The scores of the tokens that reach behind each start, up to the next."""
        sums = [0.0] * len(starts)
        for score, end in zip(scores, ends, strict=True):
            sums[max(bisect_right(starts, end - 1) - 1, 0)] += score
        return sums
