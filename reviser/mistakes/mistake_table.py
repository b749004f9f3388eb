"""What is known about tokens and words, and how a text falls into units.

    The boats' well-known owner, Dr. Smith, isn't here.
    WORD WORD OTHER WORD HYPHEN WORD WORD COMMA WORD STOP WORD COMMA WORD WORD STOP

A unit is a word (with its leading space and anything behind an apostrophe), a comma, a full stop, a hyphen or
something else. Mistakes are made in words that the table knows, and around them. Words of other letters, words beside
digits or signs that prose does not have, and all that could be encoded otherwise if a neighbour changed are `STRANGE`
or `OTHER`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reviser.mistakes.word_bpe import Merges

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]

SPACE, LONE, LETTERS, GLUE, CONTRACTION, APOSTROPHE, COMMA_SIGN = (1 << i for i in range(7))
"""What a token is, as bits: it has a leading space; is a space alone; has ASCII letters and nothing else behind the
space, if any; may belong to the word before it; is 's or the like; is ' or ’; is a comma."""
STOP_SIGN, HYPHEN_SIGN, ENDS, OPENS, CODE, DIGIT, QUOTE = (1 << i for i in range(7, 14))
"""It is a full stop; is a hyphen; ends a sentence or line; may stand before a word; is a sign of code and addresses;
ends with a digit; ends with '."""

OTHER, STRANGE, WORD, COMMA, STOP, HYPHEN = range(6)
"""What a unit is; a strange word is one that nothing is known about."""
LOWER, CAPITAL, UPPER, MIXED = range(4)
"""The shape of a word."""
LONGEST = 32
"""Letters of the longest word that is looked up."""

NOUN, PLURAL, VERB, BASE, PAST, COMPARATIVE, NAME = (1 << i for i in range(7))
"""Classes of words, as bits; a base is a verb's infinitive, and verbs that are also nouns count as nouns."""
PREPOSITION, MODAL, SUBJECT, DETERMINER, LETTERS_ONLY, KEEP = (1 << i for i in range(7, 13))
"""More classes; words with an apostrophe lack `LETTERS_ONLY`, and `KEEP` is never left out."""

CURLY = "’".encode()
CODE_SIGNS = frozenset(b"_/\\@=#$%^&*<>|~`+{[(0123456789")
OPENERS = tuple(sign.encode() for sign in ("(", '"', "“", "‘", "—", "–", "-", "["))


class Unit(NamedTuple):
    """A part of a text: the tokens from `start` to `end`."""

    start: int
    end: int
    what: int
    word: int = -1
    """Its number in the table."""
    shape: int = LOWER
    has_space: bool = False
    is_first: bool = False
    """Whether a sentence begins with it."""
    is_curly: bool = False
    text: bytes = b""
    """A word without its space, and with ' for any apostrophe."""


@dataclass(frozen=True)
class Rule:
    """A word of the class `now` behind one of the class `before`: one of some words may slip in between."""

    before: int
    now: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class MistakeTable:
    """Everything that making mistakes needs to know; arrays only, so that it fits a file and a kernel.

    Words, alternatives and token bytes are each one run of bytes, and the lengths of what it holds.
    """

    tokenizer_sha256: str
    token_bytes: Bytes
    token_lengths: npt.NDArray[np.uint16]
    merges: Merges
    word_bytes: Bytes
    word_lengths: Bytes
    word_classes: npt.NDArray[np.uint32]
    word_kinds: npt.NDArray[np.uint32]
    """Which kinds are possible at a word, one bit each."""
    num_alternatives: npt.NDArray[np.uint16]
    """Of each word."""
    alternative_bytes: Bytes
    alternative_lengths: Bytes
    alternative_kinds: Bytes
    """Rising within a word."""
    rules: tuple[Rule, ...]

    @property
    def num_words(self) -> int:
        return len(self.word_lengths)

    @property
    def num_tokens(self) -> int:
        return len(self.token_lengths)

    @cached_property
    def tokens(self) -> list[bytes]:
        """What each token stands for."""
        return cut(self.token_bytes, self.token_lengths)

    @cached_property
    def flags(self) -> Ints:
        """What each token is."""
        return np.array([flag_token(token) for token in self.tokens], np.int32)

    @cached_property
    def words(self) -> list[bytes]:
        return cut(self.word_bytes, self.word_lengths)

    @cached_property
    def number_of(self) -> dict[bytes, int]:
        """The number of each word, by its spelling in lower case."""
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def alternatives(self) -> list[bytes]:
        return cut(self.alternative_bytes, self.alternative_lengths)

    @cached_property
    def first_alternatives(self) -> npt.NDArray[np.int64]:
        """Where the alternatives of each word begin, and the end of the last."""
        return np.concatenate(([0], np.cumsum(self.num_alternatives, dtype=np.int64)))

    def alternatives_of(self, word: int, kind: int) -> list[bytes]:
        first, last = self.first_alternatives[word : word + 2].tolist()
        return [self.alternatives[i] for i in range(first, last) if self.alternative_kinds[i] == kind]


