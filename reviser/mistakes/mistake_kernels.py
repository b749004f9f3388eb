"""The kernel of mistakes: the draws and the results of make.py, for many texts in one call.

A change is the number of units that it replaces and the length of the text in `s.new`; (-1, 0) is none. Only what
changes is encoded, so the cost of a text is mostly that of finding its words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.mistakes.kinds import DROPS, NUM_FACTORS, NUM_KINDS, ONE, Kind
from reviser.mistakes.make import DOUBLED, DROPPED, KINDS_AT, LONGEST_MERGED, NEIGHBOUR, SLIPS, SPELLING, SWAPPED
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
    Scratch,
    encode,
    find_units,
    read_text,
)
from reviser.orders.kernels import _below, _bits32, jit

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
_SPELLING, _ONE = int(SPELLING), np.uint64(ONE)
_COMMA, _DASH, _DOT, _QUOTE, _BLANK, _I, _N, _T = (ord(sign) for sign in ",-.' Int")


@jit
def _possible(t: KernelTable, unit: Array) -> int:
    if unit[WHAT] != WORD:
        return _KINDS_AT[unit[WHAT]]
    if unit[SHAPE] > CAPITAL:
        return 0
    possible = np.int64(t.kinds[unit[NUMBER]])
    if unit[SHAPE] == CAPITAL and not unit[IS_FIRST] and not t.classes[unit[NUMBER]] & NAME:
        possible &= _SPELLING
    return possible


@jit
def _pick(t: KernelTable, unit: Array, limits: Array, factor: Any, rng: Array) -> int:
    """The kind of mistake to try at a unit, or -1."""
    possible = _possible(t, unit)
    if not possible:
        return -1
    total = np.uint64(0)
    for kind in range(NUM_KINDS):
        if possible >> kind & 1:
            total += limits[kind]
    if total == 0 or _bits32(rng) * _ONE >= total * factor:
        return -1
    left = np.uint64(_below(rng, total))
    for kind in range(NUM_KINDS):
        if possible >> kind & 1:
            if left < limits[kind]:
                return kind
            left -= limits[kind]
    return -1


@jit
def _put(s: Scratch, size: int, text: Array, count: int, case: int) -> int:
    """Add a text to the change; `case` 1 raises its first letter, -1 lowers it."""
    for k in range(count):
        s.new[size + k] = text[k]
    if count and case > 0 and 97 <= text[0] <= 122:
        s.new[size] -= 32
    elif count and case < 0 and 65 <= text[0] <= 90:
        s.new[size] += 32
    return size + count


@jit
def _put_byte(s: Scratch, size: int, byte: int) -> int:
    s.new[size] = byte
    return size + 1


@jit
def _put_space(s: Scratch, unit: Array) -> int:
    return _put_byte(s, 0, _BLANK) if unit[HAS_SPACE] else 0


@jit
def _put_unit(t: KernelTable, s: Scratch, tokens: Array, size: int, unit: Array, case: int) -> int:
    """Add a word's own text to the change."""
    count, _ = read_text(t, tokens, unit[START], unit[END], s.texts[1])
    return _put(s, size, s.texts[1], count, case)


@jit
def _is(s: Scratch, num_units: int, at: int, one: int, other: int) -> bool:
    """Whether there is a unit at a place and it is one thing or the other."""
    return 0 <= at < num_units and (s.units[at][WHAT] == one or s.units[at][WHAT] == other)


@jit
def _has_next_word(s: Scratch, num_units: int, at: int) -> bool:
    following = s.units[at + 1]
    return _is(s, num_units, at + 1, WORD, WORD) and following[HAS_SPACE] != 0 and following[SHAPE] == LOWER


@jit
def _changed(s: Scratch, unit: Array, size: int) -> Any:
    """The change to one word, unless it is the word in `s.texts[0]` itself."""
    skip = 1 if unit[HAS_SPACE] else 0
    if size - skip == unit[SIZE]:
        k = 0
        while k < unit[SIZE] and s.new[skip + k] == s.texts[0, k]:
            k += 1
        if k == unit[SIZE]:
            return -1, 0
    return 1, size


@jit
def _replace(t: KernelTable, s: Scratch, unit: Array, kind: int, rng: Array) -> Any:
    low, high = t.first_alternatives[unit[NUMBER]], t.first_alternatives[unit[NUMBER] + 1]
    while low < high and t.alternative_kinds[low] < kind:
        low += 1
    end = low
    while end < high and t.alternative_kinds[end] == kind:
        end += 1
    if low == end:
        return -1, 0
    chosen = low + _below(rng, end - low)
    start = t.alternative_starts[chosen]
    is_capital = unit[SHAPE] == CAPITAL and (unit[IS_FIRST] or not (unit[SIZE] == 1 and s.texts[0, 0] == _I))
    size = _put_space(s, unit)
    count = t.alternative_starts[chosen + 1] - start
    size = _put(s, size, t.alternative_bytes[start : start + count], count, 1 if is_capital else 0)
    return _changed(s, unit, size)


