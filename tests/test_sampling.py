"""Choosing an action: distributions, truncations, guards, and that a row's choice is its own."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import ALPHABET, states

from reviser.actions import INSERT_MOVE, JUMP, MOVES, OPERATORS, REPLACE
from reviser.canvas import Canvas, Rules, apply, protect, valid_mask
from reviser.decoding.board import Board
from reviser.decoding.cpu.sampling import CpuChooser
from reviser.decoding.sampling import (
    GREEDY,
    PAPER,
    TIES,
    Chooser,
    Sampling,
    calm_bits,
    repeated_tokens,
    seed_tensor,
    uniform,
    uniforms,
)
from reviser.errors import ConfigError
from reviser.model.loss import allowed
from reviser.orders.rng import Random

V, A, PAD, STOP = ALPHABET.num_text, ALPHABET.size, ALPHABET.pad, ALPHABET.stop
INSERT = 1 << 34
EVERYTHING = INSERT | sum(1 << j for j in range(2, 33))
SETTINGS = (
    Sampling(1.0, 0),
    Sampling(0.7, 5),
    Sampling(1.3, 9, top_p=0.8),
    Sampling(1.0, 0, top_p=0.6),
    Sampling(1.0, 0, min_p=0.1),
    Sampling(0.9, 12, top_p=0.9, min_p=0.2),
)


def make_logits(num_rows: int, seed: int = 0, spread: float = 2.0) -> torch.Tensor:
    return torch.randn(num_rows, A, generator=torch.Generator().manual_seed(seed)) * spread


def expected_probabilities(logits: list[float], valid: int, sampling: Sampling) -> dict[int, float]:
    """The rules of a `Sampling` without guards, one step after the other, in plain Python."""
    is_valid = [(valid >> 34 if a < V else valid >> (a - V)) & 1 and a != PAD for a in range(A)]
    scores = {a: logits[a] / sampling.temperature for a in range(A) if is_valid[a]}
    if 0 < sampling.top_k < len(scores):
        lowest = sorted(scores.values(), reverse=True)[sampling.top_k - 1]
        scores = {a: score for a, score in scores.items() if score >= lowest}
    p = _normalised({a: math.exp(score) for a, score in scores.items()})
    kept, mass = {}, 0.0
    for a in sorted(p, key=p.__getitem__, reverse=True):
        if mass < sampling.top_p:
            kept[a] = p[a]
        mass += p[a]
    highest = max(kept.values())
    return _normalised({a: share for a, share in kept.items() if share >= sampling.min_p * highest})


def _normalised(shares: dict[int, float]) -> dict[int, float]:
    return {a: share / sum(shares.values()) for a, share in shares.items()}


@given(st.lists(st.integers(-(1 << 70), 1 << 70), min_size=1, max_size=5), st.integers(0, 5000))
def test_the_device_draws_the_numbers_that_the_host_draws(seeds: list[int], step: int) -> None:
    streams = [Random.of(seed, step) for seed in seeds]
    for draw in range(3):
        drawn = uniforms(seed_tensor(seeds), torch.full((len(seeds),), step), draw)
        assert drawn.tolist() == [uniform(seed, step, draw) for seed in seeds]
        assert drawn.tolist() == [stream.bits32() / 2**32 for stream in streams]
        assert all(0 <= number < 1 for number in drawn.tolist())


def test_the_numbers_of_many_steps_come_at_once() -> None:
    drawn = uniforms(seed_tensor([3, 4])[:, None], torch.arange(1000))
    assert drawn.shape == (2, 1000)
    assert drawn[1, 17].item() == uniform(4, 17)
    assert abs(drawn.mean().item() - 0.5) < 0.02


@given(st.lists(st.integers(0, (1 << 35) - 1), min_size=1, max_size=4), st.integers(0, 99))
def test_log_probabilities_are_a_softmax_over_the_valid_actions(masks: list[int], seed: int) -> None:
    valid = torch.tensor(masks) | 1 << 3
    logits = make_logits(len(masks), seed)
    expected = logits.masked_fill(~allowed(valid, ALPHABET), -torch.inf).log_softmax(-1)
    torch.testing.assert_close(Chooser(PAPER, ALPHABET).log_probabilities(logits, valid), expected)


@given(st.lists(st.integers(0, (1 << 35) - 1), min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=40)
def test_an_action_is_valid_and_comes_with_its_own_log_probability(masks: list[int], seed: int) -> None:
    valid = torch.tensor(masks) & EVERYTHING | 1 << 3
    chance = uniforms(seed_tensor(range(len(masks))), torch.tensor(seed))
    for sampling in (GREEDY, PAPER, *SETTINGS, Sampling(5.0, 0, calm=True, stop_bias=-3.0, move_temperature=2.0)):
        logits, last = make_logits(len(masks), seed), torch.full((len(masks),), ALPHABET.move(-8))
        log_p = logits.masked_fill(~allowed(valid, ALPHABET), -torch.inf).log_softmax(-1)
        actions, scores = Chooser(sampling, ALPHABET).choose(logits, valid, chance, last)
        assert allowed(valid, ALPHABET).gather(1, actions[:, None]).all()
        torch.testing.assert_close(scores, log_p.gather(1, actions[:, None])[:, 0])


@pytest.mark.parametrize("sampling", SETTINGS)
def test_frequencies_match_the_distribution(sampling: Sampling) -> None:
    num = 4000
    logits, valid = make_logits(1, 7, spread=1.0), EVERYTHING & ~(1 << 10)
    expected = expected_probabilities(logits[0].tolist(), valid, sampling)
    chance = uniforms(seed_tensor([11]), torch.arange(num))
    actions, _ = Chooser(sampling, ALPHABET).choose(logits.repeat(num, 1), torch.full((num,), valid), chance)
    counts = torch.bincount(actions, minlength=A).tolist()
    assert {a for a in range(A) if counts[a]} <= set(expected)
    surprise = sum((counts[a] - num * p) ** 2 / (num * p) for a, p in expected.items())
    freedom = len(expected) - 1
    assert surprise < freedom + 4 * math.sqrt(2 * freedom)


@given(st.integers(0, 9999), st.sampled_from(SETTINGS), st.sampled_from([EVERYTHING, INSERT, 1 << 3 | 1 << 9]))
@settings(max_examples=60)
def test_truncation_leaves_what_the_plain_rules_leave(seed: int, sampling: Sampling, valid: int) -> None:
    """Evenly spread numbers land once in every candidate's share and split it as the shares say."""
    num = 2000
    logits = make_logits(1, seed)
    expected = expected_probabilities(logits[0].tolist(), valid, sampling)
    chance = (torch.arange(num, dtype=torch.float64) + 0.5) / num
    actions, _ = Chooser(sampling, ALPHABET).choose(logits.repeat(num, 1), torch.full((num,), valid), chance)
    counts = torch.bincount(actions, minlength=A).tolist()
    for a in range(A):
        assert abs(counts[a] - num * expected.get(a, 0.0)) < 1.01
    assert actions.tolist() == sorted(actions.tolist())


