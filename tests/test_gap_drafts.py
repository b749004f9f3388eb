"""Drafts with several gaps: how they are written, kept in files, and that what is given stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_decoding_jumps import check_writing
from test_engine import make_model

from reviser.canvas import Canvas, Rules
from reviser.canvas import replay as execute
from reviser.decoding.engine import Engine
from reviser.decoding.requests import Request
from reviser.decoding.sampling import Sampling
from reviser.errors import ConfigError, TrajectoryError
from reviser.orders.record import Draft, Trajectory, from_record, to_record

OPERATOR_SETS = [frozenset(names.split()) for names in ("move", "jump", "jump delete replace", "move delete")]
JUMPING, MOVING = make_model("window", ("jump", "delete", "replace")), make_model("window", ("move", "delete"))
ALPHABET = JUMPING.config.alphabet
LIVELY = Sampling(1.2, 0, stop_bias=-2.0, jump_bias=2.0)
words = st.lists(st.integers(0, 20), min_size=1, max_size=5)
ends = st.lists(st.integers(0, 20), max_size=5)


@st.composite
def many_parts(draw: st.DrawFn) -> list[list[int]]:
    return [draw(ends), *draw(st.lists(words, max_size=4)), draw(ends)]


rule_sets = st.sampled_from(OPERATOR_SETS).map(lambda names: Rules(ALPHABET, names, max_length=64))


def is_kept(parts: list[list[int]], canvas: Canvas) -> bool:
    """Whether the given parts stand on a canvas in their order, each whole and marked as it was."""
    marks = canvas.marks or (0,) * (len(canvas.tokens) + 1)
    given = [token for token, mark in zip(canvas.tokens, marks[1:], strict=True) if mark & 1]
    if given != [token for part in parts for token in part]:
        return False
    place, tokens = 0, list(canvas.tokens)
    for part in parts:
        while tokens[place : place + len(part)] != part or (part and not canvas.is_fixed(place)):
            place += 1
        place += len(part)
    return place <= len(tokens)


@given(many_parts(), rule_sets)
def test_the_history_of_a_draft_with_gaps_ends_in_the_first_and_visits_the_others_from_the_last(parts, rules):
    draft = Draft.gaps(parts, rules)
    cursors, canvas = [], Canvas()
    for action in draft.actions:
        canvas = execute(canvas, [action], rules.for_draft())
        cursors.append(canvas.cursor)
    assert canvas.tokens == tuple(token for part in parts for token in part)
    places = [sum(map(len, parts[: k + 1])) for k in range(len(parts) - 1)]
    assert (canvas.cursor, draft.cursor) == (places[0], places[0])
    assert draft.canvas.open_boundaries() == places
    assert all(draft.canvas.is_fixed(place) for place in range(len(draft.tokens)))
    way = [place for place in cursors[len(draft.tokens) :] if place in places]
    behind = [place for place in places[::-1] if place < len(draft.tokens)]
    assert way == behind
    assert draft.actions[: len(draft.tokens)] == draft.tokens


@given(ends, ends, rule_sets)
def test_a_draft_with_one_gap_is_an_infilling(prefix, suffix, rules):
    one, other = Draft.gaps([prefix, suffix], rules), Draft.infill(prefix, suffix, rules)
    assert one == other
    assert one.actions == other.actions


@given(many_parts(), rule_sets)
def test_a_trajectory_file_keeps_the_visits(parts, rules):
    draft = Draft.gaps(parts, rules)
    trajectory = Trajectory(draft, (5, ALPHABET.stop), (True, True))
    record = to_record(trajectory)
    assert from_record(record) == trajectory
    assert ("visits" in record) == (len(parts) > 2)


def test_a_draft_that_cannot_be_is_refused():
    rules = Rules(ALPHABET, frozenset({"jump"}), max_length=64)
    with pytest.raises(ConfigError, match=r"^a draft with gaps takes the text before and behind each gap"):
        Draft.gaps([[1]], rules)
    with pytest.raises(ConfigError, match=r"^two gaps have nothing between them; make one gap of them$"):
        Draft.gaps([[1], [], [2]], rules)
    with pytest.raises(ConfigError, match=r"^a draft of 2 tokens can't visit boundary 3$"):
        replace(Draft.infill([1], [2], rules), visits=(3,))
    record = to_record(Trajectory(Draft.gaps([[1], [2], [3]], rules), (ALPHABET.stop,), (True,)))
    with pytest.raises(TrajectoryError, match=r"^the draft actions are not the tokens in order followed by the way"):
        from_record({**record, "visits": []})
    with pytest.raises(TrajectoryError, match=r"^a field has the wrong type"):
        from_record({**record, "visits": ["one"]})


@settings(max_examples=6)
@given(st.lists(many_parts(), min_size=1, max_size=4), st.booleans(), st.integers(0, 1 << 30))
def test_all_decoders_write_alike_in_several_gaps(many, has_jumps, number):
    model = JUMPING if has_jumps else MOVING
    rules = Rules(ALPHABET, frozenset(model.config.operators), max_length=40)
    check_writing(model, LIVELY, 2, [Request(Draft.gaps(parts, rules), 20, number) for parts in many])


@pytest.mark.parametrize("model", [JUMPING, MOVING], ids=["jumps", "moves"])
def test_what_is_given_is_kept_in_a_thousand_cases(model):
    import random

    rng, asked, given_parts = random.Random(3), [], []
    rules = Rules(ALPHABET, frozenset(model.config.operators), max_length=40)
    for number in range(500):
        num_gaps = rng.randint(1, 6)
        parts = [[rng.randrange(20) for _ in range(rng.randint(1, 4))] for _ in range(num_gaps + 1)]
        parts = [part if 0 < k < num_gaps or rng.random() < 0.7 else [] for k, part in enumerate(parts)]
        given_parts.append(parts)
        asked.append(Request(Draft.gaps(parts, rules), rng.randint(1, 12), number))
    written = [each.canvas for each in Engine(model, LIVELY, 32).write(asked)]
    assert all(map(is_kept, given_parts, written))
    grown = [len(canvas.tokens) - len(each.draft.tokens) for canvas, each in zip(written, asked, strict=True)]
    assert sum(size > 0 for size in grown) > 400