def cut(flat: Bytes, lengths: npt.NDArray[np.integer]) -> list[bytes]:
    """Strings that lie end to end."""
    whole, found, at = flat.tobytes(), [], 0
    for length in lengths.tolist():
        found.append(whole[at : at + length])
        at += length
    return found


def flag_token(token: bytes) -> int:
    """What a token is."""
    has_space = token.startswith(b" ")
    rest = token[1:] if has_space else token
    flag = SPACE if has_space else 0
    if not rest:
        return flag | LONE | OPENS if has_space else GLUE
    try:
        text = rest.decode()
    except UnicodeDecodeError:
        return flag | GLUE
    if rest.isalpha() and rest.isascii():
        return flag | LETTERS
    if text.isalpha():
        return flag | GLUE
    if rest[:1] == b"'" and rest[1:].isalpha() and rest.isascii():
        return flag | CONTRACTION
    signs = {b",": COMMA_SIGN, b".": STOP_SIGN, b"-": HYPHEN_SIGN, b"'": APOSTROPHE, CURLY: APOSTROPHE}
    flag |= 0 if has_space else signs.get(rest, 0)
    flag |= ENDS if text[-1] in ".!?" or "\n" in text else 0
    flag |= OPENS if token.endswith(OPENERS) or text[-1].isspace() else 0
    flag |= CODE if rest[0] in CODE_SIGNS and not has_space else 0
    flag |= DIGIT if text[-1].isnumeric() else 0
    return flag | (QUOTE if rest.endswith(b"'") else 0)


def find_units(tokens: Sequence[int], table: MistakeTable) -> list[Unit]:
    """The units of a text, end to end."""
    flags = table.flags[list(tokens)].tolist() if len(tokens) else []
    units: list[Unit] = []
    at, is_first = 0, True
    while at < len(flags):
        end = word_end(flags, at)
        if end:
            unit = _read_word(tokens, flags, at, end, is_first, table)
            is_first = False
        else:
            end = at + 1
            unit = Unit(at, end, _what(flags[at]), has_space=bool(flags[at] & SPACE))
            is_first = bool(flags[at] & ENDS) or (is_first and not flags[at] & (DIGIT | GLUE | CONTRACTION))
        units.append(unit)
        at = end
    return units


def _what(flag: int) -> int:
    return COMMA if flag & COMMA_SIGN else STOP if flag & STOP_SIGN else HYPHEN if flag & HYPHEN_SIGN else OTHER


def word_end(flags: Sequence[int], at: int) -> int:
    """Where the word that begins at a token ends; 0 where none begins."""
    size = len(flags)
    if flags[at] & LONE and at + 1 < size and flags[at + 1] & (LETTERS | SPACE) == LETTERS:
        at += 1
    if not flags[at] & LETTERS:
        return 0
    at += 1
    while at < size and not flags[at] & SPACE:
        if flags[at] & (LETTERS | GLUE | CONTRACTION):
            at += 1
        elif flags[at] & APOSTROPHE and at + 1 < size and flags[at + 1] & (LETTERS | SPACE) == LETTERS:
            at += 2
        else:
            break
    return at


def _read_word(
    tokens: Sequence[int], flags: Sequence[int], start: int, end: int, is_first: bool, table: MistakeTable
) -> Unit:
    whole = b"".join(table.tokens[token] for token in tokens[start:end])
    has_space, is_curly = whole.startswith(b" "), CURLY in whole
    strange = Unit(start, end, STRANGE, has_space=has_space, is_first=is_first)
    text = whole.replace(CURLY, b"'").removeprefix(b" ")
    if not is_plain(flags, start, end) or len(text) > LONGEST:
        return strange
    word = table.number_of.get(text.lower(), -1)
    if word < 0 and text.endswith(b"'s"):
        word = table.number_of.get(b"'s", -1)
    return strange if word < 0 else Unit(start, end, WORD, word, shape_of(text), has_space, is_first, is_curly, text)


def is_plain(flags: Sequence[int], start: int, end: int) -> bool:
    """Whether a word stands as words in prose do, and can be changed without its neighbours."""
    for at in range(start, end):
        if flags[at] & GLUE or (flags[at] & CONTRACTION and at + 1 < end):
            return False
    if start and not flags[start] & SPACE and not flags[start - 1] & OPENS:
        return False
    if start and flags[start - 1] & QUOTE and not flags[start] & SPACE:
        return False
    if end < len(flags) and not flags[end] & SPACE:
        is_address = flags[end] & STOP_SIGN and end + 1 < len(flags) and flags[end + 1] & (LETTERS | SPACE) == LETTERS
        return not (flags[end] & (CODE | DIGIT) or is_address)
    return True


def shape_of(text: bytes) -> int:
    """The shape of a word in ASCII."""
    first, rest = text[:1].isupper(), text[1:]
    if rest == rest.lower():
        return CAPITAL if first else LOWER
    return UPPER if first and rest == rest.upper() else MIXED
