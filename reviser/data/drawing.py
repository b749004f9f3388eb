"""A trajectory for each example: by kernels where the order has one, by the order's own `draw` where it has none.

What is to be edited takes the shortest script, from left to right (EDITS), and several gaps are filled from left to
right, each from left to right, whatever the order of what is written.

Either way example i is drawn with its own random stream, `examples.states[i]`, which moves on: what is drawn for an
example depends on nothing else. Kernels draw some millions of actions a second, Python about a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.canvas import Rules
from reviser.data.examples import CUT, Examples, shorten
from reviser.errors import ConfigError
from reviser.orders.checked import draw_formed, log_q_of
from reviser.orders.draw import Rows, allocate_rows, draw_rows, encode_order
from reviser.orders.history import num_moves
from reviser.orders.kernels import NO_DRAW, TOO_LONG
from reviser.orders.policies import Diff, Order, components, has_kernel, is_choice, pick
from reviser.orders.record import Trajectory
from reviser.orders.rng import Random
from reviser.orders.script_kernels import write_fillings, write_scripts

Array = npt.NDArray[Any]
MAX_TRIES = 24
EDITS = Diff(by="pointer", first="left")
"""The order of examples that have a draft."""


@dataclass(frozen=True)
class Orders:
    """Which order writes which examples: those that are told to be out of order have one of their own."""

    order: Order
    told: Order | None = None

    def of(self, is_told: bool) -> Order:
        return self.told if is_told and self.told is not None else self.order

    @property
    def all(self) -> tuple[Order, ...]:
        return (self.order,) if self.told is None else (self.order, self.told)

    @property
    def components(self) -> tuple[Order, ...]:
        """All orders that draw anything."""
        return tuple(part for each in self.all for part in components(each))


def draw_examples(orders: Orders, rules: Rules, examples: Examples, capacity: int, limit: int) -> Rows:
    """A trajectory of at most `capacity` actions for each example, which takes at most `limit` positions.

    An example that takes more is drawn again with a shorter target. Lengths and streams change in place. Nobody
    learns to stop where a text was cut.
    """
    parts, which = _pick(orders, examples)
    drawn = _draw_once(parts, which, rules, examples, capacity)
    late = np.flatnonzero(_is_bad(examples, drawn, rules, limit))
    for _ in range(MAX_TRIES):
        if not len(late):
            drawn.has_loss[examples.ending == CUT, -1] = 0
            return drawn
        again = shorten(examples.select(late))
        redrawn = _draw_once(parts, which[late], rules, again, capacity)
        for name in ("length", "states", "drafts", "drafted", "inner", "ending"):
            getattr(examples, name)[late] = getattr(again, name)
        _put(drawn, late, redrawn)
        late = late[_is_bad(again, redrawn, rules, limit)]
    raise ConfigError(
        f"an example of {int(examples.prefix[late[0]])} prompt tokens does not fit {limit} positions; "
        "raise model.context or shorten jobs.prefix and jobs.suffix"
    )


def history_sizes(examples: Examples, drawn: Rows, rules: Rules) -> npt.NDArray[np.int64]:
    """Positions each example takes: the history of its draft and its trajectory."""
    given = np.concatenate([examples.suffix[:, None], examples.inner[:, :, 1]], axis=1)
    way = (given > 0 if rules.has_jumps else num_moves(given)).sum(axis=1)
    if rules.has_jumps:
        way = np.where(examples.drafted > 0, 2, way) + 4 * examples.told
    num_drafted = examples.prefix + examples.drafted + given.sum(axis=1) + way
    sizes: npt.NDArray[np.int64] = num_drafted + drawn.actions.shape[1] - drawn.begins
    return sizes


def exact_log_q(orders: Orders, rules: Rules, examples: Examples, drawn: Rows) -> npt.NDArray[np.float64]:
    """log q of each trajectory; where the order picks from several, `drawn` knows only that of the one it picked."""
    if not any(is_choice(each) for each in orders.all) or not all(each.has_likelihood for each in orders.all):
        return drawn.log_q
    values = []
    for i in range(len(examples)):
        order = orders.of(bool(examples.told[i]))
        if examples.drafted[i] or examples.inner[i].any():
            values.append(0.0)
            continue
        actions = tuple(drawn[i].tolist())
        values.append(log_q_of(order, Trajectory(examples.draft(i, rules), actions, (True,) * len(actions))))
    return np.array(values)


def _pick(orders: Orders, examples: Examples) -> tuple[Sequence[Order], npt.NDArray[np.int64]]:
    """Which order draws which example."""
    parts, which = orders.components, np.zeros(len(examples), np.int64)
    if len(parts) > 1:
        for i, state in enumerate(examples.states.tolist()):
            if examples.drafted[i] or examples.inner[i].any():
                continue
            rng = Random(state)
            which[i] = parts.index(pick(orders.of(bool(examples.told[i])), rng))
            examples.states[i] = rng.state
    return parts, which


def _draw_once(orders: Sequence[Order], which: Array, rules: Rules, examples: Examples, capacity: int) -> Rows:
    """One draw of each example; `begins` is TOO_LONG or NO_DRAW where there is none."""
    is_fast, is_edit = np.array([has_kernel(each) for each in orders])[which], examples.drafted > 0
    has_gaps = examples.has_gaps
    is_plain = ~is_edit & ~has_gaps
    if is_fast.all() and is_plain.all():
        return _draw_by_kernel(orders, which, rules, examples, capacity)
    drawn = allocate_rows(len(examples), capacity)
    ways = (
        (is_edit, _draw_edits), (has_gaps, _draw_fillings),
        (is_fast & is_plain, _draw_by_kernel), (~is_fast & is_plain, _draw_by_method),
    )  # fmt: skip
    for is_chosen, draw in ways:
        if is_chosen.any():
            some = examples.select(is_chosen)
            _put(drawn, np.flatnonzero(is_chosen), draw(orders, which[is_chosen], rules, some, capacity))
            examples.states[is_chosen] = some.states
    return drawn


def _draw_edits(orders: Sequence[Order], which: Array, rules: Rules, examples: Examples, capacity: int) -> Rows:
    """EDITS of examples with a draft; nothing about them is random."""
    missing = sorted({"jump", "delete"} - rules.operators)
    if missing:
        raise ConfigError(f"a draft is edited by JUMP and DELETE; add {' and '.join(missing)} to model.operators")
    drawn = allocate_rows(len(examples), capacity)
    write_scripts(
        examples.tokens, examples.drafts, examples.drafted, examples.first + examples.prefix, examples.length,
        examples.prefix, rules.max_length - examples.prefix - examples.suffix, rules.alphabet.num_text,
        int("replace" in rules.operators), drawn.actions, drawn.has_loss, drawn.begins,
    )  # fmt: skip
    drawn.log_q[:] = 0.0
    return drawn


def _draw_fillings(orders: Sequence[Order], which: Array, rules: Rules, examples: Examples, capacity: int) -> Rows:
    """What fills the gaps of examples that have several, one after another."""
    if "jump" not in rules.operators:
        raise ConfigError("several gaps are filled by JUMPs from one to the next; add jump to model.operators")
    drawn = allocate_rows(len(examples), capacity)
    write_fillings(
        examples.tokens, examples.first + examples.prefix, examples.length, examples.inner, examples.prefix,
        rules.alphabet.num_text, drawn.actions, drawn.has_loss, drawn.begins,
    )  # fmt: skip
    drawn.log_q[:] = 0.0
    return drawn


def _draw_by_kernel(orders: Sequence[Order], which: Array, rules: Rules, examples: Examples, capacity: int) -> Rows:
    drawn, known = allocate_rows(len(examples), capacity), [k for k, each in enumerate(orders) if has_kernel(each)]
    first = examples.first + examples.prefix
    rooms = rules.max_length - examples.prefix - examples.suffix
    cells = np.empty(max(rules.max_length, int(examples.length.max(initial=0))), np.int32)
    draw_rows(
        [encode_order(orders[k]) for k in known], np.searchsorted(known, which), rules, examples.tokens, first,
        first + examples.length, rooms, examples.prefix, examples.states, cells, drawn,
    )  # fmt: skip
    return drawn


def _draw_by_method(orders: Sequence[Order], which: Array, rules: Rules, examples: Examples, capacity: int) -> Rows:
    drawn = allocate_rows(len(examples), capacity)
    for i, k in enumerate(which.tolist()):
        text, rng = examples.text(i), Random(int(examples.states[i]))
        drawn.begins[i], drawn.log_q[i] = NO_DRAW, np.nan
        if len(text) > rules.max_length:
            continue
        trajectory = draw_formed(orders[k], examples.draft(i, rules), text, rng)
        examples.states[i], begin = rng.state, capacity - len(trajectory.actions)
        drawn.begins[i] = begin if begin >= 0 else TOO_LONG
        if begin >= 0:
            drawn.actions[i, begin:] = trajectory.actions
            drawn.has_loss[i, begin:] = trajectory.has_loss
            drawn.log_q[i] = _log_q(orders[k], trajectory)
    return drawn


def _log_q(order: Order, trajectory: Trajectory) -> float:
    if not order.has_likelihood:
        return np.nan
    return log_q_of(order, trajectory) if trajectory.log_q is None else trajectory.log_q


def _put(drawn: Rows, chosen: Array, some: Rows) -> None:
    for name in ("actions", "has_loss", "begins", "log_q"):
        getattr(drawn, name)[chosen] = getattr(some, name)


def _is_bad(examples: Examples, drawn: Rows, rules: Rules, limit: int) -> Array:
    has_none = (drawn.begins == TOO_LONG) | (drawn.begins == NO_DRAW)
    is_full = examples.prefix + np.maximum(examples.length, examples.drafted) + examples.suffix > rules.max_length
    bad: Array = has_none | is_full | (history_sizes(examples, drawn, rules) > limit)
    return bad