def test_scores_equal_to_the_kth_stay() -> None:
    logits = torch.full((1, A), -4.0)
    logits[0, 5:9] = 1.0
    logits[0, 3] = 2.0
    chance = (torch.arange(100, dtype=torch.float64) + 0.5) / 100
    chooser = Chooser(Sampling(1.0, 2), ALPHABET)
    actions, _ = chooser.choose(logits.repeat(100, 1), torch.full((100,), INSERT), chance)
    assert set(actions.tolist()) == {3, 5, 6, 7, 8}
    alike, _ = chooser.choose(torch.zeros(100, A), torch.full((100,), INSERT), chance)
    assert len(set(alike.tolist())) == 2 + TIES


def test_a_top_k_of_more_than_there_are_is_no_top_k() -> None:
    whole, cut = Chooser(Sampling(1.0, 0), ALPHABET), Chooser(Sampling(1.0, 1000), ALPHABET)
    logits, valid = make_logits(100, 3), torch.full((100,), EVERYTHING)
    chance = uniforms(seed_tensor(range(100)), torch.tensor(0))
    assert torch.equal(whole.choose(logits.clone(), valid, chance)[0], cut.choose(logits, valid, chance)[0])


@given(st.integers(0, 9999))
def test_greedy_is_the_most_probable_and_the_first_of_equals(seed: int) -> None:
    valid = torch.tensor([EVERYTHING, INSERT, 1 << 3 | 1 << 5])
    logits = make_logits(3, seed).round()  # whole numbers, so there are equals
    best = logits.masked_fill(~allowed(valid, ALPHABET), -torch.inf)
    expected = [row.index(max(row)) for row in best.tolist()]
    for number in (0.0, 0.999):
        chance = torch.full((3,), number, dtype=torch.float64)
        actions, _ = Chooser(GREEDY, ALPHABET).choose(logits.clone(), valid, chance)
        assert actions.tolist() == expected


