"""How many actions a second the kernels draw and replay: the measurement behind `reviser bench trajectories`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.errors import ConfigError, TrajectoryError
from reviser.orders.draw import allocate_rows, draw_rows, encode_order
from reviser.orders.kernels import stream_states
from reviser.orders.policies import LeftToRight, Order, RandomWalk, Runs
from reviser.orders.replay import operator_bits, replay_many
from reviser.orders.rng import Random

ORDERS: dict[str, Order] = {"random-walk": RandomWalk(), "runs": Runs(), "left-to-right": LeftToRight()}
WIDTH = 4
BATCH = 256


def measure(num_tokens: int = 145, threads: int = 1, seconds: float = 2.0) -> dict[str, Any]:
    """Actions per second and actions per token of each order."""
    for name, value, most in (("n", num_tokens, 10_000), ("threads", threads, 256)):
        if not 1 <= value <= most:
            raise ConfigError(f"{name}={value} must be from 1 to {most}")
    if not 0 < seconds <= 3600:
        raise ConfigError(f"seconds={seconds} must be above 0 and at most 3600")
    orders = {}
    for name, order in ORDERS.items():
        orders[name] = _measure_order(order, num_tokens, threads, seconds)
    return {"orders": orders, "threads": threads, "n": num_tokens, "window": WIDTH}


def _measure_order(order: Order, num_tokens: int, threads: int, seconds: float) -> dict[str, float]:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda seed: _work(order, num_tokens, seed, 0.0), range(threads)))
        began = time.perf_counter()
        done = list(pool.map(lambda seed: _work(order, num_tokens, seed, seconds), range(threads)))
        elapsed = time.perf_counter() - began
    num_actions, num_targets = (sum(column) for column in zip(*done, strict=True))
    return {
        "actions_per_s": num_actions / elapsed,
        # STOP is no edit: the paper's count of actions per token leaves it out.
        "actions_per_token": (num_actions / num_targets - 1) / num_tokens,
    }


def _work(order: Order, num_tokens: int, seed: int, seconds: float) -> tuple[int, int]:
    """Draw and replay batches for some time; how many actions and targets that was."""
    alphabet = Alphabet(num_text=50257, pad=50256)
    rules, generator = Rules(alphabet), np.random.default_rng(seed)
    tokens = generator.integers(0, alphabet.pad, BATCH * num_tokens, dtype=np.int32)
    offsets, which = np.arange(BATCH + 1) * num_tokens, np.zeros(BATCH, np.int64)
    rooms = np.full(BATCH, rules.max_length + num_tokens)
    rows, code = allocate_rows(BATCH, 12 * num_tokens + 64), encode_order(order)
    numbers = np.array([0, 0, rules.max_length + num_tokens, operator_bits(rules)])
    cells = np.empty(rules.max_length + num_tokens + 2 * WIDTH, np.int32)
    windows = np.empty((rows.actions.shape[1], 2 * WIDTH), np.int32)
    base, states = np.uint64(Random.of(seed).state), np.empty(BATCH, np.uint64)
    num_actions = num_targets = 0
    end = time.perf_counter() + seconds
    while True:
        stream_states(base, num_targets, states)
        draw_rows([code], which, rules, tokens, offsets[:-1], offsets[1:], rooms, states, cells, rows)
        bad = replay_many(
            rows.actions, rows.begins, alphabet.num_text, numbers, WIDTH, cells, windows, tokens, offsets,
        )  # fmt: skip
        if bad:
            raise TrajectoryError(f"{bad} of {BATCH} trajectories of {order} did not replay to their target")
        num_actions += BATCH * rows.actions.shape[1] - int(rows.begins.sum())
        num_targets += BATCH
        if time.perf_counter() >= end:
            return num_actions, num_targets
