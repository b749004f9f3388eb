"""Words in kernels: the units of a text as mistake_table.py finds them, and new words to tokens as word_bpe.py does.

Words are looked up by a hash of their bytes. Nothing is allocated for a text, and the GIL is released.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reviser.mistakes.mistake_table import (
    APOSTROPHE,
    CAPITAL,
    CODE,
    COMMA,
    COMMA_SIGN,
    CONTRACTION,
    DIGIT,
    ENDS,
    GLUE,
    HYPHEN,
    HYPHEN_SIGN,
    LETTERS,
    LONE,
    LONGEST,
    LOWER,
    MIXED,
    OPENS,
    OTHER,
    QUOTE,
    SPACE,
    STOP,
    STOP_SIGN,
    STRANGE,
    UPPER,
    WORD,
)
from reviser.orders.kernels import jit

Array = npt.NDArray[Any]

NEW_BYTES = 8 * LONGEST
"""Room for the text of a change: two words and what joins them, each ’ in three bytes."""
NUM_COLUMNS = 9
START, END, WHAT, NUMBER, SHAPE, HAS_SPACE, IS_FIRST, IS_CURLY, SIZE = range(9)
"""Columns of a unit."""

_FNV, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_QUOTE, _BLANK = ord("'"), ord(" ")


class KernelTable(NamedTuple):
    """A `MistakeTable` as the kernel reads it: strings end to end, and where each begins."""

    token_bytes: Array
    token_starts: Array
    flags: Array
    byte_tokens: Array
    pair_slots: Array
    """A hash table of merges: both tokens in one number, or -1."""
    pair_ranks: Array
    pair_ids: Array
    word_bytes: Array
    word_starts: Array
    word_slots: Array
    """A hash table of word numbers, or -1."""
    classes: Array
    kinds: Array
    first_alternatives: Array
    alternative_bytes: Array
    alternative_starts: Array
    alternative_kinds: Array
    rules: Array
    """Rows of class before, class now, first word and the end of the words."""
    rule_bytes: Array
    rule_starts: Array
    neighbours: Array
    """A row for each letter: how many keys are beside it, and which."""
    possessive: int
    """The number of the word that stands for any other with 's, or -1."""


class Scratch(NamedTuple):
    """Room that the kernel works in."""

    units: Array
    texts: Array
    """A row of bytes for the word at hand and one for the next."""
    new: Array
    """The text of a change."""
    ids: Array
    ranks: Array


