"""Mistakes in one text, in plain Python: what the kernel must equal, draw by draw.

    clean        The boats lay still, and the gulls were asleep.
    mistakes     The boat lay still and the the gulls were asleep.
                     inflection  comma_dropped  doubled

A text is cut into units. At each unit one random number decides whether there is a mistake and another which kind.
Its maker then says how many units it replaces and with which words, or that it cannot be made there. What comes out
is encoded as the tokenizer would encode the new text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviser.mistakes.english import NEIGHBOURS
from reviser.mistakes.mistake_kinds import DROPS, NUM_FACTORS, ONE, Kind, MistakeConfig
from reviser.mistakes.mistake_table import (
    CAPITAL,
    COMMA,
    CURLY,
    HYPHEN,
    KEEP,
    LETTERS_ONLY,
    LOWER,
    NAME,
    STOP,
    STRANGE,
    WORD,
    MistakeTable,
    Unit,
    find_units,
)
from reviser.orders.rng import Random, threshold

Change = tuple[int, bytes] | None
"""How many units are replaced and by which text; none means that the text goes before the unit."""

BY_TABLE = (Kind.MISSPELLING, Kind.PHONETIC, Kind.INFLECTION, Kind.DERIVATION, Kind.CONFUSION, Kind.SPLIT)
SPELLING = 1 << Kind.MISSPELLING | 1 << Kind.PHONETIC | 1 << Kind.KEYBOARD | 1 << Kind.LOWERED | 1 << Kind.APOSTROPHE
"""What can happen to a word with a capital inside a sentence, which is part of a name or title."""
KINDS_AT = {
    COMMA: 1 << Kind.COMMA_DROPPED | 1 << Kind.SPACING,
    STOP: 1 << Kind.FULL_STOP | 1 << Kind.SPACING,
    HYPHEN: 1 << Kind.HYPHEN,
}
LONGEST_MERGED = 14
SLIPS = 16
DROPPED, SWAPPED, DOUBLED, NEIGHBOUR = 5, 9, 11, 14
"""Of 16 slips of the fingers, the first 5 drop a letter, those up to 9 swap two, and so on; the last insert one."""


class Mistake(NamedTuple):
    """The clean tokens from `start` to `end` became those from `new_start` to `new_end`."""

    kind: Kind
    start: int
    end: int
    new_start: int
    new_end: int


def make_mistakes(
    tokens: Sequence[int], table: MistakeTable, config: MistakeConfig, rng: Random
) -> tuple[list[int], list[Mistake]]:
    """The text with mistakes, and what they are, from left to right."""
    if rng.chance(threshold(config.clean)):
        return list(tokens), []
    factor = int(config.factors()[rng.below(NUM_FACTORS)])
    limits = [int(limit) for limit in config.limits()]
    maker = _Maker(find_units(tokens, table), table, rng)
    made: list[int] = []
    mistakes: list[Mistake] = []
    at = 0
    while at < len(maker.units):
        unit = maker.units[at]
        kind = maker.pick(at, limits, factor)
        change = None if kind is None else maker.make(at, kind)
        if kind is None or change is None:
            made += tokens[unit.start : unit.end]
            maker.is_kept = True
            at += 1
            continue
        used, text = change
        replaced = maker.units[at : at + used]
        if any(each.is_curly for each in replaced):
            text = text.replace(b"'", CURLY)
        new = table.merges.encode(text)
        end = replaced[-1].end if used else unit.start
        mistakes.append(Mistake(kind, unit.start, end, len(made), len(made) + len(new)))
        made += new
        if not used:
            made += tokens[unit.start : unit.end]
        maker.is_kept = not used
        at += max(used, 1)
    return made, mistakes


def recase(text: bytes, is_capital: bool) -> bytes:
    """The text with a capital letter in front, or as it is."""
    return text[:1].upper() + text[1:] if is_capital else text


class _Maker:
    def __init__(self, units: list[Unit], table: MistakeTable, rng: Random) -> None:
        self.units, self.table, self.rng = units, table, rng
        self.is_kept = True
        """Whether the unit before was left as it is."""

    def pick(self, at: int, limits: list[int], factor: int) -> Kind | None:
        """The kind of mistake to try at a unit."""
        possible = self._possible(self.units[at])
        kinds = [kind for kind in Kind if possible >> kind & 1]
        total = sum(limits[kind] for kind in kinds)
        if not total or (self.rng.bits32() >> 8) * ONE >= total * factor:
            return None
        left = self.rng.below(total)
        for kind in kinds:
            if left < limits[kind]:
                return kind
            left -= limits[kind]
        return None

    def _possible(self, unit: Unit) -> int:
        if unit.what != WORD:
            return KINDS_AT.get(unit.what, 0)
        if unit.shape not in (LOWER, CAPITAL):
            return 0
        possible = int(self.table.word_kinds[unit.word])
        is_title = unit.shape == CAPITAL and not unit.is_first and not self._is(unit, NAME)
        return possible & SPELLING if is_title else possible

    def make(self, at: int, kind: Kind) -> Change:
        """The change that this mistake makes at a unit, or none."""
        if kind in DROPS:
            unit, is_drop = self.units[at], self.rng.below(16) < DROPS[kind]
            return self._drop(at) if is_drop and not self._is(unit, KEEP) else self._replace(at, kind)
        if kind in BY_TABLE:
            return self._replace(at, kind)
        makers = {
            Kind.KEYBOARD: self._slip, Kind.MERGED: self._merge, Kind.EXTRA: self._add_word,
            Kind.DOUBLED: self._double, Kind.MISSING: self._drop, Kind.EXCHANGED: self._exchange,
            Kind.APOSTROPHE: self._misplace, Kind.LOWERED: self._lower, Kind.RAISED: self._raise,
            Kind.COMMA_ADDED: self._add_comma, Kind.COMMA_DROPPED: self._drop_comma, Kind.FULL_STOP: self._run_on,
            Kind.SPACING: self._respace, Kind.HYPHEN: self._drop_hyphen,
        }  # fmt: skip
        return makers[kind](at)

    def _is(self, unit: Unit, classes: int) -> bool:
        return bool(self.table.word_classes[unit.word] & classes)

    def _at(self, at: int, *kinds: int) -> Unit | None:
        """The unit at a place, if there is one and it is of these kinds."""
        return self.units[at] if 0 <= at < len(self.units) and self.units[at].what in kinds else None

    def _next_word(self, at: int) -> Unit | None:
        """The known word in lower case that follows behind a space."""
        unit = self._at(at + 1, WORD)
        return unit if unit and unit.has_space and unit.shape == LOWER else None

    def _replace(self, at: int, kind: Kind) -> Change:
        unit = self.units[at]
        found = self.table.alternatives_of(unit.word, kind)
        if not found:
            return None
        text = found[self.rng.below(len(found))]
        is_capital = unit.shape == CAPITAL and (unit.is_first or unit.text != b"I")
        return _new(unit, recase(text, is_capital))

    def _drop(self, at: int) -> Change:
        unit, following = self.units[at], self._at(at + 1, WORD, STRANGE)
        if following is None or not following.has_space:
            return None
        if unit.has_space and (unit.shape == LOWER or not unit.is_first):
            return 1, b""
        if not unit.is_first or following.what != WORD or following.shape != LOWER:
            return None
        return 2, _space(unit) + recase(following.text, unit.shape == CAPITAL)

    def _slip(self, at: int) -> Change:
        unit = self.units[at]
        text, size = bytearray(unit.text), len(unit.text)
        slip = self.rng.below(SLIPS)
        if size < 4 or DROPPED <= slip < SWAPPED:
            if size < 3:
                return None
            place = 1 + self.rng.below(size - 2)
            text[place], text[place + 1] = text[place + 1], text[place]
            return _new(unit, bytes(text))
        place = 1 + self.rng.below(size - 1)
        if slip < DROPPED:
            del text[place]
        elif slip < DOUBLED:
            text.insert(place, text[place])
        else:
            near = NEIGHBOURS.get(chr(text[place]), "").encode()
            if not near:
                return None
            key = near[self.rng.below(len(near))]
            text[place : place + (1 if slip < NEIGHBOUR else 0)] = bytes([key])
        return _new(unit, bytes(text))

    def _merge(self, at: int) -> Change:
        unit, following = self.units[at], self._next_word(at)
        if following is None or not self._is(following, LETTERS_ONLY):
            return None
        sizes = len(unit.text), len(following.text)
        if sum(sizes) > LONGEST_MERGED:
            return None
        has_hyphen = self.rng.below(4) == 0 and min(sizes) > 2
        return 2, _space(unit) + unit.text + (b"-" if has_hyphen else b"") + following.text

    def _add_word(self, at: int) -> Change:
        unit, before = self.units[at], self._at(at - 1, WORD)
        if before is None or not self.is_kept or not unit.has_space:
            return None
        for rule in self.table.rules:
            if self._is(before, rule.before) and self._is(unit, rule.now):
                return 0, b" " + rule.words[self.rng.below(len(rule.words))].encode()
        return None

    def _double(self, at: int) -> Change:
        unit = self.units[at]
        again = unit.text if unit.text == b"I" else unit.text.lower()
        return 1, _space(unit) + unit.text + b" " + again

    def _exchange(self, at: int) -> Change:
        unit, following = self.units[at], self._next_word(at)
        if following is None or not unit.has_space or unit.shape != LOWER:
            return None
        return None if unit.word == following.word else (2, b" " + following.text + b" " + unit.text)

    def _misplace(self, at: int) -> Change:
        unit = self.units[at]
        place = unit.text.rfind(b"'")
        if len(unit.text) < 3:
            return None
        if place < 0:
            return 1, _space(unit) + unit.text[:-1] + b"'" + unit.text[-1:]
        if unit.text.endswith(b"n't") and self.rng.below(4) == 0:
            return 1, _space(unit) + unit.text[: place - 1] + b"'nt"
        return 1, _space(unit) + unit.text[:place] + unit.text[place + 1 :]

    def _lower(self, at: int) -> Change:
        unit = self.units[at]
        return _new(unit, unit.text[:1].lower() + unit.text[1:])

    def _raise(self, at: int) -> Change:
        unit = self.units[at]
        return _new(unit, recase(unit.text, True)) if unit.has_space else None

    def _add_comma(self, at: int) -> Change:
        is_behind_word = self._at(at - 1, WORD, STRANGE) is not None
        return (0, b",") if is_behind_word and self.is_kept and self.units[at].has_space else None

    def _drop_comma(self, at: int) -> Change:
        following = self._at(at + 1, WORD, STRANGE)
        return (1, b"") if self._at(at - 1, WORD, STRANGE) and following and following.has_space else None

    def _sentence_behind(self, at: int) -> Unit | None:
        """The word that begins the sentence behind a full stop, if that is what the full stop surely is."""
        before, following = self._at(at - 1, WORD), self._at(at + 1, WORD)
        if before is None or following is None or not following.has_space or following.shape != CAPITAL:
            return None
        return following if before.shape == LOWER and len(before.text) > 2 and not self._is(following, NAME) else None

    def _run_on(self, at: int) -> Change:
        choice = self.rng.below(4)
        if at == len(self.units) - 1:
            return (1, b"") if choice == 0 and self._at(at - 1, WORD) else None
        following = self._sentence_behind(at)
        if following is None:
            return None
        lowered = following.text[:1].lower() + following.text[1:]
        if choice == 0:
            return 2, b", " + following.text
        return (2, b" " + following.text) if choice == 1 else (2, b", " + lowered)

    def _respace(self, at: int) -> Change:
        choice = self.rng.below(3)
        if self.units[at].what == STOP:
            following = self._sentence_behind(at)
            return (2, b"." + following.text) if following else None
        following = self._at(at + 1, WORD)
        if self._at(at - 1, WORD) is None or following is None or not following.has_space:
            return None
        return (1, b" ,") if choice == 0 else (2, b"," + following.text)

    def _drop_hyphen(self, at: int) -> Change:
        before, following = self._at(at - 1, WORD), self._at(at + 1, WORD)
        if before is None or following is None or following.has_space or not self.is_kept:
            return None
        return 2, b" " + following.text


def _space(unit: Unit) -> bytes:
    return b" " if unit.has_space else b""


def _new(unit: Unit, text: bytes) -> Change:
    """Another text in place of the word's, unless it is the same."""
    return (1, _space(unit) + text) if text != unit.text else None
