"""A text between markup, places counted in UTF-16 units, and spans that cut no character in two.

LanguageTool's clients count as Java and JavaScript do: a character beyond U+FFFF is two units. A match never begins
or ends inside of what a reader sees as one character: a letter with its accents, a flag, a family of emoji.

>>> annotated = AnnotatedText.parse([{"text": "A "}, {"markup": "<b>"}, {"text": "tset"}, {"markup": "</b>"}])
>>> annotated.plain, annotated.find(2, 6), annotated.find(0, 6)
('A tset', (5, 9), None)
>>> Utf16("a😀b").count(2)
3
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from reviser.errors import DataError

LONGEST_WORD = 64
JOINER = "\u200d"
SKIN_TONES = range(0x1F3FB, 0x1F400)
FLAG_LETTERS = range(0x1F1E6, 0x1F200)
WORD_BEFORE, WORD_BEHIND = re.compile(r"[^\W_]+\Z"), re.compile(r"[^\W_]+")


class Utf16:
    """Places in a text, counted in UTF-16 units."""

    def __init__(self, text: str) -> None:
        self._is_plain = text.isascii()
        sizes = () if self._is_plain else (1 + (ord(character) > 0xFFFF) for character in text)
        self._ends = [0, *accumulate(sizes)]

    def count(self, place: int) -> int:
        """The units before a place that counts characters."""
        return place if self._is_plain else self._ends[place]


@dataclass(frozen=True, slots=True)
class AnnotatedText:
    """A text, the document it is from, and where each of its characters stands there."""

    plain: str
    document: str
    origins: Sequence[int]
    """Of each character of `plain`; -1 for one that only stands for markup."""

    @classmethod
    def of(cls, text: str) -> AnnotatedText:
        return cls(text, text, range(len(text)))

    @classmethod
    def parse(cls, annotation: Any) -> AnnotatedText:
        """LanguageTool's list of parts: each a text, or markup and perhaps what it is to be read as."""
        if not isinstance(annotation, list):
            raise DataError("data must be an object with a list named annotation")
        plain, document, origins = list[str](), list[str](), list[int]()
        place = 0
        for number, part in enumerate(annotation):
            given = part if isinstance(part, dict) else {}
            kind = next((name for name in ("text", "markup") if isinstance(given.get(name), str)), None)
            shown = given.get("text" if kind == "text" else "interpretAs", "")
            if kind is None or not isinstance(shown, str) or ("text" in given and "markup" in given):
                raise DataError(f"part {number} of annotation must have a text, or markup, perhaps with interpretAs")
            written = given[kind]
            plain.append(shown)
            document.append(written)
            origins += range(place, place + len(written)) if kind == "text" else [-1] * len(shown)
            place += len(written)
        return cls("".join(plain), "".join(document), origins)

    def find(self, start: int, end: int) -> tuple[int, int] | None:
        """Where a stretch of `plain` stands in the document; None where markup is in it or it is markup."""
        if start >= end:
            return None
        first, last = self.origins[start], self.origins[end - 1]
        if min(first, last) < 0 or last - first != end - start - 1:
            return None
        # Origins only rise, so there is room for nothing else between them.
        return (first, last + 1) if -1 not in self.origins[start:end] else None


def widen(text: str, start: int, end: int, limits: tuple[int, int]) -> tuple[int, int]:
    """A stretch that is not empty and cuts no character in two, within limits where it can be."""
    if start == end:
        behind, before = (
            WORD_BEHIND.match(text, start, limits[1]),
            WORD_BEFORE.search(text, max(limits[0], start - LONGEST_WORD), start),
        )
        if behind:
            end = behind.end()
        elif before:
            start = before.start()
        elif start > limits[0]:
            start -= 1
        elif end < limits[1]:
            end += 1
    while start > 0 and _is_inside(text, start):
        start -= 1
    while end < len(text) and _is_inside(text, end):
        end += 1
    return start, end


def _is_inside(text: str, place: int) -> bool:
    """Whether the characters on both sides of a place are seen as one."""
    before, after = text[place - 1], text[place]
    if after == JOINER or before == JOINER or (before, after) == ("\r", "\n"):
        return True
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or ord(after) in SKIN_TONES:
        return True
    if ord(before) not in FLAG_LETTERS or ord(after) not in FLAG_LETTERS:
        return False
    # Flags are pairs, counted from where their letters begin.
    first = place
    while first > 0 and ord(text[first - 1]) in FLAG_LETTERS:
        first -= 1
    return (place - first) % 2 == 1
