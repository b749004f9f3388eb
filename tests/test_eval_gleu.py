"""GLEU and the jackknife: cases worked out by hand, and laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.evaluation.measures import Estimate, Measure
from reviser.evaluation.metrics.gleu import gleu

SENTENCE = st.lists(st.sampled_from("abcde"), max_size=8)
TRIPLES = st.lists(st.tuples(SENTENCE, SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=4)
NEW = "?"
"""A word that no sentence has."""


def score(source: str, hypothesis: str, *references: str) -> float:
    """Of one sentence whose words are letters."""
    found = gleu([list(source)], [list(hypothesis)], [[list(each) for each in references]]).value
    assert found is not None
    return found


@pytest.mark.parametrize(
    "source, hypothesis, reference, value",
    [
        # Everything shared, a word too short.
        ("abcd", "abxd", "abxde", math.exp(1 - 5 / 4)),
        # "g" was left standing, and each n-gram with it is taken off once more: 7 - 1, 5 - 1, 4 - 1, 3 - 1.
        ("abcdefgh", "abcdefgi", "abcdefji", (6 / 8 * 4 / 7 * 3 / 6 * 2 / 5) ** 0.25),
        # The same with a new word in place of "g" takes nothing off.
        ("abcdefgh", "abcdef?i", "abcdefji", (7 / 8 * 5 / 7 * 4 / 6 * 3 / 5) ** 0.25),
        # A word more often than in the reference is a wrong word, but no mistake that was kept: 4 of 5.
        ("aabcd", "aabcd", "abcd", (4 / 5 * (3 - 1) / 4 * (2 - 1) / 3 * (1 - 1) / 2) ** 0.25),
        # Sentences too short for 4-grams, on both sides.
        ("ab", "ab", "ab", 1.0),
        ("ab", "ac", "ac", 1.0),
        ("a", "b", "c", 0.0),
        ("a", "", "a", 0.0),
        ("", "", "", 1.0),
    ],
)
def test_gleu_is_what_it_is_by_hand(source: str, hypothesis: str, reference: str, value: float) -> None:
    assert score(source, hypothesis, reference) == pytest.approx(value)


def test_sentences_are_summed_before_they_are_divided() -> None:
    found = gleu([list("abcde"), list("vwxyz")], [list("abcde"), list("vwxyz")], [[list("abcde")], [list("vwxyq")]])
    # The second keeps "z": 4 - 1 of 5, 3 - 1 of 4, 2 - 1 of 3, 1 - 1 of 2.
    assert found.value == pytest.approx((8 / 10 * 6 / 8 * 4 / 6 * 2 / 4) ** 0.25)
    assert found.without == pytest.approx([0.0, 1.0])


def test_of_several_references_one_is_drawn_for_each_sentence_and_scores_are_averaged() -> None:
    one, other = (score("abcdefgh", "abcdefgi", each) for each in ("abcdefji", "abcdefgi"))
    both = score("abcdefgh", "abcdefgi", "abcdefji", "abcdefgi")
    assert both == pytest.approx((one + other) / 2, abs=0.05)
    assert both == score("abcdefgh", "abcdefgi", "abcdefji", "abcdefgi")


@given(TRIPLES)
def test_gleu_lies_between_nothing_and_all(triples: list[tuple[list[str], list[str], list[list[str]]]]) -> None:
    found = gleu(*zip(*triples, strict=True), samples=20)
    assert found.value is not None
    assert all(0 <= each <= 1 + 1e-12 for each in (found.value, *(e for e in found.without if e is not None)))


@given(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=4))
def test_what_the_reference_says_is_perfect(pairs: list[tuple[list[str], list[str]]]) -> None:
    sources, references = zip(*pairs, strict=True)
    assert gleu(sources, references, [[each] for each in references]).value == pytest.approx(1.0)


@given(SENTENCE, SENTENCE, SENTENCE)
def test_a_wrong_word_more_never_helps_a_text_that_is_long_enough(
    source: list[str], hypothesis: list[str], reference: list[str]
) -> None:
    long = hypothesis + reference
    assert score("".join(source), "".join(long) + NEW, "".join(reference)) <= score(
        "".join(source), "".join(long), "".join(reference)
    )


@given(SENTENCE, SENTENCE, SENTENCE)
def test_a_mistake_that_is_kept_is_worse_than_a_new_one(
    source: list[str], hypothesis: list[str], reference: list[str]
) -> None:
    fresh = [NEW if word in source and word not in reference else word for word in hypothesis]
    words = ["".join(each) for each in (source, hypothesis, fresh, reference)]
    assert score(words[0], words[1], words[3]) <= score(words[0], words[2], words[3]) + 1e-12


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=9))
def test_the_jackknife_of_a_mean_has_the_error_of_a_mean(values: list[float]) -> None:
    total, count = math.fsum(values), len(values)
    found = Estimate(total / count, [(total - each) / (count - 1) for each in values]).measure()
    assert found is not None
    expected = Measure.of(values)
    assert (found.value, found.n) == (pytest.approx(expected.value, abs=1e-9), count)
    assert found.error == pytest.approx(expected.error, rel=1e-6, abs=1e-9)


def test_what_does_not_exist_has_no_error_and_no_difference() -> None:
    assert Estimate(None, [None, 1.0]).measure() is None
    assert Estimate(1.0, [None, 1.0]).measure() == Measure(1.0, None, 2)
    assert Estimate(1.0, [0.0]).measure() == Measure(1.0, None, 1)
    assert Estimate(1.0, [1.0, 2.0]).minus(Estimate(None, [0.5, None])) == Estimate(None, [0.5, None])
    one = Estimate(1.0, [0.5, 2.0])
    assert one.minus(one).measure() == Measure(0.0, 0.0, 2)
