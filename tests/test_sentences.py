"""Orders in sentences: log q sums to one over all that they draw, and trajectories come as often as it says."""

import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.actions import OPERATORS, Alphabet
from reviser.bench.draw_speed import measure
from reviser.canvas import Rules
from reviser.errors import ConfigError
from reviser.orders.draw import allocate_rows, draw, draw_rows, encode_order
from reviser.orders.kernels import TOO_LONG
from reviser.orders.policies import LeftToRight, Mixture, Runs, has_kernel, needs_ends
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.orders.sentences import Ending, Outline, Sentences, cut_sentences

ALPHABET = Alphabet(num_text=60, pad=0)
ENDS = frozenset({40, 41})
RULES = Rules(ALPHABET, frozenset(OPERATORS), max_length=4000, ends=ENDS)
TEXTS = [
    (),
    (1,),
    (1, 2, 40),
    (1, 40, 2),
    (1, 40, 41, 2, 3, 40, 4),
    (40, 1, 40, 2, 40),
    (1, 40, 1, 40, 1, 40),
    (1, 40, 1, 40, 1, 40, 1, 40),
    (1, 2, 40, 41, 41, 3, 40, 4, 5, 41, 6),
]


def enumerate_sentences(order, text, prefix=()):
    """All obfuscations from their definition: the actions of the restoration and the probability."""
    sizes = np.diff([0, *cut_sentences(text, ENDS)]).tolist()
    spans, begin = [], 0
    for size in sizes:
        spans.append(tuple(text[begin : begin + size]))
        begin += size
    starts = [len(spans)] if order.start == "end" or not spans else range(1, len(spans) + 1)
    for u in starts:
        yield from _enumerate(order, tuple(spans), u, True, (), 1 / len(starts), len(prefix))


def _enumerate(order, spans, u, has_jumped, restored, probability, offset):
    if not spans:
        yield restored, probability
        return
    places = [v for v in range(1, len(spans) + 1) if v != u]
    p_jump = 0.0 if has_jumped or not places else 1.0 if u == 0 else order.jump
    for v in places if p_jump else ():
        here, there = (offset + sum(map(len, spans[:k])) for k in (u, v))
        back = ALPHABET.way(there, here, order.by == "pointer")
        yield from _enumerate(order, spans, v, True, back + restored, probability * p_jump / len(places), offset)
    if p_jump < 1:
        rest, restored = spans[: u - 1] + spans[u:], spans[u - 1] + restored
        yield from _enumerate(order, rest, u - 1, False, restored, probability * (1 - p_jump), offset)


def trajectory(actions, prefix=()):
    actions = (*actions, ALPHABET.stop)
    return Trajectory(Draft.continuation(prefix, RULES), actions, (True,) * len(actions))


