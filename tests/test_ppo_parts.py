"""The parts of PPO: ranks, guard, advantages, and a loss whose gradient can be computed by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reviser.actions import DELETE, JUMP, MOVES, NUM_SPECIAL, REPLACE, STOP, Alphabet
from reviser.errors import ConfigError
from reviser.own_states.advantages import episode_rewards, estimate, group_advantages, normalise
from reviser.own_states.policy_loss import TYPES, choice_terms, clipped_losses, type_table
from reviser.own_states.ppo_settings import GuardConfig, PpoConfig
from reviser.own_states.rank_rewards import guarded_rewards, passes_guard, rank_rewards, share_repeated

SCORES = st.lists(st.sampled_from([-math.inf, -2.5, 0.0, 0.1, 1.0, 7.0]), min_size=2, max_size=9)


@given(st.permutations(range(7)))
def test_rank_rewards_without_ties_are_the_papers(scores):
    rewards = rank_rewards(scores)
    for rank, place in enumerate(sorted(range(7), key=lambda i: -scores[i]), 1):
        assert rewards[place] == 1 - (rank - 1) / 6


@given(SCORES)
def test_rank_rewards_keep_their_mean_and_the_order_of_the_scores(scores):
    rewards = rank_rewards(scores)
    assert sum(rewards) == pytest.approx(len(scores) / 2)
    assert all(0 <= reward <= 1 for reward in rewards)
    for one, first in zip(scores, rewards, strict=True):
        for other, second in zip(scores, rewards, strict=True):
            assert (one > other) == (first > second)


@given(SCORES.flatmap(lambda scores: st.tuples(st.just(scores), st.permutations(range(len(scores))))))
def test_rank_rewards_do_not_depend_on_the_order_of_the_texts(given_scores):
    scores, order = given_scores
    assert rank_rewards([scores[i] for i in order]) == [rank_rewards(scores)[i] for i in order]


@given(SCORES.flatmap(lambda s: st.tuples(st.just(s), st.lists(st.booleans(), min_size=len(s), max_size=len(s)))))
def test_texts_that_the_guard_refuses_rank_below_all_others_and_tie(judged):
    scores, is_sound = judged
    rewards = guarded_rewards(scores, is_sound)
    refused = {reward for reward, passes in zip(rewards, is_sound, strict=True) if not passes}
    passed = [reward for reward, passes in zip(rewards, is_sound, strict=True) if passes]
    assert len(refused) <= 1
    assert all(reward > max(refused, default=-1) for reward in passed)
    assert sum(rewards) == pytest.approx(len(scores) / 2)


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12), st.integers(1, 4))
def test_the_share_of_repeated_ngrams_is_that_of_its_definition(before, written, size):
    tokens = [*before, *written]
    grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    own = [i for i in range(len(grams)) if i + size > len(before)]
    repeated = [i for i in own if grams[i] in grams[:i]]
    assert share_repeated(before, written, size) == pytest.approx(len(repeated) / max(len(own), 1))


def test_the_guard_refuses_what_is_too_short_too_long_unended_or_a_loop():
    guard = GuardConfig(least=4, most=20, ends=True, gram=2, repeats=0.3)
    text = list(range(10))
    assert passes_guard([1, 2], text, True, guard)
    assert not passes_guard([1, 2], text, False, guard)
    assert not passes_guard([], text[:3], True, guard)
    assert not passes_guard([], list(range(21)), True, guard)
    assert not passes_guard([], [1, 2, 3] * 4, True, guard)
    assert not passes_guard(text, text, True, guard)  # copies the prompt


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.1))
def test_advantages_are_the_sums_of_discounted_surprises(values, discount, trace, penalty):
    rewards = episode_rewards(len(values), 1.0, penalty)
    assert rewards.sum() == pytest.approx(1 - penalty * len(values))
    advantages, returns = estimate(values, rewards, discount, trace)
    following = [*values[1:], 0.0]
    surprises = [r + discount * after - v for r, after, v in zip(rewards, following, values, strict=True)]
    for step in range(len(values)):
        ahead = sum((discount * trace) ** k * each for k, each in enumerate(surprises[step:]))
        assert advantages[step] == pytest.approx(ahead, abs=1e-9)
    np.testing.assert_allclose(returns, advantages + values)


def test_group_advantages_are_level_within_each_group_and_zero_where_all_tie():
    found = group_advantages([0.0, 1.0, 0.5, 0.5, 3.0, 1.0], 2)
    np.testing.assert_allclose(found, [-1, 1, 0, 0, 1, -1])
    level = normalise(np.array([1.0, 2.0, 6.0]))
    assert (level.mean(), level.std()) == (pytest.approx(0), pytest.approx(1))


# A bandit: one state, in which a, b and STOP are valid. Its policy is a softmax over three numbers.
ALPHABET = Alphabet(num_text=3, pad=2)
VALID = (1 << NUM_SPECIAL) | (1 << STOP)
ARMS = [0, 1, ALPHABET.stop]
LOGITS = torch.tensor([0.3, -0.4, 0.9], dtype=torch.float64)
START = torch.tensor([0.0, 0.5, 0.1], dtype=torch.float64)


def play(theta, labels, old, advantages, clip=0.2, entropy=0.0, kl=0.0, types=0.0):
    """The mean loss of labels that were all chosen in the bandit's state."""
    count, table = len(labels), type_table(ALPHABET)

    def widen(arms):
        return torch.zeros(count, ALPHABET.size).index_add(1, torch.tensor(ARMS), arms.float().expand(count, 3))

    found = choice_terms(
        widen(theta), torch.tensor([ARMS[i] for i in labels]), torch.full((count,), VALID), ALPHABET, table,
        widen(START),
    )  # fmt: skip
    gain = clipped_losses(found.log_p, torch.tensor(old), torch.tensor(advantages), clip)
    return (gain + kl * found.kl + types * found.type_kl - entropy * found.entropy).mean()


