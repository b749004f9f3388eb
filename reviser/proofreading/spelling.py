"""Misspelled words: a list of words says which ones may be, and the model, reading, what was meant.

    She recieved the package.      recieved is not in the list; received is near, and the text reads better with it

A model that edits passes over some mistakes that anybody would see. A list of words sees them, but takes every rare
word for a mistake and does not know which word was meant. So each common word near an unknown one is read in its
place, and what the text gains says how probable it is that this was meant. Where an unknown word is right, its
neighbours gain little.

The list belongs to the package's own tokenizer, whose text is English; a model with another tokenizer goes without.
`tools/make_words.py` made it, and `tools/fit_spelling.py` fitted the probability.
"""

from __future__ import annotations

import lzma
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from reviser.proofreading.edits import Edit
from reviser.proofreading.rereading import Read, find_gains
from reviser.tokenizer import DEFAULT, Tokenizer, load

WORDS = DEFAULT.with_name("words.txt.xz")
"""A line for each doubling of how often words occur, from LEAST_COUNT times on."""
LEAST_COUNT = 16
COMMON = 3
"""The first line whose words are offered: those that occur at least 128 times."""
PART = 7
"""The same for words that were run together."""
BIAS, READING = -4.3, 0.36
"""The log-odds of a word that gains nothing, and what each nat adds (tools/fit_spelling.py, LOG.md)."""
MOST_GAIN = 30.0
MOST_OFFERED = 4
SHORTEST = 4
LEFT, RIGHT = 240, 120
"""Characters around a word that are read with it."""
LETTERS = "abcdefghijklmnopqrstuvwxyz'"
FIND = re.compile(r"(?<![\w/@’'.\\-])[A-Za-z][a-z]+(?![\w/@’'(\\-]|\.\w)")
ENDING = frozenset('.!?:"“(\n')
"""What stands before the first word of a sentence, white space aside."""
Shown = tuple[str, str, str]
IsAllowed = Callable[[Edit], bool]


class WordList:
    """Words in lower case, and how common each is.

    >>> words = WordList(["", "", "", "receive received", "", "", "", "the a lot"])
    >>> words.find_near("recieve"), words.find_near("alot"), words.find_near("gnu")
    (['receive'], ['a lot', 'lot'], [])
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._common = {word: line for line, words in enumerate(lines) for word in words.split()}

    def __contains__(self, word: str) -> bool:
        return word in self._common

    def find_near(self, word: str) -> list[str]:
        """Common words that are one slip away, or two doubled letters, and pairs of words run together."""
        doubled = chain.from_iterable(map(_double, _double(word)))
        single = {each for each in chain(_slip(word), doubled) if self._common.get(each, -1) >= COMMON}
        pairs = {f"{a} {b}" for a, b in _cut(word) if self._is_part(a) and self._is_part(b)}
        return sorted(single | pairs, key=self._rank)[:MOST_OFFERED]

    def _is_part(self, word: str) -> bool:
        """Whether it may be one of two words run together; of single letters only an article is."""
        return self._common.get(word, -1) >= PART and (len(word) > 1 or word == "a")

    def _rank(self, near: str) -> tuple[int, str]:
        return -min(self._common[each] for each in near.split()), near


def _cut(word: str) -> Iterator[tuple[str, str]]:
    return ((word[:place], word[place:]) for place in range(1, len(word)))


def _slip(word: str) -> Iterator[str]:
    """With one letter more, less, or another one, or two letters changed round."""
    for before, after in [("", word), *_cut(word)]:
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]
        yield from (before + letter + rest for letter in LETTERS for rest in (after, after[1:]))
    yield from (word + letter for letter in LETTERS)


def _double(word: str) -> Iterator[str]:
    """With one letter doubled, or one of two equal ones left out."""
    for place, letter in enumerate(word):
        yield word[:place] + letter + word[place:]
        if word[:place].endswith(letter):
            yield word[:place] + word[place + 1 :]


def find_words(tokenizer: Tokenizer) -> WordList | None:
    """The list for a tokenizer's language, where there is one."""
    return _load() if tokenizer.sha256 == _default_sha256() else None


@cache
def _default_sha256() -> str:
    return load("default").sha256


@cache
def _load() -> WordList:
    return WordList(lzma.decompress(WORDS.read_bytes()).decode().split("\n"))


def offer(text: str, words: WordList) -> Iterator[list[Edit]]:
    """For each word of a text that may be misspelled, the words that may have been meant."""
    for found in FIND.finditer(text):
        word, start = found[0], found.start()
        lower = word.lower()
        if len(word) < SHORTEST or lower in words or (word != lower and not _begins_sentence(text, start)):
            continue
        near = words.find_near(lower)
        if near:
            yield [Edit(start, found.end(), word, each if word == lower else each.capitalize(), 1.0) for each in near]


def _begins_sentence(text: str, place: int) -> bool:
    return (text[:place].rstrip(" \t") or "\n")[-1] in ENDING


def spell(
    texts: Sequence[Shown],
    words: WordList,
    tokenizer: Tokenizer,
    read: Read,
    may_change: Sequence[IsAllowed],
) -> list[list[Edit]]:
    """What misspelled words of each text should probably be, each as if it were the only edit. A text is given with
    the context on its left and right, and `may_change` says of each which edits may be made."""
    asked: list[tuple[int, Edit, tuple[str, Edit]]] = []
    for number, ((left, text, right), is_allowed) in enumerate(zip(texts, may_change, strict=True)):
        whole, begin = left + text + right, len(left)
        for edit in chain.from_iterable(offer(whole, words)):
            moved = replace(edit, start=edit.start - begin, end=edit.end - begin)
            if moved.start >= 0 and moved.end <= len(text) and is_allowed(moved):
                asked.append((number, moved, (whole, edit)))
    best: dict[tuple[int, int], Edit] = {}
    for (number, edit, _), chance in zip(asked, _judge([each[2] for each in asked], tokenizer, read), strict=True):
        judged = replace(edit, probability=chance)
        best[number, edit.start] = max(best.get((number, edit.start), judged), judged, key=_probability)
    return [[edit for (place, _), edit in best.items() if place == number] for number in range(len(texts))]


def find_spellings(text: str, span: tuple[int, int], words: WordList, tokenizer: Tokenizer, read: Read) -> list[Edit]:
    """All that may have been meant by one word, each instead of the others; nothing where it may be no mistake."""
    ways = next((each for each in offer(text, words) if (each[0].start, each[0].end) == span), [])
    chances = _judge([(text, edit) for edit in ways], tokenizer, read)
    return [replace(edit, probability=chance) for edit, chance in zip(ways, chances, strict=True)]


def _judge(edits: Sequence[tuple[str, Edit]], tokenizer: Tokenizer, read: Read) -> list[float]:
    """How probable edits of texts are, each as the only one, by what is near them."""
    if not edits:
        return []
    shown = []
    for text, edit in edits:
        left, right = text[max(edit.start - LEFT, 0) : edit.start], text[edit.end : edit.end + RIGHT]
        shown.append((left, edit.before, right, [replace(edit, start=0, end=len(edit.before))]))
    return [judge_spelling(gain) for [gain] in find_gains(shown, tokenizer, read)]


def _probability(edit: Edit) -> float:
    return edit.probability


def judge_spelling(gain: float) -> float:
    """How probable it is that a word was meant, given the nats that the text gains by it."""
    return 1 / (1 + math.exp(-(BIAS + READING * min(gain, MOST_GAIN))))
