"""Rewards to advantages: how much better an action's episode ended than was to be expected.

    value   an action's advantage is that of its own step, by generalised advantage estimation over the value head
    group   every action of a text has the text's reward, measured against those of the same prompt; no value head

An episode's rewards are minus the penalty for each action, and the rank's reward with its last.

>>> group_advantages([0.0, 0.5, 1.0], 3)
array([-1.22474487,  0.        ,  1.22474487])
>>> estimate([0.5, 0.5], [0.0, 1.0], 1.0, 1.0)
(array([0.5, 0.5]), array([1., 1.]))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
LEAST_SPREAD = 1e-6
"""A group whose rewards differ by less has nothing to learn from."""


def episode_rewards(num_actions: int, final: float, penalty: float) -> Numbers:
    """[num_actions] what each action of an episode earns."""
    rewards = np.full(num_actions, -penalty)
    rewards[-1:] += final
    return rewards


def estimate(
    values: Sequence[float] | Numbers, rewards: Sequence[float] | Numbers, discount: float, trace: float
) -> tuple[Numbers, Numbers]:
    """Advantages and returns of one episode's steps, given the value of the state before each; it ends with 0."""
    advantages, following, ahead = np.zeros(len(values)), 0.0, 0.0
    for step in range(len(values) - 1, -1, -1):
        surprise = rewards[step] + discount * following - values[step]
        ahead = surprise + discount * trace * ahead
        advantages[step], following = ahead, values[step]
    return advantages, advantages + np.asarray(values)


def group_advantages(totals: Sequence[float] | Numbers, size: int) -> Numbers:
    """The total reward of each episode against its group of `size` neighbours, in their standard deviations."""
    groups = np.asarray(totals, np.float64).reshape(-1, size)
    spread = groups.std(axis=1, keepdims=True)
    centred = groups - groups.mean(axis=1, keepdims=True)
    return np.where(spread > LEAST_SPREAD, centred / np.maximum(spread, LEAST_SPREAD), 0.0).reshape(-1)


def normalise(advantages: Numbers) -> Numbers:
    """Mean 0 and deviation 1 over all actions of a round."""
    return np.asarray((advantages - advantages.mean()) / max(float(advantages.std()), LEAST_SPREAD))
