"""The plain decoder: every action is valid, the same draft gives the same text, prompts that do not fit are named."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scored import protected, score_actions
from tiny import SETTINGS

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules, apply, is_valid, replay
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.reference import decode
from reviser.decoding.requests import Decoded
from reviser.decoding.sampling import Sampling
from reviser.errors import ConfigError
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft
from reviser.tokenizer import load
from reviser.training.reviser_family import REVISER

ALPHABET = Alphabet(num_text=20, pad=19)
TINY = ModelConfig(num_text=20, pad=19, num_layers=2, width=16, num_heads=2, ff_width=32, context=40, max_length=32)
JUMPING = tuple(name for name in OPERATORS if name not in ("copy", "paste"))
"""What a model with a pointer may be trained with; rules may still enable all."""
KINDS = ("none", "window", "pool", "cross", "cross-window", "window-index")
TEXT = st.lists(st.integers(0, 18), max_size=6)


def make_model(kind: Any = "none", seed: int = 0, **changes: Any) -> Transformer:
    torch.manual_seed(seed)
    canvas = CanvasConfig(kind, window=2, slot_width=4, gate="mlp")
    model = Transformer(replace(TINY, canvas=canvas, operators=JUMPING, **changes)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    # Text tokens would drown the few actions that edit.
    with torch.no_grad():
        model.embedding.weight[:20] *= 0.2
    return model


MODELS = {kind: make_model(kind) for kind in KINDS}


def write(draft: Draft, number: int = 0, kind: str = "none", max_actions: int = 30, **sampling: Any) -> Decoded:
    return decode(MODELS[kind], draft, Sampling(**sampling), max_actions, number)


@given(
    prefix=TEXT,
    suffix=TEXT,
    operators=st.frozensets(st.sampled_from(OPERATORS)) | st.just(frozenset(OPERATORS)),
    kind=st.sampled_from(KINDS),
    number=st.integers(0, 99),
    max_actions=st.integers(1, 25),
    room=st.integers(0, 6),
)
@settings(max_examples=40)
def test_every_action_is_valid_where_it_is_emitted(
    prefix: list[int],
    suffix: list[int],
    operators: frozenset[str],
    kind: str,
    number: int,
    max_actions: int,
    room: int,
) -> None:
    rules = Rules(ALPHABET, operators, max_length=len(prefix) + len(suffix) + room)
    draft = Draft.infill(prefix, suffix, rules)
    written = write(draft, number, kind, max_actions, temperature=1.5, top_k=0)
    canvas, budget = draft.canvas, min(max_actions, TINY.context - 1 - len(draft.actions))
    assert 1 <= len(written.actions) <= budget
    for index, action in enumerate(written.actions):
        assert is_valid(canvas, action, draft.rules, budget - index)
        canvas = apply(canvas, action, draft.rules, budget - index)
    assert canvas == written.canvas
    assert canvas.is_stopped == (written.actions[-1] == ALPHABET.stop)
    assert canvas.is_stopped or len(written.actions) == budget
    assert written.ended_by == expected_end(written, draft.rules.max_length, max_actions)
    assert not canvas.is_replacing
    assert canvas.tokens[: len(prefix)] == tuple(prefix)
    assert canvas.tokens[len(canvas.tokens) - len(suffix) :] == tuple(suffix)
    assert len(written.log_probabilities) == len(written.actions)
    assert all(score <= 0 for score in written.log_probabilities)


def expected_end(written: Decoded, max_length: int, max_actions: int) -> str:
    if written.actions[-1] == ALPHABET.stop:
        return "model" if len(written.canvas.tokens) < max_length else "length"
    return "actions" if len(written.actions) == max_actions else "context"


def test_all_operators_come_up() -> None:
    draft = Draft.continuation([1, 2], Rules(ALPHABET, frozenset(OPERATORS), max_length=16))
    used = {ALPHABET.operator(a) for n in range(12) for a in write(draft, n, temperature=2.0, top_k=0).actions}
    assert used >= set(OPERATORS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_text(kind: str) -> None:
    draft = Draft.infill([1, 2, 3], [4, 5], Rules(ALPHABET, frozenset(OPERATORS), max_length=16))
    assert write(draft, 3, kind) == write(draft, 3, kind)
    greedy = write(draft, 3, kind, temperature=0)
    assert greedy == write(draft, 4, kind, temperature=0)
    texts = {write(draft, number, kind, temperature=2.0, top_k=0).actions for number in range(5)}
    assert len(texts) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_takes_the_most_probable_valid_action(kind: str) -> None:
    rules = Rules(ALPHABET, frozenset(OPERATORS), max_length=16)
    draft = Draft.infill([7, 8], [9], rules)
    written = write(draft, 0, kind, temperature=0, max_actions=12)
    best = write(draft, 0, kind, temperature=1.0, top_k=1, max_actions=12)
    # Where a JUMP goes is not for top_k to say, and all that follows depends on it.
    until = [*map(ALPHABET.is_jump, written.actions), True].index(True) + 1
    rows_of_both = [[ALPHABET.row(action) for action in each.actions[:until]] for each in (best, written)]
    assert rows_of_both[0] == rows_of_both[1]
    scored = score_actions(MODELS[kind], draft, written.actions, 12)
    for index, (action, log_p) in enumerate(zip(written.actions, scored, strict=True)):
        # First the most probable of all rows, then, where that is JUMP's, the most probable landing.
        jumps = {each: score for each, score in log_p.items() if ALPHABET.is_jump(each)}
        rows = {each: score for each, score in log_p.items() if each not in jumps}
        total = math.log(sum(map(math.exp, jumps.values()))) if jumps else -math.inf
        best = jumps if total > max(rows.values()) else rows
        assert max(best, key=best.__getitem__) == action
        assert written.log_probabilities[index] == pytest.approx(log_p[action], abs=1e-4)


@given(
    tokens=TEXT,
    operators=st.frozensets(st.sampled_from(OPERATORS)).map(lambda names: names | {"jump"}),
    kind=st.sampled_from(KINDS),
    number=st.integers(0, 99),
    data=st.data(),
)
@settings(max_examples=30)
def test_probabilities_of_all_valid_actions_sum_to_one(
    tokens: list[int], operators: frozenset[str], kind: str, number: int, data: st.DataObject
) -> None:
    draft = data.draw(protected(tokens, Rules(ALPHABET, operators, max_length=len(tokens) + 5)))
    written = write(draft, number, kind, 12, temperature=2.0, top_k=0)
    for log_p, action, score in zip(
        score_actions(MODELS[kind], draft, written.actions, 12),
        written.actions,
        written.log_probabilities,
        strict=True,
    ):
        assert sum(map(math.exp, log_p.values())) == pytest.approx(1, abs=1e-5)
        assert score == pytest.approx(log_p[action], abs=1e-4)


def test_top_k_keeps_to_the_best() -> None:
    draft = Draft.continuation([1], Rules(ALPHABET, frozenset(OPERATORS), max_length=16))
    first = {write(draft, number, top_k=2, temperature=3.0, max_actions=1).actions[0] for number in range(30)}
    assert len(first) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_prompt_is_a_prompt(kind: str) -> None:
    draft = Draft.continuation([], Rules(ALPHABET, frozenset(OPERATORS), max_length=16))
    written = write(draft, 1, kind)
    assert replay(Canvas(), written.actions, draft.rules) == written.canvas


def test_the_history_never_outgrows_the_context() -> None:
    rules = Rules(ALPHABET, frozenset({"move"}), max_length=99)
    draft = Draft.infill([1] * 20, [2] * 9, rules)
    assert len(draft.actions) == 31
    lengths = [len(write(draft, n, max_actions=500, temperature=2.0, top_k=0).actions) for n in range(5)]
    assert max(lengths) <= 8


@pytest.mark.parametrize(
    ("prompt", "max_length", "max_actions", "text"),
    [
        (39, 99, 9, "a prompt of 39 tokens leaves no room in a context of 40 positions; shorten it"),
        (200, 99, 9, "a prompt of 200 tokens leaves no room in a context of 40 positions; shorten it"),
        (20, 16, 9, "a prompt of 20 tokens does not fit a canvas of 16; shorten it"),
        (3, 16, 0, "max_actions=0 must be at least 1"),
    ],
)
def test_a_prompt_that_does_not_fit_is_named(prompt: int, max_length: int, max_actions: int, text: str) -> None:
    draft = Draft.continuation([1] * prompt, Rules(ALPHABET, max_length=max_length))
    with pytest.raises(ConfigError) as caught:
        write(draft, max_actions=max_actions)
    assert str(caught.value) == text


def test_a_canvas_that_the_model_cannot_see_is_named() -> None:
    draft = Draft.continuation([1], Rules(ALPHABET, max_length=33))
    text = "a canvas of 33 tokens is more than the 32 that this model can see"
    with pytest.raises(ConfigError, match=text):
        write(draft, kind="pool")
    assert write(draft, kind="window").actions


def test_the_last_prompt_that_fits_gets_one_action() -> None:
    draft = Draft.continuation([1] * 38, Rules(ALPHABET, max_length=99))
    assert len(write(draft).actions) == 1


def test_samples_hold_each_prompt_and_what_grew_of_it() -> None:
    model = Transformer(SETTINGS.model).train()
    text = REVISER.write_samples(model, load("bytes"), SETTINGS)
    assert text.count("--- ") == 3
    assert "--- 'The old lighthouse', " in text
    assert model.training
    assert REVISER.write_samples(model, load("bytes"), SETTINGS) == text


def test_samples_of_a_tiny_model_begin_with_part_of_the_prompt() -> None:
    settings = replace(SETTINGS, model=replace(SETTINGS.model, context=16, max_length=60))
    assert "--- 'The old ', " in REVISER.write_samples(Transformer(settings.model), load("bytes"), settings)