@jit
def _drop(t: KernelTable, s: Scratch, num_units: int, tokens: Array, at: int) -> Any:
    unit, following = s.units[at], s.units[at + 1]
    if not _is(s, num_units, at + 1, WORD, STRANGE) or not following[HAS_SPACE]:
        return -1, 0
    if unit[HAS_SPACE] and (unit[SHAPE] == LOWER or not unit[IS_FIRST]):
        return 1, 0
    if not unit[IS_FIRST] or following[WHAT] != WORD or following[SHAPE] != LOWER:
        return -1, 0
    size = _put_space(s, unit)
    return 2, _put_unit(t, s, tokens, size, following, 1 if unit[SHAPE] == CAPITAL else 0)


@jit
def _slip(t: KernelTable, s: Scratch, unit: Array, rng: Array) -> Any:
    text, size = s.texts[0], unit[SIZE]
    slip = _below(rng, SLIPS)
    begin = _put_space(s, unit)
    if size < 4 or DROPPED <= slip < SWAPPED:
        if size < 3:
            return -1, 0
        place = 1 + _below(rng, size - 2)
        end = _put(s, begin, text, size, 0)
        s.new[begin + place], s.new[begin + place + 1] = text[place + 1], text[place]
        return _changed(s, unit, end)
    place = 1 + _below(rng, size - 1)
    end = _put(s, begin, text, place, 0)
    rest = place
    if slip < DROPPED:
        rest = place + 1
    elif slip < DOUBLED:
        end = _put_byte(s, end, text[place])
    else:
        if not 97 <= text[place] <= 122:
            return -1, 0
        near = t.neighbours[text[place] - 97]
        end = _put_byte(s, end, near[1 + _below(rng, near[0])])
        rest = place + 1 if slip < NEIGHBOUR else place
    for k in range(rest, size):
        end = _put_byte(s, end, text[k])
    return _changed(s, unit, end)


@jit
def _merge(t: KernelTable, s: Scratch, num_units: int, tokens: Array, at: int, rng: Array) -> Any:
    unit, following = s.units[at], s.units[at + 1]
    if not _has_next_word(s, num_units, at) or not t.classes[following[NUMBER]] & LETTERS_ONLY:
        return -1, 0
    if unit[SIZE] + following[SIZE] > LONGEST_MERGED:
        return -1, 0
    has_hyphen = _below(rng, 4) == 0 and min(unit[SIZE], following[SIZE]) > 2
    size = _put(s, _put_space(s, unit), s.texts[0], unit[SIZE], 0)
    if has_hyphen:
        size = _put_byte(s, size, _DASH)
    return 2, _put_unit(t, s, tokens, size, following, 0)


@jit
def _add_word(t: KernelTable, s: Scratch, num_units: int, at: int, is_kept: int, rng: Array) -> Any:
    unit = s.units[at]
    if not _is(s, num_units, at - 1, WORD, WORD) or not is_kept or not unit[HAS_SPACE]:
        return -1, 0
    before, now = t.classes[s.units[at - 1][NUMBER]], t.classes[unit[NUMBER]]
    for rule in t.rules:
        if before & rule[0] and now & rule[1]:
            chosen = rule[2] + _below(rng, rule[3] - rule[2])
            start, size = t.rule_starts[chosen], _put_byte(s, 0, _BLANK)
            count = t.rule_starts[chosen + 1] - start
            return 0, _put(s, size, t.rule_bytes[start : start + count], count, 0)
    return -1, 0


@jit
def _double(s: Scratch, unit: Array) -> Any:
    text, count = s.texts[0], unit[SIZE]
    size = _put(s, _put_space(s, unit), text, count, 0)
    size = _put_byte(s, size, _BLANK)
    return 1, _put(s, size, text, count, 0 if count == 1 and text[0] == _I else -1)


@jit
def _exchange(t: KernelTable, s: Scratch, num_units: int, tokens: Array, at: int) -> Any:
    unit, following = s.units[at], s.units[at + 1]
    if not _has_next_word(s, num_units, at) or not unit[HAS_SPACE] or unit[SHAPE] != LOWER:
        return -1, 0
    size = _put_byte(s, 0, _BLANK)
    size = _put_unit(t, s, tokens, size, following, 0)
    if unit[SIZE] == following[SIZE] and _changed(s, unit, size)[0] < 0:
        return -1, 0
    size = _put_byte(s, size, _BLANK)
    return 2, _put(s, size, s.texts[0], unit[SIZE], 0)


