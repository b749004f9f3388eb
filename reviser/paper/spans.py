"""The paper's span operators, as equations on a canvas and as their spelling in actions.

SPAN_MOVE(k, j) takes the k tokens beside the cursor to boundary j of the canvas as it was;
SPAN_COPY(k, j) inserts a copy of them there; SPAN_DELETE(k) removes them. Drawn for k = 2, j = 1:

    a b c d | e   SPAN_MOVE  ->  a c d b | e     (the cursor stays at 4)
    a b c d | e   SPAN_COPY  ->  a c d | b c d e (the cursor ends after the copy)

`side="right"` takes the span right of the cursor and is the mirror image of all of it. The equations
are the paper's with destination 0 allowed too; `spell_*` give the same result in actions: CUT or COPY,
moves, PASTE and a last move, in pieces of 8, 4, 2 and 1 tokens (a single token travels as DELETE and
INSERT).

>>> span_move(Canvas((1, 2, 3, 4, 5), cursor=4), size=2, to=1)
Canvas(tokens=(1, 3, 4, 2, 5), cursor=4, clipboard=(), is_replacing=False, is_stopped=False, marks=())
"""

from __future__ import annotations

from typing import Literal

from reviser.actions import Alphabet
from reviser.canvas import Canvas
from reviser.errors import ActionError

Side = Literal["left", "right"]


def span_delete(canvas: Canvas, size: int, side: Side = "left") -> Canvas:
    """The canvas without the `size` tokens beside the cursor."""
    if side == "right":
        return _mirror(span_delete(_mirror(canvas), size))
    _check_size(canvas, size)
    tokens, u = canvas.tokens, canvas.cursor
    return Canvas(tokens[: u - size] + tokens[u:], u - size)


def span_move(canvas: Canvas, size: int, to: int, side: Side = "left") -> Canvas:
    """The canvas with the `size` tokens beside the cursor taken to boundary `to`."""
    if side == "right":
        return _mirror(span_move(_mirror(canvas), size, len(canvas.tokens) - to))
    _check_size(canvas, size)
    tokens, u = canvas.tokens, canvas.cursor
    span = tokens[u - size : u]
    if 0 <= to <= u - size:
        return Canvas(tokens[:to] + span + tokens[to : u - size] + tokens[u:], u)
    if u <= to <= len(tokens):
        return Canvas(tokens[: u - size] + tokens[u:to] + span + tokens[to:], to)
    raise ActionError(f"SPAN_MOVE({size}, {to}) at cursor {u}: destinations are 0..{u - size} and {u}..{len(tokens)}")


def span_copy(canvas: Canvas, size: int, to: int, side: Side = "left") -> Canvas:
    """The canvas with a copy of the `size` tokens beside the cursor inserted at boundary `to`."""
    if side == "right":
        return _mirror(span_copy(_mirror(canvas), size, len(canvas.tokens) - to))
    _check_size(canvas, size)
    tokens, u = canvas.tokens, canvas.cursor
    if not 0 <= to <= len(tokens):
        raise ActionError(f"SPAN_COPY({size}, {to}) at cursor {u}: destinations are 0..{len(tokens)}")
    return Canvas(tokens[:to] + tokens[u - size : u] + tokens[to:], to + size)


def spell_span_delete(canvas: Canvas, size: int, alphabet: Alphabet, side: Side = "left") -> tuple[int, ...]:
    """SPAN_DELETE as CUTs and a DELETE."""
    span_delete(canvas, size, side)
    approach = alphabet.spell(size) if side == "right" else ()
    return approach + tuple(_remove(piece, alphabet) for piece in _pieces(size))


def spell_span_move(canvas: Canvas, size: int, to: int, alphabet: Alphabet, side: Side = "left") -> tuple[int, ...]:
    """SPAN_MOVE in actions, with the cursor left where the paper leaves it."""
    goal = span_move(canvas, size, to, side).cursor
    at, end = canvas.cursor, canvas.cursor + (size if side == "right" else 0)
    actions, moved = [], 0
    for piece in _pieces(size):
        # Pieces leave from the span's end and arrive in front of those already moved.
        source = end if to <= end - size else end - moved
        target = to if to <= end - size else to - moved - piece
        arrive = alphabet.paste if piece > 1 else canvas.tokens[end - moved - 1]
        actions += [*alphabet.spell(source - at), _remove(piece, alphabet)]
        actions += [*alphabet.spell(target - (source - piece)), arrive]
        at, moved = target + piece, moved + piece
    return (*actions, *alphabet.spell(goal - at))


def spell_span_copy(canvas: Canvas, size: int, to: int, alphabet: Alphabet, side: Side = "left") -> tuple[int, ...]:
    """SPAN_COPY in actions, with the cursor left where the paper leaves it."""
    goal = span_copy(canvas, size, to, side).cursor
    at, end = canvas.cursor, canvas.cursor + (size if side == "right" else 0)
    # A piece must not straddle the destination: what is inserted there would tear it apart.
    behind = min(max(end - to, 0), size)
    actions, copied = [], 0
    for piece in (*_pieces(behind), *_pieces(size - behind)):
        source = end if copied < behind else end - copied
        if piece > 1:
            actions += [*alphabet.spell(source - at), alphabet.copy(piece)]
            at = source
        arrive = alphabet.paste if piece > 1 else canvas.tokens[end - copied - 1]
        actions += [*alphabet.spell(to - at), arrive]
        at, copied = to + piece, copied + piece
    return (*actions, *alphabet.spell(goal - at))


def _remove(piece: int, alphabet: Alphabet) -> int:
    return alphabet.cut(piece) if piece > 1 else alphabet.delete


def _pieces(size: int) -> list[int]:
    """A span as pieces that one action can cut or copy: 13 is 8, 4, 1."""
    pieces = []
    for piece in (8, 4, 2, 1):
        count, size = divmod(size, piece)
        pieces += [piece] * count
    return pieces


def _check_size(canvas: Canvas, size: int) -> None:
    if not 1 <= size <= canvas.cursor:
        raise ActionError(f"a span of {size} tokens beside the cursor: sizes there are 1..{canvas.cursor}")


def _mirror(canvas: Canvas) -> Canvas:
    return Canvas(canvas.tokens[::-1], len(canvas.tokens) - canvas.cursor)