@given(st.integers(0, 9999))
@settings(max_examples=25)
def test_a_row_chooses_alike_alone_and_in_any_batch(seed: int) -> None:
    chance = random.Random(seed)
    valid = torch.tensor([chance.randrange(1 << 35) & EVERYTHING | 1 << 3 for _ in range(7)])
    logits = make_logits(7, seed).bfloat16().float()
    numbers = uniforms(seed_tensor(range(7)), torch.full((7,), seed))
    last = torch.tensor([chance.randrange(A) for _ in range(7)])
    grown, banned = torch.arange(7), torch.randint(0, V, (7, 4), generator=torch.Generator().manual_seed(seed))
    everything_on = Sampling(0.8, 9, 0.9, 0.01, True, 1.0, min_tokens=3, no_repeat=2, calm=True)
    for sampling in (GREEDY, PAPER, *SETTINGS, everything_on):
        chooser = Chooser(sampling, ALPHABET)
        actions, scores = chooser.choose(logits.clone(), valid, numbers, last, grown, banned)
        for row in range(7):
            own = slice(row, row + 1)
            alone = chooser.choose(
                logits[own].clone(), valid[own], numbers[own], last[own], grown[own], banned[own]
            )  # fmt: skip
            assert alone[0].item() == actions[row].item()
            assert alone[1].item() == scores[row].item()


def write(
    sampling: Sampling, num_actions: int, seed: int, rules: Rules, length: int = 0, is_protected: bool = False
) -> tuple[Canvas, list[int]]:
    """A random model's actions: fresh random scores at each step, on a board of one row."""
    marks = protect(length, [(0, length)], [0]) if is_protected else ()
    board, canvas = Board(ALPHABET, rules.operators, 1, rules.max_length), Canvas((1,) * length, length, marks=marks)
    board.load([0], [canvas], [rules], [num_actions])
    chooser, last = Chooser(sampling, ALPHABET), torch.tensor([ALPHABET.start])
    actions: list[int] = []
    for step in range(num_actions):
        logits = make_logits(1, 1000 * seed + step, spread=1.0)
        logits[0, V:] += 2  # few actions against many tokens
        banned = board.repeated(sampling.no_repeat) if sampling.no_repeat else None
        chance = uniforms(seed_tensor([seed]), torch.tensor([step]))
        last, _ = chooser.choose(logits, board.valid(), chance, last, board.grown, banned)
        canvas = apply(canvas, int(last), rules, num_actions - step)
        board.apply(last)
        actions.append(int(last))
        if canvas.is_stopped:
            break
    assert board.canvas(0) == canvas
    return canvas, actions


@pytest.mark.parametrize("length", [0, 30, 1500])
def test_calm_moves_spell_one_distance_each(length: int) -> None:
    rules = Rules(ALPHABET, INSERT_MOVE, max_length=1600)
    longest = 0
    for seed in range(12):
        _, actions = write(Sampling(1.5, 0, stop_bias=-20.0, calm=True), 60, seed, rules, length)
        run: list[int] = []
        for action in [*actions, 0]:
            if ALPHABET.is_move(action):
                run.append(action)
                continue
            longest = max(longest, len(run))
            assert tuple(run) == ALPHABET.spell(sum(map(ALPHABET.distance, run)))
            run = []
    assert longest >= 2 or length == 0


