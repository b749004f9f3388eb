"""The span operators: the paper's equations, and their spelling in actions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules, replay
from reviser.errors import ActionError
from reviser.paper.spans import (
    span_copy,
    span_delete,
    span_move,
    spell_span_copy,
    spell_span_delete,
    spell_span_move,
)

ALPHABET = Alphabet(num_text=300, pad=299)
RULES = Rules(ALPHABET, frozenset(OPERATORS))


@st.composite
def spans(draw):
    tokens = tuple(draw(st.lists(st.integers(0, 298), min_size=1, max_size=40)))
    side = draw(st.sampled_from(["left", "right"]))
    cursor = draw(st.integers(1, len(tokens)))
    size = draw(st.integers(1, cursor))
    if side == "right":
        cursor = len(tokens) - cursor
    return Canvas(tokens, cursor), size, side


@given(spans(), st.data())
def test_span_move_equals_its_spelling(case, data):
    canvas, size, side = case
    low, high = (canvas.cursor - size, canvas.cursor) if side == "left" else (canvas.cursor, canvas.cursor + size)
    to = data.draw(st.sampled_from([*range(low + 1), *range(high, len(canvas.tokens) + 1)]))
    end = replay(canvas, spell_span_move(canvas, size, to, ALPHABET, side), RULES)
    want = span_move(canvas, size, to, side)
    assert (end.tokens, end.cursor) == (want.tokens, want.cursor)


@given(spans(), st.data())
def test_span_copy_equals_its_spelling_even_into_itself(case, data):
    canvas, size, side = case
    to = data.draw(st.integers(0, len(canvas.tokens)))
    end = replay(canvas, spell_span_copy(canvas, size, to, ALPHABET, side), RULES)
    want = span_copy(canvas, size, to, side)
    assert (end.tokens, end.cursor) == (want.tokens, want.cursor)


@given(spans())
def test_span_delete_equals_its_spelling(case):
    canvas, size, side = case
    end = replay(canvas, spell_span_delete(canvas, size, ALPHABET, side), RULES)
    want = span_delete(canvas, size, side)
    assert (end.tokens, end.cursor) == (want.tokens, want.cursor)


def test_span_move_to_the_left_keeps_the_cursor_and_to_the_right_takes_it_along():
    canvas = Canvas((1, 2, 3, 4, 5, 6), cursor=4)
    assert span_move(canvas, 2, 0) == Canvas((3, 4, 1, 2, 5, 6), 4)
    assert span_move(canvas, 2, 5) == Canvas((1, 2, 5, 3, 4, 6), 5)
    assert span_move(canvas, 2, 1, side="right") == Canvas((1, 5, 6, 2, 3, 4), 1)


def test_span_copy_ends_after_the_copy_and_from_the_right_before_it():
    canvas = Canvas((1, 2, 3, 4, 5, 6), cursor=4)
    assert span_copy(canvas, 2, 1) == Canvas((1, 3, 4, 2, 3, 4, 5, 6), 3)
    assert span_copy(canvas, 2, 1, side="right") == Canvas((1, 5, 6, 2, 3, 4, 5, 6), 1)


def test_a_destination_inside_the_span_is_refused():
    with pytest.raises(ActionError, match=r"SPAN_MOVE\(2, 3\) at cursor 4: destinations are 0\.\.2 and 4\.\.6"):
        span_move(Canvas((1, 2, 3, 4, 5, 6), cursor=4), 2, 3)
    with pytest.raises(ActionError, match=r"SPAN_COPY\(2, 9\) at cursor 4: destinations are 0\.\.6"):
        span_copy(Canvas((1, 2, 3, 4, 5, 6), cursor=4), 2, 9)


def test_a_span_longer_than_what_is_there_is_refused():
    with pytest.raises(ActionError, match=r"a span of 5 tokens beside the cursor: sizes there are 1\.\.4"):
        span_delete(Canvas((1, 2, 3, 4, 5, 6), cursor=4), 5)
