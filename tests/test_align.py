"""The alignment oracle: it reaches every target it can, with the fewest edits, and says when it cannot."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, apply, protect, replay, valid_actions
from reviser.errors import ConfigError, UnreachableError
from reviser.orders import kernels
from reviser.orders.align import FORBIDDEN, Prices, align, edit_costs, fill_costs
from reviser.orders.policies import Diff
from reviser.orders.record import Draft
from reviser.orders.rng import Random

ALPHABET = Alphabet(num_text=20, pad=19)
texts = st.lists(st.integers(0, 5), max_size=14)


def rules_with(*operators, **settings):
    return Rules(ALPHABET, frozenset({"move", *operators}), **settings)


def num_edits(script):
    return sum(not ALPHABET.is_move(action) for action in script[:-1])


def frame(prefix, middle, suffix, cursor):
    """A canvas whose both ends are protected."""
    tokens = (*prefix, *middle, *suffix)
    spans = [(0, len(prefix)), (len(tokens) - len(suffix), len(tokens))]
    closed = [*([0] if prefix else []), *([len(tokens)] if suffix else [])]
    return Canvas(tokens, cursor, marks=protect(len(tokens), [span for span in spans if span[0] < span[1]], closed))


@st.composite
def pairs(draw):
    prefix, suffix = draw(texts.map(lambda t: t[:3])), draw(texts.map(lambda t: t[:3]))
    here, there = draw(texts), draw(texts)
    cursor = draw(st.integers(len(prefix), len(prefix) + len(here)))
    canvas = frame(prefix, here, suffix, cursor)
    return canvas, (*prefix, *there, *suffix), here, there


@st.composite
def protected(draw):
    """A canvas with marks of any kind, and the cursor at an open boundary."""
    tokens = tuple(draw(st.lists(st.integers(0, 2), max_size=16)))
    marks = draw(st.lists(st.sampled_from([0, 0, FIXED, FIXED | CLOSED]), min_size=len(tokens), max_size=len(tokens)))
    canvas = Canvas(tokens, marks=(draw(st.sampled_from([0, CLOSED])), *marks))
    places = canvas.open_boundaries()
    assume(places)
    return replace(canvas, cursor=draw(st.sampled_from(places)))


def act(canvas, rules, numbers):
    """The canvas after some valid actions, chosen by numbers."""
    for number in numbers:
        text = [a for a in valid_actions(canvas, rules) if a < 3]
        others = [a for a in valid_actions(canvas, rules) if a >= ALPHABET.num_text and a != ALPHABET.stop]
        choices = text if text and (number % 2 or not others) else others
        if choices:
            canvas = apply(canvas, choices[number // 2 % len(choices)], rules)
    return apply(canvas, 1, rules) if canvas.is_replacing else canvas


def script_or_reason(canvas, target, rules):
    try:
        return align(canvas, target, rules), ""
    except UnreachableError as error:
        return None, str(error)


SETS = [(), ("replace",), ("delete",), ("delete", "replace"), ("delete", "cut", "copy", "paste"),
        ("delete", "replace", "cut", "copy", "paste")]  # fmt: skip


@settings(max_examples=400)
@given(protected(), st.lists(st.integers(0, 1000), max_size=25), st.sampled_from(SETS), st.booleans())
def test_what_actions_reach_within_the_marks_the_script_reaches_too(canvas, numbers, operators, has_jumps):
    rules = Rules(ALPHABET, frozenset({"jump" if has_jumps else "move", *operators}), max_length=24)
    reached = act(canvas, rules, numbers)
    script, reason = script_or_reason(canvas, reached.tokens, rules)
    if script is None:
        # In MOVEs the actions may have gone another way, over stepping stones that they made themselves.
        assert not has_jumps
        assert "stops inside of protected text; enable the operator jump" in reason
        return
    end = replay(canvas, script, rules)
    assert (end.tokens, end.is_stopped) == (reached.tokens, True)
    if has_jumps:
        kinds = [ALPHABET.is_jump(action) for action in script]
        assert not any(one and other for one, other in pairwise(kinds))


@settings(max_examples=200)
@given(protected(), st.lists(st.integers(0, 2), max_size=12), st.sampled_from(SETS))
def test_any_target_is_reached_or_refused(canvas, target, operators):
    rules = Rules(ALPHABET, frozenset({"jump", *operators}), max_length=24)
    script, reason = script_or_reason(canvas, target, rules)
    if script is None:
        assert reason.startswith("the target ")
    else:
        assert replay(canvas, script, rules).tokens == tuple(target)


def test_protected_text_stays():
    rules = Rules(ALPHABET, frozenset({"jump", "delete"}))
    # a [b c] d: b and c are fixed, the boundary between them is closed
    canvas = Canvas((1, 2, 3, 4), 4, marks=protect(4, [(1, 3)]))
    jump, delete, stop = ALPHABET.jump, ALPHABET.delete, ALPHABET.stop
    assert align(canvas, (2, 3, 5, 4), rules) == (jump(3), 5, jump(1), delete, stop)
    for target in ((1, 3, 4), (1, 2, 5, 3, 4), (1, 2, 4)):
        with pytest.raises(UnreachableError, match=r"^the target changes protected text$"):
            align(canvas, target, rules)
    # The second of two equal tokens is fixed, so the first has to go.
    assert align(Canvas((1, 1), 2, marks=protect(2, [(1, 2)])), (1,), rules) == (jump(1), delete, stop)
    # Nothing may be inserted behind a token or before it, so it is replaced where that is enabled.
    closed = Canvas((1, 2, 3), 2, marks=(0, FIXED | CLOSED, 0, FIXED))
    with pytest.raises(UnreachableError, match=r"^the target changes protected text$"):
        align(closed, (1, 4, 3), rules)
    able = Rules(ALPHABET, frozenset({"jump", "delete", "replace"}))
    assert align(closed, (1, 4, 3), able) == (ALPHABET.replace, 4, stop)


def test_moves_go_around_closed_boundaries():
    # Boundaries 2 and 3 are closed, and 3 tokens are no MOVE, so the cursor goes past the place and comes back.
    canvas, rules = Canvas((1, 2, 3, 4, 5), 1, marks=protect(5, [(1, 4)])), rules_with("delete")
    move = ALPHABET.move
    assert align(canvas, (1, 2, 3, 4, 6, 5), rules) == (move(4), move(-1), 6, ALPHABET.stop)
    with pytest.raises(UnreachableError, match="every way from boundary 0 to 3 stops inside of protected text"):
        align(Canvas((1, 2, 3, 4), 0, marks=protect(4, [(0, 3), (3, 4)], ends=[4])), (1, 2, 3, 6, 4), rules)


def test_by_says_how_the_cursor_goes_where_both_are_enabled():
    canvas, rules = Canvas((1, 2, 3, 4), 0), Rules(ALPHABET, frozenset({"move", "jump"}))
    jumped = (ALPHABET.jump(3), 9, ALPHABET.stop)
    assert align(canvas, (1, 2, 3, 9, 4), rules) == align(canvas, (1, 2, 3, 9, 4), rules, "pointer") == jumped
    moved = (ALPHABET.move(2), ALPHABET.move(1), 9, ALPHABET.stop)
    assert align(canvas, (1, 2, 3, 9, 4), rules, "moves") == moved
    draft = Draft((1, 2, 3, 4), 0, rules)
    for order, script in ((Diff(), moved), (Diff("pointer"), jumped)):
        drawn = order.draw(draft, (1, 2, 3, 9, 4), Random.of(0))
        assert (drawn.actions, order.log_q(drawn)) == (script, 0.0)
    assert (Diff().needs, Diff("pointer").needs) == ({"move"}, {"jump"})
    assert np.isneginf(Diff("pointer").log_q(Diff().draw(draft, (1, 2, 3, 9, 4), Random.of(0))))


@settings(max_examples=300)
@given(pairs(), st.sampled_from([("delete",), ("delete", "replace"), ("delete", "cut", "paste"), OPERATORS]))
def test_the_script_reaches_the_target_within_the_rules(pair, operators):
    canvas, target, _, _ = pair
    longest = max(len(canvas.tokens), len(target))
    rules = rules_with(*operators, max_length=longest)
    end = replay(canvas, align(canvas, target, rules), rules)
    assert end.tokens == target
    assert end.is_stopped


def _lcs(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@settings(max_examples=200)
@given(pairs())
def test_the_number_of_edits_is_what_a_longest_common_subsequence_leaves(pair):
    canvas, target, here, there = pair
    wanted = len(here) + len(there) - 2 * _lcs(here, there)
    assert num_edits(align(canvas, target, rules_with("delete"))) == wanted
    assert num_edits(align(canvas, target, rules_with("delete", "replace"))) == wanted


@given(texts, texts, st.data())
def test_without_delete_it_inserts_or_says_why_it_cannot(here, there, data):
    canvas = Canvas(tuple(here), data.draw(st.integers(0, len(here))))
    is_contained = _lcs(here, there) == len(here)
    if is_contained:
        assert replay(canvas, align(canvas, there, rules_with()), rules_with()).tokens == tuple(there)
    else:
        with pytest.raises(UnreachableError, match="does not contain the canvas as a subsequence"):
            align(canvas, there, rules_with())


@given(texts, texts, st.data())
def test_without_delete_but_with_replace_any_target_as_long_is_reached(here, there, data):
    canvas, rules = Canvas(tuple(here), data.draw(st.integers(0, len(here)))), rules_with("replace")
    if len(there) >= len(here):
        assert replay(canvas, align(canvas, there, rules), rules).tokens == tuple(there)
    else:
        with pytest.raises(UnreachableError, match=r"tokens shorter than the canvas and the operator delete"):
            align(canvas, there, rules)


@given(texts, texts, st.data())
def test_the_cost_kernel_equals_the_reference(a, b, data):
    sizes = ((1, len(a)), (2, len(a)), (1, len(a) + 1))
    drop, swap, put = (
        np.array(data.draw(st.lists(st.sampled_from([price, FORBIDDEN]), min_size=size, max_size=size)), np.int32)
        for price, size in sizes
    )
    prices = Prices(drop, swap, put)
    assert (edit_costs(a, b, prices, fill_costs) == edit_costs(a, b, prices, kernels.fill_costs)).all()


def test_equal_texts_only_stop():
    assert align(Canvas((1, 2), 0), [1, 2], rules_with()) == (ALPHABET.stop,)


def test_the_docstrings_example():
    canvas = Canvas((1, 2, 3, 4), 2)
    move, delete = ALPHABET.move, ALPHABET.delete
    assert align(canvas, [1, 7, 3], rules_with("delete")) == (delete, 7, move(2), delete, ALPHABET.stop)


def test_spans_go_by_cuts_where_cut_is_enabled():
    script = align(Canvas(tuple(range(12)), 12), [0], rules_with("delete", "cut"))
    assert script == (ALPHABET.cut(8), ALPHABET.cut(2), ALPHABET.delete, ALPHABET.stop)


def test_what_cannot_be_done_is_said():
    with pytest.raises(UnreachableError, match="the target changes protected text"):
        align(frame([1], [2], [], 2), [3, 2], rules_with("delete"))
    with pytest.raises(UnreachableError, match="differs away from the cursor and the operator move is not enabled"):
        align(Canvas((1, 2), 0), [1, 2, 3], Rules(ALPHABET, frozenset()))
    with pytest.raises(ConfigError, match="the target has 9 tokens and the canvas holds at most 8"):
        align(Canvas(), [1] * 9, rules_with(max_length=8))


def test_diff_draws_its_one_script_and_knows_it():
    rules = rules_with("delete", "replace")
    drawn = Diff().draw(Draft.edit([1, 2, 3], rules), [1, 5, 3, 4], Random.of(0))
    assert drawn.final.tokens == (1, 5, 3, 4)
    assert Diff().log_q(drawn) == drawn.log_q == 0.0
    assert np.isneginf(Diff().log_q(type(drawn)(drawn.draft, (4, *drawn.actions), (True,) * 9)))