def test_calm_lets_two_moves_follow_each_other_where_they_spell_their_sum() -> None:
    moves = range(V + MOVES, V + REPLACE)
    for first in moves:
        for second in moves:
            distance = ALPHABET.distance(first) + ALPHABET.distance(second)
            is_spelled = distance != 0 and ALPHABET.spell(distance) == (first, second)
            assert bool(calm_bits(first - V) >> (second - V) & 1) == is_spelled


@given(st.lists(st.integers(0, (1 << 35) - 1), min_size=1, max_size=4), st.integers(0, 99))
@settings(max_examples=40)
def test_without_moves_the_cursor_stays_and_the_model_scores_what_is_left(masks: list[int], seed: int) -> None:
    # STOP is valid wherever a move is.
    valid = torch.tensor(masks) & (EVERYTHING | 1 << JUMP) | 1 << 3
    chance = uniforms(seed_tensor(range(len(masks))), torch.tensor(seed))
    last, grown = torch.full((len(masks),), ALPHABET.move(-8)), torch.zeros(len(masks), dtype=torch.int64)
    for more in ({}, {"temperature": 0}, {"calm": True}, {"min_tokens": 3}, {"keep_moves": True, "jump_bias": 9.0}):
        logits = make_logits(len(masks), seed)
        log_p = logits.masked_fill(~allowed(valid, ALPHABET), -torch.inf).log_softmax(-1)
        for kind in (Chooser, CpuChooser):
            chooser = kind(Sampling(**{"moves": False, **more}), ALPHABET, torch.device("cpu"))
            actions, scores = chooser.choose(logits.clone(), valid, chance, last, grown)
            for action, mask in zip(actions.tolist(), valid.tolist(), strict=True):
                assert ALPHABET.operator(action) != "move"
                assert ALPHABET.row(action) != V + JUMP
                assert mask >> (34 if action < V else action - V) & 1
            torch.testing.assert_close(scores, log_p.gather(1, actions[:, None])[:, 0])


def test_without_calm_moves_wander() -> None:
    rules = Rules(ALPHABET, INSERT_MOVE, max_length=400)
    _, actions = write(Sampling(1.5, 0, stop_bias=-20.0), 60, 0, rules, length=30)
    distances = [ALPHABET.distance(action) for action in actions]
    assert any(a * b < 0 for a, b in pairwise(distances))


@pytest.mark.parametrize("operators", [INSERT_MOVE, frozenset(OPERATORS) - {"jump"}])
def test_stop_waits_until_the_canvas_has_grown(operators: frozenset[str]) -> None:
    rules = Rules(ALPHABET, operators, max_length=60)
    sizes = []
    for seed in range(15):
        sampling = Sampling(1.0, 0, stop_bias=3.0, min_tokens=12)
        canvas, actions = write(sampling, 400, seed, rules, length=4, is_protected=True)
        sizes.append(len(canvas.tokens) - 4)
        assert actions[-1] == STOP
    assert min(sizes) == 12


def test_stop_is_there_when_nothing_else_is() -> None:
    canvas, actions = write(Sampling(1.0, 0, min_tokens=99), 50, 0, Rules(ALPHABET, frozenset(), max_length=7))
    assert (len(canvas.tokens), actions[-1], len(actions)) == (7, STOP, 8)


@pytest.mark.parametrize(("bias", "low", "high"), [(-9.0, 60, 60), (0.0, 3, 40), (9.0, 1, 1.2)])
def test_the_stop_bias_sets_how_soon_it_stops(bias: float, low: float, high: float) -> None:
    rules = Rules(ALPHABET, INSERT_MOVE, max_length=400)
    lengths = [len(write(Sampling(1.0, 0, stop_bias=bias), 60, seed, rules)[1]) for seed in range(15)]
    assert low <= sum(lengths) / 15 <= high


