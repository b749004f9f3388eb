"""Requests that come and go while a batch runs get what an engine gives them alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import random_model

from reviser.actions import INSERT_MOVE
from reviser.canvas import Rules
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.engine import Engine, Request
from reviser.decoding.presets import Sampling
from reviser.errors import ConfigError
from reviser.orders.record import Draft
from reviser.serving.running_engine import RunningEngine

CONTEXT = 48


def make_model(operators, kind):
    return random_model(
        ModelConfig(
            num_text=20, pad=19, num_layers=2, width=16, num_heads=2, ff_width=32, context=CONTEXT, max_length=40,
            operators=operators, canvas=CanvasConfig(kind=kind, window=2, slot_width=4),
        )
    )  # fmt: skip


MODELS = [make_model(("move",), "none"), make_model(("jump", "delete", "replace"), "window")]
SAMPLING = Sampling(temperature=1.0, top_k=8, stop_bias=-2.0)


@st.composite
def arrivals(draw):
    """A model, and requests with the step at which each comes and at which it would go, if it still is there."""
    model = draw(st.sampled_from(MODELS))
    rules = Rules(model.config.alphabet, frozenset(model.config.operators), max_length=model.config.max_length)
    tokens = st.lists(st.integers(0, 18), max_size=8)
    drafts = st.builds(lambda a, b: Draft.infill(a, b, rules), tokens, tokens)
    requests = st.builds(Request, drafts, st.integers(1, 20), st.integers(0, 1 << 40))
    times = st.tuples(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 12)), st.booleans())
    return model, draw(st.lists(st.tuples(requests, times), min_size=1, max_size=8))


@settings(max_examples=10)
@given(arrivals(), st.integers(1, 6))
def test_random_arrivals_and_departures_change_no_result(coming, num_rows):
    model, asked = coming
    engine = RunningEngine(model, SAMPLING, num_rows, num_alternatives=2)
    results, told = {}, {}
    for now in range(400):
        for key, (request, (begin, stay, is_watched)) in enumerate(asked):
            if begin == now:
                engine.add(key, request, is_watched)
            if stay is not None and begin + stay == now:
                engine.drop(key)
        progress = engine.advance()
        for each in progress.told:
            seen = told.setdefault(each.key, [])
            assert each.first == len(seen)
            seen += zip(each.actions, each.log_probabilities, each.alternatives, strict=True)
        results |= dict(progress.done)
        if now > 24 and not engine.is_busy:
            break
    assert (engine.is_busy, engine.num_decoding, engine.num_waiting) == (False, 0, 0)
    alone = Engine(model, SAMPLING, 1, num_alternatives=2).write([request for request, _ in asked])
    for key, (_, (_, stay, is_watched)) in enumerate(asked):
        assert key in results or stay is not None
        if key in results:
            assert (results[key].actions, results[key].canvas) == (alone[key].actions, alone[key].canvas)
            assert results[key].log_probabilities == pytest.approx(alone[key].log_probabilities, abs=1e-4)
        if is_watched and key in results:
            assert [action for action, _, _ in told[key]] == list(alone[key].actions)
            assert [[a for a, _ in others] for _, _, others in told[key]] == [
                [a for a, _ in others] for others in alone[key].alternatives
            ]
        assert is_watched or key not in told


def test_a_request_that_leaves_frees_its_row_for_the_next():
    engine = RunningEngine(MODELS[0], Sampling(stop_bias=-99.0), num_rows=1)
    first, second = (Request(Draft.continuation([1], engine.rules), 30, number) for number in (1, 2))
    engine.add(0, first)
    engine.add(1, second)
    engine.advance()
    assert (engine.owners, engine.num_waiting) == ([0], 1)
    engine.drop(0)
    engine.advance()
    assert (engine.owners, engine.num_waiting) == ([1], 0)


def test_rules_of_another_model_are_refused():
    engine = RunningEngine(MODELS[1], SAMPLING, num_rows=1)
    alphabet = MODELS[1].config.alphabet
    with pytest.raises(ConfigError, match="must have the model's own alphabet and operators"):
        engine.add(0, Request(Draft.continuation([1], Rules(alphabet, INSERT_MOVE, max_length=9))))
    operators = frozenset(MODELS[1].config.operators)
    with pytest.raises(ConfigError, match="a canvas of 41 tokens is more than the model's 40"):
        engine.add(0, Request(Draft.continuation([1], Rules(alphabet, operators, max_length=41))))
    assert not engine.is_busy


def test_rows_come_and_go_with_those_who_need_them():
    engine = RunningEngine(MODELS[0], Sampling(stop_bias=-99.0), num_rows=6)
    assert engine.num_rows == 1
    for key in range(9):
        engine.add(key, Request(Draft.continuation([1], engine.rules), 30, key))
    engine.advance()
    assert (engine.num_rows, engine.num_decoding, engine.num_waiting) == (6, 6, 3)
    for key in range(8):
        engine.drop(key)
    engine.advance()
    assert (engine.num_rows, engine.owners) == (1, [8])
    with pytest.raises(ConfigError, match="num_rows=0 must be at least 1"):
        RunningEngine(MODELS[0], num_rows=0)
