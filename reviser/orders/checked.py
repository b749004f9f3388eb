"""What an order of somebody's own draws, checked before anything is built on it.

Built-in orders that have kernels are tested against them and drawn as they are. Of any other order, the error says
which it is and what is wrong with its trajectory:

    order short: its trajectory ends with 'Mary had a lamb', not with the text; fix its draw

Rows for a model are replayed when they are filled (data/filling.py), so there only the form is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import index
from typing import Any

from reviser.canvas import replay
from reviser.errors import ActionError, ConfigError, ReviserError, TrajectoryError
from reviser.orders.policies import Order, has_kernel, pick
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import order_name, summarise_error
from reviser.orders.rng import Random

EXPLAINED = (ReviserError, OSError, MemoryError, RecursionError)
"""Errors that the command line explains itself: those meant for the user, and what the system refuses."""
Decode = Callable[[Sequence[int]], str]
LONGEST_SHOWN = 60
"""An error shows a text of at most this many characters; of a longer one it says where it differs."""
ROUNDING = 1e-6
"""How far above 0 a sum of logs may come out."""


def draw_by_method(
    order: Order, draft: Draft, target: Sequence[int], rng: Random, decode: Decode | None = None
) -> Trajectory:
    """What `order.draw` draws, without a kernel, and checked where the order has none."""
    picked = pick(order, rng)
    if has_kernel(picked):
        drawn = picked.draw(draft, target, rng)
    else:
        drawn = draw_checked(picked, draft, target, rng, decode)
    return drawn if picked is order else with_log_q(order, drawn)


def draw_checked(
    order: Order, draft: Draft, target: Sequence[int], rng: Random, decode: Decode | None = None
) -> Trajectory:
    """What an order draws, replayed to its target; an error shows text where it can be decoded."""
    drawn = draw_formed(order, draft, target, rng)
    wrong = explain_replay(drawn, target, decode)
    if wrong is not None:
        raise TrajectoryError(f"order {order_name(order)}: {wrong}; fix its draw")
    return drawn


def draw_formed(order: Order, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
    """What an order draws, with whole numbers that are actions, STOP at its end and a has_loss for each."""
    try:
        drawn: object = order.draw(draft, target, rng)
    except EXPLAINED:
        raise
    except Exception as error:
        raise ConfigError(f"order {order_name(order)}: draw failed ({summarise_error(error)}); fix it") from error
    try:
        return _formed(drawn, draft)
    except TrajectoryError as error:
        raise TrajectoryError(f"order {order_name(order)}: {error}; fix its draw") from None


def with_log_q(order: Order, drawn: Trajectory) -> Trajectory:
    """A trajectory that one of an order's parts drew, with the log q of the whole."""
    return replace(drawn, log_q=log_q_of(order, drawn) if order.has_likelihood else None)


def log_q_of(order: Order, drawn: Trajectory) -> float:
    """The order's log q of a trajectory that it drew."""
    try:
        value = float(order.log_q(drawn))
    except EXPLAINED:
        raise
    except Exception as error:
        raise ConfigError(f"order {order_name(order)}: log_q failed ({summarise_error(error)}); fix it") from error
    if not _is_log_probability(value):
        raise ConfigError(
            f"order {order_name(order)}: log_q gave {value:g} for a trajectory that it drew; it must be the log of a "
            "probability above 0; fix it"
        )
    return value


def explain_replay(drawn: Trajectory, target: Sequence[int], decode: Decode | None = None) -> str | None:
    """Why a trajectory does not lead from its draft to the target; None where it does."""
    try:
        tokens = replay(drawn.draft.canvas, drawn.actions, drawn.draft.rules).tokens
    except ActionError as error:
        return str(error)
    return None if tokens == tuple(target) else _explain_end(tokens, target, decode)


def _explain_end(tokens: Sequence[int], target: Sequence[int], decode: Decode | None) -> str:
    if decode is not None and len(text := decode(tokens)) <= LONGEST_SHOWN:
        return f"its trajectory ends with {text!r}, not with the text"
    pairs = enumerate(zip(tokens, target, strict=False))
    place = next((i for i, (one, other) in pairs if one != other), min(len(tokens), len(target)))
    return (
        f"its trajectory ends with {len(tokens)} tokens, not with the {len(target)} of the text; they differ from "
        f"token {place} on"
    )


def _formed(drawn: object, draft: Draft) -> Trajectory:
    if not isinstance(drawn, Trajectory):
        raise TrajectoryError(f"draw gave {_shorten(drawn)}, not a Trajectory")
    if drawn.draft is not draft and drawn.draft != draft:
        raise TrajectoryError("its trajectory has another draft than the one that draw was given")
    actions, alphabet = _whole_numbers(drawn.actions), draft.rules.alphabet
    if not actions or actions[-1] != alphabet.stop:
        raise TrajectoryError(f"its trajectory does not end in STOP ({alphabet.stop})")
    most = alphabet.jump(draft.rules.max_length) if "jump" in draft.rules.operators else alphabet.size - 1
    if min(actions) < 0 or max(actions) > most or alphabet.pad in actions:
        wrong = next(each for each in actions if not 0 <= each <= most or each == alphabet.pad)
        raise TrajectoryError(
            f"it drew the action {wrong}; actions are 0 to {most}, without padding ({alphabet.pad})"
        )
    has_loss = _truths(drawn.has_loss, len(actions))
    if drawn.log_q is not None and not _is_log_probability(drawn.log_q):
        raise TrajectoryError(
            f"its trajectory has the log_q {_shorten(drawn.log_q)}, which is not the log of a probability"
        )
    if actions is drawn.actions and has_loss is drawn.has_loss:
        return drawn
    return replace(drawn, actions=actions, has_loss=has_loss)


def _whole_numbers(actions: Any) -> tuple[int, ...]:
    """Actions as plain numbers; numpy's become Python's."""
    try:
        given = tuple(actions)
    except TypeError:
        raise TrajectoryError(f"the actions of its trajectory are {_shorten(actions)}, not a tuple") from None
    return given if set(map(type, given)) <= {int} else tuple(map(_whole_number, given))


def _whole_number(action: Any) -> int:
    if not isinstance(action, bool):
        try:
            return index(action)
        except TypeError:
            pass
    raise TrajectoryError(f"it drew the action {_shorten(action)}, which is not a whole number")


def _truths(has_loss: Any, count: int) -> tuple[bool, ...]:
    try:
        num_losses = len(has_loss)
    except TypeError:
        raise TrajectoryError(f"the has_loss of its trajectory is {_shorten(has_loss)}, not a tuple") from None
    if num_losses != count:
        raise TrajectoryError(f"it drew {count} actions and {num_losses} entries of has_loss; each needs one")
    if isinstance(has_loss, tuple) and set(map(type, has_loss)) <= {bool}:
        return has_loss
    for each in has_loss:
        if each not in (False, True):
            raise TrajectoryError(f"its has_loss holds {_shorten(each)}; entries are True and False")
    return tuple(map(bool, has_loss))


def _is_log_probability(value: Any) -> bool:
    try:
        return math.isfinite(value) and value <= ROUNDING
    except (TypeError, OverflowError):
        return False


def _shorten(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."
