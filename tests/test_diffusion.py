"""MDLM and SEDD on texts few enough to write down: bounds against entropies, samplers against distributions."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.actions import Alphabet
from reviser.data.examples import Gap
from reviser.decoding.sampling import GREEDY, Sampling
from reviser.diffusion.bound import bound_nats, common_room, place_nats
from reviser.diffusion.noise import draw_noise, spread, spread_samples
from reviser.diffusion.sampler import RoomRequest, fill
from reviser.errors import ConfigError
from reviser.model.attention import Layout

V, L = 3, 3
PAD, MASK = 2, 3
TEXTS = list(itertools.product(range(V), repeat=L))
CANVASES = list(itertools.product(range(V + 1), repeat=L))
PLAIN = Sampling(temperature=1, top_k=0)


class Table:
    """A denoiser that is a table: m(y) for each canvas with masked places, each place and token."""

    alphabet = Alphabet(num_text=V, pad=PAD)

    def __init__(self, shares, is_timed=False):
        self.log_m, self.is_timed = torch.tensor(shares).log(), is_timed

    def log_scores(self, tokens, levels, layout, chosen):
        assert tokens.shape[1] == L, "canvases of one length have no padding"
        place = torch.tensor([(V + 1) ** (L - 1 - i) for i in range(L)])
        states = (tokens * place).sum(dim=1)
        return self.log_m[states].flatten(0, 1)[chosen]


def matches(text, canvas):
    return all(seen in (MASK, token) for token, seen in zip(text, canvas, strict=True))


def best(probabilities):
    """The table of exact posteriors: what stands at a place, given what is shown."""
    shares = np.full((len(CANVASES), L, V), 1 / V)
    for row, canvas in enumerate(CANVASES):
        fitting = [(p, text) for p, text in zip(probabilities, TEXTS, strict=True) if matches(text, canvas)]
        total = sum(p for p, _ in fitting)
        for i in range(L) if total > 0 else ():
            for y in range(V):
                shares[row, i, y] = sum(p for p, text in fitting if text[i] == y) / total
    return shares


def random_table(seed, scale=None, evenness=0.7):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(V, evenness), (len(CANVASES), L)) + 1e-9
    return shares if scale is None else shares * rng.uniform(*scale, (len(CANVASES), L, 1))


def random_data(seed):
    return np.random.default_rng(seed).dirichlet(np.full(len(TEXTS), 0.3))


def integral(model):
    """Every text's bound, the integral over t of (1 / t) E sum of nats, by Gauss's rule: exact for polynomials."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    levels, weights = (nodes + 1) / 2, weights / 2
    bounds = np.zeros(len(TEXTS))
    for number, text in enumerate(TEXTS):
        for hidden in itertools.product((0, 1), repeat=L):
            chosen = [i for i in range(L) if hidden[i]]
            if not chosen:
                continue
            canvas = torch.tensor([[MASK if h else token for token, h in zip(text, hidden, strict=True)]])
            labels = torch.tensor([text[i] for i in chosen])
            layout = Layout.of(torch.zeros(1, L))
            nats = float(place_nats(model, canvas, torch.ones(1), layout, torch.tensor(chosen), labels).sum())
            k = len(chosen)
            bounds[number] += nats * float((weights * levels ** (k - 1) * (1 - levels) ** (L - k)).sum())
    return bounds


def entropy(probabilities):
    return float(-(probabilities[probabilities > 0] * np.log(probabilities[probabilities > 0])).sum())


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_the_bound_of_the_best_denoiser_is_the_entropy(seed):
    data = random_data(seed)
    assert float((data * integral(Table(best(data)))).sum()) == pytest.approx(entropy(data), abs=1e-6)


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_no_denoiser_is_below_the_entropy_and_a_scaled_one_is_above_itself(seed):
    data, shares = random_data(seed), random_table(seed)
    plain, scaled = integral(Table(shares)), integral(Table(random_table(seed, scale=(0.4, 2.5)), is_timed=True))
    assert float((data * plain).sum()) >= entropy(data)
    assert (scaled >= plain - 1e-9).all()


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_the_probabilities_that_bounds_promise_sum_to_at_most_one(seed):
    assert np.exp(-integral(Table(random_table(seed)))).sum() <= 1 + 1e-9


