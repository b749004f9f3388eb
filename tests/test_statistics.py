"""The table of a trajectory's behaviour: hand-counted values, and the null statistics of orders."""

import pytest

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Rules, protect
from reviser.orders.draw import draw
from reviser.orders.policies import LeftToRight, RandomWalk
from reviser.orders.record import Draft, Trajectory
from reviser.orders.rng import Random
from reviser.orders.statistics import format_table, summarise

ALPHABET = Alphabet(num_text=200, pad=199)
RULES = Rules(ALPHABET, frozenset(OPERATORS))


def _null(order, length=145, samples=400):
    draft, target = Draft.continuation([], RULES), list(range(length))
    return summarise(draw(order, draft, target, Random.of(1, i)) for i in range(samples))


def test_every_row_of_a_small_trajectory_counted_by_hand():
    move = ALPHABET.move
    # 1| ; 1 2| ; |1 2 ; 3|1 2 ; 3 1|2 ; 3 1 4|2 ; DELETE 3 1|2
    actions = (1, 2, move(-2), 3, move(1), 4, ALPHABET.delete, ALPHABET.stop)
    got = summarise([Trajectory(Draft.continuation([9], RULES), actions, (True,) * len(actions))])
    assert got["actions_per_token"] == pytest.approx(7 / 3)
    assert got["insert_fraction"] == pytest.approx(4 / 7)
    assert got["move_fraction"] == pytest.approx(2 / 7)
    assert got["other_fraction"] == pytest.approx(1 / 7)
    assert got["mean_move_distance"] == 1.5
    assert got["move_mass"] == {"1": 0.5, "2": 0.5, "4": 0.0, "8": 0.0}
    assert got["backward_fraction"] == 0.5
    assert got["mean_insertion_position"] == pytest.approx((1 + 0 + 2 / 3) / 3)
    assert got["end_append_fraction"] == 0.5
    assert got["non_end_append_fraction"] == 0.5
    assert got["revised_fraction"] == 1.0
    assert got["travel_per_token"] == 1.0
    assert (got["operations_per_token"], got["jumps_per_token"]) == (pytest.approx(7 / 3), pytest.approx(2 / 3))
    assert got["turn_fraction"] == 0.0
    assert (got["mean_tokens"], got["std_tokens"], got["mean_actions"]) == (3.0, 0.0, 7.0)


def test_a_move_right_behind_one_the_other_way_turns_back():
    move = ALPHABET.move
    # Two moves to the left are one way; then right, at once; the last is right again, behind an INSERT.
    actions = (1, 2, 3, move(-2), move(-1), move(1), 4, move(-1), move(1), ALPHABET.stop)
    got = summarise([Trajectory(Draft.continuation([9], RULES), actions, (True,) * len(actions))])
    assert got["turn_fraction"] == pytest.approx(2 / 5)


def test_a_jump_counts_once_however_it_is_spelled():
    move, jump = ALPHABET.move, ALPHABET.jump
    # Two MOVEs and one JUMP are a jump each; REPLACE and its INSERT are one operation.
    spelled = (1, 2, 3, move(-2), move(-1), 4, move(2), 5, ALPHABET.replace, 6, ALPHABET.stop)
    pointed = (1, 2, 3, jump(1), 4, jump(4), 5, ALPHABET.replace, 6, ALPHABET.stop)
    first, second = (
        summarise([Trajectory(Draft.continuation([9], RULES), actions, (True,) * len(actions))], num_bytes=20)
        for actions in (spelled, pointed)
    )
    same = ("operations_per_token", "operations_per_byte", "jumps_per_token", "travel_per_token", "mean_tokens",
            "non_end_append_fraction", "revised_fraction", "mean_insertion_position")  # fmt: skip
    assert [first[key] for key in same] == [second[key] for key in same]
    assert (first["operations_per_byte"], first["jumps_per_token"]) == (8 / 20, 2 / 5)
    assert (first["actions_per_byte"], second["actions_per_byte"]) == (10 / 20, 9 / 20)
    assert (first["move_fraction"], second["move_fraction"]) == (3 / 10, 2 / 9)
    assert (second["mean_move_distance"], second["backward_fraction"]) == (2.5, 0.5)


def test_the_end_is_the_last_open_boundary_and_spans_between_are_text():
    rules = Rules(ALPHABET, frozenset(OPERATORS))
    draft = Draft((1, 2, 3, 4, 5, 6), 5, rules, protect(6, [(0, 1), (2, 4), (5, 6)], ends=[0, 6]))
    actions = (7, ALPHABET.jump(1), 8, ALPHABET.stop)
    got = summarise([Trajectory(draft, actions, (True,) * 4)])
    assert (got["mean_tokens"], got["non_end_append_fraction"], got["revised_fraction"]) == (6.0, 0.5, 1.0)
    assert got["mean_insertion_position"] == 0.5


def test_a_jump_is_a_move_by_the_way_that_it_takes():
    move, jump = ALPHABET.move, ALPHABET.jump
    # The given token counts for a JUMP's landing, not for the places of the text.
    jumps = (1, 2, 3, jump(1), 4, jump(5), 5, ALPHABET.stop)
    moves = (1, 2, 3, move(-2), move(-1), 4, move(2), move(1), 5, ALPHABET.stop)
    one, other = (
        summarise([Trajectory(Draft.continuation([9], RULES), actions, (True,) * len(actions))])
        for actions in (jumps, moves)
    )
    assert (one["move_fraction"], one["mean_move_distance"], one["backward_fraction"]) == (2 / 7, 3.0, 0.5)
    same = ("travel_per_token", "end_append_fraction", "mean_insertion_position", "revised_fraction", "mean_tokens")
    assert [one[key] for key in same] == [other[key] for key in same]
    assert one["revised_fraction"] == 1.0
    plain = (1, 2, 3, jump(1), jump(4), 5, ALPHABET.stop)
    got = summarise([Trajectory(Draft.continuation([9], RULES), plain, (True,) * len(plain))])
    assert (got["revised_fraction"], got["turn_fraction"]) == (0.0, 0.5)


def test_the_random_walk_alone_shows_what_the_paper_shows_of_its_model():
    got = _null(RandomWalk())
    assert got["actions_per_token"] == pytest.approx(1.30, abs=0.01)
    assert got["move_fraction"] == pytest.approx(0.23, abs=0.01)
    assert got["end_append_fraction"] == pytest.approx(0.026, abs=0.004)
    assert got["revised_fraction"] == 1.0


def test_left_to_right_never_moves():
    got = _null(LeftToRight(), samples=3)
    assert (got["actions_per_token"], got["move_fraction"], got["end_append_fraction"]) == (1.0, 0.0, 1.0)
    assert got["mean_move_distance"] is None
    assert got["revised_fraction"] == 0.0


def test_the_table_has_a_column_for_each_and_a_dash_for_nothing():
    table = format_table({"left": _null(LeftToRight(), samples=2), "walk": _null(RandomWalk(), samples=2)})
    assert "left" in table.splitlines()[0]
    assert "walk" in table.splitlines()[0]
    assert " - " in next(line for line in table.splitlines() if line.startswith("Mean |d|"))
