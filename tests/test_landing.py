"""Where a JUMP goes: the draw among landings, the guards that know JUMPs, and that all choosers land alike."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import ALPHABET

from reviser.actions import JUMP, MOVES, REPLACE
from reviser.decoding.cpu.sampling import CpuChooser
from reviser.decoding.sampling import GREEDY, Chooser, Sampling, calm_bits
from reviser.model.pointer import score_landings

V, A, STOP = ALPHABET.num_text, ALPHABET.size, ALPHABET.stop
ROW = V + JUMP
EVERYTHING = 1 << 34 | sum(1 << j for j in range(2, 34))
IS_MOVING = torch.tensor([ALPHABET.is_move(a) or a == ROW for a in range(A)])

landing_samplings = st.sampled_from([
    GREEDY, Sampling(0.7, 3), Sampling(1.0, 0, top_p=0.5), Sampling(1.0, 5, move_temperature=0.3),
    Sampling(2.0, 5, min_p=0.2, calm=True),
])  # fmt: skip


def make_logits(num_rows: int, seed: int) -> torch.Tensor:
    return torch.randn(num_rows, A, generator=torch.Generator().manual_seed(seed))


def even(num: int) -> torch.Tensor:
    return (torch.arange(num, dtype=torch.float64) + 0.5) / num


def log_probabilities(logits: torch.Tensor) -> torch.Tensor:
    return Chooser(GREEDY, ALPHABET).log_probabilities(logits.clone(), torch.full((len(logits),), EVERYTHING))


@given(st.lists(st.floats(-3, 3) | st.just(-math.inf), min_size=1, max_size=12), landing_samplings)
def test_landings_come_as_often_as_their_probabilities_say(scores: list[float], sampling: Sampling) -> None:
    num, chooser = 1000, Chooser(sampling, ALPHABET)
    log_p = torch.tensor([scores]).log_softmax(-1).nan_to_num(-math.inf, neginf=-math.inf)
    drawn = chooser.draw_landing(log_p.repeat(num, 1), even(num))
    counts = torch.bincount(drawn, minlength=len(scores))
    if max(scores) == -math.inf:
        return
    assert not counts[log_p[0] == -math.inf].any()
    if chooser.landing_temperature == 0:
        assert set(drawn.tolist()) == {log_p[0].tolist().index(log_p.max())}
        return
    expected = num * (log_p[0].double() / chooser.landing_temperature).softmax(-1)
    assert (counts - expected).abs().max() < 1.01
    assert drawn.tolist() == sorted(drawn.tolist())


@pytest.mark.parametrize(
    ("sampling", "temperature"),
    [(Sampling(0.7), 0.7), (Sampling(0.7, move_temperature=0.4), 0.4), (GREEDY, 0)],
)
def test_landings_have_the_temperature_of_moves(sampling: Sampling, temperature: float) -> None:
    assert Chooser(sampling, ALPHABET).landing_temperature == temperature


@st.composite
def landings(draw: Any) -> dict[str, torch.Tensor]:
    """Rows of which some jump, with any births."""
    B, L, S, P = (draw(st.integers(1, most)) for most in (4, 12, 20, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 30)))

    def whole(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator)

    births = whole(S, B, L).masked_fill(whole(3, B, L) == 0, -1)
    is_jump = (births >= 0).any(dim=1) & (whole(4, B) > 0)
    return {
        "actions": torch.where(is_jump, ROW, whole(V, B)),
        "queries": torch.randn(B, P, generator=generator),
        "keys": torch.randn(B, S, P, generator=generator).round(decimals=draw(st.sampled_from([0, 5]))),
        "births": births,
        "uniforms": torch.rand(B, generator=generator, dtype=torch.float64),
    }


def assert_landed(chooser: Chooser, given_rows: dict[str, torch.Tensor], device: str = "cpu") -> None:
    plain, rows = Chooser(chooser.sampling, ALPHABET, device), {k: v.to(device) for k, v in given_rows.items()}
    wanted, expected = plain.land(**rows)
    got, scores = chooser.land(**rows)
    assert got.tolist() == wanted.tolist()
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)


@given(landing_samplings, landings())
def test_a_chosen_row_becomes_a_jump_to_a_valid_landing(sampling: Sampling, rows: dict[str, torch.Tensor]) -> None:
    chosen, scores = Chooser(sampling, ALPHABET).land(**rows)
    log_p = score_landings(rows["queries"], rows["keys"], rows["births"])
    for row, (before, action, score) in enumerate(
        zip(rows["actions"], chosen.tolist(), scores.tolist(), strict=True)
    ):
        if before != ROW:
            assert (action, score) == (before, 0.0)
            continue
        assert rows["births"][row, ALPHABET.landing(action)] >= 0
        assert score == log_p[row, ALPHABET.landing(action)]


@given(landing_samplings, landings())
def test_the_cpus_chooser_lands_where_the_plain_one_does(sampling: Sampling, rows: dict[str, torch.Tensor]) -> None:
    assert_landed(CpuChooser(sampling, ALPHABET), rows)


@settings(max_examples=25)
@given(landing_samplings, landings())
def test_the_gpus_chooser_lands_where_the_plain_one_does(sampling: Sampling, rows: dict[str, torch.Tensor]) -> None:
    pytest.importorskip("triton", reason="Triton comes with the `kernels` extra and with torch for CUDA")
    from reviser.decoding.gpu.sampling import GpuChooser

    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert_landed(GpuChooser(sampling, ALPHABET, device), rows, device)


@given(landings())
def test_the_first_of_equal_landings_is_the_best(rows: dict[str, torch.Tensor]) -> None:
    rows["keys"] = torch.zeros_like(rows["keys"])
    for kind in (Chooser, CpuChooser):
        chosen, _ = kind(GREEDY, ALPHABET).land(**rows)
        for births, action in zip(rows["births"].tolist(), chosen.tolist(), strict=True):
            if ALPHABET.is_jump(action):
                assert ALPHABET.landing(action) == min(place for place, birth in enumerate(births) if birth >= 0)


def test_calm_jumps_stand_alone() -> None:
    moving = sum(1 << j for j in (*range(MOVES, REPLACE), JUMP))
    assert calm_bits(JUMP) & moving == 0
    for move in range(MOVES, REPLACE):
        assert not calm_bits(move) >> JUMP & 1
    assert calm_bits(0) >> JUMP & 1
    # A JUMP before is any of them.
    last, logits = torch.tensor([ROW, ALPHABET.jump(0), ALPHABET.jump(700), STOP]), torch.full((4, A), -9.0)
    logits[:, ROW] = 9.0
    for kind in (Chooser, CpuChooser):
        chooser = kind(Sampling(1.0, 5, calm=True), ALPHABET)
        chosen, _ = chooser.choose(logits.clone(), torch.full((4,), EVERYTHING), even(4), last)
        assert not IS_MOVING[chosen[:3]].any()
        assert chosen[3] == ROW


def test_the_jump_bias_counts_for_a_jump_that_follows_no_move() -> None:
    last = torch.tensor([3, ALPHABET.move(-2), ALPHABET.jump(5)])
    log_p, valid = log_probabilities(make_logits(1, 4).repeat(3, 1)), torch.full((3,), EVERYTHING)
    guarded = Chooser(Sampling(1.0, 0, jump_bias=1.5), ALPHABET)._guard(log_p, valid, last, None, None)
    assert torch.equal(guarded[0], torch.where(IS_MOVING, log_p[0] + 1.5, log_p[0]))
    assert torch.equal(guarded[1:], log_p[1:])


def test_a_jump_has_the_temperature_of_moves() -> None:
    num, logits = 3000, make_logits(1, 5)
    log_p = log_probabilities(logits)[0]
    expected = torch.where(IS_MOVING, log_p / 0.5, log_p / 0.8).softmax(-1)
    chooser = Chooser(Sampling(0.8, 0, move_temperature=0.5), ALPHABET)
    actions, _ = chooser.choose(logits.repeat(num, 1), torch.full((num,), EVERYTHING), even(num))
    assert (torch.bincount(actions, minlength=A) / num - expected).abs().max() < 1.01 / num


@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("before", [0, ALPHABET.jump(3)])
def test_moves_and_jumps_stay_as_probable_as_the_model_says(bias: float, before: int) -> None:
    num, logits = 4000, make_logits(1, 4)
    logits[0, ROW] = 2.0
    log_p = log_probabilities(logits)[0]
    odds = log_p[IS_MOVING].exp().sum() / log_p[~IS_MOVING].exp().sum() * math.exp(0 if before else bias)
    moves, rest = (log_p.masked_fill(mask, -torch.inf) / 0.5 for mask in (~IS_MOVING, IS_MOVING))
    for part in (moves, rest):
        part[part < part.topk(3).values[-1]] = -torch.inf
    expected = (odds * moves.softmax(-1) + rest.softmax(-1)) / (1 + odds)
    for kind in (Chooser, CpuChooser):
        chooser = kind(Sampling(0.5, 3, keep_moves=True, jump_bias=bias), ALPHABET)
        valid, last = torch.full((num,), EVERYTHING), torch.full((num,), before)
        actions, _ = chooser.choose(logits.repeat(num, 1), valid, even(num), last)
        assert actions.eq(ROW).any()
        assert (torch.bincount(actions, minlength=A) / num - expected).abs().max() < 2.01 / num


def test_landing_is_one_graph() -> None:
    """Nothing goes to the host, so that a CUDA graph can hold it."""
    chooser = Chooser(Sampling(0.8, 9), ALPHABET)
    compiled = torch.compile(chooser.land, backend="aot_eager", fullgraph=True)
    rows = torch.tensor([ROW, 3]), torch.randn(2, 4), torch.randn(2, 9, 4)
    rows = *rows, torch.tensor([[0, 3, -1], [-1, -1, -1]]), torch.tensor([0.3, 0.9], dtype=torch.float64)
    assert torch.equal(compiled(*rows)[0], chooser.land(*rows)[0])
    torch._dynamo.reset()
