"""Misspelled words: which may be, what may have been meant, and what the model makes of that."""

from __future__ import annotations

import lzma
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.decoding.presets import SCAN
from reviser.decoding.requests import Decoded, Request
from reviser.decoding.writer import Writer
from reviser.errors import ConfigError
from reviser.evaluation.correction.correctors import _read_edit_settings
from reviser.orders.record import Draft
from reviser.proofreading.other_ways import find_ways
from reviser.proofreading.spelling import (
    LETTERS,
    MOST_OFFERED,
    WORDS,
    WordList,
    find_spellings,
    find_words,
    judge_spelling,
    offer,
    spell,
)
from reviser.tokenizer import load

DEFAULT = load("default")
SHIPPED = find_words(DEFAULT)
assert SHIPPED is not None
COMMON = lzma.decompress(WORDS.read_bytes()).decode().split("\n")[6].split()


def slip(word: str, draw: random.Random) -> str:
    """A word after one slip of the fingers."""
    place, letter = draw.randrange(len(word)), draw.choice(LETTERS)
    swapped = word[:place] + word[place + 1 : place + 2] + word[place : place + 1] + word[place + 2 :]
    return draw.choice(
        [
            word[:place] + word[place + 1 :],
            word[:place] + letter + word[place:],
            word[:place] + letter + word[place + 1 :],
            word + letter,
            swapped,
        ]
    )


@given(st.sampled_from(COMMON), st.integers(0, 10**6))
def test_a_word_is_near_all_that_one_slip_makes_of_it(word: str, seed: int) -> None:
    wrong = slip(word, random.Random(seed))
    lonely = WordList(["", "", "", word])
    assert wrong == word or lonely.find_near(wrong) == [word]


@given(st.text("abcdefghijklmnop'", max_size=12))
def test_what_is_offered_is_common_and_of_the_list(word: str) -> None:
    near = SHIPPED.find_near(word)
    assert len(near) == len(set(near)) <= MOST_OFFERED
    assert all(part in SHIPPED for each in near for part in each.split())


def test_two_doubled_letters_and_words_run_together_are_near() -> None:
    words = WordList(["", "", "", "committee", "", "", "", "in fact"])
    assert words.find_near("comitee") == ["committee"]
    assert words.find_near("infact") == ["in fact"]
    assert WordList(["committee"]).find_near("comitee") == []  # too rare to be offered


def test_the_list_is_of_english_words_in_lower_case() -> None:
    lines = [line.split() for line in lzma.decompress(WORDS.read_bytes()).decode().split("\n")]
    words = [word for line in lines for word in line]
    assert len(words) == len(set(words)) > 100_000
    assert all(line == sorted(line) for line in lines)
    assert all(word == word.lower() and set(word) <= set(LETTERS) for word in words)
    assert "the" in lines[-1]
    assert find_words(load("bytes")) is None


@pytest.mark.parametrize(
    "text, offered",
    [
        ("She recieved it.", ["recieved"]),
        ("She received it.", []),
        ("Recieved it was.", ["Recieved"]),
        ("It went to Recieved, they say.", []),  # a name
        ("a/recieved recieved.py f_recieved recieved() \\recieved re-recieved", []),  # code, paths
        ("RECIEVED iRecieved recieved2", []),
        ("teh", []),  # too short
    ],
)
def test_words_that_are_in_no_list_are_looked_at_but_no_names_and_no_code(text: str, offered: list[str]) -> None:
    found = list(offer(text, SHIPPED))
    assert [ways[0].before for ways in found] == offered
    for ways in found:
        assert {text[edit.start : edit.end] for edit in ways} == {ways[0].before}
        assert "received" in {edit.after.lower() for edit in ways}
        assert {edit.after[0].isupper() for edit in ways} == {ways[0].before[0].isupper()}


def read_as(liked: str) -> object:
    """Reads every token as equally probable, but for those of a word that it likes."""
    tokens = set(DEFAULT.encode(f" {liked}"))

    def read(texts: Sequence[Sequence[int]], begins: Sequence[int]) -> list[list[float]]:
        return [
            [0.0 if token in tokens else -12.0 for token in text[begin:]]
            for text, begin in zip(texts, begins, strict=True)
        ]

    return read


@pytest.mark.parametrize("liked", ["received", "relieved"])
def test_what_reads_best_is_chosen_where_it_may_be(liked: str) -> None:
    shown = ("He said: ", "she recieved it, recieved", " a while ago, and recieved more.")
    read = read_as(liked)
    [found] = spell([shown], SHIPPED, DEFAULT, read, [lambda _: True])  # type: ignore[arg-type]
    assert [(edit.start, edit.after) for edit in found] == [(4, liked), (17, liked)]
    assert all(edit.before == shown[1][edit.start : edit.end] for edit in found)
    [first], [] = spell([shown] * 2, SHIPPED, DEFAULT, read, [lambda e: e.start < 9, lambda _: False])  # type: ignore[arg-type]
    assert first == found[0]


def test_more_gain_is_more_probable() -> None:
    chances = [judge_spelling(gain) for gain in (-20.0, 0.0, 5.0, 15.0, 25.0, 30.0, 99.0)]
    assert chances == sorted(chances)
    assert chances[1] < 0.15
    assert chances[3] > 0.5
    assert chances[-1] == chances[-2] < 1


TEXT = "It was definately the best choice we made that year."


def test_the_shipped_model_mends_what_the_list_finds_and_leaves_what_it_is_told_to() -> None:
    writer = Writer.from_pretrained()
    edited = writer.edit(TEXT)
    assert edited.text == TEXT.replace("definately", "definitely")
    assert writer.edit(edited.text).edits == ()
    for left_out in ({"spelling": False}, {"reread": False}, {"words": ["definately"]}, {"within": (0, 6)}):
        assert writer.edit(TEXT, **left_out).text == TEXT
    assert writer.edit("`definately` is wrong.", format="markdown").edits == ()
    rare = "We use kubernetes and numpy on our tileset, and the restocking was done with tweaked rustc."
    assert writer.edit(rare).edits == ()


def test_what_may_have_been_meant_is_among_the_other_ways() -> None:
    writer = Writer.from_pretrained()
    text = "She recieved it."
    ways = find_spellings(text, (4, 12), SHIPPED, DEFAULT, writer.read)
    assert max(ways, key=lambda edit: edit.probability).after == "received"
    assert find_spellings(text, (0, 3), SHIPPED, DEFAULT, writer.read) == []

    def ask(draft: Draft) -> Decoded:
        [text] = writer.write([Request(draft, 1, 0)], SCAN, 1)
        return text.decoded

    found = find_ways(text, (4, 12), ask, DEFAULT, writer.config, writer.read, writer.room)
    assert "received" in [edit.after for edit in found]
    assert all(edit.before == "recieved" for edit in found)
    assert [edit.probability for edit in found] == sorted((edit.probability for edit in found), reverse=True)


def test_systems_can_go_without_it() -> None:
    assert not _read_edit_settings(["spelling=false"]).spelling
    assert _read_edit_settings([]).spelling
    with pytest.raises(ConfigError, match="reread and spelling are true or false"):
        _read_edit_settings(["spelling=no"])