@jit
def hash_bytes(text: Array, size: int) -> Any:
    """FNV-1a of the first bytes, folded to 32 bits."""
    value = _FNV
    for k in range(size):
        value = (value ^ np.uint64(text[k])) * _PRIME
    return np.int64((value ^ (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@jit
def hash_pair(pair: Any) -> Any:
    value = np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(value >> np.uint64(33))


@jit
def fill_word_slots(flat: Array, starts: Array, slots: Array) -> None:
    """Put every word into the hash table, whose size is a power of two."""
    for number in range(len(starts) - 1):
        text = flat[starts[number] : starts[number + 1]]
        slot = hash_bytes(text, len(text)) & (len(slots) - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = number


@jit
def fill_pair_slots(pairs: Array, slots: Array, ranks: Array, ids: Array) -> None:
    """Put every merge into the hash table; of equal pairs the first counts."""
    for rank in range(len(pairs)):
        pair = (np.int64(pairs[rank, 0]) << 32) | np.int64(pairs[rank, 1])
        slot = hash_pair(pair) & (len(slots) - 1)
        while slots[slot] >= 0 and slots[slot] != pair:
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] < 0:
            slots[slot], ranks[slot], ids[slot] = pair, rank, pairs[rank, 2]


@jit
def _is_letter(byte: int) -> bool:
    return 97 <= (byte | 32) <= 122


@jit
def _find_pair(t: KernelTable, left: int, right: int) -> int:
    pair = (np.int64(left) << 32) | np.int64(right)
    slot = hash_pair(pair) & (len(t.pair_slots) - 1)
    while t.pair_slots[slot] >= 0:
        if t.pair_slots[slot] == pair:
            return slot
        slot = (slot + 1) & (len(t.pair_slots) - 1)
    return -1


@jit
def _chunk_end(text: Array, at: int, size: int) -> int:
    """Where the word that begins at a byte ends, as the tokenizer splits words."""
    if text[at] == _QUOTE and at + 1 < size:
        one, two = text[at + 1], text[at + 2] if at + 2 < size else np.uint8(0)
        if one == 115 or one == 100 or one == 109 or one == 116:
            return at + 2
        if (one == 108 and two == 108) or (one == 118 and two == 101) or (one == 114 and two == 101):
            return at + 3
    end = at
    if text[at] == _BLANK:
        end += 1
        if end == size or text[end] == _BLANK:
            return end
    is_word = _is_letter(text[end])
    while end < size and text[end] != _BLANK and _is_letter(text[end]) == is_word:
        end += 1
    return end


@jit
def encode(t: KernelTable, s: Scratch, size: int, out: Array, at: int) -> int:
    """Write the tokens of `s.new[:size]` to `out`; returns where they end."""
    begin = 0
    while begin < size:
        end = _chunk_end(s.new, begin, size)
        count = end - begin
        for k in range(count):
            s.ids[k] = t.byte_tokens[s.new[begin + k]]
        for k in range(count - 1):
            s.ranks[k] = _find_pair(t, s.ids[k], s.ids[k + 1])
        while count > 1:
            best = -1
            for k in range(count - 1):
                slot = s.ranks[k]
                if slot >= 0 and (best < 0 or t.pair_ranks[slot] < t.pair_ranks[s.ranks[best]]):
                    best = k
            if best < 0:
                break
            s.ids[best] = t.pair_ids[s.ranks[best]]
            count -= 1
            for k in range(best + 1, count):
                s.ids[k] = s.ids[k + 1]
                s.ranks[k - 1] = s.ranks[k]
            if best > 0:
                s.ranks[best - 1] = _find_pair(t, s.ids[best - 1], s.ids[best])
            if best < count - 1:
                s.ranks[best] = _find_pair(t, s.ids[best], s.ids[best + 1])
        for k in range(count):
            out[at + k] = s.ids[k]
        at += count
        begin = end
    return at


@jit
def _flag(t: KernelTable, tokens: Array, at: int) -> int:
    return t.flags[tokens[at]] if at < len(tokens) else SPACE


@jit
def _is_inner(flag: int) -> bool:
    return flag & (LETTERS | SPACE) == LETTERS


@jit
def _word_end(t: KernelTable, tokens: Array, at: int) -> int:
    if _flag(t, tokens, at) & LONE and _is_inner(_flag(t, tokens, at + 1)):
        at += 1
    if not _flag(t, tokens, at) & LETTERS:
        return 0
    at += 1
    while at < len(tokens):
        flag = _flag(t, tokens, at)
        if flag & SPACE:
            break
        if flag & (LETTERS | GLUE | CONTRACTION):
            at += 1
        elif flag & APOSTROPHE and _is_inner(_flag(t, tokens, at + 1)):
            at += 2
        else:
            break
    return at


@jit
def _is_plain(t: KernelTable, tokens: Array, start: int, end: int) -> bool:
    for at in range(start, end):
        flag = _flag(t, tokens, at)
        if flag & GLUE or (flag & CONTRACTION and at + 1 < end):
            return False
    if start > 0 and not _flag(t, tokens, start) & SPACE:
        before = _flag(t, tokens, start - 1)
        if not before & OPENS or before & QUOTE:
            return False
    behind = _flag(t, tokens, end)
    is_address = behind & STOP_SIGN and _is_inner(_flag(t, tokens, end + 1))
    return behind & SPACE != 0 or not (behind & (CODE | DIGIT) or is_address)


@jit
def read_text(t: KernelTable, tokens: Array, start: int, end: int, text: Array) -> Any:
    """A word without its space and with ' for ’: its length, or -1 where it is too long, and whether it had ’."""
    size, is_curly, is_begin = 0, 0, True
    for at in range(start, end):
        low, high = t.token_starts[tokens[at]], t.token_starts[tokens[at] + 1]
        if is_begin and low < high:
            is_begin = False
            low += 1 if t.token_bytes[low] == _BLANK else 0
        while low < high:
            byte = t.token_bytes[low]
            if byte == 0xE2 and high - low > 2 and t.token_bytes[low + 1] == 0x80 and t.token_bytes[low + 2] == 0x99:
                byte, is_curly = np.uint8(_QUOTE), 1
                low += 2
            if size == LONGEST:
                return -1, is_curly
            text[size] = byte
            size += 1
            low += 1
    return size, is_curly


@jit
def _find_word(t: KernelTable, text: Array, size: int) -> int:
    slot = hash_bytes(text, size) & (len(t.word_slots) - 1)
    while t.word_slots[slot] >= 0:
        number = t.word_slots[slot]
        low = t.word_starts[number]
        if t.word_starts[number + 1] - low == size:
            k = 0
            while k < size and t.word_bytes[low + k] == text[k]:
                k += 1
            if k == size:
                return number
        slot = (slot + 1) & (len(t.word_slots) - 1)
    return -1


@jit
def _lower_all(text: Array, size: int) -> int:
    """Put a word into lower case; returns the shape it had."""
    num_upper = num_letters = 0
    is_capital = 65 <= text[0] <= 90
    for k in range(size):
        num_letters += 1 if _is_letter(text[k]) else 0
        if 65 <= text[k] <= 90:
            num_upper += 1
            text[k] |= 32
    if num_upper == (1 if is_capital else 0):
        return CAPITAL if is_capital else LOWER
    return UPPER if is_capital and num_upper == num_letters else MIXED


@jit
def _read_word(t: KernelTable, s: Scratch, tokens: Array, unit: Array) -> None:
    """Fill in what is known about the word from `START` to `END`."""
    text = s.texts[0]
    start, end = unit[START], unit[END]
    unit[WHAT], unit[NUMBER] = STRANGE, -1
    unit[HAS_SPACE] = 1 if _flag(t, tokens, start) & SPACE else 0
    if not _is_plain(t, tokens, start, end):
        return
    size, is_curly = read_text(t, tokens, start, end, text)
    if size < 0:
        return
    is_possessive = size > 1 and text[size - 2] == _QUOTE and text[size - 1] == 115
    unit[SHAPE], unit[SIZE] = _lower_all(text, size), size
    number = _find_word(t, text, size)
    if number < 0 and is_possessive:
        number = t.possessive
    if number >= 0:
        unit[WHAT], unit[NUMBER], unit[IS_CURLY] = WORD, number, is_curly


@jit
def find_units(t: KernelTable, s: Scratch, tokens: Array) -> int:
    """Fill `s.units`; returns how many there are."""
    at, count, is_first = 0, 0, 1
    while at < len(tokens):
        unit = s.units[count]
        unit[START], unit[IS_FIRST], unit[IS_CURLY] = at, is_first, 0
        end = _word_end(t, tokens, at)
        if end:
            unit[END] = end
            _read_word(t, s, tokens, unit)
            is_first = 0
        else:
            flag, end = _flag(t, tokens, at), at + 1
            unit[END], unit[HAS_SPACE] = end, flag & SPACE
            unit[WHAT] = (
                COMMA if flag & COMMA_SIGN else STOP if flag & STOP_SIGN else HYPHEN if flag & HYPHEN_SIGN else OTHER
            )
            is_first = 1 if flag & ENDS or (is_first and not flag & (DIGIT | GLUE | CONTRACTION)) else 0
        count += 1
        at = end
    return count