@jit
def _misplace(s: Scratch, unit: Array, rng: Array) -> Any:
    text, count = s.texts[0], unit[SIZE]
    if count < 3:
        return -1, 0
    place = count - 1
    while place >= 0 and text[place] != _QUOTE:
        place -= 1
    begin = _put_space(s, unit)
    if place < 0:
        size = _put(s, begin, text, count - 1, 0)
        size = _put_byte(s, size, _QUOTE)
        return 1, _put_byte(s, size, text[count - 1])
    is_not = place == count - 2 and text[place - 1] == _N and text[place + 1] == _T
    if is_not and _below(rng, 4) == 0:
        size = _put(s, begin, text, place - 1, 0)
        for byte in (_QUOTE, _N, _T):
            size = _put_byte(s, size, byte)
        return 1, size
    size = _put(s, begin, text, place, 0)
    for k in range(place + 1, count):
        size = _put_byte(s, size, text[k])
    return 1, size


@jit
def _recase(s: Scratch, unit: Array, case: int) -> Any:
    return _changed(s, unit, _put(s, _put_space(s, unit), s.texts[0], unit[SIZE], case))


@jit
def _has_sentence_behind(t: KernelTable, s: Scratch, num_units: int, at: int) -> bool:
    if not _is(s, num_units, at - 1, WORD, WORD) or not _is(s, num_units, at + 1, WORD, WORD):
        return False
    before, following = s.units[at - 1], s.units[at + 1]
    if not following[HAS_SPACE] or following[SHAPE] != CAPITAL:
        return False
    return before[SHAPE] == LOWER and before[SIZE] > 2 and not t.classes[following[NUMBER]] & NAME


@jit
def _run_on(t: KernelTable, s: Scratch, num_units: int, tokens: Array, at: int, rng: Array) -> Any:
    choice = _below(rng, 4)
    if at == num_units - 1:
        return (1, 0) if choice == 0 and _is(s, num_units, at - 1, WORD, WORD) else (-1, 0)
    if not _has_sentence_behind(t, s, num_units, at):
        return -1, 0
    size = 0
    if choice != 1:
        size = _put_byte(s, size, _COMMA)
    size = _put_byte(s, size, _BLANK)
    return 2, _put_unit(t, s, tokens, size, s.units[at + 1], 0 if choice < 2 else -1)


@jit
def _respace(t: KernelTable, s: Scratch, num_units: int, tokens: Array, at: int, rng: Array) -> Any:
    choice = _below(rng, 3)
    if s.units[at][WHAT] == STOP:
        if not _has_sentence_behind(t, s, num_units, at):
            return -1, 0
        return 2, _put_unit(t, s, tokens, _put_byte(s, 0, _DOT), s.units[at + 1], 0)
    is_between = _is(s, num_units, at - 1, WORD, WORD) and _is(s, num_units, at + 1, WORD, WORD)
    if not is_between or not s.units[at + 1][HAS_SPACE]:
        return -1, 0
    if choice == 0:
        return 1, _put_byte(s, _put_byte(s, 0, _BLANK), _COMMA)
    return 2, _put_unit(t, s, tokens, _put_byte(s, 0, _COMMA), s.units[at + 1], 0)


@jit
def _change_signs(t: KernelTable, s: Scratch, num_units: int, tokens: Array, at: int, kind: int, is_kept: int,
                  rng: Array) -> Any:  # fmt: skip
    is_behind_word = _is(s, num_units, at - 1, WORD, STRANGE)
    if kind == _COMMA_ADDED:
        can_add = is_behind_word and is_kept and s.units[at][HAS_SPACE]
        return (0, _put_byte(s, 0, _COMMA)) if can_add else (-1, 0)
    if kind == _COMMA_DROPPED:
        has_word = _is(s, num_units, at + 1, WORD, STRANGE) and s.units[at + 1][HAS_SPACE]
        return (1, 0) if is_behind_word and has_word else (-1, 0)
    if kind == _FULL_STOP:
        return _run_on(t, s, num_units, tokens, at, rng)
    if kind == _SPACING:
        return _respace(t, s, num_units, tokens, at, rng)
    is_between = _is(s, num_units, at - 1, WORD, WORD) and _is(s, num_units, at + 1, WORD, WORD)
    if not is_between or s.units[at + 1][HAS_SPACE] or not is_kept:
        return -1, 0
    return 2, _put_unit(t, s, tokens, _put_byte(s, 0, _BLANK), s.units[at + 1], 0)


