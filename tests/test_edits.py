"""Edits of a text: what a trajectory did is what its edits do, for any actions, tokens and characters."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import pick_valid
from test_tokenizer import unigram

from reviser.actions import OPERATORS
from reviser.canvas import Rules, apply
from reviser.decoding.requests import Decoded
from reviser.orders.record import Draft
from reviser.proofreading.edits import Edit, apply_edits, compose, find_edits, polish
from reviser.tokenizer import Tokenizer, load

BYTES, WORDS = load("bytes"), load("default")
TEXTS = st.text(st.sampled_from("ab cé€☃\U0001f600\n'.,"), max_size=24)


def attempt(
    tokenizer: Tokenizer, text: str, seed: int, size: int, operators: tuple[str, ...] = OPERATORS
) -> tuple[Draft, Decoded]:
    """A draft of a text and random actions on it, often at the same place, most of them with bytes of other text."""
    chance = random.Random(seed)
    tokens = tokenizer.encode(text)
    rules = Rules(tokenizer.alphabet, frozenset(operators), max_length=len(tokens) + 8)
    draft = Draft.edit(tokens, rules)
    canvas, actions, scores = draft.canvas, list[int](), list[float]()
    choices = tokenizer.encode("é€ b'") + tokens
    while len(actions) < size and not canvas.is_stopped:
        actions.append(pick_valid(canvas, rules, chance.randrange(1 << 20), chance.choice(choices)))
        scores.append(math.log(chance.uniform(0.5, 1)))
        canvas = apply(canvas, actions[-1], rules)
    ended_by = "model" if canvas.is_stopped else chance.choice(["actions", "context", "length"])
    return draft, Decoded(tuple(actions), tuple(scores), canvas, ended_by)  # type: ignore[arg-type]


def assert_orderly(text: str, edits: list[Edit]) -> None:
    assert all(0 <= edit.start <= edit.end <= len(text) for edit in edits)
    assert all(left.end <= right.start and left.start < right.start for left, right in pairwise(edits))
    for edit in edits:
        assert text[edit.start : edit.end] == edit.before != edit.after
        assert 0 < edit.probability <= 1


@settings(max_examples=200)
@given(st.sampled_from([BYTES, WORDS]), TEXTS, st.integers(0, 1 << 30), st.integers(0, 12))
def test_all_edits_give_the_models_text_and_none_the_original(tokenizer: Tokenizer, text: str, seed: int, size: int):
    draft, made = attempt(tokenizer, text, seed, size)
    edits = find_edits(draft, made, tokenizer)
    assert_orderly(text, edits)
    assert apply_edits(text, []) == text
    if made.ended_by in ("model", "length"):
        assert apply_edits(text, edits) == tokenizer.decode(made.canvas.tokens)
        assert math.prod(edit.probability for edit in edits) >= math.exp(sum(made.log_probabilities)) * 0.999
    polished = polish(text, edits)
    assert_orderly(text, polished)
    assert apply_edits(text, polished) == apply_edits(text, edits)


@settings(max_examples=150)
@given(TEXTS, st.integers(0, 1 << 30), st.integers(0, 9), st.integers(0, 9))
def test_edits_after_edits_are_edits(text: str, seed: int, first: int, second: int):
    draft, made = attempt(BYTES, text, seed, first, ("jump", "delete", "replace"))
    edits = find_edits(draft, made, BYTES)
    between = apply_edits(text, edits)
    draft, made = attempt(BYTES, between, seed + 1, second, ("jump", "delete", "replace"))
    later = find_edits(draft, made, BYTES)
    both = compose(text, edits, later)
    assert_orderly(text, both)
    assert apply_edits(text, both) == apply_edits(between, later)
    back = [Edit(0, len(between), between, text, 0.5)] if between != text else []
    assert compose(text, edits, back) == []


@given(st.integers(0, 1 << 30), st.integers(0, 9))
def test_a_vocabulary_that_is_not_byte_level_has_edits_too(seed: int, size: int):
    tokenizer = unigram()
    text = tokenizer.decode(tokenizer.encode("abc ab cab"))
    draft, made = attempt(tokenizer, text, seed, size, ("jump", "delete", "replace"))
    edits = find_edits(draft, made, tokenizer)
    if tokenizer.decode(draft.tokens) == text and made.ended_by in ("model", "length"):
        assert apply_edits(text, edits) == tokenizer.decode(made.canvas.tokens)


def test_an_edits_probability_is_that_of_its_own_actions():
    text = "He go home ."
    tokens = [*map(WORDS.encode, ("He", " go", " home", " ."))]
    assert all(len(each) == 1 for each in tokens)
    rules = Rules(WORDS.alphabet, frozenset({"jump", "delete", "replace"}))
    draft, alphabet = Draft.edit([each[0] for each in tokens], rules), rules.alphabet
    [goes], [now] = WORDS.encode(" went"), WORDS.encode(" now")
    actions = [alphabet.jump(2), alphabet.replace, goes, alphabet.jump(3), now, alphabet.jump(0), alphabet.stop]
    scores = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    canvas = draft.canvas
    for action in actions:
        canvas = apply(canvas, action, rules)
    made = Decoded(tuple(actions), tuple(map(math.log, scores)), canvas, "model")
    first, second = find_edits(draft, made, WORDS)
    assert (first.before, first.after, first.start, first.end) == (" go", " went", 2, 5)
    assert first.probability == pytest.approx(0.9 * 0.8 * 0.7)
    assert (second.before, second.after, second.start) == ("", " now", 10)
    assert second.probability == pytest.approx(0.6 * 0.5)
    cut = Decoded(made.actions[:5], made.log_probabilities[:5], canvas, "context")
    assert find_edits(draft, cut, WORDS) == [first]
    assert [edit.before for edit in polish(text, [first])] == ["go"]


def test_half_a_word_is_shown_as_the_whole_word():
    assert polish("I dont know", [Edit(5, 5, "", "'", 0.5)]) == [Edit(2, 6, "dont", "don't", 0.5)]
    assert polish("in house", [Edit(2, 2, "", " the", 0.5)]) == [Edit(2, 2, "", " the", 0.5)]
    both = [Edit(0, 1, "a", "b", 0.5), Edit(3, 4, "d", "e", 0.4)]
    assert polish("abcd", both) == [Edit(0, 4, "abcd", "bbce", 0.4)]