def test_moves_have_their_own_temperature() -> None:
    num = 3000
    logits, valid = make_logits(1, 4, spread=1.0), torch.full((num,), EVERYTHING)
    log_p = logits.masked_fill(~allowed(valid[:1], ALPHABET), -torch.inf).log_softmax(-1)[0]
    is_move = torch.tensor([ALPHABET.is_move(a) for a in range(A)])
    expected = torch.where(is_move, log_p / 0.5, log_p / 0.8).softmax(-1)
    chance = (torch.arange(num, dtype=torch.float64) + 0.5) / num
    chooser = Chooser(Sampling(0.8, 0, move_temperature=0.5), ALPHABET)
    actions, _ = chooser.choose(logits.repeat(num, 1) + 100, valid, chance)
    counts = torch.bincount(actions, minlength=A) / num
    assert (counts - expected).abs().max() < 1.01 / num


def test_the_jump_bias_counts_for_the_first_move_alone() -> None:
    logits = make_logits(1, 4, spread=1.0).repeat(2, 1)
    valid, last = torch.full((2,), EVERYTHING), torch.tensor([3, ALPHABET.move(-2)])
    chooser = Chooser(Sampling(1.0, 0, jump_bias=1.5), ALPHABET)
    log_p = chooser.log_probabilities(logits, valid)
    guarded = chooser._guard(log_p, valid, last, None, None)
    is_move = torch.tensor([ALPHABET.is_move(a) for a in range(A)])
    assert torch.equal(guarded[0], torch.where(is_move, log_p[0] + 1.5, log_p[0]))
    assert torch.equal(guarded[1], log_p[1])


@pytest.mark.parametrize(("bias", "is_behind_move"), [(0.0, False), (1.0, False), (1.0, True)])
def test_moves_stay_as_probable_as_the_model_says(bias: float, is_behind_move: bool) -> None:
    num = 4000
    logits, valid = make_logits(1, 4, spread=1.0), torch.full((num,), EVERYTHING)
    log_p = logits.masked_fill(~allowed(valid[:1], ALPHABET), -torch.inf).log_softmax(-1)[0]
    is_move = torch.tensor([ALPHABET.is_move(a) for a in range(A)])
    odds = log_p[is_move].exp().sum() / log_p[~is_move].exp().sum() * math.exp(0 if is_behind_move else bias)
    moves, rest = (log_p.masked_fill(mask, -torch.inf) / 0.5 for mask in (~is_move, is_move))
    rest[rest < rest.topk(3).values[-1]] = -torch.inf
    moves[moves < moves.topk(3).values[-1]] = -torch.inf
    expected = (odds * moves.softmax(-1) + rest.softmax(-1)) / (1 + odds)
    chance = (torch.arange(num, dtype=torch.float64) + 0.5) / num
    last = torch.full((num,), ALPHABET.move(4) if is_behind_move else 0)
    for kind in (Chooser, CpuChooser):
        chooser = kind(Sampling(0.5, 3, keep_moves=True, jump_bias=bias), ALPHABET, torch.device("cpu"))
        actions, _ = chooser.choose(logits.repeat(num, 1) + 100, valid, chance, last)
        counts = torch.bincount(actions, minlength=A) / num
        assert (counts - expected).abs().max() < 2.01 / num


@given(states(), st.integers(1, 4))
def test_repeated_tokens_would_write_an_n_gram_again(state: tuple[Canvas, Rules], size: int) -> None:
    canvas, _ = state
    named = repeated_tokens(canvas, size)
    left, right = canvas.tokens[: canvas.cursor - canvas.is_replacing], canvas.tokens[canvas.cursor :]
    for token in range(V - 1):
        gram = (*left, token)[-size:]
        places = [side[i : i + size] for side in (left, right) for i in range(len(side))]
        assert (token in named) == (len(gram) == size and gram in places)


def test_an_n_gram_across_the_cursor_does_not_count() -> None:
    assert repeated_tokens(Canvas((1, 2, 3, 1, 5), 4), 2) == {2}
    assert repeated_tokens(Canvas((1, 2), 1), 2) == set()
    assert repeated_tokens(Canvas((4, 1, 2, 1, 9), 1), 1) == {4, 1, 2, 9}
    assert repeated_tokens(Canvas((1, 2, 3, 1, 7), 5, is_replacing=True), 2) == {2}


