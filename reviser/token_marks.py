"""What tokens are to sentences and words, as a table by token id, so that kernels can cut text where people would.

A full stop behind a title, an initial or a letter of "e.g." ends no sentence, and a title may be two tokens:

>>> from reviser.tokenizer import load
>>> tokenizer = load("default")
>>> marks = text_marks(tokenizer)
>>> tokenizer.pieces(tokenizer.encode(" Mrs. Bell"))
[' Mr', 's', '.', ' Bell']
>>> ids = [np.array(tokenizer.encode(text)) for text in ("He saw Mrs.", "He saw J.", "He saw it.", "Who was it?")]
>>> [bool(ends_sentence(each, len(each) - 1, marks)) for each in ids]
[False, False, True, True]
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser import compiled
from reviser.tokenizer import Tokenizer

Array = npt.NDArray[Any]
jit = compiled.jit()
ENDS, BEGINS, STOP_ALONE, TITLE, HEAD, TAIL = 1, 2, 4, 8, 16, 32
"""A token with which a sentence or line may end; one that may begin a word, mark or line; a full stop and nothing
else; a title or an initial, without its full stop; the two halves of one."""
INSIDE = re.compile(r"[^\W_]|['’]|<[0-9A-F]{2}>")
"""How a token begins that may stand in the middle of a word; the last is a byte that is no character by itself."""
TITLES = (
    *("Mr", "Mrs", "Ms", "Messrs", "Mme", "Dr", "Prof", "St", "Rev", "Fr", "Gen", "Col", "Maj", "Capt", "Lt", "Sgt"),
    *("Hon", "Gov", "Sen", "Rep", "vs", "fig", "Fig", "vol", "Vol", "cf"),
)
"""Words that are written with a full stop before a name or a number, and do not end a sentence."""
INITIALS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"
"""Of names; "I" often ends a sentence."""


def sentence_ends(tokenizer: Tokenizer) -> npt.NDArray[np.uint8]:
    """For each token, 1 if a sentence or line may end with it."""
    table = np.zeros(tokenizer.num_text, np.uint8)
    for token in range(tokenizer.num_text):
        piece = tokenizer.piece(token)
        text = piece.rstrip("\"'”’)]")
        table[token] = text.endswith((".", "!", "?")) or "\n" in piece
    return table


def text_marks(tokenizer: Tokenizer) -> npt.NDArray[np.uint8]:
    """For each token, which of the marks above it has, as one number."""
    pieces = [tokenizer.piece(token) for token in range(tokenizer.num_text)]
    marks = ENDS * sentence_ends(tokenizer)
    marks |= np.array([BEGINS * (INSIDE.match(piece) is None) for piece in pieces], np.uint8)
    for token, piece in enumerate(pieces):
        if piece == ".":
            marks[token] |= STOP_ALONE | HEAD  # as in "e.g."
        elif len(piece) == 1 and piece.isalpha():
            marks[token] |= TAIL
    for word in (*TITLES, *INITIALS):
        ids = tokenizer.encode(f" {word}")
        if len(ids) == 1:
            marks[ids[0]] |= TITLE
        elif len(ids) == 2:
            marks[ids[0]] |= HEAD
            marks[ids[1]] |= TAIL
    return marks


@jit
def ends_sentence(tokens: Array, place: int, marks: Array) -> bool:
    """Whether a sentence or line ends with the token at a place; the two before it are looked at too."""
    mark = marks[tokens[place]]
    if mark & STOP_ALONE and place > 0:
        before = marks[tokens[place - 1]]
        is_short = before & TITLE or (place > 1 and before & TAIL and marks[tokens[place - 2]] & HEAD)
        return not is_short
    return bool(mark & ENDS)