def test_drawing_the_number_first_is_drawing_the_time_first():
    """E[w 1(S) t^j] against the integral of t^(|S| - 1 + j) (1 - t)^(L - |S|), for every set S of places."""
    rng, count = np.random.default_rng(0), 60_000
    noise = draw_noise(np.full(count, L), spread(count, 0.3), rng.random(count * L))
    sets = noise.is_masked.reshape(count, L) @ [4, 2, 1]
    for hidden in itertools.product((0, 1), repeat=L):
        k, is_here = sum(hidden), sets == np.dot(hidden, [4, 2, 1])
        if not k:
            assert not is_here.any()
            continue
        for j in (0, 1, 2):
            wanted = math.gamma(k + j) * math.gamma(L - k + 1) / math.gamma(L + j + 1)
            assert (noise.weights * is_here * noise.levels**j).mean() == pytest.approx(wanted, rel=0.04)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0, 0.999), st.integers(0, 99))
def test_as_many_places_are_masked_as_the_weight_says(lengths, shift, seed):
    lengths = np.array(lengths)
    noise = draw_noise(lengths, spread(len(lengths), shift), np.random.default_rng(seed).random(int(lengths.sum())))
    parts = np.split(noise.is_masked, np.cumsum(lengths)[:-1])
    assert [part.sum() for part in parts] == pytest.approx((lengths / noise.weights).tolist())
    assert all(part.any() for part in parts)


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 0.999))
def test_phases_are_spread_evenly_and_belong_to_their_number(count, samples, shift):
    phases = spread_samples(np.arange(count), samples, shift)
    gaps = np.diff(np.sort(phases, axis=1), axis=1)
    assert gaps == pytest.approx(np.full_like(gaps, 1 / samples))
    assert spread_samples(np.array([count - 1]), samples, shift)[0] == pytest.approx(phases[-1])


def test_the_drawn_bound_has_the_integral_as_its_mean():
    model = Table(random_table(5, scale=(0.5, 2.0), evenness=5), is_timed=True)
    gaps = [Gap(text) for text in TEXTS]
    draws = np.stack([bound_nats(model, gaps, L, samples=9, seed=seed) for seed in range(24)])
    error = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - integral(model)) <= 4 * error + 1e-6).all()
    assert error.mean() < 0.05


def test_a_text_and_its_end_are_scored_together():
    """A text shorter than the room is the text followed by padding."""
    model = Table(random_table(2))
    short = bound_nats(model, [Gap([0]), Gap([1, 0])], L, samples=6, seed=3)
    whole = bound_nats(model, [Gap([0, PAD, PAD]), Gap([1, 0, PAD])], L, samples=6, seed=3)
    assert short.tolist() == whole.tolist()
    assert common_room([Gap([0]), Gap([1, 0])]) == L


def test_what_is_given_is_never_masked_nor_scored():
    data = random_data(8)
    model, first = Table(best(data)), np.array([text[0] for text in TEXTS])
    gaps = [Gap(text[1:], prefix=text[:1]) for text in TEXTS]
    draws = np.mean([bound_nats(model, gaps, L - 1, samples=8, seed=seed) for seed in range(30)], axis=0)
    marginal = np.array([data[first == token].sum() for token in range(V)])
    assert float((data * draws).sum()) == pytest.approx(entropy(data) - entropy(marginal), abs=0.03)


def total_variation(filled, probabilities):
    found = np.zeros(len(TEXTS))
    for each in filled:
        found[TEXTS.index(each.tokens)] += 1 / len(filled)
    return 0.5 * float(np.abs(found - probabilities).sum())


