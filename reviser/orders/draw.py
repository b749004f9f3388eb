"""Drawing by kernels: the trajectories that an order's own `draw` gives, sooner.

>>> from reviser.actions import Alphabet; from reviser.canvas import Rules
>>> from reviser.orders.policies import Runs
>>> draft = Draft.continuation([7], Rules(Alphabet(num_text=257, pad=256)))
>>> fast = draw(Runs(), draft, [7, 8, 9, 10], Random.of(3))
>>> fast.actions == Runs().draw(draft, [7, 8, 9, 10], Random.of(3)).actions
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.canvas import Rules
from reviser.errors import ConfigError
from reviser.orders import kernels
from reviser.orders.checked import draw_checked, with_log_q
from reviser.orders.policies import LeftToRight, Order, RandomWalk, Runs, has_kernel, needs_ends, pick
from reviser.orders.record import Draft, Trajectory
from reviser.orders.restore import check_blank
from reviser.orders.rng import Random, threshold
from reviser.orders.sentences import NO_ENDS, Ending, Outline, Sentences, check_ends

Ints = npt.NDArray[Any]

_STARTS = {"uniform": kernels.UNIFORM, "front": kernels.FRONT, "end": kernels.END}


@dataclass(frozen=True, slots=True)
class Code:
    """An order as the kernels read it."""

    order: npt.NDArray[np.int64]
    """Kind, start, threshold, noise threshold, noise from document, moves, budget, by pointer, sentences."""
    logs: npt.NDArray[np.float64]


def encode_order(order: Order) -> Code:
    """The numbers of an order that has a kernel."""
    most, every, chance = 0, 0, 1.0
    match order:
        case RandomWalk():
            kind, most, chance = kernels.RANDOM_WALK, order.max_move.bit_length(), order.delete
        case Runs():
            kind, chance = kernels.RUNS, order.jump
        case LeftToRight():
            kind = kernels.LEFT_TO_RIGHT
        case Sentences():
            kind, chance = kernels.SENTENCES, order.jump
        case Outline():
            kind, every = kernels.OUTLINE, order.every
        case Ending():
            kind, every = kernels.ENDING, order.sentences
        case _:
            raise ConfigError(f"{type(order).__name__} has no kernel; draw it with its own draw method")
    start, budget = _STARTS[getattr(order, "start", "end")], getattr(order, "budget", None)
    numbers = [kind, start, threshold(chance), threshold(getattr(order, "noise", 0.0))]
    numbers += [int(getattr(order, "noise_from", "") == "document"), most, -1 if budget is None else budget]
    numbers += [int(getattr(order, "by", "") == "pointer"), every]
    logs = [math.log(p) if p > 0 else -math.inf for p in (chance, 1 - chance)]
    return Code(np.array(numbers, np.int64), np.array(logs, np.float64))


def encode_ids(rules: Rules) -> npt.NDArray[np.int64]:
    """V and pad."""
    return np.array([rules.alphabet.num_text, rules.alphabet.pad], np.int64)


def encode_ends(rules: Rules) -> npt.NDArray[np.uint8]:
    """Which of the V tokens end a sentence."""
    return _end_table(rules.alphabet.num_text, rules.ends)


@lru_cache(maxsize=8)
def _end_table(num_text: int, ends: frozenset[int]) -> npt.NDArray[np.uint8]:
    table = np.zeros(num_text, np.uint8)
    table[list(ends)] = 1
    table.flags.writeable = False
    return table


def draw(order: Order, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
    """What `order.draw` draws: by the kernel where the order has one, checked where it has none."""
    picked = pick(order, rng)
    drawn = _draw(picked, draft, target, rng)
    return drawn if picked is order else with_log_q(order, drawn)


def _draw(order: Order, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
    if not has_kernel(order):
        return draw_checked(order, draft, target, rng)
    rules, code, middle = draft.rules, encode_order(order), np.array(check_blank(order, draft, target), np.int32)
    if needs_ends(order):
        check_ends(order, rules)
    room = rules.max_length - draft.prefix - draft.suffix
    ids, is_end = encode_ids(rules), encode_ends(rules)
    cells, state = np.empty(max(room, len(middle)), np.int32), np.empty(1, np.uint64)
    capacity = 4 * len(middle) + 64
    while True:
        row, loss, state[0] = np.empty(capacity, np.int32), np.empty(capacity, np.uint8), rng.state
        begin, log_q = kernels.draw_one(
            code.order, code.logs, middle, room, draft.prefix, ids, is_end, state, cells, row, loss
        )
        if begin != kernels.TOO_LONG:
            break
        capacity *= 2
    if begin == kernels.NO_DRAW:
        raise ConfigError(f"no draw of {len(middle)} tokens kept to its budget; raise the budget")
    rng.state = int(state[0])
    actions, has_loss = row[begin:].tolist(), loss[begin:].astype(bool).tolist()
    return Trajectory(draft, tuple(actions), tuple(has_loss), float(log_q) if order.has_likelihood else None)


@dataclass(frozen=True, slots=True)
class Rows:
    """Trajectories of many targets: row i holds its actions from begins[i] on."""

    actions: npt.NDArray[np.int32]
    has_loss: npt.NDArray[np.uint8]
    begins: npt.NDArray[np.int64]
    log_q: npt.NDArray[np.float64]

    @property
    def num_actions(self) -> int:
        return self.actions.size - int(self.begins.sum())

    def __getitem__(self, i: int) -> npt.NDArray[np.int32]:
        row: npt.NDArray[np.int32] = self.actions[i, self.begins[i] :]
        return row


def allocate_rows(count: int, capacity: int) -> Rows:
    return Rows(
        np.empty((count, capacity), np.int32),
        np.empty((count, capacity), np.uint8),
        np.empty(count, np.int64),
        np.empty(count, np.float64),
    )


def draw_rows(
    codes: Sequence[Code], which: Ints, rules: Rules, tokens: Ints, firsts: Ints, lasts: Ints, rooms: Ints,
    offsets: Ints, states: Ints, cells: Ints, rows: Rows,
) -> None:  # fmt: skip
    """Draw target i, tokens[firsts[i]:lasts[i]], by codes[which[i]] and the stream states[i], which moves on.

    offsets[i]: how many tokens are given before the target, for JUMPs count from the front of the canvas.
    """
    orders, logs = np.stack([code.order for code in codes]), np.stack([code.logs for code in codes])
    if not rules.ends and np.isin(orders[:, 0], (kernels.SENTENCES, kernels.OUTLINE, kernels.ENDING)).any():
        raise ConfigError(NO_ENDS.format("an order"))
    kernels.draw_many(
        orders, logs, which, tokens, firsts, lasts, rooms, np.ascontiguousarray(offsets), encode_ids(rules),
        encode_ends(rules), states, cells, rows.actions, rows.has_loss, rows.begins, rows.log_q,
    )  # fmt: skip
