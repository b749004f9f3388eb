"""A few words as bytes to tokens, as the tokenizer itself would encode them.

Byte-level BPE cuts a text into words first and merges inside each, so a new word can be put between others without
encoding the text anew. Here words are of ASCII letters, spaces and `,.'-`; any other byte counts as punctuation.

>>> from reviser.tokenizer import load
>>> tokenizer = load("default")
>>> Merges.of(tokenizer).encode(b" they're alot") == tokenizer.encode(" they're alot")
True
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from reviser.errors import TokenizerError
from reviser.tokenizer import BYTE_CHARACTERS, Tokenizer

CHUNKS = re.compile(rb"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[^ A-Za-z]+| ").findall
NEEDED = "mistakes need a byte-level BPE that splits words as GPT-2 does"


@dataclass(frozen=True)
class Merges:
    """The merges of a byte-level BPE, the first to be applied first."""

    byte_tokens: npt.NDArray[np.int32]
    """The token of each byte."""
    pairs: npt.NDArray[np.int32]
    """Left token, right token and what they become, a row each."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Merges:
        """The merges of a tokenizer; refused where words would come out otherwise than it encodes them."""
        model = json.loads(tokenizer.serialised)["model"]
        if not tokenizer.splits_words or model.get("type") != "BPE":
            raise TokenizerError(f"{NEEDED}; this one is of the type {model.get('type')}, or splits text otherwise")
        vocabulary, merges = model["vocab"], model["merges"]
        try:
            bytes_ = [vocabulary[BYTE_CHARACTERS[byte]] for byte in range(256)]
            rows = [_row(vocabulary, merge) for merge in merges]
        except KeyError as error:
            raise TokenizerError(f"{NEEDED}; this one lacks the token {error}") from error
        return cls(np.array(bytes_, np.int32), np.array(rows, np.int32).reshape(-1, 3))

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {(left, right): (rank, id) for rank, (left, right, id) in reversed([*enumerate(self.pairs.tolist())])}

    def encode(self, text: bytes) -> list[int]:
        """The tokens of some words."""
        return [id for chunk in CHUNKS(text) for id in self._merge([int(self.byte_tokens[byte]) for byte in chunk])]

    def _merge(self, ids: list[int]) -> list[int]:
        while len(ids) > 1:
            found = [self._ranks.get(pair) for pair in pairwise(ids)]
            best = min((each for each in found if each), default=None)
            if best is None:
                break
            at = found.index(best)
            ids[at : at + 2] = [best[1]]
        return ids


def _row(vocabulary: dict[str, int], merge: str | Sequence[str]) -> tuple[int, int, int]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return vocabulary[left], vocabulary[right], vocabulary[left + right]