def write(model, steps, count=3000, sampling=PLAIN):
    return fill(model, [RoomRequest(L, seed) for seed in range(count)], steps, sampling, num_rows=count)


@pytest.mark.parametrize("is_timed", [False, True], ids=["mdlm", "sedd"])
def test_many_steps_of_the_best_denoiser_give_the_data(is_timed):
    data = random_data(1)
    assert total_variation(write(Table(best(data), is_timed), steps=200), data) < 0.05


@pytest.mark.parametrize("is_timed", [False, True], ids=["mdlm", "sedd"])
def test_one_step_writes_each_place_by_itself(is_timed):
    data = random_data(1)
    shares = best(data)
    alone = shares[CANVASES.index((MASK,) * L)]
    product = np.array([math.prod(alone[i, token] for i, token in enumerate(text)) for text in TEXTS])
    filled = write(Table(shares, is_timed), steps=1)
    assert total_variation(filled, product) < 0.05
    assert total_variation(filled, data) > 0.2
    assert {each.num_passes for each in filled} == {1}


def test_a_model_blind_to_time_is_asked_only_when_a_place_is_shown():
    filled = write(Table(best(random_data(1))), steps=500, count=50)
    assert max(each.num_passes for each in filled) <= L
    assert sum(each.num_passes == L for each in filled) > 40


def test_scores_below_one_show_places_later_and_none_stays_masked():
    """m = (0.5, 0.25, 0.05) everywhere: at the last step all that is left is shown, by the shares of m."""
    shares = np.broadcast_to([0.5, 0.25, 0.05], (len(CANVASES), L, V)).copy()
    filled = write(Table(shares, is_timed=True), steps=4)
    alone = np.array([0.5, 0.25, 0.05]) / 0.8
    assert total_variation(filled, np.array([math.prod(alone[list(text)]) for text in TEXTS])) < 0.05


def test_temperature_and_truncation_shape_the_token_alone():
    shares = np.broadcast_to([0.5, 0.3, 0.2], (len(CANVASES), L, V)).copy()
    assert {each.tokens for each in write(Table(shares), 3, count=9, sampling=GREEDY)} == {(0, 0, 0)}
    two = write(Table(shares), 3, sampling=Sampling(temperature=1, top_k=2))
    first = np.mean([each.tokens[0] == 0 for each in two])
    assert first == pytest.approx(0.625, abs=0.03)
    assert all(PAD not in each.tokens for each in two)
    sharp = write(Table(shares), 3, sampling=Sampling(temperature=0.5, top_k=0))
    assert np.mean([each.tokens[0] == 0 for each in sharp]) == pytest.approx(0.25 / 0.38, abs=0.03)


def test_a_text_ends_at_the_first_padding():
    shares = np.full((len(CANVASES), L, V), 1e-9)
    shares[:, [0, 1, 2], [1, PAD, 0]] = 1
    one = write(Table(shares), 2, count=1)[0]
    assert (one.tokens, one.text, one.has_stopped) == ((1, PAD, 0), (1,), True)


def test_errors_say_what_is_allowed():
    model = Table(best(random_data(0)))
    with pytest.raises(ConfigError, match="0 steps; a diffusion model takes at least 1"):
        fill(model, [RoomRequest(L, 0)], 0)
    with pytest.raises(ConfigError, match="temperature, top_k, top_p and min_p alone"):
        fill(model, [RoomRequest(L, 0)], 1, Sampling(calm=True))
    with pytest.raises(ConfigError, match="a room of 0 places"):
        fill(model, [RoomRequest(0, 0)], 1)
    with pytest.raises(ConfigError, match="0 samples a text"):
        bound_nats(model, [Gap([1])], L, samples=0)
    with pytest.raises(ConfigError, match="a text of 3 tokens does not fit a room of 2"):
        bound_nats(model, [Gap([1, 1, 1])], 2)
