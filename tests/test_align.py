"""The alignment oracle: it reaches every target it can, with the fewest edits, and says when it cannot."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules, replay
from reviser.errors import ConfigError, UnreachableError
from reviser.orders import kernels
from reviser.orders.align import align, edit_costs, fill_costs
from reviser.orders.policies import Diff
from reviser.orders.record import Draft
from reviser.orders.rng import Random

ALPHABET = Alphabet(num_text=20, pad=19)
texts = st.lists(st.integers(0, 5), max_size=14)


def rules_with(*operators, **settings):
    return Rules(ALPHABET, frozenset({"move", *operators}), **settings)


def num_edits(script):
    return sum(not ALPHABET.is_move(action) for action in script[:-1])


@st.composite
def pairs(draw):
    prefix, suffix = draw(texts.map(lambda t: t[:3])), draw(texts.map(lambda t: t[:3]))
    here, there = draw(texts), draw(texts)
    cursor = draw(st.integers(len(prefix), len(prefix) + len(here)))
    canvas = Canvas((*prefix, *here, *suffix), cursor)
    return canvas, (*prefix, *there, *suffix), len(prefix), len(suffix)


@settings(max_examples=300)
@given(pairs(), st.sampled_from([("delete",), ("delete", "replace"), ("delete", "cut", "paste"), OPERATORS]))
def test_the_script_reaches_the_target_within_the_rules(pair, operators):
    canvas, target, prefix, suffix = pair
    longest = max(len(canvas.tokens), len(target))
    rules = rules_with(*operators, prefix=prefix, suffix=suffix, max_length=longest)
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
    canvas, target, prefix, suffix = pair
    rules = rules_with("delete", prefix=prefix, suffix=suffix)
    here = canvas.tokens[prefix : len(canvas.tokens) - suffix]
    there = target[prefix : len(target) - suffix]
    wanted = len(here) + len(there) - 2 * _lcs(here, there)
    assert num_edits(align(canvas, target, rules)) == wanted
    assert num_edits(align(canvas, target, rules_with("delete", "replace", prefix=prefix, suffix=suffix))) == wanted


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


@given(texts, texts, st.sampled_from([1, 1 << 20]), st.sampled_from([2, 1 << 20]))
def test_the_cost_kernel_equals_the_reference(a, b, drop, swap):
    assert (edit_costs(a, b, drop, swap, fill_costs) == edit_costs(a, b, drop, swap, kernels.fill_costs)).all()


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
        align(Canvas((1, 2), 2), [3, 2], rules_with("delete", prefix=1))
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
