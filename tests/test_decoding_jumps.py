"""JUMPs and protected text in decoding: all decoders write alike, and probabilities are those of one forward pass."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scored import protected, score_actions
from test_engine import KINDS, make_model, samplings

from reviser.canvas import CLOSED, FIXED, Rules, apply, protect, replay
from reviser.decoding.cpu.array_engine import ArrayEngine
from reviser.decoding.cpu.step import CpuStep, has_cpu_kernels
from reviser.decoding.engine import Engine
from reviser.decoding.reference import decode
from reviser.decoding.requests import Decoded, Request
from reviser.decoding.row_loop import RowLoop
from reviser.decoding.sampling import GREEDY, Sampling
from reviser.errors import ConfigError
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft

OPERATORS = ("move", "delete", "replace", "swap", "cut", "jump")
MODELS = {kind: make_model(kind, OPERATORS) for kind in KINDS}
AHEAD = {kind: make_model(kind, OPERATORS, ahead=2) for kind in KINDS}
"""The keys of their pointers look ahead."""
models = st.sampled_from([MODELS, AHEAD])
ALPHABET = MODELS["none"].config.alphabet
OPERATOR_SETS = [
    frozenset(names.split())
    for names in ("jump", "jump delete replace", "move jump delete replace", "move jump swap cut replace")
]
"""The last needs the plain board."""
LIVELY = Sampling(1.2, 0, stop_bias=-3.0, jump_bias=2.0)
GREEDY_JUMPS = Sampling(0, jump_bias=2.0)
many_samplings = samplings | st.sampled_from([LIVELY, GREEDY_JUMPS])


@st.composite
def requests(draw: st.DrawFn, operators: frozenset[str]) -> Request:
    tokens = draw(st.lists(st.integers(0, 28), max_size=12))
    rules = Rules(ALPHABET, operators, max_length=draw(st.integers(max(len(tokens), 1), 24)))
    kinds = [protected(tokens, rules), st.builds(Draft.infill, st.just(tokens), st.just(tokens[:3]), st.just(rules))]
    kinds.append(st.builds(Draft.gaps, st.just([tokens[:2], [3], tokens[2:]]), st.just(rules)))
    draft = draw(kinds[0] if len(tokens) + 3 > rules.max_length else st.one_of(kinds))
    return Request(draft, draw(st.integers(1, 30)), draw(st.integers(0, 1 << 40)))


def engines(
    model: Transformer, rules: Rules, sampling: Sampling, num_rows: int, num_alternatives: int = 0
) -> list[RowLoop]:
    """With the model's own steps, and with the kernels where those know the model: behind torch, and without it."""
    made: list[RowLoop] = [Engine(model, sampling, num_rows, model, num_alternatives)]
    if has_cpu_kernels(model):
        steps = CpuStep(model)
        made.append(Engine(model, sampling, num_rows, steps, num_alternatives))
        if ArrayEngine.knows(rules):
            made.append(ArrayEngine(steps.kernels, sampling, num_rows, num_alternatives))
    return made


def assert_protected(draft: Draft, written: Decoded) -> None:
    """Fixed tokens stand in their order, with what is closed still closed."""

    def kept(tokens: tuple[int, ...], marks: tuple[int, ...]) -> list[tuple[int, int]]:
        return [(token, mark) for token, mark in zip(tokens, marks[1:], strict=False) if mark & FIXED]

    canvas = written.canvas
    assert kept(canvas.tokens, canvas.marks) == kept(draft.tokens, draft.marks)
    assert sum(mark & CLOSED for mark in canvas.marks) == sum(mark & CLOSED for mark in draft.marks)


