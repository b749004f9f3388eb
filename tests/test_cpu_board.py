"""The CPU's board and chooser do what the plain ones do."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import ALPHABET, states
from test_board import KERNEL_SETS, Checked, keep_text, run_long
from test_engine import samplings

from reviser.actions import INSERT_MOVE, OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules
from reviser.decoding.backends import board_for
from reviser.decoding.board import Board
from reviser.decoding.cpu.board import CpuBoard
from reviser.decoding.cpu.cells import KERNEL_OPERATORS
from reviser.decoding.cpu.sampling import CpuChooser
from reviser.decoding.sampling import Chooser, Sampling


@settings(max_examples=40)
@given(KERNEL_SETS, st.integers(0, 3), st.integers(0, 1 << 30), st.data())
def test_every_row_is_the_canvas_of_the_executor_after_every_action(operators, spare, number, data):
    rows = data.draw(st.lists(st.tuples(states(operators), st.integers(1, 40)), min_size=1, max_size=5))
    room = max(rules.max_length for (_, rules), _ in rows) + spare
    board = CpuBoard(ALPHABET, operators, len(rows), room)
    checked, chance = Checked(board, [(*state, left) for state, left in rows], number % 3), random.Random(number)
    checked.check()
    for _ in range(25):
        checked.step(chance)
        checked.check()


@given(
    st.lists(st.integers(0, ALPHABET.size + 20) | st.just(1 << 50), max_size=60),
    st.sampled_from([INSERT_MOVE, KERNEL_OPERATORS]),
    st.sampled_from([(), (2, 3, 1, 0), (0, 1, 0, 3)]),
)
def test_actions_that_are_not_valid_spoil_their_own_row_alone(actions, operators, marks):
    board = CpuBoard(ALPHABET, operators, num_rows=3, max_length=9)
    rules, canvas = Rules(ALPHABET, operators, max_length=9), Canvas((1, 2, 3), 2, marks=marks)
    board.load([0, 1, 2], [canvas] * 3, [rules] * 3, [1 << 30] * 3)
    board.left[0] = board.left[2] = 0
    for action in actions:
        board.apply(torch.tensor([action] * 3))
        board.valid()
        board.windows(2)
        board.landings()
        assert 0 <= int(board.cursor[1]) <= int(board.length[1]) <= 9
    assert board.canvases([0, 2]) == [canvas] * 2


@pytest.mark.slow
@pytest.mark.parametrize("operators", [INSERT_MOVE, KERNEL_OPERATORS])
@pytest.mark.parametrize(("room", "num_steps", "every"), [(12, 200, 1), (1100, 400, 20)])
def test_full_and_long_canvases_take_many_actions(operators, room, num_steps, every):
    run_long(CpuBoard(ALPHABET, operators, 8, room), num_steps, every)


@given(KERNEL_SETS, st.integers(0, 1 << 30))
def test_what_a_board_allows_leaves_protected_text_whole(operators, number):
    keep_text(CpuBoard(ALPHABET, operators, 4, 14), random.Random(number), num_steps=30)


@given(st.frozensets(st.sampled_from(OPERATORS)))
def test_rules_with_an_operator_that_the_kernels_lack_get_the_plain_board(operators):
    board = board_for(Rules(ALPHABET, operators, max_length=9), 2, 9, torch.device("cpu"), window=2)
    assert type(board) is (CpuBoard if operators <= KERNEL_OPERATORS else Board)
    assert board.operators == operators


@pytest.mark.parametrize("name", sorted(frozenset(OPERATORS) - KERNEL_OPERATORS))
def test_the_kernels_refuse_an_operator_they_lack(name):
    with pytest.raises(ValueError, match=f"^no fast board for {name}; use Board$"):
        CpuBoard(ALPHABET, {"move", name}, num_rows=1, max_length=9)


def test_a_board_that_was_loaded_again_is_the_same_memory():
    boards = [kind(ALPHABET, INSERT_MOVE, 1, 9) for kind in (Board, CpuBoard)]
    rules = Rules(ALPHABET, INSERT_MOVE, max_length=9)
    for board in boards:
        for tokens in ((1, 2), (3,)):
            board.load([0], [Canvas(tokens, 1)], [rules], [5])
            board.apply(torch.tensor([7]))
    assert boards[0].canvas(0) == boards[1].canvas(0) == Canvas((3, 7), 2)


@settings(max_examples=80)
@given(samplings | st.just(Sampling(top_k=5, temperature=0.1)), st.integers(1, 4), st.integers(0, 1 << 30), st.data())
def test_it_chooses_what_the_chooser_chooses(sampling, num_rows, seed, data):
    alphabet = Alphabet(num_text=60, pad=59)
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(num_rows, alphabet.size, generator=generator)
    # STOP is always valid.
    masks = data.draw(st.lists(st.integers(0, (1 << 35) - 1), min_size=num_rows, max_size=num_rows))
    valid = torch.tensor([mask | 1 << 3 for mask in masks])
    chances = torch.rand(num_rows, generator=generator, dtype=torch.float64)
    beside = {
        "last": torch.randint(0, alphabet.size, (num_rows,), generator=generator),
        "grown": torch.randint(0, 6, (num_rows,), generator=generator),
        "banned": torch.randint(0, 60, (num_rows, 3), generator=generator),
    }
    plain, fast = (kind(sampling, alphabet) for kind in (Chooser, CpuChooser))
    expected, expected_scores = plain.choose(logits.clone(), valid, chances, **beside)
    found, scores = fast.choose(logits.clone(), valid, chances, **beside)
    assert found.tolist() == expected.tolist()
    assert scores.tolist() == pytest.approx(expected_scores.tolist(), abs=1e-5)
    for given_logits in (logits, logits.to(torch.bfloat16), logits.T.contiguous().T):
        log_p = [each.log_probabilities(given_logits.clone(), valid) for each in (plain, fast)]
        assert log_p[1].dtype == torch.float32
        assert torch.allclose(*log_p, atol=1e-5)


def test_equal_scores_stay_together_whatever_top_k_says():
    alphabet, valid = Alphabet(num_text=60, pad=59), torch.tensor([(1 << 35) - 1])
    logits = torch.zeros(1, alphabet.size)
    logits[0, 7] = logits[0, 9] = 5.0
    for chance in (0.0, 0.3, 0.6, 0.99):
        chosen = [
            kind(Sampling(top_k=1), alphabet).choose(logits.clone(), valid, torch.tensor([chance]).double())
            for kind in (Chooser, CpuChooser)
        ]
        assert int(chosen[0][0]) == int(chosen[1][0]) == (7 if chance < 0.5 else 9)
