"""The executor's kernel against the reference: equal canvases, windows, masks, cursors and lives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.actions import Alphabet
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, apply, valid_landings, valid_mask
from reviser.data.filling import find_cursors, trace_lives
from reviser.orders import replay
from reviser.orders.history import draft_cursors, draft_history, num_moves
from reviser.orders.record import Draft
from reviser.orders.rng import Random

ALPHABET = Alphabet(num_text=50, pad=0)
ROUND = 2_000
WIDTH = 3
NO_CANVASES = np.empty((0, 0), np.int32)
NOTHING = np.empty(0, np.int32)


def _random_draft(rng):
    """Any marks that a draft may have, often those of one gap."""
    chosen = replay.KERNEL_OPERATORS if rng.below(3) else replay.KERNEL_OPERATORS[: rng.below(5)]
    rules = Rules(ALPHABET, frozenset({"move", *chosen}), max_length=12 + rng.below(60))
    prefix, suffix = rng.below(4), rng.below(4)
    tokens = tuple(1 + rng.below(49) for _ in range(prefix + suffix))
    if rng.below(2):
        return Draft.infill(tokens[:prefix], tokens[prefix:], rules)
    marks = [2 * rng.below(2), *((0, 0, FIXED, FIXED | CLOSED)[rng.below(4)] for _ in tokens)]
    places = [place for place, mark in enumerate(marks) if not mark & CLOSED]
    if not places:
        return Draft(tokens, len(tokens), rules)
    return Draft(tokens, places[rng.below(len(places))], rules, tuple(marks))


def _random_walk(draft, rng, count):
    """Random valid actions through the reference, without a STOP."""
    rules, canvas, actions, windows, masks = draft.rules, draft.canvas, list(draft.actions), [], []
    for _ in range(count):
        mask = valid_mask(canvas, rules)
        choices = [j for j in range(35) if mask >> j & 1 and j != 3]
        if not choices:
            break
        chosen = choices[rng.below(len(choices))]
        # Half of all actions insert, so that canvases fill and empty.
        if mask >> 34 & 1 and rng.below(2):
            chosen = 34
        action = 1 + rng.below(49) if chosen == 34 else ALPHABET.num_text + chosen
        if chosen == 33:
            landings = valid_landings(canvas, rules)
            action = ALPHABET.jump(landings[rng.below(len(landings))])
        canvas = apply(canvas, action, rules)
        actions.append(action)
        masks.append(mask)
        windows.append(canvas.window(WIDTH, ALPHABET.none))
    return actions, canvas, windows, masks


def _states(draft, actions):
    canvas, states = Canvas(), [Canvas()]
    for step, action in enumerate(actions):
        if step == len(draft.actions):
            canvas = states[-1] = draft.canvas
        canvas = apply(canvas, action, draft.rules if step >= len(draft.actions) else draft.rules.for_draft())
        states.append(canvas)
    return states


@pytest.mark.parametrize("count", [8_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_random_valid_actions_give_equal_canvases_windows_masks_cursors_and_lives(count):
    rng, done = Random.of(11), 0
    while done < count:
        draft = _random_draft(rng)
        actions, canvas, windows, masks = _random_walk(draft, rng, ROUND)
        num_draft, size = len(draft.actions), len(actions)
        cells = np.empty(draft.rules.max_length + 2 * WIDTH, np.int32)
        births = np.empty_like(cells) if "jump" in draft.rules.operators else np.empty(0, np.int32)
        got_windows, got_masks = np.empty((size, 2 * WIDTH), np.int32), np.empty(size, np.int64)
        lives = np.full((size + 1 if len(births) else 0, 3), -9, np.int32)
        bad, length, cursor, left, right = replay.replay_one(
            np.array(actions), num_draft, np.array(draft.marks, np.int32), ALPHABET.num_text,
            replay.encode_rules(draft.rules), WIDTH, cells, births, got_windows, got_masks, NO_CANVASES, lives,
        )  # fmt: skip
        tokens = [*cells[WIDTH:left].tolist(), *cells[right : len(cells) - WIDTH].tolist()]
        marks = [token >> replay.MARK_SHIFT for token in tokens]
        assert bad == -1
        assert tuple(token & replay.TOKEN for token in tokens) == canvas.tokens
        assert marks == list(canvas.marks[1:] or [0] * len(tokens))
        assert (cursor, length) == (canvas.cursor, len(canvas.tokens))
        assert got_windows[num_draft:].tolist() == [list(window) for window in windows]
        assert got_masks[num_draft:].tolist() == masks
        states = _states(draft, actions)
        history = np.array([[ALPHABET.start, *actions]], np.int32)
        cursors = np.empty_like(history)
        find_cursors(history, np.zeros_like(history), ALPHABET.num_text, cursors)
        assert cursors[0].tolist() == [state.cursor for state in states]
        if len(births):
            wanted = trace_lives(draft, actions, states)
            assert np.array_equal(lives[:, 0], wanted[:, 0])
            assert np.array_equal(lives[:-1, 1:], wanted[:-1, 1:])
        done += size - num_draft


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
    cells = np.empty(40 + 2 * width, np.int32)
    given = np.array(actions), 0, NOTHING, 50, replay.encode_rules(rules), width, cells, NOTHING
    replay.replay_one(*given, got, np.empty(0, np.int64), got_canvases, NO_CANVASES)
    assert got.tolist() == windows
    assert not num_columns or got_canvases.tolist() == canvases


def test_the_kernel_names_the_first_invalid_action():
    rules = replay.encode_rules(Rules(ALPHABET, frozenset({"move", "jump"}), max_length=10))

    def find(actions, num_draft=0, marks=()):
        none = np.empty((0, 8), np.int32), np.empty(0, np.int64), NO_CANVASES, NO_CANVASES
        marks = np.array(marks, np.int32)
        return replay.replay_one(
            np.array(actions), num_draft, marks, 50, rules, 4, np.empty(18, np.int32), NOTHING, *none
        )[0]

    assert find([5, 6, ALPHABET.move(1), 7]) == 2
    assert find([5] * 11) == 10
    assert find([5, 6, ALPHABET.jump(2)]) == 2
    assert find([5, 6, ALPHABET.jump(3)]) == 2
    assert find([5, 6, ALPHABET.jump(0) - 1, ALPHABET.stop]) == 2, "the row of all JUMPs is no action"
    assert find([5, 6, ALPHABET.jump(0), ALPHABET.jump(1)]) == -1
    assert find([5, 6, ALPHABET.jump(0), ALPHABET.jump(1)], 2, [0, FIXED | CLOSED, FIXED]) == 3


def test_operators_that_the_kernel_lacks_are_refused():
    with pytest.raises(ValueError, match=r"^the replay kernel has no swap; replay with canvas\.py$"):
        replay.operator_bits(Rules(ALPHABET, frozenset({"move", "paste", "swap"})))


sizes = st.integers(0, 40) | st.integers(500, 520) | st.integers(1020, 1700)


@given(st.integers(0, 12), st.integers(0, 5), sizes, st.data())
def test_the_kernel_writes_a_draft_as_its_history_has_it(prefix, target, suffix, data):
    tokens = np.arange(3 + prefix + target + suffix, dtype=np.int32)
    before, behind = tokens[3 : 3 + prefix].tolist(), tokens[3 + prefix + target :].tolist()
    history = np.empty(prefix + suffix + 20, np.int32)
    inner = np.zeros(data.draw(st.sampled_from([0, 4])), np.int64)
    count = replay.write_draft(history, tokens, 3, prefix, target, suffix, 0, 0, 0, inner, 5000, 1)
    assert tuple(history[:count].tolist()) == draft_history([*before, *behind], prefix, Alphabet(5000, 4999), True)
    count = replay.write_draft(history, tokens, 3, prefix, target, suffix, 0, 0, 0, inner, 5000, 0)
    wanted = draft_history([*before, *behind], prefix, Alphabet(5000, 4999))
    assert tuple(history[:count].tolist()) == wanted
    assert num_moves(np.array([suffix])).tolist() == [len(wanted) - prefix - suffix]


@given(st.integers(0, 12), st.integers(0, 12))
def test_the_kernel_marks_a_draft_as_an_infilling_is_marked(prefix, suffix):
    marks = np.empty(25, np.int32)
    replay.write_marks(marks, prefix, 0, suffix, np.zeros(0, np.int64))
    wanted = Draft.infill([1] * prefix, [1] * suffix, Rules(ALPHABET)).marks or (0,)
    assert tuple(marks[: prefix + suffix + 1].tolist()) == wanted


inner_sizes = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=5)


@given(st.integers(0, 12), inner_sizes, st.integers(0, 5), st.integers(0, 12), st.booleans())
def test_the_kernel_writes_and_marks_a_draft_with_several_gaps(prefix, inner, last, suffix, has_jumps):
    target = sum(map(sum, inner)) + last
    text = list(range(prefix + target + suffix))
    cuts = np.cumsum([prefix, *(size for pair in inner for size in pair), last]).tolist()
    parts = [text[start:end] for start, end in zip([0, *cuts[1::2]], [*cuts[::2], len(text)], strict=True)]
    draft = Draft.gaps(parts, Rules(Alphabet(5000, 4999), frozenset({"jump" if has_jumps else "move"})))
    tokens, sizes = np.array([9, 9, 9, *text], np.int32), np.array([*inner, (0, 0)], np.int64).ravel()
    history, marks = np.empty(400, np.int32), np.empty(400, np.int32)
    count = replay.write_draft(history, tokens, 3, prefix, target, suffix, 0, 0, 0, sizes, 5000, int(has_jumps))
    replay.write_marks(marks, prefix, 0, suffix, sizes)
    assert tuple(history[:count].tolist()) == draft.actions
    assert tuple(marks[: len(draft.tokens) + 1].tolist()) == (draft.marks or (0,))


@given(st.integers(0, 30), st.booleans(), st.data())
def test_a_drafts_history_writes_it_and_its_cursors_are_the_executors(size, has_jumps, data):
    rules = Rules(ALPHABET, frozenset({"jump" if has_jumps else "move"}), max_length=40)
    draft = Draft(tuple(range(1, size + 1)), data.draw(st.integers(0, size)), rules)
    canvas, cursors = Canvas(), []
    for action in draft.actions:
        canvas = apply(canvas, action, draft.rules)
        cursors.append(canvas.cursor)
    assert canvas == draft.canvas
    assert cursors == draft_cursors(size, draft.cursor, ALPHABET, has_jumps)
