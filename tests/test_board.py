"""The board: every row is canvas.py's canvas after every action, and rows are nobody else's business."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import ALPHABET, random_canvas, random_marks, states

from reviser.actions import INSERT_MOVE, OPERATORS, Alphabet
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, apply, valid_landings, valid_mask
from reviser.decoding.board import Board
from reviser.decoding.cpu.cells import BIRTH_AT, KERNEL_OPERATORS
from reviser.decoding.sampling import repeated_tokens
from reviser.errors import ConfigError
from reviser.orders.history import follow_births

ALL = frozenset(OPERATORS)
STOP_ONLY = 1 << 3
OPERATOR_SETS = st.sampled_from([INSERT_MOVE, INSERT_MOVE | {"jump"}, ALL]) | st.frozensets(
    st.sampled_from(OPERATORS)
)
KERNEL_SETS = st.frozensets(st.sampled_from(sorted(KERNEL_OPERATORS)))
"""What the boards of cpu/ and gpu/ know."""


class Checked:
    """Rows on a board beside the canvases they should be."""

    def __init__(self, board: Board, rows: list[tuple[Canvas, Rules, int]], first: int = 1) -> None:
        self.board, self.canvases = board, [canvas for canvas, _, _ in rows]
        self.rules, self.left = [rules for _, rules, _ in rows], [left for _, _, left in rows]
        sizes = [len(canvas.tokens) for canvas in self.canvases]
        self.births = [tuple(range(first, first + size)) for size in sizes]
        self.ages = [first + size + 2 for size in sizes]
        board.load(range(len(rows)), self.canvases, self.rules, self.left, self.births, self.ages)

    def load(self, row: int, canvas: Canvas, rules: Rules, left: int) -> None:
        """Another canvas in a row, which nobody moved on since it was inserted."""
        size = len(canvas.tokens)
        self.board.load([row], [canvas], [rules], [left])
        self.canvases[row], self.rules[row], self.left[row] = canvas, rules, left
        self.births[row], self.ages[row] = tuple(range(1, size + 1)), size + 1

    def masks(self) -> list[int]:
        states = zip(self.canvases, self.rules, self.left, strict=True)
        return [valid_mask(*state) or STOP_ONLY for state in states]

    def step(self, chance: random.Random) -> None:
        """One valid action in every row, chosen among kinds of actions; any at all where a row is idle."""
        actions = []
        for row, mask in enumerate(self.masks()):
            canvas, rules, left = self.canvases[row], self.rules[row], self.left[row]
            if canvas.is_stopped or left == 0:
                actions.append(chance.randrange(ALPHABET.size + 30))
                continue
            action = choose(mask, valid_landings(canvas, rules, left), chance)
            actions.append(action)
            self.births[row] = follow_births(self.births[row], canvas, action, self.ages[row], ALPHABET)
            self.canvases[row] = apply(canvas, action, rules, left)
            self.left[row] = 0 if action == ALPHABET.stop else left - 1
            self.ages[row] += 1
        self.board.apply(torch.tensor(actions))

    def check(self) -> None:
        board, none = self.board, ALPHABET.none
        assert board.canvases(range(len(self.canvases))) == self.canvases
        assert board.valid().tolist() == self.masks()
        assert board.left.tolist() == self.left
        assert board.age.tolist() == self.ages
        self.check_births()
        for width in (1, 4):
            assert board.windows(width).tolist() == [list(c.window(width, none)) for c in self.canvases]
        for canvas, row in zip(self.canvases, board.rows().tolist(), strict=True):
            shown = [*canvas.tokens[: canvas.cursor], none, *canvas.tokens[canvas.cursor :]]
            assert row == shown + [-1] * (board.max_length + 1 - len(shown))
        for size in (1, 2, 3):
            for canvas, row in zip(self.canvases, board.repeated(size).tolist(), strict=True):
                assert set(row) - {ALPHABET.pad} == repeated_tokens(canvas, size)

    def check_births(self) -> None:
        landings, cells = self.board.landings().tolist(), self.board.cells.tolist()
        for row, (canvas, births) in enumerate(zip(self.canvases, self.births, strict=True)):
            assert [cell >> BIRTH_AT for cell in cells[row][: len(births) + 1]] == [0, *births]
            assert cells[row][len(births) + 1 : -1] == [ALPHABET.none] * (self.board.max_length + 1 - len(births))
            expected = [-1] * (self.board.max_length + 1)
            for place in valid_landings(canvas, self.rules[row], self.left[row]):
                expected[place] = births[place - 1] if place else 0
            assert landings[row] == expected


def choose(mask: int, landings: list[int], chance: random.Random) -> int:
    """A valid action; INSERTs more often than others, or canvases would never be full."""
    offset = chance.choice([j for j in [*range(35), *[34] * 9] if mask >> j & 1])
    if offset == 33:
        return ALPHABET.jump(chance.choice(landings))
    return chance.randrange(5) if offset == 34 else ALPHABET.num_text + offset


@st.composite
def batches(draw: st.DrawFn) -> tuple[Board, list[tuple[Canvas, Rules, int]]]:
    operators = draw(OPERATOR_SETS)
    rows = draw(st.lists(st.tuples(states(operators), st.integers(1, 40)), min_size=1, max_size=5))
    room = max(rules.max_length for (_, rules), _ in rows) + draw(st.integers(0, 3))
    return Board(ALPHABET, operators, len(rows), room), [(*state, left) for state, left in rows]


@given(batches(), st.integers(0, 1 << 30))
@settings(max_examples=40)
def test_every_row_is_the_canvas_of_the_executor_after_every_action(
    batch: tuple[Board, list[tuple[Canvas, Rules, int]]], number: int
) -> None:
    checked, chance = Checked(*batch, first=number % 3 + 1), random.Random(number)
    checked.check()
    for _ in range(25):
        checked.step(chance)
        checked.check()


@pytest.mark.slow
@pytest.mark.parametrize("operators", [INSERT_MOVE, INSERT_MOVE | {"jump"}, ALL])
@pytest.mark.parametrize(("room", "num_steps", "every"), [(12, 200, 1), (1100, 400, 20)])
def test_small_full_and_long_canvases_take_thousands_of_actions(
    operators: frozenset[str], room: int, num_steps: int, every: int
) -> None:
    run_long(Board(ALPHABET, operators, 8, room), num_steps, every)


def run_long(board: Board, num_steps: int, every: int) -> None:
    """Eight rows, loaded again when they stop, beside their canvases."""
    chance, rows, room = random.Random(5), [], board.max_length
    for row in range(8):
        size, rules = chance.randrange(4, room - 7), Rules(ALPHABET, board.operators, max_length=room - row)
        tokens = tuple(chance.choices(range(39), k=size))
        rows.append((random_canvas(tokens, random_marks(size, chance), chance), rules, 1 << 30))
    checked = Checked(board, rows)
    for step in range(num_steps):
        checked.step(chance)
        for row, (canvas, rules, _) in enumerate(rows):
            if checked.canvases[row].is_stopped:
                checked.load(row, canvas, rules, 1 << 30)
        if step % every == 0:
            checked.check()
    checked.check()


@given(OPERATOR_SETS, st.integers(0, 1 << 30))
@settings(max_examples=30)
def test_what_a_board_allows_leaves_protected_text_whole(operators: frozenset[str], number: int) -> None:
    keep_text(Board(ALPHABET, operators, 4, 14), random.Random(number), num_steps=30)


def keep_text(board: Board, chance: random.Random, num_steps: int) -> None:
    """Valid actions by the board's own word; some action is always valid, and fixed tokens and closed boundaries stay
    what they are."""
    canvases = []
    for _ in range(len(board.cells)):
        tokens = tuple(chance.choices(range(39), k=chance.randrange(board.max_length)))
        canvases.append(random_canvas(tokens, random_marks(len(tokens), chance), chance))
    rules = Rules(ALPHABET, board.operators, max_length=board.max_length)
    board.load(range(len(canvases)), canvases, [rules] * len(canvases), [num_steps // 2 + 1] * len(canvases))
    kept = board.canvases(range(len(canvases)))
    for _ in range(num_steps):
        masks = board.valid().tolist()
        assert all(masks)
        actions = [choose(mask, places, chance) for mask, places in zip(masks, landings_of(board), strict=True)]
        board.apply(torch.tensor(actions, device=board.cells.device))
        for before, canvas in zip(kept, board.canvases(range(len(kept))), strict=True):
            assert _fixed(canvas) == _fixed(before)
            assert _joined(canvas) == _joined(before)
            assert canvas.is_open(canvas.cursor)


def landings_of(board: Board) -> list[list[int]]:
    """Where a JUMP may go, in every row."""
    return [[place for place, birth in enumerate(row) if birth >= 0] for row in board.landings().tolist()]


def _fixed(canvas: Canvas) -> list[int]:
    return [token for place, token in enumerate(canvas.tokens) if canvas.is_fixed(place)]


def _joined(canvas: Canvas) -> list[tuple[int | None, int | None]]:
    """What lies left and right of every closed boundary; -1 for an edge, None for a token that may be replaced."""
    places = range(len(canvas.tokens))
    sides = [-1, *(canvas.tokens[place] if canvas.is_fixed(place) else None for place in places), -1]
    return [(sides[i], sides[i + 1]) for i in range(len(sides) - 1) if not canvas.is_open(i)]


def test_an_idle_row_may_only_stop_and_never_changes() -> None:
    board = Board(ALPHABET, ALL, num_rows=3, max_length=9)
    rules = Rules(ALPHABET, ALL, max_length=9)
    board.load([1, 2], [Canvas((1, 2), 1), Canvas((3,), 1)], [rules, rules], [5, 1])
    board.apply(torch.tensor([7, ALPHABET.stop, 8]))
    before = board.canvases([0, 1, 2])
    assert before == [Canvas(), Canvas((1, 2), 1, is_stopped=True), Canvas((3, 8), 2)]
    assert board.left.tolist() == [0, 0, 0]
    for action in range(ALPHABET.size + 12):
        assert board.valid().tolist() == [STOP_ONLY] * 3
        board.apply(torch.full((3,), action))
        assert (board.landings() == -1).all()
    assert board.canvases([0, 1, 2]) == before
    assert board.age.tolist() == [0, 4, 3]


def test_a_row_grows_from_what_was_loaded() -> None:
    board = Board(ALPHABET, {"move", "delete"}, num_rows=1, max_length=9)
    board.load([0], [Canvas((1, 2, 3), 3)], [Rules(ALPHABET, frozenset({"move", "delete"}), max_length=9)], [9])
    seen = []
    for action in (4, 5, ALPHABET.delete, ALPHABET.delete, ALPHABET.delete):
        board.apply(torch.tensor([action]))
        seen.append(int(board.grown))
    assert seen == [1, 2, 1, 0, -1]


@given(st.sampled_from([INSERT_MOVE, INSERT_MOVE | {"jump"}, ALL]), st.integers(0, 1 << 30))
@settings(max_examples=12)
def test_invalid_actions_spoil_their_own_row_alone(operators: frozenset[str], number: int) -> None:
    chance = random.Random(number)
    rules = Rules(ALPHABET, operators, max_length=12)
    canvas = Canvas((1, 2, 3, 4), 2, marks=chance.choice([(), (2, 3, 1, 0, 3)]))
    wild, calm = Board(ALPHABET, operators, 3, 12), Board(ALPHABET, operators, 3, 12)
    for board in (wild, calm):
        board.load([0, 1, 2], [canvas] * 3, [rules] * 3, [1 << 30] * 3)
    for _ in range(60):
        actions = []
        for mask, places in zip(calm.valid().tolist(), landings_of(calm), strict=True):
            actions.append(choose(mask & ~STOP_ONLY or STOP_ONLY, places, chance))
        calm.apply(torch.tensor(actions))
        actions[1] = chance.choice([7, *range(40, ALPHABET.size + 20), 1 << 50])
        wild.apply(torch.tensor(actions))
        assert wild.canvases([0, 2]) == calm.canvases([0, 2])
        wild.valid(), wild.windows(3), wild.rows(), wild.repeated(2), wild.landings()
    wild.load([1], [canvas], [rules], [3])
    assert wild.canvas(1) == canvas
    assert wild.windows(6)[1].tolist() == list(canvas.window(6, ALPHABET.none))
    assert int(wild.valid()[1]) == valid_mask(canvas, rules, 3)
    assert wild.age[1] == 5


@pytest.mark.slow
def test_nothing_moves_in_memory_and_a_step_is_one_graph() -> None:
    """What a CUDA graph needs; dynamo refuses a whole graph where a value would go to the host."""

    def step(board: Board, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        board.apply(actions)
        return board.valid(), board.windows(2), board.repeated(2), board.landings()

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    rules, marks = Rules(ALPHABET, ALL, max_length=12), (CLOSED, FIXED, 0, 0, FIXED)
    boards = [Board(ALPHABET, ALL, 2, 12) for _ in range(2)]
    for board in boards:
        canvases = [Canvas((1, 2, 3, 4), 3, marks=marks), Canvas((5, 6), 2)]
        board.load([0, 1], canvases, [rules] * 2, [99] * 2)
    names = [name for name, value in vars(boards[1]).items() if isinstance(value, torch.Tensor)]
    before = [getattr(boards[1], name).data_ptr() for name in names]
    for actions in (
        [ALPHABET.cut(2), 7],
        [ALPHABET.paste, ALPHABET.swap],
        [ALPHABET.jump(1), ALPHABET.replace],
        [8, 9],
    ):
        expected, got = step(boards[0], torch.tensor(actions)), compiled(boards[1], torch.tensor(actions))
        assert [value.tolist() for value in got] == [value.tolist() for value in expected]
    assert boards[0].canvases([0, 1]) == boards[1].canvases([0, 1])
    assert [getattr(boards[1], name).data_ptr() for name in names] == before
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("canvas", "change", "text"),
    [
        (Canvas((1,) * 10), {}, "10 tokens of at most 9 on a board for 9"),
        (Canvas((1,)), {"max_length": 10}, "1 tokens of at most 10 on a board for 9"),
        (Canvas((1,)), {"operators": frozenset()}, r"rules for \[\] on a board for \['move'\]"),
        (Canvas((1,)), {"alphabet": Alphabet(9, 8)}, "rules for .* on a board for .*"),
        (Canvas((1, 2), 0, marks=(2, 1, 0)), {}, "the cursor stands at boundary 0, which is closed"),
        (Canvas((1, 2), 2, marks=(2, 3, 3)), {}, "the cursor stands at boundary 2, which is closed"),
    ],
)
def test_what_does_not_fit_the_board_is_refused(canvas: Canvas, change: dict[str, object], text: str) -> None:
    board = Board(ALPHABET, INSERT_MOVE, num_rows=1, max_length=9)
    rules = replace(Rules(ALPHABET, INSERT_MOVE, max_length=9), **change)
    with pytest.raises(ValueError, match=f"^{text}$"):
        board.load([0], [canvas], [rules], [5])
    assert board.canvas(0) == Canvas()


def test_marks_that_no_canvas_may_have_are_refused() -> None:
    board = Board(ALPHABET, INSERT_MOVE, num_rows=1, max_length=9)
    with pytest.raises(ConfigError, match="the boundary behind token 0 is closed and the token is not fixed"):
        board.load([0], [Canvas((1, 2), 2, marks=(0, 2, 0))], [Rules(ALPHABET, max_length=9)], [5])


def test_a_vocabulary_that_does_not_fit_a_cell_is_refused() -> None:
    Board(Alphabet((1 << 20) - 35, 0), INSERT_MOVE, num_rows=1, max_length=9)
    with pytest.raises(ValueError, match=r"^1048576 actions do not fit the 20 bits of a token on a board$"):
        Board(Alphabet((1 << 20) - 34, 0), INSERT_MOVE, num_rows=1, max_length=9)


def test_a_jump_names_a_boundary_by_the_birth_of_the_token_on_its_left() -> None:
    operators = frozenset({"jump", "delete", "replace", "swap"})
    board, rules = Board(ALPHABET, operators, num_rows=1, max_length=6), Rules(ALPHABET, operators, max_length=6)
    board.load([0], [Canvas((1, 2, 3), 1, marks=(2, 0, 3, 0))], [rules], [9], ages=[5])
    assert board.landings().tolist() == [[-1, -1, -1, 3, -1, -1, -1]]
    seen = []
    for action in (7, ALPHABET.jump(4), 8, ALPHABET.swap, ALPHABET.replace, 9):
        board.apply(torch.tensor([action]))
        seen.append((board.tokens[0].tolist(), board.landings()[0].tolist()))
    assert seen == [
        ([1, 7, 2, 3, 40, 40], [-1, 1, -1, -1, 3, -1, -1]),
        ([1, 7, 2, 3, 40, 40], [-1, 1, 5, -1, -1, -1, -1]),
        ([1, 7, 2, 3, 8, 40], [-1, 1, 5, -1, 3, -1, -1]),
        ([1, 7, 2, 8, 3, 40], [-1, 1, 5, -1, 7, -1, -1]),
        ([1, 7, 2, 8, 3, 40], [-1] * 7),
        ([1, 7, 2, 8, 9, 40], [-1, 1, 5, -1, 7, -1, -1]),
    ]
    assert board.canvas(0).marks == (2, 0, 0, 3, 0, 0)
