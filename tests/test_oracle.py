"""The oracle: its script leads to the goal from wherever a model has got to, and the kernel is the plain one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.actions import Alphabet
from reviser.canvas import Canvas, Rules, apply, protect, replay, valid_landings, valid_mask
from reviser.orders.align import align
from reviser.orders.history import follow_births
from reviser.orders.record import Draft
from reviser.own_states.oracle import advise, count_edits, find_free, write_script
from reviser.own_states.oracle_kernels import NONE, find_stretches, finish_one, label_one

ALPHABET = Alphabet(num_text=6, pad=5)
TEXTS = st.lists(st.integers(0, 3), max_size=6)
BITS = {"insert": 34, "delete": 2, "replace": 24, "jump": 33}
GIVEN = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@st.composite
def tasks(draw):
    """A draft of any kind, and what its free stretches are to become."""
    operators = {"jump", "delete"} | ({"replace"} if draw(st.booleans()) else set())
    rules = Rules(ALPHABET, frozenset(operators), max_length=draw(st.integers(14, 30)))
    kind = draw(st.sampled_from(["revision", "gaps", "spans"]))
    if kind == "revision":
        draft = Draft.revision(draw(TEXTS), draw(TEXTS), draw(TEXTS), rules)
    elif kind == "gaps":
        inner = draw(st.lists(GIVEN, max_size=2))
        draft = Draft.gaps([draw(TEXTS), *inner, draw(TEXTS)], rules)
    else:
        tokens = draw(st.lists(st.integers(0, 3), min_size=4, max_size=9))
        draft = Draft.edit(tokens, rules, protect(len(tokens), [(1, 3)]))
    return draft, [tuple(draw(TEXTS)) for _ in find_free(draft.canvas)]


def wander(draw, draft, most=8):
    """Random valid actions, and the canvas before and after each."""
    rules, states, actions = draft.rules, [draft.canvas], []
    for _ in range(draw(st.integers(0, most))):
        mask = valid_mask(states[-1], rules)
        names = [name for name, bit in BITS.items() if mask >> bit & 1]
        name = draw(st.sampled_from(names)) if names else "stop"
        if name == "stop":
            break
        action = {"delete": ALPHABET.delete, "replace": ALPHABET.replace}.get(name)
        if name == "insert":
            action = draw(st.integers(0, 3))
        elif name == "jump":
            action = ALPHABET.jump(draw(st.sampled_from(valid_landings(states[-1], rules))))
        actions.append(action)
        states.append(apply(states[-1], action, rules))
    return actions, states


def goal_text(canvas, goals):
    """The text that a canvas is to become."""
    text, place = [], 0
    for (start, end), goal in zip(find_free(canvas), goals, strict=True):
        text += [*canvas.tokens[place:start], *goal]
        place = end
    return (*text, *canvas.tokens[place:])


def label(draft, goals, actions):
    """What the kernel says of all states."""
    canvas, rules, count = draft.canvas, draft.rules, len(actions)
    starts, ends = (np.zeros(len(canvas.tokens) + 2, np.int64) for _ in range(2))
    K = find_stretches(np.array(canvas.marks, np.int32), len(canvas.tokens), starts, ends)
    flat = np.array([token for goal in goals for token in goal], np.int32)
    bounds = np.cumsum([0, *map(len, goals)])
    texts = np.array(canvas.tokens, np.int32), canvas.cursor
    spans, did = (starts[:K], ends[:K], flat, bounds), np.array(actions, np.int32)
    can_replace = "replace" in rules.operators
    labels, landings = np.zeros(count + 1, np.int32), np.zeros((count + 1, 2), np.int32)
    sizes, distances = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    label_one(
        *texts, 0, 0, *spans, did, len(draft.actions), ALPHABET.num_text, rules.max_length, int(can_replace), labels,
        landings, sizes, distances,
    )  # fmt: skip
    row = np.zeros(200, np.int32)
    size = 0 if sizes[-1] == NONE else finish_one(*texts, *spans, did, ALPHABET.num_text, int(can_replace), row)
    return labels.tolist(), landings.tolist(), sizes.tolist(), distances.tolist(), tuple(row[:size].tolist())


@given(tasks(), st.data())
def test_the_script_leads_from_any_state_to_the_goal(task, data):
    draft, goals = task
    actions, states = wander(data.draw, draft)
    if states[-1].is_replacing:
        return
    script = write_script(states[-1], goals, draft.rules, bool(actions))
    if script is None:
        assert len(states[-1].tokens) + sum(map(len, goals)) > draft.rules.max_length
        return
    final = replay(states[-1], script, draft.rules)
    assert (final.tokens, final.is_stopped) == (goal_text(states[-1], goals), True)
    assert advise(states[-1], goals, draft.rules, bool(actions)) == script[0]


@given(tasks(), st.data())
def test_the_kernel_labels_every_state_as_the_plain_oracle_does(task, data):
    draft, goals = task
    actions, states = wander(data.draw, draft)
    labels, landings, sizes, distances, finish = label(draft, goals, actions)
    births, begun = tuple(range(1, len(draft.tokens) + 1)), len(draft.actions)
    for step, state in enumerate(states):
        is_begun = step > 0
        assert labels[step] == advise(state, goals, draft.rules, is_begun)
        assert distances[step] == count_edits(state, goals, draft.rules)
        script = None if state.is_replacing else write_script(state, goals, draft.rules, is_begun)
        assert sizes[step] == (NONE if script is None else len(script))
        wanted = [-1, -1]
        if labels[step] != NONE and ALPHABET.is_jump(labels[step]):
            wanted = [(0, *births)[place] for place in (ALPHABET.landing(labels[step]), state.cursor)]
        assert landings[step] == wanted
        if step < len(actions):
            births = follow_births(births, state, actions[step], begun + step + 1, ALPHABET)
    if sizes[-1] != NONE:
        assert finish == write_script(states[-1], goals, draft.rules, bool(actions))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_from_a_draft_the_oracle_does_what_the_teacher_does(prefix, before, after, suffix):
    rules = Rules(ALPHABET, frozenset({"jump", "delete", "replace"}), max_length=64)
    draft = Draft.revision(prefix, before, suffix, rules)
    script = write_script(draft.canvas, [after], rules)
    assert script == align(draft.canvas, (*prefix, *after, *suffix), rules, by="pointer", first="left")


def test_what_is_begun_at_the_cursor_is_finished_first():
    rules = Rules(ALPHABET, frozenset({"jump", "delete", "replace"}))
    canvas, goals = Canvas((0, 1, 2, 3), 3), [(1, 1, 1, 3)]
    assert advise(canvas, goals, rules, is_begun=True) == ALPHABET.replace
    assert advise(canvas, goals, rules, is_begun=False) == ALPHABET.jump(1)


@pytest.mark.parametrize(("goal", "advice"), [((0, 3), 3), ((0, 1), 1), ((0,), NONE), ((0, 2, 1), 2)])
def test_a_pending_replacement_gets_the_token_that_is_missing_there(goal, advice):
    rules = Rules(ALPHABET, frozenset({"jump", "delete", "replace"}))
    assert advise(Canvas((0, 1), 2, is_replacing=True), [goal], rules, is_begun=True) == advice
