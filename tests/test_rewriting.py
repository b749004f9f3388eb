"""Drafts revised by reading: the weakest words are found, filled anew, and kept where the text reads better."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_proofread import random_writer

from reviser.decoding.presets import PAPER
from reviser.errors import ConfigError
from reviser.orders.record import from_record, to_record
from reviser.proofreading.choices import Proofreading, revising
from reviser.proofreading.edits import apply_edits
from reviser.proofreading.rewriting import FILLINGS, MOST_WORDS, PER_PLACE, Place, Refilled, find_weak, rewrite_all
from reviser.tokenizer import load

BYTES = load("bytes")
COSTS = {"x": 4.0, "q": 8.0}
"""Nats of odd letters; all others have one tenth."""


def read(texts: Sequence[Sequence[int]], begins: Sequence[int]) -> list[list[float]]:
    return [
        [-COSTS.get(chr(token), 0.1) for token in text[begin:]] for text, begin in zip(texts, begins, strict=True)
    ]


class Filler:
    """Fills every place with the same words."""

    def __init__(self, *fillings: str, is_whole: bool = True) -> None:
        self.fillings, self.is_whole, self.places = fillings, is_whole, list[Place]()

    def __call__(self, places: Sequence[Place]) -> list[list[Refilled]]:
        self.places += places
        return [[Refilled(text, len(text), self.is_whole) for text in self.fillings] for _ in places]


HOW = Proofreading(min_probability=0.75, passes=2, by="reading")
LINES = st.lists(st.sampled_from(["sea", "xx", "a", "qqq", "boat.", "é", "x"]), max_size=40).map(" ".join)
TEXTS = st.lists(LINES, min_size=1, max_size=3).map("\n".join)


def test_the_weakest_words_are_replaced_by_what_reads_better() -> None:
    [edited] = rewrite_all(["The sea was qqq and calm."], Filler(" xxx", " wide", " xxxx"), BYTES, read, HOW)
    assert edited.text == "The sea was wide and calm."
    assert [(each.before, each.after) for each in edited.edits] == [(" qqq", " wide")]
    assert edited.edits[0].probability > 0.99
    assert edited.num_actions >= len(" xxx") + len(" wide") + len(" xxxx")


@pytest.mark.parametrize(
    "filler", [Filler(" qqqq"), Filler(""), Filler("  "), Filler(" a\n"), Filler(" sea", is_whole=False)]
)
def test_what_reads_no_better_or_is_no_filling_is_left(filler: Filler) -> None:
    text = "The sea was qqq and calm."
    [edited] = rewrite_all([text], filler, BYTES, read, HOW)
    assert (edited.text, edited.edits) == (text, ())
    assert edited.num_actions > 0 or filler.fillings == ("",)


@given(TEXTS, st.integers(0, 60), st.integers(1, 3), st.sampled_from([0.0, 0.5, 0.75, 1.0]))
def test_edits_are_disjoint_in_order_and_leave_closed_text_alone(
    text: str, given_size: int, passes: int, least: float
) -> None:
    how = Proofreading(min_probability=least, passes=passes, by="reading")
    filler = Filler(" lo", " q", " ever so long")
    [edited] = rewrite_all([text], filler, BYTES, read, how, closed=[[(0, given_size)]])
    assert apply_edits(text, edited.edits) == edited.text
    assert edited.text.startswith(text[:given_size])
    assert all(text[each.start : each.end] == each.before != each.after for each in edited.edits)
    assert all(left.end <= right.start for left, right in pairwise(edited.edits))
    assert all(each.start >= given_size and each.probability >= least for each in edited.edits)
    assert all(len(each.before.split()) <= MOST_WORDS and "\n" not in each.before for each in edited.edits)
    assert edited.text.count("\n") == text.count("\n")
    assert edited.num_actions == sum(map(len, filler.fillings)) * len(filler.places)


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_texts_are_rewritten_together_as_each_alone(texts: list[str]) -> None:
    filler = Filler(" lo", " ever so long")
    together = rewrite_all(texts, filler, BYTES, read, HOW)
    assert together == [rewrite_all([text], filler, BYTES, read, HOW)[0] for text in texts]


@given(TEXTS, st.integers(0, 40))
def test_places_are_apart_and_no_more_than_the_text_has_room_for(text: str, shut: int) -> None:
    tokens = BYTES.encode(text)
    places = find_weak(text, [(0, shut)], read([tokens], [0])[0], BYTES)
    assert len(places) <= max(len(tokens) // PER_PLACE, 1)
    assert all(shut <= start < end <= len(text) for start, end in places)
    assert all(left[1] < right[0] for left, right in pairwise(places))


def test_a_text_that_cannot_be_read_is_left_alone() -> None:
    text = "The sea was qqq and calm."
    [edited] = rewrite_all([text], Filler(" wide"), BYTES, lambda texts, begins: [[] for _ in texts], HOW)
    assert (edited.text, edited.num_actions) == (text, 0)


def test_a_random_model_keeps_what_is_given_and_one_trajectory_holds_both() -> None:
    writer = random_writer()
    drafts = writer.generate(["The boat lay still", "The sea"], max_actions=40, sampling=PAPER)
    how = revising(2, 0.0)
    assert how is not None
    assert how.by == "reading"
    revised = writer.revise(drafts, how)
    for draft, text in zip(drafts, revised, strict=True):
        assert text.revision is not None
        assert (text.revision.original, text.revision.text) == (draft.text, text.text)
        assert text.decoded.canvas.tokens[: len(draft.draft.tokens)] == draft.draft.tokens
        assert from_record(to_record(text.trajectory)).final.tokens == text.decoded.canvas.tokens
        assert text.revision.num_actions >= FILLINGS
    alone = [writer.revise([draft], how)[0].text for draft in drafts]
    assert [text.text for text in revised] == alone


def test_an_unknown_way_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="revise_by='magic' must be reading or scan"):
        random_writer().generate("The sea", revise=1, revise_by="magic")
