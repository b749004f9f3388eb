"""The executor's kernel against the reference: equal canvases, windows and masks."""

import numpy as np
import pytest

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules, apply, valid_mask
from reviser.orders import replay
from reviser.orders.rng import Random

ALPHABET = Alphabet(num_text=50, pad=0)
ROUND = 2_000
WIDTH = 3
NO_CANVASES = np.empty((0, 0), np.int32)


def _random_rules(rng):
    operators = frozenset(OPERATORS) if rng.below(3) else frozenset(OPERATORS[: rng.below(8)]) | {"move"}
    prefix, suffix = rng.below(4), rng.below(4)
    return Rules(ALPHABET, operators, prefix, suffix, max_length=8 + rng.below(60))


def _mask_of(canvas, rules):
    state = replay.STOPPED if canvas.is_stopped else int(canvas.is_replacing)
    return int(
        replay.valid_mask(
            len(canvas.tokens), canvas.cursor, len(canvas.clipboard), state,
            rules.prefix, rules.suffix, rules.max_length, replay.operator_bits(rules), 1 << 30,
        )
    )  # fmt: skip


def _random_walk(rules, rng, count):
    """Random valid actions through the reference, chosen by the kernel's mask; some masks compared."""
    seed = [1 + rng.below(49) for _ in range(rules.prefix + rules.suffix)]
    seed += ALPHABET.spell(-rules.suffix)
    canvas = Canvas(tuple(seed[: rules.prefix + rules.suffix]), rules.prefix)
    actions, windows, masks = list(seed), [], []
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
    return seed, actions, canvas, windows, masks


@pytest.mark.parametrize("count", [150_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_random_valid_actions_give_equal_canvases_windows_and_masks(count):
    rng, done = Random.of(11), 0
    while done < count:
        rules = _random_rules(rng)
        seed, actions, canvas, windows, masks = _random_walk(rules, rng, ROUND)
        cells, clip = np.empty(rules.max_length + 2 * WIDTH, np.int32), np.empty(9, np.int32)
        got_windows = np.empty((len(actions), 2 * WIDTH), np.int32)
        got_masks = np.empty(len(actions), np.int64)
        numbers = np.array([rules.prefix, rules.suffix, rules.max_length, replay.operator_bits(rules)])
        bad, length, cursor, left, right = replay.replay_one(
            np.array(actions),
            len(seed),
            ALPHABET.num_text,
            numbers,
            WIDTH,
            cells,
            clip,
            got_windows,
            got_masks,
            NO_CANVASES,
        )
        tokens = [*cells[WIDTH:left].tolist(), *cells[right : len(cells) - WIDTH].tolist()]
        assert bad == -1
        assert (tuple(tokens), cursor, length) == (canvas.tokens, canvas.cursor, len(canvas.tokens))
        assert got_windows[len(seed) :].tolist() == [list(window) for window in windows]
        assert got_masks[len(seed) :].tolist() == masks
        done += len(actions) - len(seed)


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
    replay.replay_one(
        np.array(actions),
        0,
        50,
        numbers,
        width,
        cells,
        np.empty(9, np.int32),
        got,
        np.empty(0, np.int64),
        got_canvases,
    )
    assert got.tolist() == windows
    assert not num_columns or got_canvases.tolist() == canvases


def test_the_kernel_names_the_first_invalid_action():
    actions = np.array([5, 6, ALPHABET.move(1), 7])
    numbers = np.array([0, 0, 10, replay.MOVE_BIT])
    cells, clip = np.empty(18, np.int32), np.empty(9, np.int32)
    none = np.empty((0, 8), np.int32), np.empty(0, np.int64), NO_CANVASES
    assert replay.replay_one(actions, 0, 50, numbers, 4, cells, clip, *none)[0] == 2
    full = np.array([5] * 11)
    assert replay.replay_one(full, 0, 50, numbers, 4, cells, clip, *none)[0] == 10
