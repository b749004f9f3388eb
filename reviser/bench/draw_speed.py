"""How many actions a second an order draws: the measurement behind `reviser bench trajectories`.

Kernels draw and replay in any number of threads. An order without a kernel draws by its own method in one thread:
that is the rate of one of the processes that draw for training.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from reviser.actions import INSERT_MOVE, Alphabet
from reviser.canvas import Rules
from reviser.errors import ConfigError, TrajectoryError
from reviser.orders.draw import allocate_rows, draw_rows, encode_order
from reviser.orders.kernels import stream_states
from reviser.orders.policies import LeftToRight, Order, RandomWalk, Runs, has_kernel, is_choice
from reviser.orders.record import Draft
from reviser.orders.registry import order_name
from reviser.orders.replay import encode_rules, replay_many
from reviser.orders.rng import Random

ORDERS: dict[str, Order] = {"random-walk": RandomWalk(), "runs": Runs(), "left-to-right": LeftToRight()}
WIDTH = 4
BATCH = 256
ALPHABET = Alphabet(num_text=50257, pad=50256)
ENDS = frozenset(range(0, 50257, 20))
"""Random tokens of which one in twenty ends a sentence."""


def measure(
    num_tokens: int = 145, threads: int = 1, seconds: float = 2.0, orders: Mapping[str, Order] = ORDERS
) -> dict[str, Any]:
    """Actions per second and actions per token of each order."""
    for name, value, most in (("n", num_tokens, 10_000), ("threads", threads, 256)):
        if not 1 <= value <= most:
            raise ConfigError(f"{name}={value} must be from 1 to {most}")
    if not 0 < seconds <= 3600:
        raise ConfigError(f"seconds={seconds} must be above 0 and at most 3600")
    found = {name: measure_order(order, num_tokens, threads, seconds) for name, order in orders.items()}
    return {"orders": found, "threads": threads, "n": num_tokens, "window": WIDTH}


def measure_order(order: Order, num_tokens: int, threads: int, seconds: float) -> dict[str, float]:
    """Actions per second and actions per token of an order that is no mixture."""
    if is_choice(order):
        raise ConfigError(f"{order_name(order)} is a mixture; measure its orders one by one")
    work, threads = (_work, threads) if has_kernel(order) else (_draw_plainly, 1)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda seed: work(order, num_tokens, seed, 0.0), range(threads)))
        began = time.perf_counter()
        done = list(pool.map(lambda seed: work(order, num_tokens, seed, seconds), range(threads)))
        elapsed = time.perf_counter() - began
    num_actions, num_targets = (sum(column) for column in zip(*done, strict=True))
    return {
        "actions_per_s": num_actions / elapsed,
        # STOP is no edit: the paper's count of actions per token leaves it out.
        "actions_per_token": (num_actions / num_targets - 1) / num_tokens,
    }


def _rules(order: Order, num_tokens: int) -> Rules:
    return Rules(ALPHABET, INSERT_MOVE | order.needs, max_length=512 + num_tokens, ends=ENDS)


def _draw_plainly(order: Order, num_tokens: int, seed: int, seconds: float) -> tuple[int, int]:
    """Draw by the order's own method for some time; how many actions and targets that was."""
    rules = _rules(order, num_tokens)
    draft, generator = Draft.continuation((), rules), np.random.default_rng(seed)
    num_actions = num_targets = 0
    end = time.perf_counter() + seconds
    while True:
        target = generator.integers(0, ALPHABET.pad, num_tokens).tolist()
        num_actions += len(order.draw(draft, target, Random.of(seed, num_targets)).actions)
        num_targets += 1
        if time.perf_counter() >= end:
            return num_actions, num_targets


def _work(order: Order, num_tokens: int, seed: int, seconds: float) -> tuple[int, int]:
    """Draw and replay batches for some time; how many actions and targets that was."""
    rules, generator = _rules(order, num_tokens), np.random.default_rng(seed)
    tokens = generator.integers(0, ALPHABET.pad, BATCH * num_tokens, dtype=np.int32)
    offsets, which = np.arange(BATCH + 1) * num_tokens, np.zeros(BATCH, np.int64)
    rooms, numbers = np.full(BATCH, rules.max_length), encode_rules(rules)
    rows, code = allocate_rows(BATCH, 12 * num_tokens + 64), encode_order(order)
    cells = np.empty(rules.max_length + 2 * WIDTH, np.int32)
    windows = np.empty((rows.actions.shape[1], 2 * WIDTH), np.int32)
    base, states = np.uint64(Random.of(seed).state), np.empty(BATCH, np.uint64)
    num_actions = num_targets = 0
    end = time.perf_counter() + seconds
    while True:
        stream_states(base, num_targets, states)
        draw_rows([code], which, rules, tokens, offsets[:-1], offsets[1:], rooms, which, states, cells, rows)
        bad = replay_many(
            rows.actions, rows.begins, ALPHABET.num_text, numbers, WIDTH, cells, windows, tokens, offsets,
        )  # fmt: skip
        if bad:
            raise TrajectoryError(f"{bad} of {BATCH} trajectories of {order} did not replay to their target")
        num_actions += BATCH * rows.actions.shape[1] - int(rows.begins.sum())
        num_targets += BATCH
        if time.perf_counter() >= end:
            return num_actions, num_targets
