"""Drafts revised by reading: what a model finds least probable in its own text, it fills anew.

    draft       The old lighthouse was a Triecing tower on the point.
    weakest                              ---------
    fillings    " round" +6.1 nats, " tall stone" +7.4, " wooden" +5.9, " of" -3.0
    kept        The old lighthouse was a tall stone tower on the point.

Each of the three parts is something that the model does well. It *finds* a place by reading the text from left to
right: the few words that cost most beyond what words of this text cost. It *writes* by filling the gap, with both
sides in view, a few times. It *stops* by reading again: a filling is kept if the whole text reads better with it, at
equal length, and its probability is that which the reading gives it, e^nats against 1.

A pass tries a place for every 32 tokens or so. No place is tried twice, and what was written anew is not touched
again: the next pass goes on with the next worst, and edits of several passes never meet.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from reviser.proofreading.choices import Proofreading
from reviser.proofreading.edits import Edit, apply_edits
from reviser.proofreading.proofread import Edited, Span
from reviser.proofreading.rereading import MOST, Read, find_gains
from reviser.tokenizer import Tokenizer

WORD = re.compile(r"\s*\S+")
MOST_WORDS = 6
"""Of a place."""
PER_PLACE = 32
"""Tokens of open text for each place that is tried in a pass."""
FILLINGS = 4
"""Of a place."""
ROOM, SPARE = 2, 3
"""A filling may be so many times as long as what stood there, and so many tokens longer."""
ODD = re.compile(r"[\n\r\ufffd\0]")
"""What no filling may hold."""


@dataclass(frozen=True, slots=True)
class Place:
    """A gap to be filled: the text on both sides of it, and how many tokens it may hold."""

    left: str
    right: str
    room: int


@dataclass(frozen=True, slots=True)
class Refilled:
    """What a model wrote in a place."""

    text: str
    num_actions: int
    is_whole: bool
    """Whether the model ended it."""


Refill = Callable[[Sequence[Place]], Sequence[Sequence[Refilled]]]
"""Several fillings of each place."""


def rewrite_all(
    texts: Sequence[str],
    refill: Refill,
    tokenizer: Tokenizer,
    read: Read,
    how: Proofreading,
    closed: Sequence[Sequence[Span]] = (),
) -> list[Edited]:
    """What a model makes of each text; `closed` are spans of each that stay as they are."""
    pages = [_OwnDraft(text, list(spans)) for text, spans in zip(texts, closed or [()] * len(texts), strict=True)]
    for _ in range(how.passes):
        reads = read([tokenizer.encode(page.text) for page in pages], [0] * len(pages))
        tries = [
            (page, place)
            for page, scores in zip(pages, reads, strict=True)
            for place in find_weak(page.text, page.shut, scores, tokenizer)
        ]
        if not tries:
            break
        _rewrite(tries, refill, tokenizer, read, how)
    return [Edited(page.original, tuple(page.edits), page.num_actions) for page in pages]


def _rewrite(
    tries: Sequence[tuple[_OwnDraft, Span]], refill: Refill, tokenizer: Tokenizer, read: Read, how: Proofreading
) -> None:
    """Fill every place, and keep what reads better."""
    asked = [
        Place(page.text[:start], page.text[end:], ROOM * len(tokenizer.encode(page.text[start:end])) + SPARE)
        for page, (start, end) in tries
    ]
    found: list[tuple[int, Edit]] = []
    for number, fillings in enumerate(refill(asked)):
        page, (start, end) = tries[number]
        page.num_actions += sum(each.num_actions for each in fillings)
        old = page.text[start:end]
        new = dict.fromkeys(each.text for each in fillings if each.is_whole and _fits(each.text, old))
        found += [(number, Edit(start, end, old, text, 0.0)) for text in new]
    shown = [("", tries[number][0].text, "", [edit]) for number, edit in found]
    best: dict[int, tuple[float, Edit]] = {}
    for (number, edit), [gain] in zip(found, find_gains(shown, tokenizer, read, True) if shown else (), strict=True):
        best[number] = max(best.get(number, (-math.inf, edit)), (gain, edit), key=lambda each: each[0])
    # From the right, so that places stay where they are.
    for number, (page, span) in reversed(list(enumerate(tries))):
        gain, edit = best.get(number, (-math.inf, Edit(*span, "", "", 0.0)))
        probability = 1 / (1 + math.exp(-max(min(gain, MOST), -MOST)))
        if gain > -math.inf and probability >= how.min_probability:
            page.take(replace(edit, probability=probability))
        else:
            page.shut.append(span)


def _fits(text: str, old: str) -> bool:
    return bool(text.strip()) and text != old and not ODD.search(text)


@dataclass(slots=True, eq=False)
class _OwnDraft:
    """A text on its way."""

    original: str
    shut: list[Span]
    """What stays as it is, in the present text: what is protected, and what was tried or written anew."""
    text: str = field(init=False)
    edits: list[Edit] = field(default_factory=list)
    """Of the original, in order."""
    num_actions: int = 0

    def __post_init__(self) -> None:
        self.text = self.original

    def take(self, edit: Edit) -> None:
        """Make an edit of the present text, and know it as one of the original."""
        self.text = apply_edits(self.text, [edit])
        moves = [edit.growth if start >= edit.end else 0 for start, _ in self.shut]
        moved = [(start + move, end + move) for (start, end), move in zip(self.shut, moves, strict=True)]
        self.shut = [*moved, (edit.start, edit.start + len(edit.after))]
        back = 0
        for each in self.edits:
            back += each.growth if each.start + back < edit.start else 0
        own = Edit(edit.start - back, edit.end - back, edit.before, edit.after, edit.probability)
        self.edits = sorted([*self.edits, own], key=lambda each: each.start)


def find_weak(text: str, shut: Sequence[Span], scores: Sequence[float], tokenizer: Tokenizer) -> list[Span]:
    """The places that read worst, in order: a few words of one line each, apart from one another and from what is
    shut. `scores` are the log-probabilities of the text's tokens; without any there is no place."""
    words = [span for span in _words(text) if not any(_meet(span, other) for other in shut)]
    if not scores or not words:
        return []
    costs = _costs(text, words, scores, tokenizer)
    mean = sum(costs) / len(costs)
    runs = sorted(_runs(text, words, costs, mean), key=lambda run: (-run[0], run[1]))
    wanted = max(sum(end - start for start, end in words) * len(scores) // (max(len(text), 1) * PER_PLACE), 1)
    chosen: list[tuple[int, int]] = []
    for _, first, last in runs:
        if len(chosen) == wanted:
            break
        if all(last + 1 < other_first or other_last + 1 < first for other_first, other_last in chosen):
            chosen.append((first, last))
    return sorted((words[first][0], words[last][1]) for first, last in chosen)


def _words(text: str) -> Iterator[Span]:
    """Words with the space before them; one at the beginning of a line leaves the line end where it is."""
    for word in WORD.finditer(text):
        start = max(word.start(), text.rfind("\n", word.start(), word.end()) + 1)
        yield start, word.end()


def _costs(text: str, words: Sequence[Span], scores: Sequence[float], tokenizer: Tokenizer) -> list[float]:
    """The nats of each word; a token counts for the word that it ends in."""
    ends = list(accumulate(map(len, tokenizer.pieces(tokenizer.encode(text)))))
    starts, costs = [start for start, _ in words], [0.0] * len(words)
    for score, end in zip(scores, ends, strict=True):
        place = bisect_right(starts, end - 1) - 1
        if place >= 0 and end <= words[place][1]:
            costs[place] -= score
    return costs


def _runs(text: str, words: Sequence[Span], costs: Sequence[float], mean: float) -> Iterator[tuple[float, int, int]]:
    """Up to a few words in a row on one line: what they cost beyond as many others, over the root of their number."""
    is_next = [right[0] == left[1] and "\n" not in text[right[0] : right[1]] for left, right in pairwise(words)]
    for first in range(len(words)):
        total = 0.0
        for last in range(first, min(first + MOST_WORDS, len(words))):
            if last > first and not is_next[last - 1]:
                break
            total += costs[last] - mean
            yield total / math.sqrt(last - first + 1), first, last


def _meet(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
