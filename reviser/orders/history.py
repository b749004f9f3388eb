"""How a draft is written: its tokens in order, then the way back to its cursor, in one JUMP or in MOVEs.

    tokens a b c d, cursor 1     history  a   b    c     d      MOVE -2   MOVE -1       or   JUMP 1
                                 canvas   a|  ab|  abc|  abcd|  ab|cd     a|bcd              a|bcd

A draft with several gaps visits them all, so that the history says where they are:

    visits 3, cursor 1           history  a   b    c     d      JUMP 3   JUMP 1
                                 canvas   a|  ab|  abc|  abcd|  abc|d    a|bcd

So does a text to be changed, if there are JUMPs: it visits its first place, and the cursor goes to its last.

    visits 0, cursor 4           history  a   b    c     d      JUMP 0   JUMP 4
                                 canvas   a|  ab|  abc|  abcd|  |abcd    abcd|

A text to be continued out of order says so by going there and back twice: visits 0, 4, 0, cursor 4.

`draft_history` defines this. replay.py writes the same history in a kernel; tests hold the two equal.

>>> from reviser.actions import Alphabet
>>> alphabet = Alphabet(num_text=257, pad=256)
>>> [alphabet.name(action) for action in draft_history((7, 8, 9, 10), 1, alphabet)[4:]]
['MOVE -2', 'MOVE -1']
>>> draft_cursors(4, 1, alphabet)
[1, 2, 3, 4, 2, 1]
>>> num_moves(np.array([0, 3, 1024])).tolist()
[0, 2, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise

import numpy as np
import numpy.typing as npt

from reviser.actions import MAX_MOVE, MAX_MOVE_EXPONENT, Alphabet
from reviser.canvas import Canvas, apply_unchecked


def draft_history(
    tokens: Sequence[int], cursor: int, alphabet: Alphabet, has_jumps: bool = False, visits: Sequence[int] = ()
) -> tuple[int, ...]:
    """The actions that write a draft on an empty canvas, go where it visits and leave the cursor at its place."""
    legs = pairwise((len(tokens), *visits, cursor))
    return (*tokens, *chain.from_iterable(alphabet.way(start, end, has_jumps) for start, end in legs))


def draft_cursors(
    num_tokens: int, cursor: int, alphabet: Alphabet, has_jumps: bool = False, visits: Sequence[int] = ()
) -> list[int]:
    """Where the cursor stands after each action of a draft's history."""
    cursors = list(range(1, num_tokens + 1))
    for start, end in pairwise((num_tokens, *visits, cursor)):
        if has_jumps:
            cursors += [end] if start != end else []
        else:
            moves = map(alphabet.distance, alphabet.spell(end - start))
            cursors += list(accumulate(moves, initial=start))[1:]
    return cursors


def num_moves(distances: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many MOVEs spell each distance, which is 0 or more: `len(alphabet.spell(distance))`."""
    count: npt.NDArray[np.int64] = np.bitwise_count(distances & (MAX_MOVE - 1)) + (distances >> MAX_MOVE_EXPONENT)
    return count


def follow_births(
    births: tuple[int, ...], before: Canvas, action: int, step: int, alphabet: Alphabet
) -> tuple[int, ...]:
    """Which step inserted each token of the canvas after an action, given the same of the canvas before it.

    START is step 0. A token's birth is how a JUMP names the boundary on its right. SWAP takes births along; what
    PASTE inserts is born with the PASTE.
    """
    u, after = before.cursor, apply_unchecked(before, action, alphabet)
    if alphabet.operator(action) == "swap":
        return (*births[: u - 2], births[u - 1], births[u - 2], *births[u:])
    kept = len(after.tokens) - (len(before.tokens) - u)
    removed = {"delete": 1, "cut": alphabet.span(action)}.get(alphabet.operator(action) or "", 0)
    start = u - removed - (before.is_replacing and action < alphabet.num_text)
    return (*births[:start], *([step] * (kept - start)), *births[u:])