def test_no_n_gram_is_written_twice_at_the_end() -> None:
    rules = Rules(ALPHABET, frozenset(), max_length=60)
    for seed in range(4):
        tokens = write(Sampling(0.7, 6, stop_bias=-20.0, no_repeat=2), 50, seed, rules)[0].tokens
        pairs = list(pairwise(tokens))
        assert len(pairs) == 49
        assert len(set(pairs)) == 49


def test_a_repetition_is_allowed_where_nothing_else_is_valid() -> None:
    banned = torch.arange(V).repeat(2, 1)
    chooser = Chooser(Sampling(1.0, 0, no_repeat=1), ALPHABET)
    chance = torch.tensor([0.5, 0.5], dtype=torch.float64)
    actions, _ = chooser.choose(make_logits(2), torch.tensor([INSERT, INSERT | 1 << 3]), chance, banned=banned)
    assert actions[0] < V
    assert actions[1] == STOP


def test_choosing_is_one_graph() -> None:
    """Nothing goes to the host, so that a CUDA graph can hold it."""
    sampling = Sampling(0.8, 9, 0.9, 0.01, True, 1.0, min_tokens=3, no_repeat=2, calm=True)
    chooser = Chooser(sampling, ALPHABET)
    compiled = torch.compile(chooser.choose, backend="aot_eager", fullgraph=True)
    valid, last = torch.tensor([EVERYTHING, INSERT, 1 << 3]), torch.full((3,), ALPHABET.move(4))
    chance, banned = uniforms(seed_tensor([1, 2, 3]), torch.tensor(0)), torch.full((3, 5), 7)
    expected = chooser.choose(make_logits(3), valid, chance, last, torch.arange(3), banned)
    got = compiled(make_logits(3), valid, chance, last, torch.arange(3), banned)
    assert torch.equal(got[0], expected[0])
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"temperature": -1.0}, "temperature=-1.0 must be finite and 0 or more"),
        ({"temperature": math.inf}, "temperature=inf must be finite and 0 or more"),
        ({"top_k": -1}, "top_k=-1 must be 0 or more"),
        ({"top_p": 0.0}, "top_p=0.0 must be above 0 and at most 1"),
        ({"top_p": math.nan}, "top_p=nan must be above 0 and at most 1"),
        ({"min_p": 1.5}, "min_p=1.5 must be between 0 and 1"),
        ({"stop_bias": math.nan}, "stop_bias=nan must be finite"),
        ({"jump_bias": math.inf}, "jump_bias=inf must be finite"),
        ({"min_tokens": -2}, "min_tokens=-2 must be 0 or more"),
        ({"min_tokens": 10**30}, f"min_tokens={10**30} must be at most 2147483647"),
        ({"top_k": 2**31}, "top_k=2147483648 must be at most 2147483647"),
        ({"no_repeat": -3}, "no_repeat=-3 must be 0 or more"),
        ({"move_temperature": 0.0}, "move_temperature=0.0 must be finite and above 0"),
        (
            {"temperature": 0.0, "move_temperature": 0.5},
            "move_temperature=0.5 means nothing at temperature=0; drop one",
        ),
        ({"temperature": 0.0, "keep_moves": True}, "keep_moves=True means nothing at temperature=0; drop one"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Sampling(**change)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"calm": True}, "sampling with calm needs last"),
        ({"min_tokens": 1}, "sampling with min_tokens needs grown"),
        ({"no_repeat": 2}, "sampling with no_repeat needs banned"),
    ],
)
def test_a_guard_without_what_it_looks_at_is_refused(change: dict[str, Any], text: str) -> None:
    chooser = Chooser(Sampling(**change), ALPHABET)
    with pytest.raises(ValueError, match=f"^{text}$"):
        chooser.choose(make_logits(1), torch.tensor([EVERYTHING]), torch.zeros(1, dtype=torch.float64))


def test_the_mask_of_a_canvas_is_what_the_chooser_reads() -> None:
    canvas, rules = Canvas((1, 2), 1), Rules(ALPHABET, frozenset(), max_length=2)
    valid = torch.tensor([valid_mask(canvas, rules)])
    actions, scores = Chooser(PAPER, ALPHABET).choose(make_logits(1), valid, torch.zeros(1, dtype=torch.float64))
    assert (actions.item(), scores.item()) == (STOP, 0.0)
