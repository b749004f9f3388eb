"""Word edits and words themselves: what is right, false and missed, clean texts, splitting and joining."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.evaluation.correction.words import join_words, split_words
from reviser.evaluation.metrics.corrections import Corrected, EditCounts, count_edits, find_edits, measure_clean

SENTENCE = st.lists(st.sampled_from("abcde"), max_size=8)
SOME = st.lists(st.tuples(SENTENCE, SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=5)


@given(SENTENCE, SENTENCE)
def test_edits_make_the_target_of_the_source(source: list[str], target: list[str]) -> None:
    made = list(source)
    for start, end, new in sorted(find_edits(source, target), reverse=True):
        made[start:end] = new
    assert made == target
    assert bool(find_edits(source, target)) == (source != target)


@given(SENTENCE, SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3))
def test_edits_are_right_or_false_and_a_reference_more_never_hurts(
    source: list[str], hypothesis: list[str], references: list[list[str]]
) -> None:
    made, counts = find_edits(source, hypothesis), count_edits(source, hypothesis, references)
    assert counts.right + counts.false == len(made)
    fewer = count_edits(source, hypothesis, references[:1])
    assert _worth(counts) >= _worth(fewer)
    assert count_edits(source, hypothesis, [*references, hypothesis]) == EditCounts(len(made), 0, 0)
    assert count_edits(source, source, references).right == 0


def _worth(counts: EditCounts) -> float:
    return 1.0 if counts.f_half is None else counts.f_half


@pytest.mark.parametrize(
    "hypothesis, references, counts",
    [
        # Nothing was done: the reference that wanted nothing, or else the one that wanted least.
        ("a b c", ["x b c", "a b c"], (0, 0, 0)),
        ("a b c", ["x y z", "a x c d", "a b x"], (0, 0, 1)),
        # Everything false: the reference that missed least.
        ("q b c", ["x b z", "a b x"], (0, 1, 1)),
        # F0.5 of 1 with one edit and with two: the more, the better, whichever comes first.
        ("x b y", ["x b y"], (2, 0, 0)),
        # Half right of one reference, and of another: fewer are missed in the second.
        ("x b c", ["x b y d", "x b c d"], (1, 0, 1)),
        ("", ["x b c", ""], (1, 0, 0)),
    ],
)
def test_ties_and_empty_cases(hypothesis: str, references: list[str], counts: tuple[int, int, int]) -> None:
    given_words = [each.split() for each in references]
    assert count_edits(["a", "b", "c"], hypothesis.split(), given_words) == counts
    assert count_edits(["a", "b", "c"], hypothesis.split(), given_words[::-1]) == counts


def test_shares_of_nothing_do_not_exist() -> None:
    assert EditCounts(0, 0, 0).f_half is EditCounts(0, 0, 3).precision is EditCounts(0, 3, 0).recall is None
    assert (EditCounts(0, 0, 3).f_half, EditCounts(0, 3, 0).f_half) == (0, 0)
    assert EditCounts(1, 1, 3).f_half == pytest.approx(1.25 * 0.5 * 0.25 / (0.25 * 0.5 + 0.25))


def test_edits_are_summed_over_texts_and_errors_are_the_jackknifes() -> None:
    sources = [each.split() for each in ("a b c", "d e f", "g h i")]
    made = [each.split() for each in ("x b c", "d y f", "g h i")]
    wanted = [[each.split()] for each in ("x b c", "d e z", "g h i")]
    row = Corrected(sources, made, wanted).row()
    assert (row["right"], row["false"], row["missed"], row["texts"]) == (1, 1, 1, 3)
    assert row["precision"]["value"] == row["recall"]["value"] == row["f_half"]["value"] == 0.5
    # Without the first text 0, without the second 1, without the third 1/2: a variance of 2/3 * (1/4 + 1/4).
    assert row["f_half"]["error"] == pytest.approx((1 / 3) ** 0.5)
    assert row["exact"]["value"] == pytest.approx(2 / 3)
    assert "gleu_more" not in row


@settings(max_examples=10)
@given(SOME)
def test_a_system_is_level_with_itself_and_parts_add_up(
    some: list[tuple[list[str], list[str], list[list[str]]]],
) -> None:
    made = Corrected(*zip(*some, strict=True))
    row = made.row(made)
    for name in ("gleu_more", "f_half_more"):
        assert row[name] is None or row[name]["value"] == 0
        assert row[name] is None or not row[name]["error"]
    halves = [made.only(places).row() for places in (range(0, len(some), 2), range(1, len(some), 2)) if len(places)]
    assert sum(half["right"] for half in halves) == row["right"]


def test_clean_texts_that_change_count_by_edits_words_and_texts() -> None:
    texts = ["One two three four.", "Five six seven.", "Eight."]
    row = measure_clean(texts, ["One two three four.", "Five 6 seven and then some more.", "Eight ."])
    assert (row["texts"], row["words"], row["false"]) == (3, 8, 2)
    assert row["false_per_1000_words"]["value"] == pytest.approx(2 / 8 * 1000)
    assert row["changed_per_1000_words"]["value"] == pytest.approx(5 / 8 * 1000)
    # A space more is no edit of words, but the text was not left alone.
    assert row["left_alone"]["value"] == pytest.approx(1 / 3)
    assert measure_clean(["...", "!"], ["...", "!"])["false_per_1000_words"] is None


@given(st.text())
def test_splitting_loses_nothing_but_space(text: str) -> None:
    words = split_words(text)
    assert "".join(words) == "".join(text.split())
    assert all(word and word == word.strip() for word in words)


@pytest.mark.parametrize(
    "words",
    [
        'He said , " I do n\'t know . "',
        "It 's the students ' own work ( and theirs ) , is n't it ?",
        "Mr. Bell saw 5 % of them : cars , trains , etc .",
        "Wait ... what ?! She 'll go ; they 've gone !",
        "a well-known he/she 7-5 case -- as in U.S. law",
        'Is " this " or " that " right ?',
    ],
)
def test_split_sentences_come_back_from_running_text(words: str) -> None:
    assert split_words(join_words(words.split())) == words.replace("?!", "? !").split()


@pytest.mark.parametrize(
    "text, words",
    [
        ("", ""),
        ("(e.g. this)", "( e.g. this )"),
        ("heat(energy) rises.", "heat(energy) rises ."),
        ("“Quoted,” she’d say…", "“ Quoted , ” she ’d say …"),
        ("don't DON'T can't", "do n't DO N'T ca n't"),
        ("  spaces\t\nand lines ", "spaces and lines"),
        ("... ' \" --", "... ' \" --"),
    ],
)
def test_odd_texts_are_split(text: str, words: str) -> None:
    assert split_words(text) == words.split()
