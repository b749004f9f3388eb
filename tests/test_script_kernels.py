"""Scripts by kernel are those of align, and lead from drafts to targets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.actions import Alphabet
from reviser.canvas import Rules, replay
from reviser.orders.align import align
from reviser.orders.kernels import TOO_LONG
from reviser.orders.policies import Diff
from reviser.orders.record import Draft
from reviser.orders.registry import format_order, parse_order
from reviser.orders.rng import Random
from reviser.orders.script_kernels import write_scripts

ALPHABET = Alphabet(num_text=40, pad=39)
texts = st.lists(st.integers(0, 3), max_size=14)


def write(draft: list[int], target: list[int], rules: Rules, offset: int = 0, room: int = 99, size: int = 60):
    tokens, one = np.array([*draft, *target], np.int32), np.ones(1, np.int64)
    rows, loss, begins = np.full((1, size), -1, np.int32), np.zeros((1, size), np.uint8), np.zeros(1, np.int64)
    write_scripts(
        tokens, one * 0, one * len(draft), one * len(draft), one * len(target), one * offset, one * room,
        ALPHABET.num_text, int("replace" in rules.operators), rows, loss, begins,
    )  # fmt: skip
    begin = int(begins[0])
    assert begin == TOO_LONG or (loss[0, begin:].all() and not loss[0, :begin].any())
    return None if begin == TOO_LONG else tuple(rows[0, begin:].tolist())


@settings(max_examples=400)
@given(texts, texts, texts.map(lambda t: t[:3]), texts.map(lambda t: t[:3]), st.booleans())
def test_scripts_are_those_of_align_and_lead_to_the_target(middle, target, prefix, suffix, can_replace):
    operators = frozenset({"jump", "delete", *(["replace"] if can_replace else [])})
    rules = Rules(ALPHABET, operators)
    draft = Draft.revision(prefix, middle, suffix, rules)
    whole = (*prefix, *target, *suffix)
    script = write(middle, target, rules, len(prefix))
    assert script == align(draft.canvas, whole, rules, "pointer", "left")
    assert replay(draft.canvas, script, rules).tokens == whole
    drawn = Diff("pointer", "left").draw(draft, whole, Random.of(0))
    assert (drawn.actions, drawn.log_q) == (script, 0.0)
    assert Diff("pointer", "left").log_q(drawn) == 0.0


def test_hunks_are_edited_from_left_to_right():
    rules = Rules(ALPHABET, frozenset({"jump", "delete", "replace"}))
    jump, replace, delete, stop = ALPHABET.jump, ALPHABET.replace, ALPHABET.delete, ALPHABET.stop
    assert write([1, 2, 3, 4], [1, 9, 3], rules) == (jump(2), replace, 9, jump(4), delete, stop)
    assert write([1, 2, 3], [1, 2, 3], rules) == (stop,)
    assert write([1, 2], [1, 2, 7], rules, 5) == (7, stop)
    nearest = align(Draft.revision([], [1, 2, 3, 4], [], rules).canvas, (1, 9, 3), rules, "pointer")
    assert nearest == (delete, jump(2), replace, 9, stop)


@given(texts, texts, st.integers(1, 20))
def test_a_row_that_is_too_short_is_said(middle, target, size):
    rules = Rules(ALPHABET, frozenset({"jump", "delete", "replace"}))
    script, wanted = write(middle, target, rules, size=size), write(middle, target, rules)
    # A jump may be kept free that is not needed.
    assert script in (None, wanted)
    assert (script is None) == (len(wanted) > size) or size - len(wanted) < 2


def test_a_canvas_that_would_grow_too_long_has_no_script():
    rules = Rules(ALPHABET, frozenset({"jump", "delete", "replace"}))
    assert write([1, 2, 3, 4], [9, 9, 1, 2, 3], rules, room=5) is None
    assert write([1, 2, 3, 4], [9, 9, 1, 2, 3], rules, room=6) is not None


def test_which_hunk_comes_first_is_a_setting():
    assert parse_order("diff:by=pointer,first=left") == Diff("pointer", "left")
    assert format_order(Diff("pointer", "left")) == "diff:by=pointer,first=left"
    with pytest.raises(Exception, match="first='right' does not exist; choose from nearest, left"):
        Diff(first="right")
