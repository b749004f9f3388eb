"""Orders: every trajectory rebuilds its target, log q is a distribution, kernels draw what the reference draws."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramble import Scramble

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Rules
from reviser.errors import ConfigError
from reviser.orders import kernels
from reviser.orders.draw import allocate_rows, draw, draw_rows, encode_order
from reviser.orders.policies import (
    Diff,
    LeftToRight,
    Mixture,
    RandomWalk,
    Runs,
    components,
    has_kernel,
    pick,
)
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import format_order, parse_order
from reviser.orders.rng import Random
from reviser.orders.sentences import Ending, Outline, Sentences

ALPHABET = Alphabet(num_text=60, pad=0)
ALL = Rules(ALPHABET, frozenset(OPERATORS), max_length=128, ends=frozenset({3, 7, 9}))

orders = st.one_of(
    st.builds(
        RandomWalk,
        delete=st.floats(0.5, 1.0),
        start=st.sampled_from(["uniform", "front"]),
        max_move=st.sampled_from([1, 2, 8, 512]),
        noise=st.sampled_from([0.0, 0.1]),
        noise_from=st.sampled_from(["vocabulary", "document"]),
    ),
    st.builds(
        Runs,
        jump=st.floats(0.0, 0.9),
        start=st.sampled_from(["uniform", "end"]),
        noise=st.sampled_from([0.0, 0.2]),
        noise_from=st.sampled_from(["vocabulary", "document"]),
        by=st.sampled_from(["moves", "pointer"]),
    ),
    st.just(LeftToRight()),
    st.builds(
        Sentences,
        jump=st.floats(0.0, 0.9),
        start=st.sampled_from(["uniform", "end"]),
        by=st.sampled_from(["moves", "pointer"]),
    ),
    st.builds(Outline, every=st.integers(2, 5), by=st.sampled_from(["moves", "pointer"])),
    st.builds(Ending, sentences=st.integers(1, 4), by=st.sampled_from(["moves", "pointer"])),
    st.builds(
        Scramble,
        edit=st.floats(0.0, 0.3),
        jump=st.floats(0.0, 0.5),
        start=st.sampled_from(["uniform", "end"]),
    ),
    st.just(Mixture(((0.6, Runs(0.2)), (0.3, LeftToRight()), (0.1, RandomWalk())))),
    st.just(Mixture(((1 / 3, Runs(0.2)), (2 / 3, Diff())))),
    st.just(Mixture(((0.5, Sentences()), (0.2, Outline()), (0.2, LeftToRight()), (0.1, Runs(0.1, by="pointer"))))),
)
NESTED = Mixture(((0.5, Mixture(((0.5, Runs(0.2)), (0.5, RandomWalk())))), (0.5, LeftToRight())))
texts = st.lists(st.integers(1, 12), max_size=30)
ends = texts.map(lambda t: t[:4])


@settings(max_examples=300)
@given(
    orders | st.just(NESTED), texts, texts.map(lambda t: t[:4]), texts.map(lambda t: t[:4]), st.integers(0, 1 << 32)
)
def test_every_draw_rebuilds_its_target_and_the_kernel_draws_the_same(order, middle, prefix, suffix, number):
    draft, target = Draft.infill(prefix, suffix, ALL), [*prefix, *middle, *suffix]
    slow_rng, fast_rng = Random.of(number), Random.of(number)
    slow, fast = order.draw(draft, target, slow_rng), draw(order, draft, target, fast_rng)
    assert slow.final.tokens == tuple(target)
    assert slow.actions[-1] == ALPHABET.stop
    assert (slow.actions, slow.has_loss) == (fast.actions, fast.has_loss)
    assert slow_rng.state == fast_rng.state
    assert slow.log_q == pytest.approx(fast.log_q, abs=1e-9) if order.has_likelihood else fast.log_q is None
    if order.has_likelihood:
        assert order.log_q(slow) == pytest.approx(slow.log_q, abs=1e-9)


@settings(max_examples=60)
@given(texts, st.integers(0, 1 << 32))
def test_noise_is_mended_with_loss_and_made_without(middle, number):
    draft = Draft.continuation([], ALL)
    for order in (Scramble(edit=0.3), Runs(noise=0.3), RandomWalk(noise=0.2)):
        drawn = order.draw(draft, middle, Random.of(number))
        assert all(
            loss or ALPHABET.is_insert(action) for action, loss in zip(drawn.actions, drawn.has_loss, strict=True)
        )
        kept = sum(
            ALPHABET.is_insert(action) and loss for action, loss in zip(drawn.actions, drawn.has_loss, strict=True)
        )
        if isinstance(order, Scramble):
            assert kept <= len(middle) + drawn.actions.count(ALPHABET.replace)
        else:
            assert kept == len(middle)


def test_scramble_uses_every_operator_and_only_enabled_ones():
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9] * 3
    seen = Counter()
    for number in range(200):
        drawn = Scramble(edit=0.3).draw(Draft.continuation([], ALL), text, Random.of(number))
        seen.update(ALPHABET.operator(a) for a in drawn.actions)
    assert set(seen) == {None, *OPERATORS} - {"jump"}
    few = Rules(ALPHABET, frozenset({"move", "swap"}), max_length=128)
    drawn = Scramble(edit=0.3).draw(Draft.continuation([], few), text, Random.of(1))
    assert {ALPHABET.operator(a) for a in drawn.actions} <= {None, "move", "swap"}


def enumerate_runs(length, jump, start, by="moves"):
    """All obfuscations of `Runs` from its definition: restoration actions and probability."""
    starts = [(u, 1 / (length + 1)) for u in range(length + 1)] if start == "uniform" else [(length, 1.0)]
    for cursor, probability in starts:
        yield from _enumerate_runs(list(range(1, length + 1)), cursor, (jump, by), False, (), probability)


def _enumerate_runs(cells, u, order, has_jumped, restored, probability):
    if not cells:
        yield restored, probability
        return
    places = [v for v in range(1, len(cells) + 1) if v != u]
    p_jump = 0.0 if has_jumped or not places else 1.0 if u == 0 else order[0]
    for v in places if p_jump else ():
        back = ALPHABET.way(v, u, order[1] == "pointer")
        yield from _enumerate_runs(cells, v, order, True, back + restored, probability * p_jump / len(places))
    if p_jump < 1:
        rest = cells[: u - 1] + cells[u:]
        restored = (cells[u - 1], *restored)
        yield from _enumerate_runs(rest, u - 1, order, False, restored, probability * (1 - p_jump))


def _trajectory(actions):
    actions = (*actions, ALPHABET.stop)
    return Trajectory(Draft.continuation([], ALL), actions, (True,) * len(actions))


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("start", ["uniform", "end"])
@pytest.mark.parametrize("by", ["moves", "pointer"])
def test_log_q_of_runs_sums_to_one_over_all_its_trajectories(length, start, by):
    order, total, seen = Runs(0.3, start, by=by), 0.0, set()
    for actions, probability in enumerate_runs(length, 0.3, start, by):
        log_q = order.log_q(_trajectory(actions))
        assert log_q == pytest.approx(math.log(probability), abs=1e-9)
        seen.add(actions)
        total += math.exp(log_q)
    assert total == pytest.approx(1.0, abs=1e-9)
    assert len(seen) == len(list(enumerate_runs(length, 0.3, start)))


@settings(max_examples=60)
@given(texts, ends, st.integers(0, 1 << 32))
def test_runs_by_pointer_jump_where_runs_by_moves_go(middle, prefix, number):
    draft, target = Draft.infill(prefix, [5], ALL), [*prefix, *middle, 5]
    moves, pointer = (Runs(0.4, by=by).draw(draft, target, Random.of(number)) for by in ("moves", "pointer"))
    assert moves.log_q == pointer.log_q
    assert [a for a in moves.actions if a < 60] == [a for a in pointer.actions if a < 60]
    if moves.actions != pointer.actions:
        assert Runs(0.4).log_q(pointer) == Runs(0.4, by="pointer").log_q(moves) == -math.inf
    twice = Trajectory(draft, (5, ALPHABET.jump(len(prefix)), ALPHABET.jump(len(prefix) + 1), 8), (True,) * 4)
    assert Runs(0.4, by="pointer").log_q(twice) == -math.inf


def restorations(length, most, low_moves):
    """All action sequences of at most `most` actions that grow tokens 1..length from nothing."""
    moves = [d for k in range(low_moves) for d in (1 << k, -(1 << k))]

    def grow(cells, u, left, actions):
        if len(cells) == length and cells == sorted(cells):
            yield actions
        if not left:
            return
        for d in moves:
            if 0 <= u + d <= len(cells):
                yield from grow(cells, u + d, left - 1, (*actions, ALPHABET.move(d)))
        for token in range(1, length + 1):
            grown = [*cells[:u], token, *cells[u:]]
            if token not in cells and grown == sorted(grown):
                yield from grow(grown, u + 1, left - 1, (*actions, token))

    yield from grow([], 0, most, ())


def unfinished_mass(length, steps, delete, start):
    """The probability that a random walk has not emptied the canvas after some steps, by dynamic programming."""
    mass = {(u, length): 1 / (length + 1) for u in range(length + 1)} if start == "uniform" else {(0, length): 1.0}
    for _ in range(steps):
        after = Counter()
        for (u, size), p in mass.items():
            moves = [d for k in range(10) for d in (1 << k, -(1 << k)) if 0 <= u + d <= size]
            p_delete = delete if u else 0.0
            if u and size > 1:
                after[u - 1, size - 1] += p * p_delete
            for d in moves:
                after[u + d, size] += p * (1 - p_delete) / len(moves)
        mass = after
    return sum(mass.values())


@pytest.mark.parametrize("start", ["uniform", "front"])
@pytest.mark.parametrize(("length", "most"), [(1, 12), (2, 9), (3, 8)])
def test_log_q_of_the_random_walk_sums_to_one_with_what_is_unfinished(length, most, start):
    order = RandomWalk(0.8, start)
    total = sum(math.exp(order.log_q(_trajectory(a))) for a in restorations(length, most, 2))
    assert total + unfinished_mass(length, most, 0.8, start) == pytest.approx(1.0, abs=1e-9)


def test_a_longer_walk_always_ends():
    assert unfinished_mass(12, 400, 0.8, "uniform") < 1e-9


def test_a_mixtures_log_q_is_that_of_the_mixture():
    order = Mixture(((3.0, Runs(0.3, "end")), (1.0, LeftToRight())))
    total, found = 0.0, {actions for actions, _ in enumerate_runs(3, 0.3, "end")} | {(1, 2, 3)}
    for actions in found:
        drawn = _trajectory(actions)
        parts = 0.75 * math.exp(Runs(0.3, "end").log_q(drawn)) + 0.25 * math.exp(LeftToRight().log_q(drawn))
        assert math.exp(order.log_q(drawn)) == pytest.approx(parts)
        total += math.exp(order.log_q(drawn))
    assert total == pytest.approx(1.0)
    appended = order.log_q(_trajectory((1, 2, 3)))
    assert appended > math.log(0.25), "left-to-right could have come from either part"


@pytest.mark.parametrize("order", [RandomWalk(), Runs(0.3), Mixture(((1, Runs(0.3)), (1, LeftToRight())))])
def test_trajectories_come_as_often_as_log_q_says(order):
    count, seen, log_q = 20_000, Counter(), {}
    draft = Draft.continuation([], ALL)
    for number in range(count):
        drawn = draw(order, draft, [1, 2], Random.of(number))
        seen[drawn.actions] += 1
        log_q[drawn.actions] = drawn.log_q
    for actions, times in seen.most_common(6):
        expected = math.exp(log_q[actions]) * count
        assert abs(times - expected) < 5 * math.sqrt(expected)


@given(orders | st.just(NESTED), st.integers(0, 1 << 32))
def test_what_is_picked_is_a_component_and_picks_itself(order, number):
    rng = Random.of(number)
    picked = pick(order, rng)
    assert any(picked is each for each in components(order))
    assert components(picked) == (picked,)
    state = rng.state
    assert pick(picked, rng) is picked
    assert rng.state == state
    assert has_kernel(order) == all(map(has_kernel, components(order)))


def test_a_subclass_of_an_order_with_a_kernel_is_drawn_by_its_own_method():
    class Shy(Runs):
        def draw(self, draft, target, rng):
            return LeftToRight().draw(draft, target, rng)

    assert not has_kernel(Shy(0.9))
    drawn = draw(Shy(0.9), Draft.continuation([], ALL), [1, 2, 3], Random.of(0))
    assert drawn.actions == (1, 2, 3, ALPHABET.stop)


def test_front_and_end_starts_leave_the_cursor_there():
    draft = Draft.continuation([9], ALL)
    assert RandomWalk(start="front").draw(draft, [9, 1, 2, 3], Random.of(5)).final.cursor == 1
    assert Runs(0.5, "end").draw(draft, [9, 1, 2, 3], Random.of(5)).final.cursor == 4


def test_runs_that_never_jump_from_the_end_are_left_to_right():
    draft = Draft.continuation([9], ALL)
    drawn = Runs(0.0, "end").draw(draft, [9, 1, 2, 3], Random.of(5))
    assert drawn.actions == LeftToRight().draw(draft, [9, 1, 2, 3], Random.of(5)).actions
    assert drawn.log_q == 0.0


@settings(max_examples=30)
@given(st.integers(0, 1 << 32))
def test_a_budget_is_kept_and_costs_the_likelihood(number):
    order, draft, text = RandomWalk(budget=24), Draft.continuation([], ALL), list(range(1, 17))
    slow, fast = order.draw(draft, text, Random.of(number)), draw(order, draft, text, Random.of(number))
    assert slow.actions == fast.actions
    assert len(slow.actions) - 1 <= 24
    assert slow.log_q is None
    assert not order.has_likelihood


def test_what_an_order_cannot_do_is_said():
    draft, text = Draft.continuation([], ALL), list(range(1, 30))
    with pytest.raises(ConfigError, match="a budget of 10 steps cannot remove 29 tokens"):
        RandomWalk(budget=10).draw(draft, text, Random.of(0))
    with pytest.raises(ConfigError, match="none of 1000 draws of 29 tokens took at most 29 steps; raise the budget"):
        RandomWalk(budget=29).draw(draft, text, Random.of(0))
    with pytest.raises(ConfigError, match="no draw of 29 tokens kept to its budget; raise the budget"):
        draw(RandomWalk(budget=29), draft, text, Random.of(0))
    with pytest.raises(ConfigError, match="Runs grows text from a blank; to change existing text use Diff"):
        Runs().draw(Draft.edit([1, 2], ALL), [1, 2, 3], Random.of(0))
    with pytest.raises(ConfigError, match="the target does not begin and end with the draft's protected text"):
        Runs().draw(Draft.continuation([5], ALL), [4, 3], Random.of(0))
    with pytest.raises(ConfigError, match="Runs draws delete actions, which are not enabled here"):
        Runs(noise=0.1).draw(Draft.continuation([], Rules(ALPHABET)), [1], Random.of(0))
    with pytest.raises(ConfigError, match=r"the target has 200 tokens and the canvas holds at most 128; shorten it"):
        Runs().draw(draft, [1] * 200, Random.of(0))
    with pytest.raises(ConfigError, match="Diff has no kernel; draw it with its own draw method"):
        encode_order(Diff())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomWalk(delete=1.5), "delete=1.5 is not a probability between 0.01 and 1"),
        (lambda: RandomWalk(max_move=3), "max_move=3 is not a power of two from 1 to 512"),
        (lambda: RandomWalk(start="end"), "start='end' does not exist; choose from uniform, front"),
        (lambda: Runs(jump=1.0), "jump=1.0 is not a probability between 0 and 0.99"),
        (lambda: Runs(noise=0.9), "noise=0.9 is not a probability between 0 and 0.4"),
        (lambda: Runs(noise_from="air"), "noise_from='air' does not exist; choose from vocabulary, document"),
        (lambda: Mixture(()), "a mixture needs at least one order, each with a finite weight above 0"),
        (lambda: parse_order("nan*runs+1*runs"), "each with a finite weight above 0"),
        (lambda: RandomWalk(budget=-1), "budget=-1 is not a number of steps; it must be at least 1"),
        (lambda: parse_order("run"), "no order 'run'; orders are random-walk, runs, .* did you mean runs"),
        (lambda: parse_order("runs:p=1"), "runs has no setting 'p'; it has jump, start, noise, noise_from, by"),
        (lambda: parse_order("left-to-right:needs=1"), "left-to-right has no setting 'needs'; it has none"),
        (lambda: parse_order("runs:jump=x"), "order runs: jump is 'x'; it must be a number"),
        (lambda: parse_order("random-walk:max_move=1.5"), "max_move is '1.5'; it must be a whole number"),
        (lambda: parse_order("0.5*runs+left-to-right"), "'left-to-right' in a mixture has no weight"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()


@given(orders)
def test_an_orders_name_reads_back(order):
    assert parse_order(format_order(order)) == order


def test_many_targets_draw_like_one():
    order, count = Runs(0.2), 50
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 40, count)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    tokens = generator.integers(1, 60, offsets[-1]).astype(np.int32)
    states = np.empty(count, np.uint64)
    kernels.stream_states(np.uint64(Random.of(7).state), 100, states)
    rows = allocate_rows(count, 400)
    which, rooms = np.zeros(count, np.int64), np.full(count, 128)
    codes, cells = [encode_order(order)], np.empty(256, np.int32)
    draw_rows(codes, which, ALL, tokens, offsets[:-1], offsets[1:], rooms, which, states, cells, rows)
    for i in range(count):
        target = tokens[offsets[i] : offsets[i + 1]].tolist()
        one = order.draw(Draft.continuation([], ALL), target, Random.of(7, 100 + i))
        assert tuple(rows[i].tolist()) == one.actions
        assert rows.log_q[i] == pytest.approx(one.log_q)
