"""The executor: laws on random states, the paper's examples, the author's cases, and error texts."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import ALPHABET, pick_valid, states

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import (
    CLOSED,
    FIXED,
    Canvas,
    Rules,
    apply,
    check_marks,
    explain_invalid,
    invert,
    is_valid,
    protect,
    replay,
    valid_actions,
    valid_landings,
    valid_mask,
)
from reviser.errors import ActionError, ConfigError
from reviser.orders.history import follow_births

ALL = Rules(ALPHABET, frozenset(OPERATORS))
SHARED = Path(__file__).parents[2] / "shared" / "reference" / "executor.json"


@given(states(), st.integers(1, 3), st.lists(st.tuples(st.integers(0, 999), st.integers(0, 38)), max_size=20))
def test_there_is_always_a_valid_action(state, actions_left, choices):
    canvas, rules = state
    assert valid_actions(canvas, rules, actions_left)
    for number, text in choices:
        canvas = apply(canvas, pick_valid(canvas, rules, number, text), rules)
        if canvas.is_stopped:
            break
        assert valid_actions(canvas, rules, 1)


@given(states(), st.lists(st.tuples(st.integers(0, 999), st.integers(0, 38)), max_size=30))
def test_valid_actions_keep_the_canvas_valid_and_protected_text_whole(state, choices):
    canvas, rules = state
    births = tuple(range(1, len(canvas.tokens) + 1))
    fixed, pairs = _fixed(canvas, births), _closed(canvas, births)
    for step, (number, text) in enumerate(choices, len(births) + 1):
        if canvas.is_stopped:
            break
        action = pick_valid(canvas, rules, number, text)
        assert not ALPHABET.is_insert(action) or canvas.is_open(canvas.cursor)
        births = follow_births(births, canvas, action, step, ALPHABET)
        canvas = apply(canvas, action, rules)
        assert canvas.is_open(canvas.cursor)
        assert len(canvas.tokens) <= rules.max_length
        check_marks(canvas.marks)
        # The same fixed tokens in the same order, and what a closed boundary joins stays joined.
        assert _fixed(canvas, births) == fixed
        assert _closed(canvas, births) == pairs


def _fixed(canvas, births):
    """Fixed tokens, told apart by their births."""
    places = range(len(canvas.tokens))
    return [(births[place], canvas.tokens[place]) for place in places if canvas.is_fixed(place)]


def _closed(canvas, births):
    """What lies left and right of every closed boundary: an edge, a fixed token, or one that may be replaced."""
    sides = [0, *(births[i] if canvas.is_fixed(i) else "free" for i in range(len(births))), "end"]
    return [(sides[i], sides[i + 1]) for i in range(len(births) + 1) if not canvas.is_open(i)]


@given(states(frozenset(OPERATORS)), st.lists(st.tuples(st.integers(0, 999), st.integers(0, 38)), max_size=20))
def test_the_inverse_leads_back_and_its_inverse_forth_again(state, choices):
    canvas, rules = state
    rules = Rules(ALPHABET, rules.operators, max_length=64)
    canvas = Canvas(canvas.tokens, canvas.cursor, marks=canvas.marks)
    end, actions = canvas, []
    for number, text in choices:
        action = pick_valid(end, rules, number, text)
        if action == ALPHABET.stop:
            continue
        actions.append(action)
        end = apply(end, action, rules)
    if end.is_replacing:
        actions.append(0)
        end = apply(end, 0, rules)
    undone = replay(end, invert(canvas, actions, rules), rules)
    assert (undone.tokens, undone.cursor, undone.marks) == (canvas.tokens, canvas.cursor, canvas.marks)
    forth = replay(undone, invert(end, invert(canvas, actions, rules), rules), rules)
    assert (forth.tokens, forth.cursor, forth.marks) == (end.tokens, end.cursor, end.marks)


@given(states(frozenset(OPERATORS)), st.integers(0, 999), st.integers(0, 38))
def test_every_action_has_an_inverse_in_its_state(state, number, text):
    canvas, rules = state
    action = pick_valid(canvas, rules, number, text)
    if action in (ALPHABET.stop, ALPHABET.replace):
        return
    after = apply(canvas, action, rules)
    if canvas.is_replacing:
        before = Canvas(canvas.tokens, canvas.cursor, canvas.clipboard, marks=canvas.marks)
        back = invert(before, (ALPHABET.replace, action), rules)
    else:
        before, back = canvas, invert(canvas, (action,), rules)
    undone = replay(after, back, rules)
    assert (undone.tokens, undone.cursor, undone.marks) == (before.tokens, before.cursor, before.marks)


@given(states(), st.integers(0, ALPHABET.jump(26)))
def test_an_invalid_action_raises_and_changes_nothing(state, action):
    canvas, rules = state
    before = (canvas.tokens, canvas.cursor, canvas.clipboard, canvas.is_replacing, canvas.marks)
    if is_valid(canvas, action, rules):
        apply(canvas, action, rules)
    else:
        with pytest.raises(ActionError):
            apply(canvas, action, rules)
    assert (canvas.tokens, canvas.cursor, canvas.clipboard, canvas.is_replacing, canvas.marks) == before


@given(states())
def test_the_mask_lists_exactly_the_valid_actions(state):
    canvas, rules = state
    valid = [a for a in range(ALPHABET.jump(30)) if explain_invalid(canvas, a, rules) is None]
    assert valid_actions(canvas, rules) == valid
    assert [ALPHABET.landing(a) for a in valid if ALPHABET.is_jump(a)] == valid_landings(canvas, rules)
    mask = valid_mask(canvas, rules)
    assert mask >> 35 == 0
    assert {ALPHABET.row(a) - 40 for a in valid if a >= 40} == {j for j in range(34) if mask >> j & 1}
    assert bool(mask >> 34) == any(a < 40 for a in valid)


def test_an_error_names_the_action_the_state_and_what_is_allowed():
    with pytest.raises(ActionError) as error:
        apply(Canvas((1, 2), 0), ALPHABET.delete, Rules(ALPHABET, frozenset({"move", "delete"})))
    assert str(error.value) == (
        "DELETE at cursor 0 of 2 tokens: it needs 1 token left of the cursor, there are 0; "
        "valid there: INSERT, STOP, MOVE +1, MOVE +2"
    )


@pytest.mark.parametrize(
    ("canvas", "action", "rules", "reason"),
    [
        (Canvas((1,), 1), "MOVE +1", {}, "it leads to 2, outside 0..1"),
        (Canvas((1, 2), 2, marks=(0, 3, 1)), "MOVE -1", {}, "it leads to the closed boundary 1"),
        (Canvas((1, 2), 2, marks=(2, 3, 1)), "JUMP 0", {}, "it leads to the closed boundary 0"),
        (Canvas((1, 2), 2), "JUMP 3", {}, "it leads to 3, outside 0..2"),
        (Canvas((1, 2), 2), "JUMP 2", {}, "the cursor is there already"),
        (Canvas((1, 2), 2, (), True), "JUMP 1", {}, "REPLACE is pending, so an INSERT must follow"),
        (Canvas((1, 2), 2), "JUMP 1", {"operators": {"move"}}, "the operator jump is not enabled; enabled: move"),
        (Canvas((1, 2), 2, marks=(0, 0, 1)), "DELETE", {}, "token 1 is fixed"),
        (Canvas((1, 2), 2, marks=(0, 3, 0)), "DELETE", {}, "it ends at the closed boundary 1"),
        (Canvas((1, 2), 2, marks=(0, 0, 1)), "REPLACE", {}, "token 1 is fixed"),
        (Canvas((1, 2), 2, marks=(0, 1, 0)), "SWAP", {}, "token 0 is fixed"),
        (Canvas((1, 2), 2, marks=(0, 1, 0)), "CUT 2", {}, "token 0 is fixed"),
        (Canvas((1, 2), 2, marks=(2, 0, 0)), "CUT 2", {}, "it ends at the closed boundary 0"),
        (Canvas((1, 2), 1, marks=(0, 3, 0)), "INSERT 1", {}, "boundary 1 is closed"),
        (Canvas((1, 2), 1, (1, 2), marks=(0, 3, 0)), "PASTE", {}, "boundary 1 is closed"),
        (Canvas((1, 2), 2), "CUT 4", {}, "it needs 4 tokens left of the cursor, there are 2"),
        (Canvas((1, 2), 2), "PASTE", {}, "the clipboard is empty"),
        (
            Canvas((1, 2), 2, (1, 2)),
            "PASTE",
            {"max_length": 3},
            "2 more tokens would exceed the maximum of 3",
        ),
        (Canvas((1, 2), 2), "INSERT 1", {"max_length": 2}, "already holds its maximum of 2 tokens"),
        (
            Canvas((1, 2), 2),
            "SWAP",
            {"operators": {"move"}},
            "the operator swap is not enabled; enabled: move",
        ),
        (Canvas((1, 2), 2, (), True), "STOP", {}, "REPLACE is pending, so an INSERT must follow"),
        (Canvas((1, 2), 2, (), False, True), "STOP", {}, "the trajectory has stopped"),
        (Canvas((1, 2), 2), "CURSOR", {}, "it is never emitted"),
        (Canvas((1, 2), 2), "JUMP", {}, "it is never emitted"),
    ],
)
def test_each_reason_is_said(canvas, action, rules, reason):
    ids = {ALPHABET.name(a): a for a in range(ALPHABET.jump(4))}
    with pytest.raises(ActionError, match=reason.replace("+", r"\+")):
        apply(canvas, ids[action], Rules(ALPHABET, **{"operators": frozenset(OPERATORS), **rules}))


def test_replace_needs_a_second_action():
    canvas = Canvas((1,), 1)
    assert "only one action is left" in explain_invalid(canvas, ALPHABET.replace, ALL, actions_left=1)
    assert explain_invalid(canvas, ALPHABET.replace, ALL, actions_left=2) is None
    assert explain_invalid(canvas, ALPHABET.stop, ALL, actions_left=0) == "no actions are left"


def test_copy_may_read_protected_text_but_cut_may_not_take_it():
    canvas = Canvas((1, 2), 2, marks=(2, 3, 1))
    assert apply(canvas, ALPHABET.copy(2), ALL).clipboard == (1, 2)
    assert not is_valid(canvas, ALPHABET.cut(2), ALL)


def test_a_jump_goes_to_its_boundary_and_its_inverse_back():
    canvas = Canvas((1, 2, 3), 3, marks=(0, 1, 0, 0))
    assert apply(canvas, ALPHABET.jump(0), ALL) == Canvas((1, 2, 3), 0, marks=(0, 1, 0, 0))
    assert invert(canvas, (ALPHABET.jump(0), 7, ALPHABET.jump(2)), ALL) == (
        ALPHABET.jump(1),
        ALPHABET.delete,
        ALPHABET.jump(3),
    )


def test_what_is_inserted_is_unmarked_and_marks_travel_with_their_tokens():
    canvas = Canvas((1, 2, 3), 1, marks=(CLOSED, 0, FIXED | CLOSED, FIXED))
    assert apply(canvas, 7, ALL) == Canvas((1, 7, 2, 3), 2, marks=(2, 0, 0, 3, 1))
    assert apply(apply(canvas, ALPHABET.replace, ALL), 7, ALL) == Canvas((7, 2, 3), 1, marks=(2, 0, 3, 1))
    assert Canvas((1,), marks=(0, 0)) == Canvas((1,))


def test_protected_spans_become_marks():
    assert protect(4, []) == ()
    assert protect(4, [(0, 1), (1, 3)]) == (0, FIXED, FIXED | CLOSED, FIXED, 0)
    assert protect(2, [(0, 2)], ends=[0, 2]) == (CLOSED, FIXED | CLOSED, FIXED | CLOSED)
    for span in ((2, 2), (-1, 1), (1, 5)):
        with pytest.raises(ConfigError, match=f"tokens {span[0]} to {span[1]} does not lie on a canvas of 4"):
            protect(4, [span])
    with pytest.raises(ConfigError, match="the boundary behind token 3 is closed and the token is not fixed"):
        protect(4, [(0, 1)], ends=[4])


def test_a_dangling_replace_has_no_inverse():
    with pytest.raises(ActionError, match="a REPLACE without its INSERT has no inverse"):
        invert(Canvas((1,), 1), (ALPHABET.replace,), ALL)


def test_impossible_states_are_refused():
    with pytest.raises(ActionError, match="cursor 3 lies outside a canvas of 2 tokens"):
        Canvas((1, 2), 3)
    with pytest.raises(ActionError, match="2 marks for 2 tokens and the front"):
        Canvas((1, 2), marks=(0, 1))


@settings(max_examples=300)
@given(states(), st.lists(st.tuples(st.integers(0, 999), st.integers(0, 38), st.integers(0, 60)), max_size=30))
def test_replay_is_apply_one_after_the_other(state, choices):
    start, rules = state
    canvas, actions, wanted = start, [], None
    for number, text, anything in choices:
        # One in twenty may be invalid, and then is the last.
        is_any = number % 20 == 0 or canvas.is_stopped
        actions.append(ALPHABET.num_text - 20 + anything if is_any else pick_valid(canvas, rules, number, text))
        try:
            canvas = apply(canvas, actions[-1], rules)
        except ActionError as error:
            wanted = f"action {len(actions) - 1}: {error}"
            break
    if wanted is None:
        assert replay(start, actions, rules) == canvas
    else:
        with pytest.raises(ActionError) as caught:
            replay(start, actions, rules)
        assert str(caught.value) == wanted


def test_replay_of_a_long_trajectory_copies_no_canvas(monkeypatch):
    def refuse(*_):
        raise AssertionError("the canvas was copied")

    monkeypatch.setattr("reviser.canvas.apply", refuse)
    rules, count = Rules(ALPHABET, frozenset({"jump"}), max_length=100_000), 50_000
    ends = (ALPHABET.jump(place) for place in range(count))
    actions = [action for place in ends for action in (7, 8, place)]
    assert len(replay(Canvas(), actions[:-1], rules).tokens) == 2 * count


def test_replay_says_which_action_was_bad():
    with pytest.raises(ActionError, match=r"^action 1: MOVE \+2 at cursor 1 of 1 tokens"):
        replay(Canvas(), (5, ALPHABET.move(2)), ALL)


def test_the_window_shows_none_past_an_edge():
    assert Canvas((1, 2, 3), 1).window(2, none=40) == (40, 1, 2, 3)
    assert Canvas().window(1, none=40) == (40, 40)


def _id(words, word):
    return words.index(word)


def test_the_papers_greeting_is_taken_apart_and_restored():
    words = ["Hi", ",", "how", "are", "you", "?"]
    move = ALPHABET.move
    target = Canvas(tuple(range(6)), 2)
    rules = Rules(ALPHABET, frozenset({"move", "delete"}))
    d = ALPHABET.delete
    obfuscation = [d, d, move(4), d, d, d, d]
    blank = replay(target, obfuscation, rules)
    assert blank == Canvas()
    restoration = invert(target, obfuscation, rules)
    ids = {word: _id(words, word) for word in words}
    assert restoration == (ids["how"], ids["are"], ids["you"], ids["?"], move(-4), ids["Hi"], ids[","])
    shown = []
    canvas = blank
    for action in (*restoration, ALPHABET.stop):
        canvas = apply(canvas, action, rules)
        shown.append(" ".join([*(words[t] for t in canvas.tokens[: canvas.cursor]), "|"] +
                              [words[t] for t in canvas.tokens[canvas.cursor :]]))  # fmt: skip
    assert shown == [
        "how |",
        "how are |",
        "how are you |",
        "how are you ? |",
        "| how are you ?",
        "Hi | how are you ?",
        "Hi , | how are you ?",
        "Hi , | how are you ?",
    ]
    assert canvas.is_stopped


def test_the_papers_lamb_with_a_transient_insertion():
    words = ["Mary", "had", "a", "little", "lamb.", "hello"]
    mary, had, a, little, lamb, hello = range(6)
    move, d = ALPHABET.move, ALPHABET.delete
    rules = Rules(ALPHABET, frozenset({"move", "delete"}))
    target = Canvas((mary, had, a, little, lamb), 3)
    obfuscation = [d, move(-1), d, hello, move(2), d, d, d, move(1), d]
    assert replay(target, obfuscation, rules) == Canvas()
    restoration = invert(target, obfuscation, rules)
    want = (lamb, move(-1), hello, had, little, move(-2), d, mary, move(1), a)
    assert restoration == want
    states_seen = []
    canvas = Canvas()
    for action in restoration:
        canvas = apply(canvas, action, rules)
        states_seen.append(" ".join(words[t] for t in canvas.tokens))
    assert states_seen[5] == "hello had little lamb."
    assert states_seen[6] == "had little lamb."
    assert (canvas.tokens, canvas.cursor) == (target.tokens, target.cursor)


@pytest.mark.skipif(not SHARED.is_file(), reason="the author's executor cases are not beside this checkout")
def test_the_authors_executor_agrees_but_for_what_it_lets_through():
    gpt2 = Alphabet(num_text=50257, pad=50256)
    rules = Rules(gpt2, frozenset({"move", "delete"}), max_length=1 << 20)
    ignored = {50256, gpt2.none, gpt2.start, *range(gpt2.replace, gpt2.size)}
    for case in json.loads(SHARED.read_text()):
        canvas = Canvas()
        for action, was_accepted in zip(case["actions"], case["accepted"], strict=True):
            if action in ignored:
                assert was_accepted
                assert not is_valid(canvas, action, rules)
                continue
            assert is_valid(canvas, action, rules) == was_accepted
            canvas = apply(canvas, action, rules) if was_accepted else canvas
        assert list(canvas.tokens) == case["canvas"]
        assert canvas.cursor == case["cursor"]
        masked = {a for a in range(50257, gpt2.replace) if not is_valid(canvas, a, rules)}
        assert masked - ignored == set(case["masked_ids"])


@settings(max_examples=20)
@given(st.lists(st.integers(0, 38), min_size=1, max_size=12))
def test_a_draft_may_go_where_generation_may_not(tokens):
    canvas, spelled, jump = Canvas(tuple(tokens), len(tokens)), ALPHABET.spell(-len(tokens)), (ALPHABET.jump(0),)
    for has_jumps, back, other in ((False, spelled, jump), (True, jump, spelled)):
        rules = Rules(ALPHABET, frozenset({"delete"}), has_jumps=has_jumps)
        assert replay(canvas, back, rules.for_draft()).cursor == 0
        for way, refusing in ((back, rules), (other, rules), (other, rules.for_draft())):
            with pytest.raises(ActionError):
                replay(canvas, way, refusing)


def test_drafts_jump_where_the_operator_is_enabled_unless_told_otherwise():
    assert Rules(ALPHABET, frozenset({"jump"})).has_jumps is True
    assert Rules(ALPHABET).has_jumps is False
    assert Rules(ALPHABET, has_jumps=True).has_jumps is True
