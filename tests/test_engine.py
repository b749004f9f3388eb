"""The engine writes what the plain decoder writes, action by action, whatever else is in the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.actions import INSERT_MOVE, OPERATORS
from reviser.canvas import Rules, replay
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.cpu.cells import KERNEL_OPERATORS
from reviser.decoding.engine import Engine
from reviser.decoding.reference import decode
from reviser.decoding.requests import Request
from reviser.decoding.sampling import GREEDY, Sampling
from reviser.errors import ConfigError
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft

KINDS = ("none", "window", "pool", "cross", "cross-window", "window-index")
CONTEXT = 48


EDITING = tuple(name for name in OPERATORS if name != "jump")


def make_model(kind: str, operators: tuple[str, ...] = EDITING, ahead: int = 0) -> Transformer:
    torch.manual_seed(5)
    config = ModelConfig(
        num_text=30, pad=29, num_layers=2, width=32, num_heads=2, ff_width=48, context=CONTEXT, max_length=24,
        operators=operators, pointer_ahead=ahead,
        canvas=CanvasConfig(kind=kind, window=3, slot_width=8),  # type: ignore[arg-type]
    )  # fmt: skip
    model = Transformer(config).eval()
    # A fresh model's residual branches are zero; these make its scores differ from state to state.
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


MODELS = {kind: make_model(kind) for kind in KINDS}
texts = st.lists(st.integers(0, 28), max_size=9)


@st.composite
def requests(draw: st.DrawFn, operators: frozenset[str]) -> Request:
    rules = Rules(MODELS["none"].config.alphabet, operators, max_length=draw(st.integers(18, 24)))
    prefix, suffix = draw(texts), draw(texts)
    draft = draw(
        st.sampled_from([
            Draft.continuation(prefix, rules),
            Draft.infill(prefix, suffix, rules),
            Draft.edit(prefix + suffix, rules),
        ])
    )  # fmt: skip
    return Request(draft, draw(st.integers(1, 30)), draw(st.integers(0, 1 << 40)))


samplings = st.sampled_from([
    GREEDY,
    Sampling(),
    Sampling(temperature=1.3, top_k=0),
    Sampling(top_k=7, top_p=0.9, min_p=0.02, stop_bias=-1.0, min_tokens=3, no_repeat=2, calm=True),
    Sampling(move_temperature=0.4, stop_bias=-3.0, jump_bias=1.5),
    Sampling(top_k=5, keep_moves=True, calm=True, min_tokens=3, jump_bias=0.5),
])  # fmt: skip


@settings(max_examples=16)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([frozenset(EDITING), KERNEL_OPERATORS - {"jump"}, INSERT_MOVE]),
    samplings,
    st.integers(1, 4),
    st.data(),
)
def test_the_engine_writes_what_the_plain_decoder_writes(kind, operators, sampling, num_rows, data):
    asked = data.draw(st.lists(requests(operators), min_size=1, max_size=6))
    model = MODELS[kind]
    for request, written in zip(asked, Engine(model, sampling, num_rows).write(asked), strict=True):
        plain = decode(model, request.draft, sampling, request.max_actions, request.number)
        assert written.actions == plain.actions
        assert written.canvas == plain.canvas
        assert written.ended_by == plain.ended_by
        assert written.log_probabilities == pytest.approx(plain.log_probabilities, abs=1e-3)
        assert replay(request.draft.canvas, written.actions, request.draft.rules) == written.canvas


@settings(max_examples=10)
@given(st.sampled_from(KINDS), samplings, st.integers(1, 3), st.data())
def test_alternatives_of_a_batch_are_those_of_each_stream_alone(kind, sampling, num_rows, data):
    asked = data.draw(st.lists(requests(INSERT_MOVE), min_size=1, max_size=4))
    model = MODELS[kind]
    together = Engine(model, sampling, num_rows, num_alternatives=4).write(asked)
    plain = Engine(model, sampling, num_rows).write(asked)
    for request, written, without in zip(asked, together, plain, strict=True):
        events = list(Engine(model, sampling, 1, num_alternatives=4).events(request))
        assert written.actions == without.actions == tuple(event.action for event in events)
        assert without.alternatives == ()
        assert len(written.alternatives) == len(events)
        for ranked, event in zip(written.alternatives, events, strict=True):
            assert 1 <= len(ranked) <= 4
            scores = [score for _, score in ranked]
            assert scores == sorted(scores, reverse=True)
            assert scores == pytest.approx([score for _, score in event.alternatives], abs=1e-3)
            assert max(scores) >= event.log_probability - 1e-3


def test_a_result_does_not_depend_on_its_neighbours():
    model, rules = MODELS["window"], Rules(MODELS["window"].config.alphabet, INSERT_MOVE, max_length=24)
    asked = [Request(Draft.continuation(list(range(n)), rules), 20, n) for n in range(9)]
    alone = [Engine(model, Sampling(), 1).write([request])[0] for request in asked]
    together = Engine(model, Sampling(), 4).write(asked)
    assert [each.actions for each in together] == [each.actions for each in alone]


def test_an_engine_can_be_used_again_and_results_stream_as_they_finish():
    model, rules = MODELS["none"], Rules(MODELS["none"].config.alphabet, INSERT_MOVE, max_length=24)
    engine = Engine(model, Sampling(stop_bias=-9.0), 2)
    asked = [Request(Draft.continuation([1], rules), budget, 3) for budget in (20, 2, 2)]
    first = list(engine.stream(asked))
    assert [index for index, _ in first] == [1, 2, 0]
    assert dict(engine.stream(asked)) == dict(first)
    assert engine.write([]) == []


def test_the_context_bounds_the_history_and_long_prompts_are_refused():
    model = MODELS["none"]
    rules = Rules(model.config.alphabet, frozenset(EDITING), max_length=200)
    [written] = Engine(model, Sampling(stop_bias=-99.0), 1).write([Request(Draft.continuation([1] * 40, rules), 99)])
    assert len(written.actions) == CONTEXT - 1 - 40
    with pytest.raises(ConfigError, match="a prompt of 60 tokens leaves no room in a context of 48 positions"):
        Engine(model).write([Request(Draft.continuation([1] * 60, rules))])


def test_requests_that_do_not_go_together_and_no_rows_are_refused():
    model, alphabet = MODELS["none"], MODELS["none"].config.alphabet
    seeds = [
        Draft.continuation([], Rules(alphabet, operators, max_length=20)) for operators in (INSERT_MOVE, frozenset())
    ]
    with pytest.raises(ConfigError, match="requests of one call must share their alphabet and operators; split them"):
        Engine(model).write([Request(draft) for draft in seeds])
    with pytest.raises(ConfigError, match="num_rows=0 must be at least 1"):
        Engine(model, num_rows=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_the_captured_step_writes_what_the_plain_decoder_writes(kind: str) -> None:
    model = make_model(kind).cuda()
    for sampling in (GREEDY, Sampling(), Sampling(top_k=7, top_p=0.9, min_p=0.02, no_repeat=2, calm=True)):
        engine = Engine(model, sampling, num_rows=3)
        for operators in (INSERT_MOVE, frozenset(EDITING)):
            rules = Rules(model.config.alphabet, operators, max_length=22)
            seeds = [Draft.infill(range(n), range(9 - n), rules) for n in range(6)]
            asked = [Request(draft, 12 + 3 * n, n) for n, draft in enumerate(seeds)]
            wanted = [decode(model, each.draft, sampling, each.max_actions, each.number) for each in asked]
            assert [each.actions for each in engine.write(asked)] == [each.actions for each in wanted]
