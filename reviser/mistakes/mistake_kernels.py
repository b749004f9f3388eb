"""The kernel of mistakes: the draws and the results of make.py, for many texts in one call.

A maker writes the pieces of its change into `s.plan` and returns how many units they replace and how many pieces
there are; (-1, 0) is none. One function puts pieces together, for every copy of it in the makers would be compiled
again. For the same reason constants are handed over as `whole`: numba compiles a function anew for each constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.mistakes.make import DOUBLED, DROPPED, KINDS_AT, LONGEST_MERGED, NEIGHBOUR, SLIPS, SPELLING, SWAPPED
from reviser.mistakes.mistake_kinds import DROPS, NUM_FACTORS, NUM_KINDS, ONE, Kind
from reviser.mistakes.mistake_table import CAPITAL, HYPHEN, KEEP, LETTERS_ONLY, LOWER, NAME, STOP, STRANGE, WORD
from reviser.mistakes.word_kernels import (
    END,
    HAS_SPACE,
    IS_CURLY,
    IS_FIRST,
    NEW_BYTES,
    NUMBER,
    SHAPE,
    SIZE,
    START,
    WHAT,
    KernelTable,
    WordScratch,
    bare,
    encode,
    find_units,
    read_text,
    whole,
)
from reviser.orders.kernels import _below, _bits32

Array = npt.NDArray[Any]

FULL = -1
"""Returned where the output has no room."""

_KEYBOARD, _MERGED, _EXTRA, _DOUBLED, _MISSING, _EXCHANGED, _APOSTROPHE, _LOWERED, _RAISED = (
    int(kind)
    for kind in (
        Kind.KEYBOARD, Kind.MERGED, Kind.EXTRA, Kind.DOUBLED, Kind.MISSING, Kind.EXCHANGED, Kind.APOSTROPHE,
        Kind.LOWERED, Kind.RAISED,
    )
)  # fmt: skip
_COMMA_ADDED, _COMMA_DROPPED, _FULL_STOP, _SPACING, _HYPHEN = (
    int(kind) for kind in (Kind.COMMA_ADDED, Kind.COMMA_DROPPED, Kind.FULL_STOP, Kind.SPACING, Kind.HYPHEN)
)
_DROPS = np.array([DROPS.get(kind, 0) for kind in Kind], np.int64)
_KINDS_AT = np.array([KINDS_AT.get(what, 0) for what in range(HYPHEN + 1)], np.int64)
_SPELLING, _ONE, _EIGHT = int(SPELLING), np.uint64(ONE), np.uint64(8)
_COMMA, _DASH, _DOT, _QUOTE, _BLANK, _I, _N, _T = (ord(sign) for sign in ",-.' Int")

_OWN_SPACE, _THIS, _THIS_UP, _THIS_DOWN, _NEXT, _NEXT_UP, _NEXT_DOWN, _UNTIL, _FROM, _OTHER, _OTHER_UP, _ADDED = (
    (1 + i) << 32 for i in range(12)
)
"""Pieces of a change, beside single bytes: the space before the word, if it has one; the word and the next, as they
are or with another first letter; the letters up to a place and from one on; an alternative of the table or a word of
the rules, by number."""


@bare
def _possible(words: Array, units: Array, at: int) -> Any:
    what, shape, number = units[at, WHAT], units[at, SHAPE], units[at, NUMBER]
    possible = whole(0)
    if what != WORD:
        possible = _KINDS_AT[what]
    elif shape <= CAPITAL:
        possible = whole(words[number, 2])
        if shape == CAPITAL and not units[at, IS_FIRST] and not words[number, 1] & NAME:
            possible &= _SPELLING
    return possible


@bare
def _sum_limits(possible: int, limits: Array) -> Any:
    total = np.uint64(0)
    for kind in range(NUM_KINDS):
        if possible >> kind & 1:
            total += limits[kind]
    return total


@bare
def sum_all(words: Array, limits: Array) -> None:
    """The chance of any mistake at each word, which is wanted too often to be added up each time."""
    for number in range(len(words)):
        words[number, 4] = _sum_limits(words[number, 2], limits)


@bare
def _has_mistake(words: Array, units: Array, at: int, possible: int, limits: Array, factor: Any, rng: Array) -> Any:
    """Whether to try a mistake at a unit where some are possible."""
    total = np.uint64(0)
    if units[at, WHAT] == WORD and possible == words[units[at, NUMBER], 2]:
        total = np.uint64(words[units[at, NUMBER], 4])
    else:
        total = _sum_limits(possible, limits)
    return total > 0 and (_bits32(rng) >> _EIGHT) * _ONE < total * factor


@bare
def _pick(possible: int, limits: Array, rng: Array) -> Any:
    """The kind of mistake to try."""
    left = np.uint64(_below(rng, _sum_limits(possible, limits)))
    kind = whole(0)
    while not possible >> kind & 1 or left >= limits[kind]:
        left -= limits[kind] if possible >> kind & 1 else np.uint64(0)
        kind += 1
    return kind


@bare
def _is_word(units: Array, num_units: int, at: int) -> Any:
    return 0 <= at < num_units and units[at, WHAT] == WORD


@bare
def _is_any_word(units: Array, num_units: int, at: int) -> Any:
    return 0 <= at < num_units and (units[at, WHAT] == WORD or units[at, WHAT] == STRANGE)


@bare
def _has_next_word(units: Array, num_units: int, at: int) -> Any:
    is_behind_space = _is_word(units, num_units, at + 1) and units[at + 1, HAS_SPACE] != 0
    return is_behind_space and units[at + 1, SHAPE] == LOWER


@bare
def _replace(words: Array, alternatives: Array, unit: Array, text: Array, kind: int, rng: Array, plan: Array) -> Any:
    low, high = words[unit[NUMBER], 3], words[unit[NUMBER] + 1, 3]
    while low < high and alternatives[low, 1] < kind:
        low += 1
    end = low
    while end < high and alternatives[end, 1] == kind:
        end += 1
    if low == end:
        return -1, 0
    chosen = low + _below(rng, whole(end - low))
    is_capital = unit[SHAPE] == CAPITAL and (unit[IS_FIRST] or not (unit[SIZE] == 1 and text[0] == _I))
    plan[0], plan[1] = _OWN_SPACE, (_OTHER_UP if is_capital else _OTHER) + chosen
    return 1, 2


@bare
def _drop(units: Array, num_units: int, at: int, plan: Array) -> Any:
    unit, following = units[at], units[at + 1]
    if not _is_any_word(units, num_units, at + 1) or not following[HAS_SPACE]:
        return -1, 0
    if unit[HAS_SPACE] and (unit[SHAPE] == LOWER or not unit[IS_FIRST]):
        return 1, 0
    if not unit[IS_FIRST] or following[WHAT] != WORD or following[SHAPE] != LOWER:
        return -1, 0
    plan[0], plan[1] = _OWN_SPACE, _NEXT_UP if unit[SHAPE] == CAPITAL else _NEXT
    return 2, 2


@bare
def _slip(neighbours: Array, unit: Array, text: Array, rng: Array, plan: Array) -> Any:
    size = whole(unit[SIZE])
    slip = _below(rng, whole(SLIPS))
    plan[0] = _OWN_SPACE
    if size < 4 or DROPPED <= slip < SWAPPED:
        if size < 3:
            return -1, 0
        place = 1 + _below(rng, size - 2)
        plan[1], plan[2], plan[3], plan[4] = _UNTIL + place, text[place + 1], text[place], _FROM + place + 2
        return 1, 5
    place = 1 + _below(rng, size - 1)
    plan[1], plan[2], plan[3] = _UNTIL + place, text[place], _FROM + place
    if slip < DROPPED:
        plan[2] = _FROM + place + 1
        return 1, 3
    if slip >= DOUBLED:
        if not 97 <= text[place] <= 122:
            return -1, 0
        near = neighbours[text[place] - 97]
        plan[2] = near[1 + _below(rng, whole(near[0]))]
        plan[3] = _FROM + place + (1 if slip < NEIGHBOUR else 0)
    return 1, 4


@bare
def _merge(words: Array, units: Array, num_units: int, at: int, rng: Array, plan: Array) -> Any:
    unit, following = units[at], units[at + 1]
    if not _has_next_word(units, num_units, at) or not words[following[NUMBER], 1] & LETTERS_ONLY:
        return -1, 0
    if unit[SIZE] + following[SIZE] > LONGEST_MERGED:
        return -1, 0
    has_hyphen = _below(rng, whole(4)) == 0 and min(unit[SIZE], following[SIZE]) > 2
    plan[0], plan[1], plan[2], plan[3] = _OWN_SPACE, _THIS, _NEXT, _NEXT
    if has_hyphen:
        plan[2] = _DASH
    return 2, 4 if has_hyphen else 3


@bare
def _add_word(t: KernelTable, units: Array, num_units: int, at: int, is_kept: int, rng: Array, plan: Array) -> Any:
    if not _is_word(units, num_units, at - 1) or not is_kept or not units[at, HAS_SPACE]:
        return -1, 0
    before, now = t.words[units[at - 1, NUMBER], 1], t.words[units[at, NUMBER], 1]
    for k in range(len(t.rules)):
        if before & t.rules[k, 0] and now & t.rules[k, 1]:
            count = whole(t.rules[k, 3] - t.rules[k, 2])
            plan[0], plan[1] = _BLANK, _ADDED + t.rules[k, 2] + _below(rng, count)
            return 0, 2
    return -1, 0


@bare
def _misplace(unit: Array, text: Array, rng: Array, plan: Array) -> Any:
    count = unit[SIZE]
    if count < 3:
        return -1, 0
    place = count - 1
    while place >= 0 and text[place] != _QUOTE:
        place -= 1
    plan[0] = _OWN_SPACE
    if place < 0:
        plan[1], plan[2], plan[3] = _UNTIL + count - 1, _QUOTE, _FROM + count - 1
        return 1, 4
    is_not = place == count - 2 and text[place - 1] == _N and text[place + 1] == _T
    if is_not and _below(rng, whole(4)) == 0:
        plan[1], plan[2], plan[3], plan[4] = _UNTIL + place - 1, _QUOTE, _N, _T
        return 1, 5
    plan[1], plan[2] = _UNTIL + place, _FROM + place + 1
    return 1, 3


@bare
def _has_sentence_behind(words: Array, units: Array, num_units: int, at: int) -> Any:
    if not _is_word(units, num_units, at - 1) or not _is_word(units, num_units, at + 1):
        return False
    before, following = units[at - 1], units[at + 1]
    if not following[HAS_SPACE] or following[SHAPE] != CAPITAL:
        return False
    return before[SHAPE] == LOWER and before[SIZE] > 2 and not words[following[NUMBER], 1] & NAME


@bare
def _change_stop(words: Array, units: Array, num_units: int, at: int, kind: int, rng: Array, plan: Array) -> Any:
    """Another sign, or none, or no space where a sentence ends."""
    choice = _below(rng, whole(4 if kind == _FULL_STOP else 3))
    if kind == _FULL_STOP and at == num_units - 1:
        return (1, 0) if choice == 0 and _is_word(units, num_units, at - 1) else (-1, 0)
    if not _has_sentence_behind(words, units, num_units, at):
        return -1, 0
    if kind == _SPACING:
        plan[0], plan[1] = _DOT, _NEXT
        return 2, 2
    if choice == 1:
        plan[0], plan[1] = _BLANK, _NEXT
        return 2, 2
    plan[0], plan[1], plan[2] = _COMMA, _BLANK, _NEXT if choice == 0 else _NEXT_DOWN
    return 2, 3


@bare
def _change_sign(words: Array, units: Array, num_units: int, at: int, kind: int, is_kept: int, rng: Array,
                 plan: Array) -> Any:  # fmt: skip
    if units[at, WHAT] == STOP:
        return _change_stop(words, units, num_units, at, kind, rng, plan)
    plan[0] = _COMMA
    if kind == _COMMA_ADDED:
        can_add = _is_any_word(units, num_units, at - 1) and is_kept and units[at, HAS_SPACE]
        return (0, 1) if can_add else (-1, 0)
    if kind == _COMMA_DROPPED:
        is_between = _is_any_word(units, num_units, at - 1) and _is_any_word(units, num_units, at + 1)
        return (1, 0) if is_between and units[at + 1, HAS_SPACE] else (-1, 0)
    is_between = _is_word(units, num_units, at - 1) and _is_word(units, num_units, at + 1)
    plan[1] = _NEXT
    if kind == _HYPHEN:
        plan[0] = _BLANK
        return (2, 2) if is_between and not units[at + 1, HAS_SPACE] and is_kept else (-1, 0)
    choice = _below(rng, whole(3))
    if not is_between or not units[at + 1, HAS_SPACE]:
        return -1, 0
    if choice == 0:
        plan[0], plan[1] = _BLANK, _COMMA
    return (1, 2) if choice == 0 else (2, 2)


@bare
def _change(t: KernelTable, units: Array, num_units: int, text: Array, at: int, kind: int, is_kept: int, rng: Array,
            plan: Array) -> Any:  # fmt: skip
    """The change that a mistake makes at a unit."""
    unit = units[at]
    if kind >= _COMMA_ADDED:
        return _change_sign(t.words, units, num_units, at, kind, is_kept, rng, plan)
    if kind == _MISSING or _DROPS[kind]:
        is_drop = kind == _MISSING or _below(rng, whole(16)) < _DROPS[kind]
        if kind == _MISSING or (is_drop and not t.words[unit[NUMBER], 1] & KEEP):
            return _drop(units, num_units, at, plan)
    elif kind == _KEYBOARD:
        return _slip(t.neighbours, unit, text, rng, plan)
    elif kind == _MERGED:
        return _merge(t.words, units, num_units, at, rng, plan)
    elif kind == _EXTRA:
        return _add_word(t, units, num_units, at, is_kept, rng, plan)
    elif kind == _DOUBLED:
        is_i = unit[SIZE] == 1 and text[0] == _I
        plan[0], plan[1], plan[2], plan[3] = _OWN_SPACE, _THIS, _BLANK, _THIS if is_i else _THIS_DOWN
        return 1, 4
    elif kind == _EXCHANGED:
        can = _has_next_word(units, num_units, at) and unit[HAS_SPACE] and unit[SHAPE] == LOWER
        plan[0], plan[1], plan[2], plan[3] = _BLANK, _NEXT, _BLANK, _THIS
        return (2, 4) if can and unit[NUMBER] != units[at + 1, NUMBER] else (-1, 0)
    elif kind == _APOSTROPHE:
        return _misplace(unit, text, rng, plan)
    elif kind == _LOWERED or kind == _RAISED:
        plan[0], plan[1] = _OWN_SPACE, _THIS_DOWN if kind == _LOWERED else _THIS_UP
        return (1, 2) if kind == _LOWERED or unit[HAS_SPACE] else (-1, 0)
    return _replace(t.words, t.alternatives, unit, text, kind, rng, plan)


@bare
def _put(source: Array, low: int, high: int, case: int, new: Array, size: int) -> Any:
    """Add some bytes to a text; `case` 1 raises the first letter, -1 lowers it."""
    for k in range(low, high):
        new[size + k - low] = source[k]
    if low < high and case > 0 and 97 <= source[low] <= 122:
        new[size] -= 32
    elif low < high and case < 0 and 65 <= source[low] <= 90:
        new[size] += 32
    return size + high - low


@bare
def _put_together(t: KernelTable, s: WordScratch, tokens: Array, at: int, count: int) -> Any:
    """The text of a change from its pieces, in `s.bytes[2]`; returns its length."""
    unit, following = s.units[at], s.units[at + 1]
    size, new = whole(0), s.bytes[2]
    for k in range(count):
        piece, place = s.plan[k] >> 32 << 32, s.plan[k] & 0xFFFFFFFF
        source, low, high, case = s.bytes[0], whole(0), whole(unit[SIZE]), whole(0)
        if piece == 0 or piece == _OWN_SPACE:
            if piece == 0 or unit[HAS_SPACE]:
                new[size] = _BLANK if piece else place
                size += 1
            continue
        if piece == _THIS_UP or piece == _NEXT_UP or piece == _OTHER_UP:
            case = whole(1)
        elif piece == _THIS_DOWN or piece == _NEXT_DOWN:
            case = whole(-1)
        if piece == _UNTIL:
            high = place
        elif piece == _FROM:
            low = place
        elif piece == _NEXT or piece == _NEXT_UP or piece == _NEXT_DOWN:
            source = s.bytes[1]
            high, _ = read_text(t.text, t.tokens, tokens, following[START], following[END], source)
        elif piece == _OTHER or piece == _OTHER_UP:
            source, low, high = t.text, whole(t.alternatives[place, 0]), whole(t.alternatives[place + 1, 0])
        elif piece == _ADDED:
            source, low, high = t.text, whole(t.rule_starts[place]), whole(t.rule_starts[place + 1])
        size = _put(source, low, high, case, new, size)
    return size


@bare
def _is_same(unit: Array, text: Array, new: Array, size: int) -> Any:
    """Whether a change to a word gives the word itself."""
    skip = 1 if unit[HAS_SPACE] else 0
    if unit[WHAT] != WORD or size - skip != unit[SIZE]:
        return False
    for k in range(unit[SIZE]):
        if new[skip + k] != text[k]:
            return False
    return True


@bare
def _curl(new: Array, size: int) -> Any:
    """Turn every ' of a text into ’."""
    end = size
    for k in range(size):
        end += 2 if new[k] == _QUOTE else 0
    at = end
    for k in range(size - 1, -1, -1):
        if new[k] == _QUOTE:
            new[at - 3], new[at - 2], new[at - 1] = 0xE2, 0x80, 0x99
            at -= 3
        else:
            new[at - 1] = new[k]
            at -= 1
    return end


