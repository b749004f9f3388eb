"""Words in kernels: the units of a text as mistake_table.py finds them, and new words to tokens as word_bpe.py does.

Words are looked up by a hash of their bytes. Nothing is allocated, and the GIL is released.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reviser import compiled
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

Array = npt.NDArray[Any]
bare = compiled.jit(_nrt=False)
"""Without numba's counting of references, which took two thirds of the time: no function here makes an array."""

whole: Any = np.int64
"""Of one type wherever it comes from, so that numba compiles nothing twice."""

NEW_BYTES = 8 * LONGEST
"""Room for the text of a change: two words and what joins them, each ’ in three bytes."""
NUM_COLUMNS = 9
START, END, WHAT, NUMBER, SHAPE, HAS_SPACE, IS_FIRST, IS_CURLY, SIZE = range(NUM_COLUMNS)
"""Columns of a unit."""

_FNV, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_QUOTE, _BLANK, _S = ord("'"), ord(" "), ord("s")


class KernelTable(NamedTuple):
    """A `MistakeTable` as the kernel reads it: all strings in one run of bytes, and rows that say where each begins.

    The row behind the last says where the last string ends. Few arrays, because numba compiles each one into every
    function it is handed to.
    """

    text: Array
    tokens: Array
    """Start, flags and, for a token that is a word by itself, the word's number (or -1), shape and size."""
    words: Array
    """Start, classes, kinds, first alternative, and the chance of any mistake."""
    alternatives: Array
    """Start and kind."""
    word_slots: Array
    """A hash table of word numbers, or -1."""
    pair_slots: Array
    """A hash table of merges: both tokens in one number, or -1; rank and result in another."""
    byte_tokens: Array
    rules: Array
    """Class before, class now, first word and the end of the words."""
    rule_starts: Array
    neighbours: Array
    """A row for each letter: how many keys are beside it, and which."""


class WordScratch(NamedTuple):
    """Room that the kernel works in."""

    flags: Array
    """Of each token of the text, and two more."""
    units: Array
    bytes: Array
    """Rows for the word at hand, the next word and the text of a change."""
    ids: Array
    """Tokens, and where their merges stand."""
    plan: Array
    """The pieces of a change."""


