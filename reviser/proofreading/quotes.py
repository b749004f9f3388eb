"""Quotation marks and apostrophes as the text has them: a model that learned from books writes ’ where a text has '.

>>> Quotes.of("It's here.").follow("todays", "today’s")
"today's"
>>> Quotes.of("It’s here.").follow("todays", "today's")
'today’s'
"""

from __future__ import annotations

import re
from dataclasses import dataclass

STRAIGHT = str.maketrans("‘’“”", "''\"\"")
APOSTROPHE = re.compile(r"(?<=\w)'")


@dataclass(frozen=True, slots=True)
class Quotes:
    """What a text uses, straight where it uses neither."""

    has_curly_apostrophes: bool
    has_curly_quotes: bool

    @classmethod
    def of(cls, text: str) -> Quotes:
        return cls(_prefers(text, "’‘", "'"), _prefers(text, "“”", '"'))

    def follow(self, before: str, after: str, left: str = "") -> str:
        """What takes the place of `before`, in the style of `before` itself or else of the text.

        A change of style alone is no change. `left` is the character that both stand behind.
        """
        if before.translate(STRAIGHT) == after.translate(STRAIGHT):
            return before
        own = Quotes.of(before)
        apostrophes = own if _has_any(before, "'’‘") else self
        quotes = own if _has_any(before, '"“”') else self
        is_curly = apostrophes.has_curly_apostrophes
        after = APOSTROPHE.sub("’", left + after)[len(left) :] if is_curly else _straighten(after, "’‘")
        # Which of the two a straight quote should become depends on what stands around it.
        return after if quotes.has_curly_quotes else _straighten(after, "“”")


def _prefers(text: str, curly: str, straight: str) -> bool:
    return sum(map(text.count, curly)) > text.count(straight)


def _has_any(text: str, characters: str) -> bool:
    return any(character in text for character in characters)


def _straighten(text: str, characters: str) -> str:
    return "".join(character.translate(STRAIGHT) if character in characters else character for character in text)
