"""Mistakes in many texts at once, by the kernel: a table and rates in, tokens and a list of mistakes out.

Text i is made with its own random stream, `states[i]`, and depends on nothing else; `make_mistakes` in make.py gives
the same from the same stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.errors import DataError
from reviser.mistakes.english import NEIGHBOURS
from reviser.mistakes.make import Mistake
from reviser.mistakes.mistake_kernels import FULL, make_rows, sum_all
from reviser.mistakes.mistake_kinds import Kind, MistakeConfig
from reviser.mistakes.mistake_table import MistakeTable, shape_of
from reviser.mistakes.word_kernels import (
    NEW_BYTES,
    NUM_COLUMNS,
    KernelTable,
    WordScratch,
    fill_pair_slots,
    fill_word_slots,
)
from reviser.orders.rng import threshold

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Mistaken:
    """Texts with mistakes, end to end."""

    tokens: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]
    """Where each text ends."""
    rows: npt.NDArray[np.int32]
    """Kind, start and end in the clean tokens, start and end in the new ones, both counted from the text's first."""
    row_ends: npt.NDArray[np.int64]
    """Where the rows of each text end."""

    def __len__(self) -> int:
        return len(self.ends)

    def text(self, i: int) -> npt.NDArray[np.int32]:
        return self.tokens[self.ends[i - 1] if i else 0 : self.ends[i]]

    def mistakes(self, i: int) -> list[Mistake]:
        rows = self.rows[self.row_ends[i - 1] if i else 0 : self.row_ends[i]]
        return [Mistake(Kind(kind), *places) for kind, *places in rows.tolist()]


class MistakeMaker:
    """A table and rates, ready to make mistakes; may be used by several threads at once."""

    def __init__(self, table: MistakeTable, config: MistakeConfig | None = None) -> None:
        self.table, self.config = table, config or MistakeConfig()
        self._kernel_table = make_kernel_table(table)
        self._clean = np.uint64(threshold(self.config.clean))
        self._limits, self._factors = self.config.limits(), self.config.factors()
        sum_all(self._kernel_table.words, self._limits)

    def make(
        self,
        tokens: npt.NDArray[np.integer],
        firsts: npt.NDArray[np.int64],
        lasts: npt.NDArray[np.int64],
        states: npt.NDArray[np.uint64],
    ) -> Mistaken:
        """Mistakes in the tokens from each of `firsts` to its `lasts`; the streams move on in place."""
        tokens = self._check(tokens, firsts, lasts)
        num_tokens, longest = int((lasts - firsts).sum()), int((lasts - firsts).max(initial=0))
        capacity = num_tokens + num_tokens // 4 + NEW_BYTES
        while True:
            made = _allocate(len(firsts), capacity)
            begun = states.copy()
            code = make_rows(
                self._kernel_table, _scratch(longest), tokens, firsts, lasts, begun, self._clean, self._limits,
                self._factors, made.tokens, made.ends, made.rows, made.row_ends,
            )  # fmt: skip
            if code != FULL:
                break
            capacity *= 2
        states[:] = begun
        num_made, num_rows = (int(ends[-1]) if len(ends) else 0 for ends in (made.ends, made.row_ends))
        return Mistaken(made.tokens[:num_made], made.ends, made.rows[:num_rows], made.row_ends)

    def _check(self, tokens: Array, firsts: Array, lasts: Array) -> npt.NDArray[np.int32]:
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.table.num_tokens:
            found = next(int(token) for token in tokens if not 0 <= token < self.table.num_tokens)
            raise DataError(f"token {found} is not one of the error table's 0 to {self.table.num_tokens - 1}")
        if len(firsts) and not (firsts.min() >= 0 and (firsts <= lasts).all() and lasts.max() <= len(tokens)):
            raise DataError(f"texts must lie within the {len(tokens)} tokens, each first before its last")
        return np.ascontiguousarray(tokens, np.int32)


def _allocate(num_texts: int, capacity: int) -> Mistaken:
    return Mistaken(
        np.empty(capacity, np.int32),
        np.empty(num_texts, np.int64),
        np.empty((capacity, 5), np.int32),
        np.empty(num_texts, np.int64),
    )


def _scratch(longest: int) -> WordScratch:
    return WordScratch(
        np.zeros(longest + 2, np.int32),
        np.zeros((longest + 2, NUM_COLUMNS), np.int32),
        np.zeros((3, NEW_BYTES), np.uint8),
        np.zeros((2, NEW_BYTES), np.int32),
        np.zeros(8, np.int64),
    )


def make_kernel_table(table: MistakeTable) -> KernelTable:
    """The table with offsets and hash tables."""
    rule_words = [word.encode() for rule in table.rules for word in rule.words]
    rule_text = np.frombuffer(b"".join(rule_words), np.uint8)
    text = np.concatenate([table.token_bytes, table.word_bytes, table.alternative_bytes, rule_text])
    firsts = np.cumsum([0, len(table.token_bytes), len(table.word_bytes), len(table.alternative_bytes)]).tolist()
    words = _rows(
        _starts(firsts[1], table.word_lengths),
        table.word_classes,
        table.word_kinds,
        table.first_alternatives,
        np.zeros(0),
    ).astype(np.int64)
    word_slots = np.full(_num_slots(table.num_words), -1, np.int32)
    fill_word_slots(text, words, word_slots)
    pair_slots = np.full((_num_slots(len(table.merges.pairs)), 2), -1, np.int64)
    fill_pair_slots(table.merges.pairs, pair_slots)
    ends = np.cumsum([0, *(len(rule.words) for rule in table.rules)]).tolist()
    rules = [[rule.before, rule.now, ends[i], ends[i + 1]] for i, rule in enumerate(table.rules)]
    near = [[len(keys), *keys.encode(), *bytes(3 - len(keys))] for _, keys in sorted(NEIGHBOURS.items())]
    return KernelTable(
        text,
        _rows(_starts(0, table.token_lengths), table.flags, *_whole_words(table)),
        words,
        _rows(_starts(firsts[2], table.alternative_lengths), table.alternative_kinds),
        word_slots,
        pair_slots,
        table.merges.byte_tokens,
        np.array(rules, np.int32).reshape(-1, 4),
        _starts(firsts[3], np.array([len(word) for word in rule_words], np.int64)),
        np.array(near, np.uint8),
    )


def _whole_words(table: MistakeTable) -> tuple[Array, Array, Array]:
    """Of each token that is a word by itself the word's number, shape and size, for most words are one token."""
    texts = [token.removeprefix(b" ") for token in table.tokens]
    numbers = [table.number_of.get(text.lower(), -1) for text in texts]
    return np.array(numbers), np.array([shape_of(text) for text in texts]), np.array([len(text) for text in texts])


def _starts(first: int, lengths: Array) -> npt.NDArray[np.int32]:
    """Where strings begin that lie end to end from `first` on, and the end of the last."""
    return first + np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)


def _rows(starts: Array, *columns: Array) -> npt.NDArray[np.int32]:
    rows = np.zeros((len(starts), 1 + len(columns)), np.int32)
    rows[:, 0] = starts
    for number, column in enumerate(columns, 1):
        rows[: len(column), number] = column
    return rows


def _num_slots(count: int) -> int:
    """A power of two that leaves at least half of the slots empty."""
    return 1 << (2 * count + 1).bit_length()