@bare
def hash_bytes(text: Array, size: int) -> Any:
    """FNV-1a of the first bytes, folded to 32 bits."""
    value = _FNV
    for k in range(size):
        value = (value ^ np.uint64(text[k])) * _PRIME
    return whole((value ^ (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@bare
def hash_pair(pair: Any) -> Any:
    value = np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15)
    return whole(value >> np.uint64(33))


@bare
def fill_word_slots(text: Array, words: Array, slots: Array) -> None:
    """Put every word into the hash table, whose size is a power of two."""
    for number in range(len(words) - 1):
        word = text[words[number, 0] : words[number + 1, 0]]
        slot = hash_bytes(word, len(word)) & (len(slots) - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = number


@bare
def fill_pair_slots(pairs: Array, slots: Array) -> None:
    """Put every merge into the hash table; of equal pairs the first counts."""
    for rank in range(len(pairs)):
        pair = (whole(pairs[rank, 0]) << 32) | whole(pairs[rank, 1])
        slot = hash_pair(pair) & (len(slots) - 1)
        while slots[slot, 0] >= 0 and slots[slot, 0] != pair:
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot, 0] < 0:
            slots[slot, 0], slots[slot, 1] = pair, (whole(rank) << 32) | whole(pairs[rank, 2])


@bare
def _is_letter(byte: int) -> Any:
    return 97 <= (byte | 32) <= 122


@bare
def _find_pair(slots: Array, left: int, right: int) -> Any:
    """Where a merge stands in the hash table, or -1."""
    pair = (whole(left) << 32) | whole(right)
    slot = hash_pair(pair) & (len(slots) - 1)
    while slots[slot, 0] >= 0:
        if slots[slot, 0] == pair:
            return slot
        slot = (slot + 1) & (len(slots) - 1)
    return -1


@bare
def _chunk_end(text: Array, at: int, size: int) -> Any:
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


@bare
def _merge_all(slots: Array, ids: Array, found: Array, count: int) -> Any:
    """Apply the merges to the first tokens; returns how many are left."""
    for k in range(count - 1):
        found[k] = _find_pair(slots, ids[k], ids[k + 1])
    while count > 1:
        best = -1
        for k in range(count - 1):
            # The rank is in the upper half; equal pairs have equal numbers, and the leftmost wins.
            if found[k] >= 0 and (best < 0 or slots[found[k], 1] < slots[found[best], 1]):
                best = k
        if best < 0:
            break
        ids[best] = slots[found[best], 1] & 0xFFFFFFFF
        count -= 1
        for k in range(best + 1, count):
            ids[k] = ids[k + 1]
            found[k - 1] = found[k]
        if best > 0:
            found[best - 1] = _find_pair(slots, ids[best - 1], ids[best])
        if best < count - 1:
            found[best] = _find_pair(slots, ids[best], ids[best + 1])
    return count


@bare
def encode(byte_tokens: Array, slots: Array, text: Array, size: int, ids: Array, out: Array, at: int) -> Any:
    """Write the tokens of `text[:size]` to `out`; returns where they end."""
    begin = 0
    while begin < size:
        end = _chunk_end(text, begin, size)
        for k in range(begin, end):
            ids[0, k - begin] = byte_tokens[text[k]]
        count = _merge_all(slots, ids[0], ids[1], end - begin)
        for k in range(count):
            out[at + k] = ids[0, k]
        at += count
        begin = end
    return at


@bare
def _is_inner(flag: int) -> Any:
    return flag & (LETTERS | SPACE) == LETTERS


@bare
def _word_end(flags: Array, size: int, at: int) -> Any:
    if flags[at] & LONE and _is_inner(flags[at + 1]):
        at += 1
    if not flags[at] & LETTERS:
        return 0
    at += 1
    while at < size and not flags[at] & SPACE:
        if flags[at] & (LETTERS | GLUE | CONTRACTION):
            at += 1
        elif flags[at] & APOSTROPHE and _is_inner(flags[at + 1]):
            at += 2
        else:
            break
    return at


@bare
def _is_plain(flags: Array, start: int, end: int) -> Any:
    result = True
    for at in range(start, end):
        if flags[at] & GLUE or (flags[at] & CONTRACTION and at + 1 < end):
            result = False
    if start > 0 and not flags[start] & SPACE and (not flags[start - 1] & OPENS or flags[start - 1] & QUOTE):
        result = False
    is_address = flags[end] & STOP_SIGN and _is_inner(flags[end + 1])
    return result and (flags[end] & SPACE != 0 or not (flags[end] & (CODE | DIGIT) or is_address))


@bare
def read_text(text: Array, rows: Array, tokens: Array, start: int, end: int, word: Array) -> Any:
    """A word without its space and with ' for ’: its length, or -1 where it is too long, and whether it had ’."""
    size, is_curly, is_begin = 0, 0, True
    for at in range(start, end):
        low, high = rows[tokens[at], 0], rows[tokens[at] + 1, 0]
        if is_begin and low < high:
            is_begin = False
            low += 1 if text[low] == _BLANK else 0
        while low < high:
            byte = text[low]
            if byte == 0xE2 and high - low > 2 and text[low + 1] == 0x80 and text[low + 2] == 0x99:
                byte, is_curly = np.uint8(_QUOTE), 1
                low += 2
            if size == LONGEST:
                return -1, is_curly
            word[size] = byte
            size += 1
            low += 1
    return size, is_curly


@bare
def _find_word(text: Array, words: Array, slots: Array, word: Array, size: int) -> Any:
    slot = hash_bytes(word, size) & (len(slots) - 1)
    number = slots[slot]
    while number >= 0:
        low, k = words[number, 0], 0
        if words[number + 1, 0] - low == size:
            while k < size and text[low + k] == word[k]:
                k += 1
        if k == size:
            break
        slot = (slot + 1) & (len(slots) - 1)
        number = slots[slot]
    return number


@bare
def _lower_all(text: Array, size: int) -> Any:
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


@bare
def _read_word(text: Array, rows: Array, words: Array, slots: Array, tokens: Array, flags: Array, word: Array,
               possessive: int, units: Array, at: int) -> None:  # fmt: skip
    """Fill in what is known about the word from `START` to `END`."""
    start, end = units[at, START], units[at, END]
    units[at, HAS_SPACE] = flags[start] & SPACE
    number, is_curly, is_plain = whole(-1), whole(0), _is_plain(flags, start, end)
    if is_plain and end - start == 1:
        token = tokens[start]
        number, units[at, SHAPE], units[at, SIZE] = whole(rows[token, 2]), rows[token, 3], rows[token, 4]
    elif is_plain:
        size, is_curly = read_text(text, rows, tokens, start, end, word)
        if size > 0:
            units[at, SHAPE], units[at, SIZE] = _lower_all(word, size), size
            number = whole(_find_word(text, words, slots, word, size))
            if number < 0 and size > 1 and word[size - 2] == _QUOTE and word[size - 1] == _S:
                number = possessive
    units[at, WHAT], units[at, NUMBER] = STRANGE if number < 0 else WORD, number
    units[at, IS_CURLY] = 0 if number < 0 else is_curly


@bare
def find_units(t: KernelTable, s: WordScratch, tokens: Array) -> Any:
    """Fill `s.units`; returns how many there are."""
    text, rows, words, slots = t.text, t.tokens, t.words, t.word_slots
    flags, units, word, size = s.flags, s.units, s.bytes[0], len(tokens)
    for k in range(size):
        flags[k] = rows[tokens[k], 1]
    flags[size], flags[size + 1] = SPACE, SPACE
    word[0], word[1] = _QUOTE, _S
    possessive = whole(_find_word(text, words, slots, word, whole(2)))
    at, count, is_first = whole(0), whole(0), whole(1)
    while at < size:
        units[count, START], units[count, IS_FIRST] = at, is_first
        end = _word_end(flags, size, at)
        if end:
            units[count, END] = end
            _read_word(text, rows, words, slots, tokens, flags, word, possessive, units, count)
            is_first = whole(0)
        else:
            flag, end = flags[at], at + 1
            units[count, END], units[count, HAS_SPACE], units[count, IS_CURLY] = end, flag & SPACE, 0
            units[count, WHAT] = (
                COMMA if flag & COMMA_SIGN else STOP if flag & STOP_SIGN else HYPHEN if flag & HYPHEN_SIGN else OTHER
            )
            stays = is_first and not flag & (DIGIT | GLUE | CONTRACTION)
            is_first = whole(1 if flag & ENDS or stays else 0)
        count += 1
        at = end
    return count