@bare
def _try(t: KernelTable, s: WordScratch, tokens: Array, num_units: int, at: int, kind: int, is_kept: int,
         rng: Array) -> Any:  # fmt: skip
    """How many units a mistake replaces, or -1, and the length of the new text."""
    unit = s.units[at]
    if unit[WHAT] == WORD:
        read_text(t.text, t.tokens, tokens, unit[START], unit[END], s.bytes[0])
    used, count = _change(t, s.units, num_units, s.bytes[0], at, kind, is_kept, rng, s.plan)
    if used < 0:
        return used, count
    size = _put_together(t, s, tokens, at, count)
    if used == 1 and _is_same(unit, s.bytes[0], s.bytes[2], size):
        return -1, 0
    if (used > 0 and unit[IS_CURLY]) or (used > 1 and s.units[at + 1, IS_CURLY]):
        size = _curl(s.bytes[2], size)
    return used, size


@bare
def _copy(tokens: Array, start: int, end: int, out: Array, at: int) -> Any:
    for k in range(start, end):
        out[at + k - start] = tokens[k]
    return at + end - start


@bare
def _make_one(t: KernelTable, s: WordScratch, tokens: Array, clean: Any, limits: Array, factors: Array,
              rng: Array, out: Array, mistakes: Array) -> Any:  # fmt: skip
    """Mistakes in one text; returns the number of tokens and of mistakes, or FULL."""
    if len(out) < len(tokens):
        return FULL, 0
    if _bits32(rng) < clean:
        return _copy(tokens, whole(0), whole(len(tokens)), out, whole(0)), 0
    factor = factors[_below(rng, whole(NUM_FACTORS))]
    num_units = find_units(t, s, tokens)
    words, units, new = t.words, s.units, s.bytes[2]
    at, size, count, is_kept = whole(0), whole(0), whole(0), whole(1)
    while at < num_units:
        start, end = whole(units[at, START]), whole(units[at, END])
        used, length = whole(-1), whole(0)
        kind, possible = whole(-1), _possible(words, units, at)
        if possible and _has_mistake(words, units, at, possible, limits, factor, rng):
            kind = _pick(possible, limits, rng)
            used, length = _try(t, s, tokens, num_units, at, kind, is_kept, rng)
        if size + end - start + NEW_BYTES > len(out) or count == len(mistakes):
            return FULL, 0
        if used < 0:
            size = _copy(tokens, start, end, out, size)
            is_kept = whole(1)
            at += 1
            continue
        mistakes[count, 0], mistakes[count, 1], mistakes[count, 3] = kind, start, size
        mistakes[count, 2] = units[at + used - 1, END] if used else start
        size = encode(t.byte_tokens, t.pair_slots, new, length, s.ids, out, size)
        mistakes[count, 4] = size
        count += 1
        if not used:
            size = _copy(tokens, start, end, out, size)
        is_kept = whole(0 if used else 1)
        at += used if used else 1
    return size, count


@bare
def make_rows(t: KernelTable, s: WordScratch, tokens: Array, firsts: Array, lasts: Array, states: Array, clean: Any,
              limits: Array, factors: Array, out: Array, ends: Array, mistakes: Array,
              mistake_ends: Array) -> Any:  # fmt: skip
    """Mistakes in the tokens from each of `firsts` to its `lasts`; 0, or FULL where there is no room."""
    size, count = 0, 0
    for i in range(len(firsts)):
        num_tokens, num_mistakes = _make_one(
            t,
            s,
            tokens[firsts[i] : lasts[i]],
            clean,
            limits,
            factors,
            states[i : i + 1],
            out[size:],
            mistakes[count:],
        )
        if num_tokens == FULL:
            return FULL
        size += num_tokens
        count += num_mistakes
        ends[i], mistake_ends[i] = size, count
    return 0
