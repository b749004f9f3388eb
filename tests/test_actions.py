"""The alphabet: the published ids, and names that read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.actions import NUM_SPECIAL, OPERATORS, Alphabet, check_operators
from reviser.errors import ConfigError

GPT2 = Alphabet(num_text=50257, pad=50256)


def test_the_ids_are_those_of_the_published_checkpoints():
    assert (GPT2.none, GPT2.start, GPT2.delete, GPT2.stop) == (50257, 50258, 50259, 50260)
    assert [GPT2.move(d) for d in (1, -1, 2, -2, 512, -512)] == [50261, 50262, 50263, 50264, 50279, 50280]
    assert (GPT2.replace, GPT2.swap, GPT2.cut(2), GPT2.copy(8), GPT2.paste) == (
        50281,
        50282,
        50283,
        50288,
        50289,
    )
    assert GPT2.size == 50291


def test_every_special_id_has_its_own_name():
    names = {GPT2.name(50257 + j) for j in range(NUM_SPECIAL)}
    assert len(names) == NUM_SPECIAL
    assert {"MOVE +1", "MOVE -512", "CUT 2", "COPY 8", "STOP", "DELETE", "JUMP"} <= names


@given(st.integers(0, 1 << 20))
def test_a_jump_has_an_id_of_its_own_and_shares_a_row(boundary):
    action = GPT2.jump(boundary)
    assert action == 50291 + boundary
    assert GPT2.is_jump(action)
    assert (GPT2.landing(action), GPT2.name(action), GPT2.operator(action)) == (boundary, f"JUMP {boundary}", "jump")
    assert (GPT2.row(action), GPT2.distance(action), GPT2.span(action)) == (50290, 0, 0)
    assert not GPT2.is_insert(action)
    assert not GPT2.is_move(action)


@given(st.integers(0, GPT2.size - 1))
def test_every_other_action_has_its_own_row(action):
    assert GPT2.row(action) == action
    assert not GPT2.is_jump(action)


def test_a_jump_to_nowhere_is_refused():
    with pytest.raises(ConfigError, match="no action jumps to boundary -1; boundaries are 0 and up"):
        GPT2.jump(-1)


@given(st.integers(0, 2000), st.integers(0, 2000), st.booleans())
def test_a_way_is_one_jump_or_spelled_in_moves(start, end, has_jumps):
    way = GPT2.way(start, end, has_jumps)
    if start == end:
        assert way == ()
    elif has_jumps:
        assert way == (GPT2.jump(end),)
    else:
        assert way == GPT2.spell(end - start)


def test_padding_is_no_insert():
    assert not GPT2.is_insert(50256)
    assert GPT2.is_insert(50255)
    assert GPT2.name(50256) == "unknown action 50256"


@given(st.integers(-3000, 3000))
def test_a_spelled_move_goes_its_distance_largest_first(distance):
    moves = [GPT2.distance(action) for action in GPT2.spell(distance)]
    assert sum(moves) == distance
    assert [abs(m) for m in moves] == sorted((abs(m) for m in moves), reverse=True)
    assert all(m * distance > 0 for m in moves)


def test_a_move_that_is_no_power_of_two_is_refused():
    with pytest.raises(ConfigError, match=r"no action moves by 3; moves are powers of two up to 512"):
        GPT2.move(3)
    with pytest.raises(ConfigError, match="no action moves by -1024"):
        GPT2.move(-1024)


def test_a_cut_of_three_is_refused():
    with pytest.raises(ConfigError, match="no action cuts or copies 3 tokens; sizes are 2, 4, 8"):
        GPT2.cut(3)


def test_an_unknown_operator_is_named_with_those_that_exist():
    with pytest.raises(ConfigError, match="unknown operator 'erase'; operators are move, delete"):
        check_operators(["move", "erase"])
    assert check_operators(OPERATORS) == set(OPERATORS)


def test_padding_must_be_a_text_token():
    with pytest.raises(ConfigError, match="pad id 10 is not one of the 10 text tokens"):
        Alphabet(num_text=10, pad=10)
