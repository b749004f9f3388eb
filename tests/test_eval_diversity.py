"""Diversity by hand, the grouping of texts, and standard errors that know about prompts."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import Measure, Spread, difference, quotient
from reviser.evaluation.metrics.diversity import (
    distinct,
    entropy_bits,
    longest_repeat,
    measure,
    pooled_distinct,
    repeated,
    words,
)
from reviser.evaluation.texts import REFERENCE, by_system, lay_out, read_texts, references_of

ONE = Generation("ours", "p1", 0, "Once", " the cat and the cat", "", " one two three four", True, 5, 5)


def test_words_are_lower_cased_and_without_punctuation() -> None:
    assert words("It's 1 TEST: naïve, x_y — don’t!") == ["it's", "1", "test", "naïve", "x_y", "don't"]
    assert words(" ... ") == []


def test_each_number_is_what_a_hand_computes() -> None:
    text = words("the cat and the cat")
    assert [distinct(text, n) for n in (1, 2, 3)] == [3 / 5, 3 / 4, 1.0]
    assert entropy_bits(["a", "a", "b", "c"]) == pytest.approx(1.5)
    assert entropy_bits(["a", "a"]) == 0.0
    assert repeated(list("abcdabcd")) == pytest.approx(1 / 5)
    assert repeated(list("aaaaaa")) == pytest.approx(2 / 3)
    assert longest_repeat(list("xabcyabcz")) == 3
    assert longest_repeat(list("ababa")) == 3
    assert pooled_distinct([["a", "b"], ["a", "b"]], 2) == 1 / 2


def test_a_text_too_short_for_a_number_has_none() -> None:
    assert distinct(["a"], 2) is None
    assert repeated(["a", "b", "c"]) is None
    assert entropy_bits([]) is None
    assert longest_repeat([]) == 0
    assert pooled_distinct([[]], 1) is None


@given(st.lists(st.sampled_from("abc"), max_size=14))
def test_the_longest_repeat_is_what_trying_all_pairs_finds(text: list[str]) -> None:
    pairs = [(i, j) for i in range(len(text)) for j in range(i + 1, len(text))]
    found = [
        size for i, j in pairs for size in range(1, len(text) - j + 1) if text[i : i + size] == text[j : j + size]
    ]
    assert longest_repeat(text) == max(found, default=0)


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30))
def test_shares_and_entropy_keep_their_bounds(text: list[str]) -> None:
    assert 0 < distinct(text, 1) <= 1
    assert -1e-9 <= entropy_bits(text) <= math.log2(len(set(text))) + 1e-9
    assert distinct(text + text, 1) == pytest.approx(distinct(text, 1) / 2)


def test_a_row_is_over_texts_and_pools_are_over_seeds() -> None:
    texts = [ONE, replace(ONE, prompt_id="p2", text=" a b", is_stopped=False), replace(ONE, prompt_id="p3", text="")]
    texts += [replace(each, seed=1) for each in texts]
    row = measure(texts)
    assert row["distinct_1"] == Measure(pytest.approx(0.8), pytest.approx(0.2), 4)
    assert row["distinct_3"].n == 2
    assert row["pooled_distinct_1"] == Measure(5 / 7, 0.0, 2)
    assert row["words"].value == pytest.approx(7 / 3)
    assert row["words_over_reference"].value == pytest.approx(7 / 12)
    assert row["stopped"].value == pytest.approx(2 / 3)
    assert row["longest_repeat"].value == pytest.approx(2 / 3)
    assert row["repeated_4"] == Measure(0.0, None, 2)


def test_references_are_scored_once_a_prompt_and_stopped_by_nobody() -> None:
    texts = [ONE, replace(ONE, seed=1), replace(ONE, prompt_id="p2", reference="")]
    assert [each.text for each in references_of(texts)] == [" one two three four"]
    assert [each.system for each in lay_out(texts)] == [REFERENCE, "ours", "ours", "ours"]
    row = measure(by_system(texts)[REFERENCE])
    assert row["stopped"] is None
    assert row["words_over_reference"].value == 1.0


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=9))
def test_a_quotient_over_ones_is_a_mean_with_its_standard_error(values: list[float]) -> None:
    prompts = [str(i) for i in range(len(values))]
    wanted, found = Measure.of(values), quotient(prompts, values)
    assert (found.value, found.n) == (pytest.approx(wanted.value), wanted.n)
    assert found.error == pytest.approx(wanted.error, abs=1e-6)
    # Saying the same again with another seed adds texts, and no certainty.
    twice = quotient(prompts * 2, values * 2)
    assert twice.error == pytest.approx(found.error, abs=1e-9)
    assert twice.n == 2 * found.n


SUMS = st.tuples(st.floats(-5, 5), st.floats(0.5, 5))


@given(st.lists(st.tuples(SUMS, SUMS), min_size=2, max_size=9))
def test_a_difference_is_that_of_the_quotients_with_the_error_of_pairs(pairs: list[Any]) -> None:
    one, other = ({str(i): list(pair[side]) for i, pair in enumerate(pairs)} for side in (0, 1))
    left, right = (quotient(list(sums), *zip(*sums.values(), strict=True)) for sums in (one, other))
    found = difference(one, other)
    assert (found.value, found.n) == (pytest.approx(left.value - right.value), len(pairs))
    # At most as when both err together against each other, at least as when they cancel.
    assert abs(left.error - right.error) - 1e-9 <= found.error <= left.error + right.error + 1e-9
    assert difference(one, one) == Measure(0.0, 0.0, len(pairs))
    sure = {name: [3 * bottom, bottom] for name, (_, bottom) in other.items()}
    assert difference(one, sure).error == pytest.approx(left.error, abs=1e-9)


def test_a_difference_is_over_the_prompts_that_both_have() -> None:
    one = {"a": [1.0, 1.0], "b": [4.0, 2.0], "c": [9.0, 1.0]}
    found = difference(one, {"b": [1.0, 1.0], "a": [0.0, 1.0], "d": [7.0, 1.0]})
    # 5/3 less 1/2; rests (1 - 5/3)/3 + 1/4 and (4 - 10/3)/3 - 1/4, twice 1/36.
    assert found == Measure(pytest.approx(7 / 6), pytest.approx(1 / 18), 2)
    assert difference(one, {"d": [7.0, 1.0]}) is None
    assert difference({"a": [1.0, 1.0]}, one).error is None


def test_a_quotient_by_hand() -> None:
    found = quotient(["a", "b"], [1.0, 5.0], [1.0, 2.0])
    # 6 / 3 = 2; rests -1 and 1; sqrt(2 / 1 * 2) / 3.
    assert found == Measure(2.0, pytest.approx(2 / 3), 2)
    assert quotient(["a", "a"], [1.0, 3.0]) == Measure(2.0, None, 2)
    assert quotient([], []) is None
    assert Spread.of([1.0, 3.0]) == Spread(2.0, pytest.approx(math.sqrt(2)), 2)
    assert Spread.of([1.0]).deviation is None


def write(path: Path, *texts: Generation) -> Path:
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in texts), "utf-8")
    return path


def test_the_first_prompts_are_kept_for_every_system(tmp_path: Path) -> None:
    other = replace(ONE, prompt_id="p2")
    ours = write(tmp_path / "ours.jsonl", ONE, other, replace(ONE, seed=1))
    theirs = write(tmp_path / "theirs.jsonl", *(replace(each, system="theirs") for each in (other, ONE)))
    assert [each.key for each in read_texts([ours, theirs], 1)] == [
        ("ours", "p1", 0), ("ours", "p1", 1), ("theirs", "p1", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "n", "error"),
    [
        ([ONE, ONE], None, "system ours has two texts for prompt p1 and seed 0; keep one"),
        ([replace(ONE, system=REFERENCE)], None, "a system is called (reference), which means the references"),
        ([ONE, replace(ONE, system="b", prefix="x")], None, "prompt p1 of system b is not the one of system ours"),
        ([], None, "no generations; write some with `reviser eval continuation`"),
        ([ONE], 0, "--n 0 must be at least 1"),
    ],
)
def test_what_would_be_counted_wrongly_is_refused(
    tmp_path: Path, texts: list[Generation], n: int | None, error: str
) -> None:
    with pytest.raises((DataError, ConfigError)) as raised:
        read_texts([write(tmp_path / "g.jsonl", *texts)], n)
    assert error in str(raised.value)