@pytest.mark.parametrize("max_examples", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_all_decoders_write_what_the_plain_one_writes(max_examples):
    @settings(max_examples=max_examples)
    @given(
        models, st.sampled_from(KINDS), st.sampled_from(OPERATOR_SETS), many_samplings, st.integers(1, 4), st.data()
    )
    def try_some(models, kind, operators, sampling, num_rows, data):
        check_writing(
            models[kind], sampling, num_rows, data.draw(st.lists(requests(operators), min_size=1, max_size=6))
        )

    try_some()


@pytest.mark.parametrize("max_examples", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_all_decoders_scan_alike_and_never_go_back(max_examples):
    @settings(max_examples=max_examples)
    @given(models, st.sampled_from(KINDS), st.floats(0.001, 0.9), st.integers(1, 4), st.data())
    def try_some(models, kind, least, num_rows, data):
        asked = data.draw(st.lists(requests(frozenset({"jump", "delete", "replace"})), min_size=1, max_size=6))
        check_writing(models[kind], Sampling(0, scan=least), num_rows, asked)
        for request in asked:
            check_reading(decode(models[kind], request.draft, Sampling(0, scan=least), request.max_actions), request)

    try_some()


def check_reading(written: Decoded, request: Request) -> None:
    """A reader jumps ahead only."""
    canvas, rules = request.draft.canvas, request.draft.rules
    for number, action in enumerate(written.actions):
        if number and ALPHABET.operator(action) == "jump":
            assert action - ALPHABET.jump(0) > canvas.cursor
        canvas = apply(canvas, action, rules)


def check_writing(model, sampling, num_rows, asked):
    plain = [decode(model, each.draft, sampling, each.max_actions, each.number) for each in asked]
    for engine in engines(model, asked[0].draft.rules, sampling, num_rows):
        for request, wanted, written in zip(asked, plain, engine.write(asked), strict=True):
            assert written.actions == wanted.actions
            assert written.canvas == wanted.canvas
            assert written.ended_by == wanted.ended_by
            assert written.log_probabilities == pytest.approx(wanted.log_probabilities, abs=1e-3)
            assert replay(request.draft.canvas, written.actions, request.draft.rules) == written.canvas
            assert_protected(request.draft, written)


@pytest.mark.parametrize("max_examples", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_cached_probabilities_are_those_of_one_forward_pass(max_examples):
    @settings(max_examples=max_examples)
    @given(models, st.sampled_from(KINDS), st.sampled_from(OPERATOR_SETS), many_samplings, st.data())
    def try_some(models, kind, operators, sampling, data):
        check_scores(models[kind], sampling, data.draw(st.lists(requests(operators), min_size=1, max_size=3)))

    try_some()


def check_scores(model, sampling, asked):
    for engine in engines(model, asked[0].draft.rules, sampling, 2, num_alternatives=ALPHABET.size):
        for request, written in zip(asked, engine.write(asked), strict=True):
            scored = score_actions(model, request.draft, written.actions, request.budget(model.config.context))
            for wanted, ranked, action, score in zip(
                scored, written.alternatives, written.actions, written.log_probabilities, strict=True
            ):
                assert score == pytest.approx(wanted[action], abs=1e-3)
                found = dict(ranked)
                assert len(found) == len(ranked) == min(len(wanted), ALPHABET.size)
                assert [found[each] for each in found] == sorted(found.values(), reverse=True)
                for each, value in found.items():
                    assert value == pytest.approx(wanted[each], abs=1e-3)
                lowest = min(found.values()) + 1e-3
                assert all(value <= lowest for each, value in wanted.items() if each not in found)
                if len(found) == len(wanted):
                    assert sum(map(math.exp, found.values())) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_models_jump_and_streams_say_so(kind: str) -> None:
    model, rules = MODELS[kind], Rules(ALPHABET, OPERATOR_SETS[1], max_length=24)
    draft = Draft.edit(list(range(8)), rules)
    [written] = Engine(model, LIVELY, 1, num_alternatives=4).write([Request(draft, 30, 5)])
    jumps = [action for action in written.actions if ALPHABET.is_jump(action)]
    assert len({ALPHABET.landing(action) for action in jumps}) >= 3
    events = list(Engine(model, LIVELY, 1, num_alternatives=4).events(Request(draft, 30, 5)))
    assert tuple(event.action for event in events) == written.actions
    assert tuple(event.log_probability for event in events) == pytest.approx(written.log_probabilities, abs=1e-4)
    assert [[each for each, _ in event.alternatives] for event in events] == [
        [each for each, _ in ranked] for ranked in written.alternatives
    ]


def test_int8_steps_write_and_repeat_themselves() -> None:
    model, rules = AHEAD["window"], Rules(ALPHABET, OPERATOR_SETS[1], max_length=24)
    asked = [Request(Draft.edit(list(range(n)), rules), 25, n) for n in range(5)]
    first, second = (Engine(model, LIVELY, 2, CpuStep(model, "int8")).write(asked) for _ in range(2))
    assert first == second
    assert any(map(ALPHABET.is_jump, first[4].actions))


def test_rules_with_jumps_need_a_model_with_a_pointer() -> None:
    model = make_model("none", ("move",))
    text = "these rules have JUMPs and this model has no pointer; leave the operator jump out"
    for rules in (Rules(ALPHABET, frozenset({"jump"}), 24), Rules(ALPHABET, max_length=24, has_jumps=True)):
        draft = Draft.continuation([1], rules)
        with pytest.raises(ConfigError, match=text):
            Engine(model).write([Request(draft)])
        with pytest.raises(ConfigError, match=text):
            decode(model, draft, GREEDY, 5)


def test_a_model_with_a_pointer_writes_without_jumps_too() -> None:
    model, rules = MODELS["window"], Rules(ALPHABET, frozenset({"move", "delete"}), max_length=24)
    draft = Draft.infill([1, 2, 3], [4, 5], rules)
    wanted = decode(model, draft, LIVELY, 25, 3)
    assert not any(map(ALPHABET.is_jump, wanted.actions))
    for engine in engines(model, rules, LIVELY, 2):
        assert engine.write([Request(draft, 25, 3)])[0].actions == wanted.actions


@pytest.mark.skipif(torch.cuda.is_available(), reason="the next test has the real device")
@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(GREEDY_JUMPS, marks=pytest.mark.slow),
        pytest.param(LIVELY, marks=pytest.mark.slow),
        Sampling(top_k=7, keep_moves=True, calm=True, jump_bias=3.0),
    ],
)
def test_the_gpus_board_and_chooser_jump_alike_in_an_engine(
    sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton comes with the `kernels` extra and with torch for CUDA")
    from reviser.decoding.gpu.board import GpuBoard
    from reviser.decoding.gpu.sampling import GpuChooser

    def board_for(rules: Rules, num_rows: int, longest: int, device: torch.device, window: int) -> GpuBoard:
        return GpuBoard(rules.alphabet, rules.operators, num_rows, longest, device, window)

    monkeypatch.setattr("reviser.decoding.engine.board_for", board_for)
    model = MODELS["window"]
    engine = Engine(model, sampling, 2, model, num_alternatives=3)
    engine.chooser = GpuChooser(sampling, ALPHABET)
    rules = Rules(ALPHABET, OPERATOR_SETS[2], max_length=16)
    drafts = [Draft.edit(range(n), rules, protect(n, [(0, 2)] if n > 2 else [])) for n in (0, 4, 9)]
    asked = [Request(draft, 12, n) for n, draft in enumerate(drafts)]
    wanted = [decode(model, each.draft, sampling, each.max_actions, each.number) for each in asked]
    assert [each.actions for each in engine.write(asked)] == [each.actions for each in wanted]
    assert any(ALPHABET.is_jump(action) for each in wanted for action in each.actions)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_the_captured_step_jumps_as_the_plain_decoder_does(kind: str, ahead: int) -> None:
    model = make_model(kind, OPERATORS, ahead).cuda()
    for sampling in (GREEDY_JUMPS, LIVELY, Sampling(top_k=7, top_p=0.9, min_p=0.02, no_repeat=2, calm=True)):
        engine = Engine(model, sampling, num_rows=3, num_alternatives=3)
        for operators in OPERATOR_SETS:
            rules = Rules(ALPHABET, operators, max_length=22)
            drafts = [Draft.edit(range(n), rules, protect(n, [(0, 2)] if n > 2 else [])) for n in range(6)]
            asked = [Request(draft, 12 + 3 * n, n) for n, draft in enumerate(drafts)]
            wanted = [decode(model, each.draft, sampling, each.max_actions, each.number) for each in asked]
            written = engine.write(asked)
            assert [each.actions for each in written] == [each.actions for each in wanted]
            for one, other in zip(written, wanted, strict=True):
                assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-2)
