"""Numba kernels of orders, restoration and alignment: same draws, same actions, same log q.

A kernel takes one order as numbers (`encode_order`), many targets in one flat array, one random stream
each, and fills rows of actions. It takes a target apart in a gap buffer (the tokens left of the cursor
at the front, those right of it at the back), and writes the restoration backwards into its row, so each
delete or move costs a few instructions. All kernels release the GIL. They stand in one file because
numba's cache of a caller does not notice a changed callee elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser import compiled
from reviser.actions import DELETE, JUMPS, MAX_MOVE_EXPONENT, MOVES, STOP

Ints = npt.NDArray[np.int32]
Array = npt.NDArray[Any]

RANDOM_WALK, RUNS, LEFT_TO_RIGHT, SENTENCES, OUTLINE, ENDING = range(6)
UNIFORM, FRONT, END = range(3)
TOO_LONG, NO_DRAW = -1, -2

_NOISE_BIT = 1 << 30
_TOKEN_MASK = _NOISE_BIT - 1
_LOGS = np.concatenate(([0.0], np.log(np.arange(1, 4097))))
_BITS = np.array([min(i.bit_length(), MAX_MOVE_EXPONENT + 1) for i in range(1024)], np.int64)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_GOLDEN, _MIX1, _MIX2 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)

jit = compiled.jit()


@jit
def _mix(value: Any) -> Any:
    value = (value ^ (value >> _S30)) * _MIX1
    value = (value ^ (value >> _S27)) * _MIX2
    return value ^ (value >> _S31)


@jit
def _bits32(rng: Array) -> Any:
    rng[0] += _GOLDEN
    return _mix(rng[0]) >> _S32


@jit
def _below(rng: Array, count: int) -> Any:
    return np.int64((_bits32(rng) * np.uint64(count)) >> _S32)


@jit
def _log_int(value: int) -> float:
    return _LOGS[value] if value < 4097 else math.log(value)


@jit
def _num_bits(value: int) -> int:
    return _BITS[value] if value < 1024 else MAX_MOVE_EXPONENT + 1


@jit
def _shift_gap(cells: Array, cursor: int, right: int, distance: int) -> None:
    """Carry tokens over the gap: the cursor moves by `distance`; `right` is where the right part begins."""
    if distance > 0:
        for k in range(distance):
            cells[cursor + k] = cells[right + k]
    else:
        for k in range(1, 1 - distance):
            cells[right - k] = cells[cursor - k]


@jit
def _spell_back(row: Array, at: int, first_move: int, distance: int) -> int:
    """Write the spelling of a move before `at`, smallest last in time; returns the new `at`."""
    base = first_move + (1 if distance < 0 else 0)
    left = -distance if distance < 0 else distance
    small = left & ((1 << MAX_MOVE_EXPONENT) - 1)
    exponent = 0
    while small:
        if small & 1:
            at -= 1
            row[at] = base + 2 * exponent
        small >>= 1
        exponent += 1
    for _ in range(left >> MAX_MOVE_EXPONENT):
        at -= 1
        row[at] = base + 2 * MAX_MOVE_EXPONENT
    return at


@jit
def _draw_noise(rng: Array, target: Array, num_text: int, pad: int, is_document: int) -> Any:
    if is_document:
        return target[_below(rng, len(target))]
    token = _below(rng, num_text - 1)
    return token + (1 if token >= pad else 0)


@jit
def _load(target: Array, cells: Array, cursor: int) -> int:
    """Fill the gap buffer with the cursor at its place; returns where the right part begins."""
    n = len(target)
    for k in range(cursor):
        cells[k] = target[k]
    right = len(cells) - (n - cursor)
    for k in range(cursor, n):
        cells[right + k - cursor] = target[k]
    return right


@jit
def _random_walk(order: Array, logs: Array, target: Array, room: int, ids: Array, rng: Array, cells: Array,
                 row: Array, loss: Array) -> Any:  # fmt: skip
    num_text, pad, most, budget = ids[0], ids[1], order[5], order[6]
    deletes, noise = np.uint64(order[2]), np.uint64(order[3])
    log_delete, log_move = logs[0], logs[1]
    length, log_q, steps = len(target), 0.0, 0
    cursor = 0
    if order[1] == UNIFORM:
        cursor = _below(rng, length + 1)
        log_q = -_log_int(length + 1)
    right = _load(target, cells, cursor)
    size = len(cells)
    at = len(row) - 1
    row[at] = num_text + STOP
    loss[at] = 1
    while cursor + size - right > 0:
        length = cursor + size - right
        if at < 4:
            return TOO_LONG, 0.0
        if budget >= 0 and steps > budget:
            return NO_DRAW, 0.0
        steps += 1
        if noise and length < room and _bits32(rng) < noise:
            cells[cursor] = _draw_noise(rng, target, num_text, pad, order[4]) | _NOISE_BIT
            cursor += 1
            at -= 1
            row[at] = num_text + DELETE
            loss[at] = 1
            continue
        at -= 1
        loss[at] = 1
        if cursor:
            if _bits32(rng) < deletes:
                cursor -= 1
                cell = cells[cursor]
                row[at] = cell & _TOKEN_MASK
                loss[at] = 0 if cell & _NOISE_BIT else 1
                log_q += log_delete
                continue
            log_q += log_move
        back = min(_num_bits(cursor), most)
        count = back + min(_num_bits(size - right), most)
        k = _below(rng, count)
        log_q -= _LOGS[count]
        if k < back:
            distance = -(1 << k)
            row[at] = num_text + MOVES + 2 * k
        else:
            distance = 1 << (k - back)
            row[at] = num_text + MOVES + 2 * (k - back) + 1
        _shift_gap(cells, cursor, right, distance)
        cursor += distance
        right += distance
    if budget >= 0 and steps > budget:
        return NO_DRAW, 0.0
    return at, log_q


@jit
def _write(row: Array, loss: Array, at: int, action: int, has_loss: int) -> int:
    row[at - 1] = action
    loss[at - 1] = has_loss
    return at - 1


@jit
def _mark_loss(loss: Array, low: int, high: int) -> None:
    for k in range(low, high):
        loss[k] = 1


@jit
def _longest_way(is_pointer: int, length: int) -> int:
    """The most actions that a way on a canvas takes, and some to spare."""
    return 1 if is_pointer else 16 + (length >> MAX_MOVE_EXPONENT)


@jit
def _write_way(row: Array, loss: Array, at: int, ids: Array, is_pointer: int, offset: int, start: int,
               end: int) -> int:  # fmt: skip
    """Write the way from one boundary to another before `at`, as one JUMP or in MOVEs; returns the new `at`."""
    if is_pointer:
        return _write(row, loss, at, ids[0] + JUMPS + offset + end, 1)
    way = _spell_back(row, at, ids[0] + MOVES, end - start)
    _mark_loss(loss, way, at)
    return way


@jit
def _runs(order: Array, logs: Array, target: Array, room: int, offset: int, ids: Array, rng: Array, cells: Array,
          row: Array, loss: Array) -> Any:  # fmt: skip
    num_text = ids[0]
    jumps, noise = np.uint64(order[2]), np.uint64(order[3])
    log_jump, log_stay = logs[0], logs[1]
    length, log_q = len(target), 0.0
    cursor = length
    if order[1] == UNIFORM:
        cursor = _below(rng, length + 1)
        log_q = -_log_int(length + 1)
    right = _load(target, cells, cursor)
    size = len(cells)
    at = len(row) - 1
    row[at] = num_text + STOP
    loss[at] = 1
    has_jumped = False
    while cursor + size - right > 0:
        length = cursor + size - right
        if at < _longest_way(order[7], size):
            return TOO_LONG, 0.0
        if noise and not has_jumped and length < room and _bits32(rng) < noise:
            cells[cursor] = _draw_noise(rng, target, num_text, ids[1], order[4]) | _NOISE_BIT
            cursor += 1
            at = _write(row, loss, at, num_text + DELETE, 1)
            continue
        if not has_jumped:
            count = length - (1 if cursor else 0)
            if cursor == 0 or (count and _bits32(rng) < jumps):
                log_q += (log_jump if cursor else 0.0) - _log_int(count)
                place = 1 + _below(rng, count)
                place += 1 if cursor > 0 and place >= cursor else 0
                at = _write_way(row, loss, at, ids, order[7], offset, place, cursor)
                _shift_gap(cells, cursor, right, place - cursor)
                right += place - cursor
                cursor = place
                has_jumped = True
                continue
            if count:
                log_q += log_stay
        has_jumped = False
        cursor -= 1
        cell = cells[cursor]
        at -= 1
        row[at] = cell & _TOKEN_MASK
        loss[at] = 0 if cell & _NOISE_BIT else 1
    return at, log_q


@jit
def _left_to_right(target: Array, stop: int, row: Array, loss: Array) -> int:
    at = len(row) - 1 - len(target)
    if at < 0:
        return TOO_LONG
    for k in range(len(target)):
        row[at + k] = target[k]
    row[len(row) - 1] = stop
    _mark_loss(loss, at, len(row))
    return at


@jit
def _cut_sentences(target: Array, is_end: Array, stops: Array) -> int:
    """Put 0 and then the end of each sentence into `stops`; returns how many sentences there are."""
    count, last = 0, len(target) - 1
    stops[0] = 0
    for k in range(len(target)):
        if k == last or (is_end[target[k]] and not is_end[target[k + 1]]):
            count += 1
            stops[count] = k + 1
    return count


@jit
def _write_text(row: Array, loss: Array, at: int, target: Array, start: int, end: int) -> int:
    """Write target[start:end] before `at`; returns the new `at`."""
    at -= end - start
    for k in range(end - start):
        row[at + k] = target[start + k]
        loss[at + k] = 1
    return at


@jit
def _sentences(order: Array, logs: Array, target: Array, offset: int, ids: Array, is_end: Array, rng: Array,
               cells: Array, row: Array, loss: Array) -> Any:  # fmt: skip
    """The gap buffer holds sentences; `cursor` counts those left of it and `here` their tokens."""
    stops: Array = np.empty(len(target) + 1, np.int64)
    count, log_q = _cut_sentences(target, is_end, stops), 0.0
    cursor, size = count, len(cells)
    if order[1] == UNIFORM and count:
        cursor, log_q = 1 + _below(rng, count), -_log_int(count)
    here, right = stops[cursor], size - (count - cursor)
    for k in range(cursor):
        cells[k] = k
    for k in range(cursor, count):
        cells[right + k - cursor] = k
    at = _write(row, loss, len(row), ids[0] + STOP, 1)
    has_jumped = True
    while cursor + size - right > 0:
        others = cursor + size - right - (1 if cursor else 0)
        if not has_jumped and (cursor == 0 or (others and _bits32(rng) < np.uint64(order[2]))):
            if at < _longest_way(order[7], len(target)):
                return TOO_LONG, 0.0
            log_q += (logs[0] if cursor else 0.0) - _log_int(others)
            place = 1 + _below(rng, others)
            place += 1 if cursor > 0 and place >= cursor else 0
            before = here
            for k in range(place - cursor):
                cells[cursor + k] = cells[right + k]
                here += stops[cells[right + k] + 1] - stops[cells[right + k]]
            for k in range(1, 1 + cursor - place):
                cells[right - k] = cells[cursor - k]
                here -= stops[cells[cursor - k] + 1] - stops[cells[cursor - k]]
            right += place - cursor
            cursor = place
            at = _write_way(row, loss, at, ids, order[7], offset, here, before)
            has_jumped = True
            continue
        log_q += logs[1] if others and not has_jumped else 0.0
        cursor -= 1
        start, end = stops[cells[cursor]], stops[cells[cursor] + 1]
        if at < end - start:
            return TOO_LONG, 0.0
        at = _write_text(row, loss, at, target, start, end)
        here -= end - start
        has_jumped = False
    return at, log_q


@jit
def _outline(order: Array, target: Array, offset: int, ids: Array, is_end: Array, row: Array, loss: Array) -> int:
    stops: Array = np.empty(len(target) + 1, np.int64)
    every = order[8]
    count = _cut_sentences(target, is_end, stops)
    num_groups, opened = (count + every - 1) // every, 0
    for k in range(0, count, every):
        opened += stops[k + 1] - stops[k]
    at = _write(row, loss, len(row), ids[0] + STOP, 1)
    longest = _longest_way(order[7], len(target)) if num_groups > 1 else 0
    for group in range(num_groups - 1, -1, -1):
        first, last = group * every, min((group + 1) * every, count)
        if last - first > 1:
            if at < stops[last] - stops[first + 1] + longest:
                return TOO_LONG
            at = _write_text(row, loss, at, target, stops[first + 1], stops[last])
            if num_groups > 1:
                before = stops[first] if group else opened
                at = _write_way(row, loss, at, ids, order[7], offset, before, stops[first + 1])
    if at < opened:
        return TOO_LONG
    for group in range(num_groups - 1, -1, -1):
        at = _write_text(row, loss, at, target, stops[group * every], stops[group * every + 1])
    return at


@jit
def _ending(order: Array, target: Array, offset: int, ids: Array, is_end: Array, row: Array, loss: Array) -> int:
    stops: Array = np.empty(len(target) + 1, np.int64)
    count, size = _cut_sentences(target, is_end, stops), len(target)
    cut = stops[count - order[8]] if count > order[8] else size
    at = _write(row, loss, len(row), ids[0] + STOP, 1)
    if at < size + (_longest_way(order[7], size) if cut < size else 0):
        return TOO_LONG
    at = _write_text(row, loss, at, target, 0, cut)
    if cut < size:
        at = _write_way(row, loss, at, ids, order[7], offset, size - cut, 0)
        at = _write_text(row, loss, at, target, cut, size)
    return at


@jit
def draw_one(order: Array, logs: Array, target: Array, room: int, offset: int, ids: Array, is_end: Array, rng: Array,
             cells: Array, row: Array, loss: Array) -> Any:  # fmt: skip
    """Draw one trajectory into the end of `row`; returns where it begins (or TOO_LONG, NO_DRAW) and log q.

    `order`, `logs`: see `encode_order`; `ids`: V, pad; `is_end`: see `encode_ends`; `room`: how many tokens fit
    between the protected texts; `offset`: how many stand before the target; `cells`: scratch of at least `room` and
    the target's length.
    """
    if order[0] == LEFT_TO_RIGHT:
        return _left_to_right(target, ids[0] + STOP, row, loss), 0.0
    if order[0] == OUTLINE:
        return _outline(order, target, offset, ids, is_end, row, loss), 0.0
    if order[0] == ENDING:
        return _ending(order, target, offset, ids, is_end, row, loss), 0.0
    if order[0] == SENTENCES:
        return _sentences(order, logs, target, offset, ids, is_end, rng, cells, row, loss)
    if order[0] == RUNS:
        return _runs(order, logs, target, room, offset, ids, rng, cells, row, loss)
    for _ in range(1000):
        at, log_q = _random_walk(order, logs, target, room, ids, rng, cells, row, loss)
        if at != NO_DRAW:
            return at, log_q
    return NO_DRAW, 0.0


@jit
def draw_many(orders: Array, logs: Array, which: Array, tokens: Array, firsts: Array, lasts: Array, rooms: Array,
              offsets: Array, ids: Array, is_end: Array, states: Array, cells: Array, rows: Array, loss: Array,
              begins: Array, log_q: Array) -> None:  # fmt: skip
    """Draw a trajectory for each target tokens[firsts[i]:lasts[i]] by orders[which[i]] into rows[i, begins[i]:].

    states[i] is the random stream of target i; begins[i] is TOO_LONG or NO_DRAW where there is none.
    """
    rng = np.empty(1, np.uint64)
    for i in range(len(firsts)):
        rng[0] = states[i]
        k, target = which[i], tokens[firsts[i] : lasts[i]]
        begins[i], log_q[i] = draw_one(
            orders[k], logs[k], target, rooms[i], offsets[i], ids, is_end, rng, cells, rows[i], loss[i]
        )
        states[i] = rng[0]


@jit
def fill_costs(a: Ints, b: Ints, drop: Ints, swap: Ints, put: Ints, costs: Ints) -> None:
    """align.py's `fill_costs`."""
    most, n, m = 1 << 20, len(a), len(b)
    costs[n, m] = 0
    for j in range(m - 1, -1, -1):
        costs[n, j] = min(costs[n, j + 1] + put[n], most)
    for i in range(n - 1, -1, -1):
        costs[i, m] = min(costs[i + 1, m] + drop[i], most)
        for j in range(m - 1, -1, -1):
            here = 0 if a[i] == b[j] else swap[i]
            best = min(costs[i + 1, j] + drop[i], costs[i, j + 1] + put[i], costs[i + 1, j + 1] + here)
            costs[i, j] = min(best, most)


@jit
def stream_states(base: Any, first: int, states: Array) -> None:
    """The state of `Random.of(*parts, first + i)` for each i, where `base` is that of `Random.of(*parts)`."""
    for i in range(len(states)):
        states[i] = _mix(base + _GOLDEN + np.uint64(first + i))
