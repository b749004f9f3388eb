"""The board of one Triton kernel, run by Triton's interpreter on a CPU, beside the plain board."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import ALPHABET, random_canvas, random_marks, states
from test_board import KERNEL_SETS, choose, keep_text, landings_of

from reviser.actions import INSERT_MOVE
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, valid_mask
from reviser.decoding.board import Board
from reviser.decoding.cpu.cells import KERNEL_OPERATORS, NUMBERS

pytest.importorskip("triton", reason="Triton comes with the `kernels` extra and with torch for CUDA")
from reviser.decoding.gpu.board import GpuBoard

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NUM_STEPS = 400 if torch.cuda.is_available() else 20
"""The interpreter takes milliseconds for every row."""
ALL = KERNEL_OPERATORS
Row = tuple[Canvas, Rules, int]


class Pair:
    """The same rows on both boards."""

    def __init__(self, operators: frozenset[str], num_rows: int, room: int, width: int) -> None:
        self.plain = Board(ALPHABET, operators, num_rows, room, DEVICE)
        self.fast = GpuBoard(ALPHABET, operators, num_rows, room, DEVICE, width=width)

    def load(self, places: list[int], rows: list[Row]) -> None:
        for board in (self.plain, self.fast):
            board.load(places, *map(list, zip(*rows, strict=True)))

    def actions(self, chance: random.Random) -> list[int]:
        """One valid action for every row, chosen among kinds of actions; any at all where a row is idle."""
        chosen = [choose(mask, places, chance) for mask, places in seen(self.plain)]
        idle = self.plain.left.tolist()
        return [a if left else chance.randrange(ALPHABET.size + 20) for a, left in zip(chosen, idle, strict=True)]

    def step(self, chance: random.Random) -> None:
        actions = torch.tensor(self.actions(chance), device=DEVICE)
        self.plain.apply(actions)
        self.fast.apply(actions)

    def check(self) -> None:
        plain, fast = self.plain, self.fast
        # The last cell takes writes meant for nowhere, and nobody reads it.
        assert torch.equal(fast.cells[:, :-1], plain.cells[:, :-1])
        for name in NUMBERS:
            assert torch.equal(getattr(fast, name), getattr(plain, name)), name
        assert torch.equal(fast.valid(), plain.valid())
        assert torch.equal(fast.landings(), plain.landings())
        for width in (1, 4):
            assert torch.equal(fast.windows(width), plain.windows(width))


def seen(board: Board) -> list[tuple[int, list[int]]]:
    """For every row the mask of valid actions, and where a JUMP may go."""
    return list(zip(board.valid().tolist(), landings_of(board), strict=True))


@st.composite
def batches(draw: st.DrawFn) -> tuple[Pair, list[Row]]:
    """Boards, and rows that fit them: one for each row but the last, and one to load later."""
    operators = draw(KERNEL_SETS)
    rows = draw(st.lists(st.tuples(states(operators), st.integers(1, 20)), min_size=2, max_size=4))
    room = max(rules.max_length for (_, rules), _ in rows) + draw(st.integers(0, 3))
    pair = Pair(operators, len(rows), room, width=draw(st.sampled_from([0, 1, 4])))
    return pair, [(*state, left) for state, left in rows]


@given(batches(), st.integers(0, 1 << 30))
@settings(max_examples=16 if torch.cuda.is_available() else 3)
def test_the_fast_board_is_the_plain_one_after_every_action(batch: tuple[Pair, list[Row]], number: int) -> None:
    (pair, rows), chance = batch, random.Random(number)
    pair.check()
    pair.load(list(range(len(rows) - 1)), rows[:-1])
    pair.check()
    for step in range(16):
        if step == 8:
            pair.load([chance.randrange(len(rows))], rows[-1:])
            pair.check()
        pair.step(chance)
        pair.check()


@pytest.mark.slow
@pytest.mark.parametrize("operators", [INSERT_MOVE, ALL])
@pytest.mark.parametrize("room", [12, 1100])
def test_full_and_long_canvases_take_many_actions(operators: frozenset[str], room: int) -> None:
    """Many warps to a row, or a canvas that is often full; idle rows are loaded again."""
    chance, rows = random.Random(5), []
    for row in range(4):
        size, rules = room - 4, Rules(ALPHABET, operators, max_length=room - row)
        tokens = tuple(chance.choices(range(39), k=size))
        rows.append((random_canvas(tokens, random_marks(size, chance), chance), rules, 1 << 30))
    pair = Pair(operators, 4, room, width=4)
    pair.load(list(range(4)), rows)
    for _ in range(NUM_STEPS):
        pair.step(chance)
        pair.check()
        idle = [row for row, left in enumerate(pair.plain.left.tolist()) if left == 0]
        if idle:
            pair.load(idle, [rows[row] for row in idle])


@pytest.mark.slow
@given(KERNEL_SETS, st.integers(0, 1 << 30))
@settings(max_examples=3)
def test_what_a_board_allows_leaves_protected_text_whole(operators: frozenset[str], number: int) -> None:
    keep_text(GpuBoard(ALPHABET, operators, 3, 14, DEVICE), random.Random(number), num_steps=20)


@pytest.mark.slow
@pytest.mark.parametrize("operators", [pytest.param(INSERT_MOVE, marks=pytest.mark.slow), ALL])
def test_an_idle_row_may_only_stop_and_never_changes(operators: frozenset[str]) -> None:
    pair, rules = Pair(operators, 3, 9, width=1), Rules(ALPHABET, operators, max_length=9)
    pair.load([1, 2], [(Canvas((1, 2), 1), rules, 5), (Canvas((3,), 1), rules, 1)])
    board = pair.fast
    board.apply(torch.tensor([7, ALPHABET.stop, 8], device=DEVICE))
    before = board.canvases([0, 1, 2])
    assert before == [Canvas(), Canvas((1, 2), 1, is_stopped=True), Canvas((3, 8), 2)]
    for action in (0, 38, *range(40, ALPHABET.size + 5)):
        board.apply(torch.full((3,), action, device=DEVICE))
        assert board.valid().tolist() == [1 << 3] * 3
        assert (board.landings() == -1).all()
    assert board.canvases([0, 1, 2]) == before


@pytest.mark.slow
@given(st.sampled_from([INSERT_MOVE, ALL, frozenset({"replace"})]), st.integers(0, 1 << 30))
@settings(max_examples=3)
def test_invalid_actions_spoil_their_own_row_alone(operators: frozenset[str], number: int) -> None:
    chance, rules = random.Random(number), Rules(ALPHABET, operators, max_length=12)
    canvas = Canvas((1, 2, 3, 4), 2, marks=chance.choice([(), (CLOSED, FIXED | CLOSED, FIXED, 0, FIXED)]))
    board = GpuBoard(ALPHABET, operators, 3, 12, DEVICE, width=3)
    calm = Board(ALPHABET, operators, 3, 12, DEVICE)
    for each in (board, calm):
        each.load([0, 1, 2], [canvas] * 3, [rules] * 3, [1 << 30] * 3)
    for _ in range(20):
        actions = [choose(mask & ~8 or 8, places, chance) for mask, places in seen(calm)]
        calm.apply(torch.tensor(actions, device=DEVICE))
        actions[1] = chance.choice(
            [7, *range(40, ALPHABET.stop), *range(ALPHABET.stop + 1, ALPHABET.jump(20)), 1 << 50]
        )
        board.apply(torch.tensor(actions, device=DEVICE))
        assert board.canvases([0, 2]) == calm.canvases([0, 2])
        for got, expected in (
            (board.valid(), calm.valid()),
            (board.windows(3), calm.windows(3)),
            (board.landings(), calm.landings()),
        ):
            assert torch.equal(got[::2], expected[::2])
        board.rows(), board.repeated(2)
    board.load([1], [canvas], [rules], [3])
    assert board.canvas(1) == canvas
    assert board.windows(3)[1].tolist() == list(canvas.window(3, ALPHABET.none))
    assert int(board.valid()[1]) == valid_mask(canvas, rules, 3)


def test_the_kernel_refuses_an_operator_it_lacks() -> None:
    with pytest.raises(ValueError, match=r"^no fast board for paste, swap; use Board$"):
        GpuBoard(ALPHABET, {"move", "swap", "paste"}, 1, 9, DEVICE)


def test_nothing_moves_in_memory() -> None:
    """Nor does the kernel write outside its rows, or ask that the actions lie side by side."""
    pair, rules = Pair(ALL, 2, 12, width=2), Rules(ALPHABET, ALL, max_length=12)
    board, canvas = pair.fast, Canvas((1, 2, 3, 4), 3, marks=(CLOSED, FIXED, 0, 0, FIXED))
    pair.load([0, 1], [(canvas, rules, 99), (Canvas((5, 6), 2), rules, 99)])
    valid, windows, landings = board.valid(), board.windows(2), board.landings()
    names = [name for name, value in vars(board).items() if isinstance(value, torch.Tensor)]
    before = [getattr(board, name).data_ptr() for name in names]
    for actions in ([ALPHABET.delete, 7], [6, ALPHABET.move(-1)], [ALPHABET.jump(1), ALPHABET.replace], [8, 9]):
        columns = torch.tensor([[action, 11] for action in actions], device=DEVICE)
        board.apply(columns[:, 0])
        pair.plain.apply(columns[:, 0])
        pair.check()
    assert [getattr(board, name).data_ptr() for name in names] == before
    assert board.valid() is valid
    assert board.windows(2) is windows
    assert board.landings() is landings


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are CUDA's")
@pytest.mark.parametrize("operators", [INSERT_MOVE, ALL])
def test_a_step_is_captured_as_a_graph(operators: frozenset[str]) -> None:
    pair, chance = Pair(operators, 3, 300, width=4), random.Random(3)
    rows = [(Canvas((1, 2, 3, 4), row), Rules(ALPHABET, operators, max_length=300), 250) for row in range(3)]
    actions, graph = torch.zeros(3, dtype=torch.int64, device=DEVICE), torch.cuda.CUDAGraph()
    pair.fast.apply(actions)
    with torch.cuda.graph(graph):
        pair.fast.apply(actions)
    pair.load([0, 1, 2], rows)
    for _ in range(300):
        actions.copy_(torch.tensor(pair.actions(chance)))
        pair.plain.apply(actions)
        graph.replay()
        pair.check()