def gradient(**terms):
    theta = LOGITS.clone().requires_grad_()
    play(theta, **terms).backward()
    return theta.grad.numpy()


P = LOGITS.softmax(0).numpy()
LOG_P, LOG_R = np.log(P), np.log(START.softmax(0).numpy())


def test_the_gradient_on_a_bandit_is_the_analytic_one():
    labels, advantages = [0, 2, 2, 1], [1.0, -0.5, 2.0, 0.3]
    found = gradient(labels=labels, old=[float(LOG_P[i]) for i in labels], advantages=advantages)
    by_hand = -np.mean([a * (np.eye(3)[i] - P) for i, a in zip(labels, advantages, strict=True)], axis=0)
    np.testing.assert_allclose(found, by_hand, atol=1e-6)


def test_a_ratio_beyond_the_clip_has_no_gradient_where_it_would_gain_and_a_full_one_where_it_loses():
    old = float(LOG_P[0]) - 0.5  # the action has become e^0.5 as probable
    assert np.abs(gradient(labels=[0], old=[old], advantages=[1.0])).max() == 0
    found = gradient(labels=[0], old=[old], advantages=[-1.0])
    np.testing.assert_allclose(found, math.exp(0.5) * (np.eye(3)[0] - P), rtol=1e-5)


def test_entropy_and_divergence_have_their_analytic_gradients():
    one = {"labels": [0], "old": [0.0], "advantages": [0.0]}
    entropy = -(P * LOG_P).sum()
    np.testing.assert_allclose(gradient(**one, entropy=1.0), P * (LOG_P + entropy), atol=1e-6)
    kl = (P * (LOG_P - LOG_R)).sum()
    np.testing.assert_allclose(gradient(**one, kl=1.0), P * (LOG_P - LOG_R - kl), atol=1e-6)
    # Types are INSERT, which has two arms, and STOP.
    own, start = np.array([P[0] + P[1], P[2]]), np.exp([np.logaddexp(*LOG_R[:2]), LOG_R[2]])
    ratio = np.log(own / start)
    by_hand = P * (ratio[[0, 0, 1]] - (own * ratio).sum())
    np.testing.assert_allclose(gradient(**one, types=1.0), by_hand, atol=1e-6)


def test_following_the_gradient_finds_the_better_arm():
    theta, rewards = torch.zeros(3, dtype=torch.float64), [0.0, 1.0, 0.2]
    for _ in range(60):
        now = theta.clone().requires_grad_()
        log_p = theta.log_softmax(0)
        mean = float(log_p.exp() @ torch.tensor(rewards).double())
        play(now, [0, 1, 2], log_p.tolist(), [reward - mean for reward in rewards]).backward()
        theta -= now.grad
    assert theta.argmax() == 1


def test_every_action_has_a_type():
    table = [TYPES[i] for i in type_table(ALPHABET)]
    assert table[:3] == ["insert"] * 3
    named = {offset: table[3 + offset] for offset in (DELETE, STOP, MOVES, REPLACE - 1, REPLACE, JUMP)}
    assert list(named.values()) == ["delete", "stop", "move", "move", "replace", "move"]


@pytest.mark.parametrize(
    ("section", "values", "said"),
    [
        (PpoConfig, {"candidates": 1}, "ppo.candidates=1 must be at least 2, or there is nothing to rank"),
        (PpoConfig, {"prompts": 0}, "ppo.prompts=0 must be at least 1"),
        (PpoConfig, {"prompts": 1, "parts": 9}, "ppo.parts=9 is more than the 8 texts of a round"),
        (PpoConfig, {"kl_weight": -1.0}, "ppo.kl_weight=-1.0 must be 0 or more"),
        (PpoConfig, {"clip": 0.0}, "ppo.clip=0.0 must be above 0"),
        (PpoConfig, {"oracle": 2.0}, "ppo.oracle=2.0 must be from 0 to 1"),
        (GuardConfig, {"least": 9, "most": 8}, "ppo.guard.least=9 must be from 0 to ppo.guard.most=8"),
        (GuardConfig, {"gram": 0}, "ppo.guard.gram=0 must be at least 1"),
        (GuardConfig, {"repeats": 1.5}, "ppo.guard.repeats=1.5 is not a share between 0 and 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(section, values, said):
    with pytest.raises(ConfigError) as caught:
        section(**values)
    assert str(caught.value) == said


def test_the_share_of_oracle_actions_falls_to_nothing():
    config = PpoConfig(oracle=0.4, oracle_rounds=4)
    assert [config.oracle_share(step) for step in range(6)] == pytest.approx([0.4, 0.3, 0.2, 0.1, 0, 0])
    assert PpoConfig(oracle_rounds=0).oracle_share(0) == 0
