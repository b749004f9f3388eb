"""Which stretch of a document is taken, and which spans of it a model writes anew.

A stretch is made of whole sentences. A span is a word, two or three words, a phrase, a sentence, or two or three
sentences, each at its own boundaries (evaluation/gap_kinds.py), with the space before it:

    stretch   The boats lay still, and the gulls were asleep. A child came down the steps.
    spans                                 ----- word         ---------------------------- sentence

>>> from reviser.tokenizer import load
>>> text = "The boats lay still, and the gulls were asleep. A child came down the steps."
>>> [(each.kind, text[each.start : each.end]) for each in choose_spans(text, Random.of(4), (2, 2))]
[('word', ' gulls'), ('sentence', ' A child came down the steps.')]
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from reviser.evaluation.gap_kinds import CLOSING, WORD, Stretch, find_stretches, sentence_spans
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer

SPAN_KINDS = ("word", "words", "phrase", "sentence", "sentences")
LEAST = 16
"""Tokens of a stretch at least."""
LETTERS = 8
"""Characters that a token has at most, as a rule."""
WORDS = 3
"""Of sentences at least."""
TRIES = 8
"""How often a span is drawn until one does not meet those before it."""


@dataclass(frozen=True, slots=True, order=True)
class DraftSpan:
    """Characters `start` to `end` of a stretch."""

    start: int
    end: int
    kind: str

    @property
    def is_sentences(self) -> bool:
        return self.kind in ("sentence", "sentences")


def cut_stretch(document: str, tokenizer: Tokenizer, most: int, rng: Random) -> str:
    """Whole sentences of a document, of at most `most` tokens; empty where there are none.

    A third of the stretches begin where the document does.
    """
    size = LETTERS * most
    begin = 0 if rng.below(3) == 0 else rng.below(max(len(document) - size // 2, 1))
    window = document[begin : begin + size]
    spans = [
        (line_start + first, line_start + last)
        for line_start, line in _lines(window)
        for first, last in sentence_spans(line)
    ]
    # The first is cut in two, unless the document begins with it, and so may be the last.
    spans = spans[int(begin > 0) :]
    spans = spans if begin + size >= len(document) else spans[:-1]
    counts = list(map(len, tokenizer.encode_many([window[first:last] for first, last in spans])))
    wanted, total, end = LEAST + rng.below(max(most - LEAST, 1) + 1), 0, 0
    for number, count in enumerate(counts):
        # Between two sentences stands a space or a line end, which may be a token of its own.
        if total + count + 2 > most:
            break
        total, end = total + count + 2, number + 1
        if total >= wanted:
            break
    return window[spans[0][0] : spans[end - 1][1]] if end and total >= LEAST else ""


def _lines(text: str) -> list[tuple[int, str]]:
    lines, start = [], 0
    for line in text.split("\n"):
        lines.append((start, line))
        start += len(line) + 1
    return lines


def choose_spans(text: str, rng: Random, counts: tuple[int, int] = (1, 3)) -> list[DraftSpan]:
    """As many spans as are drawn from `counts`, or fewer, in order; no two meet, and together they are at most half
    of the text. Every kind that the text has is as likely as any other."""
    found = find_stretches(text)
    places = {kind: found[kind] for kind in SPAN_KINDS[:-1]} | {"sentences": _join_sentences(text, found["sentence"])}
    kinds = [kind for kind in SPAN_KINDS if places[kind]]
    chosen: list[DraftSpan] = []
    for _ in range(counts[0] + rng.below(counts[1] - counts[0] + 1) if kinds else 0):
        for _ in range(TRIES):
            kind = kinds[rng.below(len(kinds))]
            span = DraftSpan(*places[kind][rng.below(len(places[kind]))], kind)
            size = sum(each.end - each.start for each in (*chosen, span))
            if 2 * size <= len(text) and not any(_meet(span, each) for each in chosen):
                chosen.append(span)
                break
    return sorted(chosen)


def _meet(one: DraftSpan, other: DraftSpan) -> bool:
    return one.start <= other.end and other.start <= one.end


def _join_sentences(text: str, sentences: list[Stretch]) -> list[Stretch]:
    """Two and three neighbours on one line."""
    runs = [sentences[at : at + size] for size in (2, 3) for at in range(len(sentences) - size + 1)]
    return [
        (run[0][0], run[-1][1])
        for run in runs
        if all(not text[one[1] : two[0]].strip(" ") for one, two in pairwise(run))
    ]


def cut_sentences(written: str, original: str) -> str:
    """The beginning of a continuation that has as many sentences as a span; empty where it has not that many.

    >>> cut_sentences(" The gulls slept all day. It rained. So", " The boats lay still.")
    ' The gulls slept all day.'
    """
    line = written.split("\n")[0]
    count, spans = len(sentence_spans(original.strip())), sentence_spans(line)
    cut = line[: spans[count - 1][1]] if len(spans) >= count else ""
    return cut if has_sentences(cut) else ""


def has_sentences(text: str) -> bool:
    """Whether a text of some words ends as a sentence does.

    >>> has_sentences(" The gulls slept."), has_sentences(" 4).")
    (True, False)
    """
    return text.rstrip(CLOSING).endswith((".", "!", "?")) and len(WORD.findall(text)) >= WORDS
