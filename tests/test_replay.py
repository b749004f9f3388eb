"""The executor's kernel against the reference: equal canvases, windows and masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules, apply, valid_mask
from reviser.orders import replay
from reviser.orders.history import draft_cursors, draft_history, num_moves
from reviser.orders.record import Draft
from reviser.orders.rng import Random

ALPHABET = Alphabet(num_text=50, pad=0)
MILLION, ROUND = 1_000_000, 2_000
WIDTH = 3
NO_CANVASES = np.empty((0, 0), np.int32)


def _random_rules(rng):
    chosen = replay.KERNEL_OPERATORS if rng.below(3) else OPERATORS[: rng.below(4)]
    operators = frozenset({"move", *chosen})
    prefix, suffix = rng.below(4), rng.below(4)
    return Rules(ALPHABET, operators, prefix, suffix, max_length=8 + rng.below(60))


def _mask_of(canvas, rules):
    state = replay.STOPPED if canvas.is_stopped else int(canvas.is_replacing)
    numbers = len(canvas.tokens), canvas.cursor, state, rules.prefix, rules.suffix, rules.max_length
    return int(replay.valid_mask(*numbers, replay.operator_bits(rules), 1 << 30))


def _random_walk(rules, rng, count):
    """Random valid actions through the reference, chosen by the kernel's mask; some masks compared."""
    draft = Draft(tuple(1 + rng.below(49) for _ in range(rules.prefix + rules.suffix)), rules.prefix, rules)
    canvas, actions, windows, masks = draft.canvas, list(draft.actions), [], []
    for number in range(count):
        mask = _mask_of(canvas, rules)
        if number % 40 == 0:
            assert mask == valid_mask(canvas, rules)
        choices = [j for j in range(35) if mask >> j & 1 and j != 3]
        chosen = choices[rng.below(len(choices))] if choices else 3
        # Half of all actions insert, so that canvases fill and empty.
        if mask >> 34 & 1 and rng.below(2):
            chosen = 34
        action = 1 + rng.below(49) if chosen == 34 else ALPHABET.num_text + chosen
        canvas = apply(canvas, action, rules)
        actions.append(action)
        masks.append(mask)
        windows.append(canvas.window(WIDTH, ALPHABET.none))
        if canvas.is_stopped:
            break
    return len(draft.actions), actions, canvas, windows, masks


def test_a_million_random_valid_actions_give_equal_canvases_windows_and_masks():
    rng, done = Random.of(11), 0
    while done < MILLION:
        rules = _random_rules(rng)
        num_draft, actions, canvas, windows, masks = _random_walk(rules, rng, ROUND)
        cells = np.empty(rules.max_length + 2 * WIDTH, np.int32)
        got_windows = np.empty((len(actions), 2 * WIDTH), np.int32)
        got_masks = np.empty(len(actions), np.int64)
        numbers = np.array([rules.prefix, rules.suffix, rules.max_length, replay.operator_bits(rules)])
        bad, length, cursor, left, right = replay.replay_one(
            np.array(actions), num_draft, ALPHABET.num_text, numbers, WIDTH, cells, got_windows, got_masks,
            NO_CANVASES,
        )  # fmt: skip
        tokens = [*cells[WIDTH:left].tolist(), *cells[right : len(cells) - WIDTH].tolist()]
        assert bad == -1
        assert (tuple(tokens), cursor, length) == (canvas.tokens, canvas.cursor, len(canvas.tokens))
        assert got_windows[num_draft:].tolist() == [list(window) for window in windows]
        assert got_masks[num_draft:].tolist() == masks
        done += len(actions) - num_draft


@pytest.mark.parametrize("width", [1, 4, 6])
@pytest.mark.parametrize("num_columns", [0, 12, 42])
def test_windows_of_any_width_and_whole_canvases_agree(width, num_columns):
    rules, rng = Rules(ALPHABET, max_length=40), Random.of(width)
    canvas, actions, windows, canvases = Canvas(), [], [], []
    for _ in range(300):
        choices = [j for j in range(4, 24) if valid_mask(canvas, rules) >> j & 1]
        action = 1 + rng.below(49)
        if choices and (rng.below(2) or len(canvas.tokens) == 40):
            action = ALPHABET.num_text + choices[rng.below(len(choices))]
        canvas = apply(canvas, action, rules)
        actions.append(action)
        windows.append(list(canvas.window(width, ALPHABET.none)))
        row = [*canvas.tokens[: canvas.cursor], ALPHABET.none, *canvas.tokens[canvas.cursor :]]
        canvases.append((row + [-1] * num_columns)[:num_columns])
    got = np.empty((300, 2 * width), np.int32)
    got_canvases = np.empty((300 if num_columns else 0, num_columns), np.int32)
    cells, numbers = np.empty(40 + 2 * width, np.int32), np.array([0, 0, 40, replay.MOVE_BIT])
    replay.replay_one(np.array(actions), 0, 50, numbers, width, cells, got, np.empty(0, np.int64), got_canvases)
    assert got.tolist() == windows
    assert not num_columns or got_canvases.tolist() == canvases


def test_the_kernel_names_the_first_invalid_action():
    actions = np.array([5, 6, ALPHABET.move(1), 7])
    numbers = np.array([0, 0, 10, replay.MOVE_BIT])
    cells = np.empty(18, np.int32)
    none = np.empty((0, 8), np.int32), np.empty(0, np.int64), NO_CANVASES
    assert replay.replay_one(actions, 0, 50, numbers, 4, cells, *none)[0] == 2
    full = np.array([5] * 11)
    assert replay.replay_one(full, 0, 50, numbers, 4, cells, *none)[0] == 10


def test_operators_that_the_kernel_lacks_are_refused():
    with pytest.raises(ValueError, match=r"^the replay kernel has no swap; replay with canvas\.py$"):
        replay.operator_bits(Rules(ALPHABET, frozenset({"move", "paste", "swap"})))


sizes = st.integers(0, 40) | st.integers(500, 520) | st.integers(1020, 1700)


@given(st.integers(0, 12), st.integers(0, 5), sizes)
def test_the_kernel_writes_a_draft_as_its_history_has_it(prefix, target, suffix):
    tokens = np.arange(3 + prefix + target + suffix, dtype=np.int32)
    before, behind = tokens[3 : 3 + prefix].tolist(), tokens[3 + prefix + target :].tolist()
    history = np.empty(prefix + suffix + 20, np.int32)
    count = replay.write_draft(history, tokens, 3, prefix, target, suffix, 5000)
    wanted = draft_history([*before, *behind], prefix, Alphabet(5000, 4999))
    assert tuple(history[:count].tolist()) == wanted
    assert num_moves(np.array([suffix])).tolist() == [len(wanted) - prefix - suffix]


@given(st.integers(0, 30), st.data())
def test_a_drafts_history_writes_it_and_its_cursors_are_the_executors(size, data):
    draft = Draft(tuple(range(1, size + 1)), data.draw(st.integers(0, size)), Rules(ALPHABET, max_length=40))
    canvas, cursors = Canvas(), []
    for action in draft.actions:
        canvas = apply(canvas, action, draft.rules)
        cursors.append(canvas.cursor)
    assert canvas == draft.canvas
    assert cursors == draft_cursors(size, draft.cursor, ALPHABET)