@jit
def _change(t: KernelTable, s: Scratch, num_units: int, tokens: Array, at: int, kind: int, is_kept: int,
            rng: Array) -> Any:  # fmt: skip
    """The change that a mistake makes at a unit."""
    unit = s.units[at]
    if kind >= _COMMA_ADDED:
        return _change_signs(t, s, num_units, tokens, at, kind, is_kept, rng)
    read_text(t, tokens, unit[START], unit[END], s.texts[0])
    if _DROPS[kind]:
        is_drop = _below(rng, 16) < _DROPS[kind]
        if is_drop and not t.classes[unit[NUMBER]] & KEEP:
            return _drop(t, s, num_units, tokens, at)
        return _replace(t, s, unit, kind, rng)
    if kind == _KEYBOARD:
        return _slip(t, s, unit, rng)
    if kind == _MERGED:
        return _merge(t, s, num_units, tokens, at, rng)
    if kind == _EXTRA:
        return _add_word(t, s, num_units, at, is_kept, rng)
    if kind == _DOUBLED:
        return _double(s, unit)
    if kind == _MISSING:
        return _drop(t, s, num_units, tokens, at)
    if kind == _EXCHANGED:
        return _exchange(t, s, num_units, tokens, at)
    if kind == _APOSTROPHE:
        return _misplace(s, unit, rng)
    if kind == _LOWERED:
        return _recase(s, unit, -1)
    if kind == _RAISED:
        return _recase(s, unit, 1) if unit[HAS_SPACE] else (-1, 0)
    return _replace(t, s, unit, kind, rng)


@jit
def _curl(s: Scratch, size: int) -> int:
    """Turn every ' of the change into ’."""
    count = 0
    for k in range(size):
        count += 1 if s.new[k] == _QUOTE else 0
    end = size + 2 * count
    at = end
    for k in range(size - 1, -1, -1):
        if s.new[k] == _QUOTE:
            s.new[at - 3], s.new[at - 2], s.new[at - 1] = 0xE2, 0x80, 0x99
            at -= 3
        else:
            s.new[at - 1] = s.new[k]
            at -= 1
    return end


@jit
def _copy(tokens: Array, start: int, end: int, out: Array, at: int) -> int:
    for k in range(start, end):
        out[at + k - start] = tokens[k]
    return at + end - start


@jit
def _make_one(t: KernelTable, s: Scratch, tokens: Array, clean: Any, limits: Array, factors: Array, rng: Array,
              out: Array, mistakes: Array) -> Any:  # fmt: skip
    """Mistakes in one text; returns the number of tokens and of mistakes, or FULL."""
    if len(out) < len(tokens):
        return FULL, 0
    if _bits32(rng) < clean:
        return _copy(tokens, 0, len(tokens), out, 0), 0
    factor = factors[_below(rng, NUM_FACTORS)]
    num_units = find_units(t, s, tokens)
    at, size, count, is_kept = 0, 0, 0, 1
    while at < num_units:
        unit = s.units[at]
        used, length = -1, 0
        kind = _pick(t, unit, limits, factor, rng)
        if kind >= 0:
            used, length = _change(t, s, num_units, tokens, at, kind, is_kept, rng)
        if size + unit[END] - unit[START] + NEW_BYTES > len(out) or count == len(mistakes):
            return FULL, 0
        if used < 0:
            size = _copy(tokens, unit[START], unit[END], out, size)
            is_kept = 1
            at += 1
            continue
        if (used > 0 and unit[IS_CURLY] and unit[WHAT] == WORD) or (used > 1 and s.units[at + 1][IS_CURLY]):
            length = _curl(s, length)
        row = mistakes[count]
        row[0], row[1], row[2], row[3] = kind, unit[START], unit[START], size
        if used:
            row[2] = s.units[at + used - 1][END]
        size = encode(t, s, length, out, size)
        row[4] = size
        count += 1
        if not used:
            size = _copy(tokens, unit[START], unit[END], out, size)
        is_kept = 0 if used else 1
        at += max(used, 1)
    return size, count


@jit
def make_rows(t: KernelTable, s: Scratch, tokens: Array, firsts: Array, lasts: Array, states: Array, clean: Any,
              limits: Array, factors: Array, out: Array, ends: Array, mistakes: Array,
              mistake_ends: Array) -> int:  # fmt: skip
    """Mistakes in the tokens from each of `firsts` to its `lasts`; 0, or FULL where there is no room."""
    size, count = 0, 0
    for i in range(len(firsts)):
        num_tokens, num_mistakes = _make_one(
            t, s, tokens[firsts[i] : lasts[i]], clean, limits, factors, states[i : i + 1], out[size:], mistakes[count:]
        )
        if num_tokens == FULL:
            return FULL
        size += num_tokens
        count += num_mistakes
        ends[i], mistake_ends[i] = size, count
    return 0