orders = st.builds(
    Sentences,
    jump=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    start=st.sampled_from(["end", "uniform"]),
    by=st.sampled_from(["moves", "pointer"]),
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("start", ["end", "uniform"])
@pytest.mark.parametrize("by", ["moves", "pointer"])
@pytest.mark.parametrize("jump", [0.0, 0.3, 1.0])
def test_log_q_sums_to_one_over_all_trajectories_of_a_text(text, start, by, jump):
    order, prefix, total, seen = Sentences(jump, start, by), (5, 40, 6), 0.0, set()
    for actions, probability in enumerate_sentences(order, text, prefix):
        made = trajectory(actions, prefix)
        assert made.final.tokens == (*prefix, *text)
        assert order.log_q(made) == pytest.approx(math.log(probability), abs=1e-9)
        assert actions not in seen, "two obfuscations have the same restoration"
        seen.add(actions)
        total += math.exp(order.log_q(made))
    assert total == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("order", [Sentences(0.4, "end"), Sentences(0.4, "uniform", "moves"), Sentences(1.0)])
def test_trajectories_come_as_often_as_log_q_says(order):
    text, count = (1, 40, 2, 40, 41, 3), 6_000
    expected = dict(enumerate_sentences(order, text))
    draft = Draft.continuation((), RULES)
    seen = Counter(draw(order, draft, text, Random.of(number)).actions[:-1] for number in range(count))
    assert set(seen) <= set(expected)
    for actions, probability in expected.items():
        assert abs(seen[actions] - probability * count) < 5 * math.sqrt(probability * count)


@settings(max_examples=200)
@given(st.lists(st.sampled_from([1, 2, 40]), max_size=7), orders, st.integers(0, 1 << 32), st.data())
def test_what_cannot_be_drawn_has_no_probability(text, order, number, data):
    """Trajectories of other orders: those that Sentences may draw have its probability, all others none."""
    known = {(*actions, ALPHABET.stop): math.log(p) for actions, p in enumerate_sentences(order, text) if p}
    other = data.draw(st.sampled_from([Runs(0.3, by="moves"), Runs(0.3, by="pointer"), Outline(), LeftToRight()]))
    made = other.draw(Draft.continuation((), RULES), text, Random.of(number))
    assert order.log_q(made) == pytest.approx(known.get(made.actions, -math.inf), abs=1e-9)


def test_a_trajectory_written_the_other_way_cannot_be_drawn():
    draft, text = Draft.continuation((), RULES), (1, 40, 2, 40, 3, 40)
    for order in (Sentences, Outline, Ending):
        moves, pointer = (order(by=by).draw(draft, text, Random.of(1)) for by in ("moves", "pointer"))
        assert moves.actions != pointer.actions
        assert moves.log_q == pointer.log_q
        assert order(by="moves").log_q(pointer) == order(by="pointer").log_q(moves) == -math.inf
    deleted = trajectory((1, ALPHABET.delete, 1))
    assert Sentences().log_q(deleted) == Outline().log_q(deleted) == Ending().log_q(deleted) == -math.inf


@pytest.mark.parametrize("text", TEXTS)
def test_one_sentence_or_no_jump_is_left_to_right(text):
    draft = Draft.continuation((), RULES)
    plain = LeftToRight().draw(draft, text, Random.of(0))
    is_one = len(cut_sentences(text, ENDS)) <= 1
    for number in range(10 if is_one else 1):
        for order in (
            (Sentences(0.9), Sentences(1.0, "end"), Outline(), Ending()) if is_one else (Sentences(0.0, "end"),)
        ):
            drawn = order.draw(draft, text, Random.of(number))
            assert (drawn.actions, drawn.log_q) == (plain.actions, 0.0)
    assert Sentences(0.0, "end").log_q(plain) == 0.0


def test_an_outline_goes_back_to_fill_its_groups():
    one, two, three, four, five = ((i, 40) for i in range(1, 6))
    draft, jump = Draft.infill((9,), (8,), RULES), ALPHABET.jump
    text = (9, *one, *two, *three, *four, *five, 8)
    drawn = Outline().draw(draft, text, Random.of(0))
    expected = (*one, *three, *five, jump(3), *two, jump(7), *four, ALPHABET.stop)
    assert (drawn.actions, drawn.log_q, Outline().log_q(drawn)) == (expected, 0.0, 0.0)
    by_threes = Outline(3).draw(draft, text, Random.of(0))
    assert by_threes.actions == (*one, *four, jump(3), *two, *three, jump(9), *five, ALPHABET.stop)
    assert by_threes.final.tokens == text
    assert Outline(3).log_q(drawn) == -math.inf
    assert Outline(5).draw(draft, text, Random.of(0)).actions == (*text[1:-1], ALPHABET.stop)


def test_an_ending_is_written_first():
    one, two, three = ((i, 40) for i in range(1, 4))
    draft, jump = Draft.infill((9,), (8,), RULES), ALPHABET.jump
    text = (9, *one, *two, *three, 8)
    drawn = Ending().draw(draft, text, Random.of(0))
    assert drawn.actions == (*three, jump(1), *one, *two, ALPHABET.stop)
    assert (drawn.final.tokens, drawn.log_q, Ending().log_q(drawn)) == (text, 0.0, 0.0)
    by_twos = Ending(2).draw(draft, text, Random.of(0))
    assert by_twos.actions == (*two, *three, jump(1), *one, ALPHABET.stop)
    assert Ending(2).log_q(drawn) == -math.inf
    assert Ending(3).draw(draft, text, Random.of(0)).actions == (*text[1:-1], ALPHABET.stop)


def test_a_mixture_counts_each_way_to_draw_a_trajectory():
    parts = (Sentences(0.3), Outline(), LeftToRight())
    order = Mixture(tuple(zip((0.5, 0.3, 0.2), parts, strict=True)))
    for actions in ((1, 40, 2, 40), (2, 40, ALPHABET.jump(0), 1, 40)):
        made = trajectory(actions)
        wanted = sum(w * math.exp(part.log_q(made)) for w, part in order.parts)
        assert math.exp(order.log_q(made)) == pytest.approx(wanted)
    assert order.log_q(trajectory((1, 40, 2, 40))) > math.log(0.2)
    drawn = draw(order, Draft.continuation((), RULES), (1, 40, 2, 40, 3), Random.of(4))
    assert drawn.log_q == pytest.approx(order.log_q(drawn))
    assert has_kernel(order)
    assert order.needs == {"jump"}


def test_orders_say_whether_they_need_ends():
    assert needs_ends(parse_order("sentences:jump=0.3,start=uniform,by=moves"))
    assert needs_ends(parse_order("0.5*runs+0.5*outline:every=3"))
    assert not needs_ends(parse_order("0.5*runs:by=pointer+0.5*left-to-right"))
    bare = Rules(ALPHABET, frozenset(OPERATORS))
    for order in (Sentences(), Outline(), Ending()):
        wanted = f"{type(order).__name__} cuts texts at the ends of sentences, and no token is known to end one"
        for way in (order.draw, lambda *given, order=order: draw(order, *given)):
            with pytest.raises(ConfigError, match=wanted):
                way(Draft.continuation((), bare), (1, 2), Random.of(0))
    with pytest.raises(ConfigError, match="Sentences draws jump actions, which are not enabled here"):
        Sentences().draw(Draft.continuation((), Rules(ALPHABET, ends=ENDS)), (1, 2), Random.of(0))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Sentences(1.1), "jump=1.1 is not a probability between 0 and 1"),
        (lambda: Sentences(start="front"), "start='front' does not exist; choose from end, uniform"),
        (lambda: Sentences(by="foot"), "by='foot' does not exist; choose from moves, pointer"),
        (lambda: Outline(1), "every=1 is not a number of sentences in a group; it must be at least 2"),
        (lambda: Ending(0), "sentences=0 is not a number of sentences; it must be at least 1"),
        (lambda: Runs(by="foot"), "by='foot' does not exist; choose from moves, pointer"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()


@pytest.mark.parametrize("by", ["moves", "pointer"])
@pytest.mark.parametrize("kind", [Sentences, partial(Sentences, 1.0), Outline, Ending, Runs])
def test_many_long_targets_draw_like_one(kind, by):
    """Texts given before the targets shift the boundaries that JUMPs name; ways over 512 tokens take more MOVEs."""
    count, order, generator = 12, kind(by=by), np.random.default_rng(3)
    lengths, offsets = generator.integers(0, 1500, count), generator.integers(0, 9, count)
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    tokens = generator.integers(1, 39, bounds[-1]).astype(np.int32)
    tokens[generator.random(len(tokens)) < 0.08] = 40
    states = np.array([Random.of(1, i).state for i in range(count)], np.uint64)
    rows, which = allocate_rows(count, 6000), np.zeros(count, np.int64)
    rooms, cells = np.full(count, 3000), np.empty(3000, np.int32)
    draw_rows(
        [encode_order(order)], which, RULES, tokens, bounds[:-1], bounds[1:], rooms, offsets, states, cells, rows
    )
    for i, offset in enumerate(offsets.tolist()):
        draft, rng = Draft.continuation([7] * offset, RULES), Random.of(1, i)
        one = order.draw(draft, [*([7] * offset), *tokens[bounds[i] : bounds[i + 1]].tolist()], rng)
        assert tuple(rows[i].tolist()) == one.actions
        assert rows.log_q[i] == pytest.approx(one.log_q)
        assert states[i] == rng.state
        assert rows.has_loss[i, rows.begins[i] :].all()


@given(st.lists(st.sampled_from([1, 2, 40, 41]), max_size=20), st.integers(0, 30))
def test_a_row_that_is_too_short_is_said(text, capacity):
    for order in (Sentences(0.5), Outline(), Ending()):
        rows, zero = allocate_rows(1, capacity + 1), np.zeros(1, np.int64)
        draw_rows(
            [encode_order(order)], zero, RULES, np.array(text, np.int32), zero, zero + len(text), zero + 99, zero,
            np.array([5], np.uint64), np.empty(99, np.int32), rows,
        )  # fmt: skip
        one = order.draw(Draft.continuation((), RULES), text, Random(5))
        assert (rows.begins[0] == TOO_LONG) == (capacity + 1 < len(one.actions))
        if rows.begins[0] != TOO_LONG:
            assert tuple(rows[0].tolist()) == one.actions


def test_the_speed_of_orders_that_jump_is_measured():
    orders = {text: parse_order(text) for text in ("sentences", "sentences:jump=1", "outline", "runs:by=pointer")}
    found = measure(num_tokens=60, seconds=0.01, orders=orders)["orders"]
    assert all(each["actions_per_s"] > 0 for each in found.values())
    assert found["sentences"]["actions_per_token"] < found["sentences:jump=1"]["actions_per_token"]
