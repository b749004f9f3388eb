"""Wrong edits, and whether they are undone."""

from hypothesis import given
from hypothesis import strategies as st
from own import SETTINGS

from reviser.canvas import protect
from reviser.evaluation.correction.undoing import WrongEdits, count_distance, count_wrong
from reviser.orders.align import align
from reviser.orders.record import Draft

RULES, ALPHABET = SETTINGS.rules, SETTINGS.model.alphabet
TEXTS = st.lists(st.integers(0, 3), max_size=8)


@given(TEXTS, TEXTS)
def test_the_shortest_script_makes_no_wrong_edit(before, after):
    draft = Draft.edit(before, RULES)
    assert count_wrong(draft, align(draft.canvas, after, RULES), after) == WrongEdits()


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_an_edit_that_is_taken_back_is_wrong_and_undone(before, after, token):
    draft = Draft.edit(before, RULES)
    script = align(draft.canvas, after, RULES)
    slip = (9, ALPHABET.delete)
    assert count_wrong(draft, (*slip, *script), after) == WrongEdits(1, 1)
    assert count_wrong(draft, (9, ALPHABET.stop), after) == WrongEdits(1, 0)


def test_a_target_that_protected_text_keeps_out_of_reach_is_not_counted():
    draft = Draft.edit(b"abc", RULES, protect(3, [(0, 2)]))
    assert count_distance(draft.canvas, b"abd", RULES) == 2
    assert count_wrong(draft, (ALPHABET.stop,), b"xbc") is None
