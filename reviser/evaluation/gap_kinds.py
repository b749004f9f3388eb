"""Stretches of a text that people might leave out, each kind at its own boundaries.

    word        " gulls"                                     without the marks behind it
    words       " gulls were asleep"                         two or three words side by side
    phrase      " and the gulls were asleep"                 4 to 12 words between two marks, less than a sentence
    sentence    " A child came down the steps."              with its mark
    paragraph   "The boats lay still. A child came down."    a line of two sentences or more

The space before a stretch belongs to it, as most tokens begin with one; a new line does not.

>>> text = "The boats lay still, and the gulls were asleep. A child came down the steps."
>>> found = find_stretches(text)
>>> [text[first:last] for first, last in found["phrase"]]
['The boats lay still', ' and the gulls were asleep']
>>> [text[first:last] for first, last in found["sentence"]]
['The boats lay still, and the gulls were asleep.', ' A child came down the steps.']
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from reviser.evaluation.correction.words import ABBREVIATIONS

Stretch = tuple[int, int]
"""Where it begins and where it ends, in characters."""
GAP_KINDS = ("word", "words", "phrase", "sentence", "paragraph")
SHORT_GAP = 3
"""Words of the longest gap that a system can be asked to guess exactly."""
PHRASE = (4, 12)
CLOSING = "\"'”’)]"
WORD = re.compile(r"\w+(?:['’-]\w+)*")
END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s)")
MARK = re.compile(r"[^\w\s'’-]+|\s[-–—]+\s")


def find_stretches(text: str) -> dict[str, list[Stretch]]:
    """All stretches of each kind, in the order of the text."""
    found: dict[str, list[Stretch]] = {kind: [] for kind in GAP_KINDS}
    for line in re.finditer(r"[^\n]+", text):
        spans = [(line.start() + first, line.start() + last) for first, last in sentence_spans(line.group())]
        if len(spans) > 1:
            found["paragraph"].append((spans[0][0], spans[-1][1]))
        for first, last in spans:
            inside = [(first + each.start(), first + each.end()) for each in WORD.finditer(text[first:last])]
            if len(inside) >= PHRASE[0] and text[first:last].rstrip(CLOSING).endswith((".", "!", "?")):
                found["sentence"].append((_with_space(text, first), last))
            found["word"] += [(_with_space(text, begin), end) for begin, end in inside]
            found["words"] += _runs(text, inside)
            found["phrase"] += _phrases(text, first, last, inside)
    return found


def sentence_spans(line: str) -> list[Stretch]:
    """The sentences of a line, without the space around them.

    A mark ends one where the next begins with no small letter.

    >>> [line[a:b] for line in ["Dr. Bell slept.  Did he?"] for a, b in sentence_spans(line)]
    ['Dr. Bell slept.', 'Did he?']
    """
    ends, start = [], 0
    for end in END.finditer(line):
        words, rest = line[start : end.end()].split(), line[end.end() :].lstrip()
        is_abbreviation = words[-1].lower() in ABBREVIATIONS or len(words[-1]) == 2
        if not is_abbreviation and rest and not rest[0].islower():
            ends.append(end.end())
            start = end.end()
    whole = pairwise([0, *ends, len(line)])
    trimmed = [
        (last - len(line[first:last].lstrip()), first + len(line[first:last].rstrip())) for first, last in whole
    ]
    return [(first, last) for first, last in trimmed if first < last]


def count_gap_words(text: str) -> int:
    """
    >>> count_gap_words(" the keeper's light, long out")
    5
    """
    return len(WORD.findall(text))


def _with_space(text: str, first: int) -> int:
    return first - 1 if first and text[first - 1] == " " else first


def _runs(text: str, words: list[Stretch]) -> Iterator[Stretch]:
    """Two and three words with a space between them and nothing else."""
    for size in (2, 3):
        for at in range(len(words) - size + 1):
            run = words[at : at + size]
            if all(text[a[1] : b[0]] == " " for a, b in pairwise(run)):
                yield _with_space(text, run[0][0]), run[-1][1]


def _phrases(text: str, first: int, last: int, words: list[Stretch]) -> Iterator[Stretch]:
    """What stands between two marks of a sentence that has more than that."""
    marks = [first, *(first + place for mark in MARK.finditer(text[first:last]) for place in mark.span()), last]
    for begin, end in zip(marks[::2], marks[1::2], strict=True):
        inside = [word for word in words if begin <= word[0] and word[1] <= end]
        if PHRASE[0] <= len(inside) <= PHRASE[1] and len(inside) < len(words):
            yield _with_space(text, inside[0][0]), inside[-1][1]
