"""The executor as a numba kernel: replay a history, with cursor windows and validity masks on the way.

`replay_one` runs a whole history (draft actions, then generated ones) over a gap buffer and writes, for
each action, the w tokens left and right of the cursor after it, and the mask of actions that were valid
before it. It knows INSERT, MOVE, STOP, DELETE and REPLACE. canvas.py is the reference and knows all operators; a
test holds the two equal over a million random actions.

    cells   . . a b c _ _ _ d e . .       w "none" cells at either end make every window
                ^left     ^right          two plain copies, whatever the edges
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from reviser.actions import DELETE, MAX_MOVE_EXPONENT, MOVES, NUM_SPECIAL, OPERATORS, REPLACE, STOP
from reviser.canvas import Rules

Array = npt.NDArray[Any]
KERNEL_OPERATORS = OPERATORS[:3]
MOVE_BIT, DELETE_BIT, REPLACE_BIT = (1 << i for i in range(3))
REPLACING, STOPPED = 1, 2

_INSERT_MASK = np.int64(1) << NUM_SPECIAL
_FORTH = np.array([sum(1 << (MOVES + 2 * i) for i in range(n)) for n in range(11)], np.int64)
_BACK = _FORTH << 1
_BITS = np.array([min(i.bit_length(), MAX_MOVE_EXPONENT + 1) for i in range(1024)], np.int64)

jit = njit(nogil=True, cache=True, error_model="numpy")


def missing_operators(rules: Rules) -> list[str]:
    """The enabled operators that only canvas.py knows."""
    return [name for name in OPERATORS if name in rules.operators and name not in KERNEL_OPERATORS]


def operator_bits(rules: Rules) -> int:
    """The enabled operators as one number."""
    if missing_operators(rules):
        raise ValueError(f"the replay kernel has no {missing_operators(rules)[0]}; replay with canvas.py")
    return sum(1 << i for i, name in enumerate(KERNEL_OPERATORS) if name in rules.operators)


@jit
def _num_bits(value: int) -> Any:
    return _BITS[value] if value < 1024 else MAX_MOVE_EXPONENT + 1


@jit
def valid_mask(length: int, cursor: int, state: int, prefix: int, suffix: int, max_length: int, operators: int,
               actions_left: int) -> Any:  # fmt: skip
    """canvas.py's `valid_mask` of a state given by its numbers."""
    mask = np.int64(0)
    if state == STOPPED or actions_left < 1:
        return mask
    if state == REPLACING:
        return _INSERT_MASK
    mask |= np.int64(1) << STOP
    if length < max_length:
        mask |= _INSERT_MASK
    reach = cursor - prefix
    if operators & MOVE_BIT:
        mask |= _BACK[_num_bits(max(reach, 0))] | _FORTH[_num_bits(max(length - suffix - cursor, 0))]
    if operators == MOVE_BIT:
        return mask
    if operators & DELETE_BIT and reach >= 1:
        mask |= np.int64(1) << DELETE
    if operators & REPLACE_BIT and reach >= 1 and actions_left >= 2:
        mask |= np.int64(1) << REPLACE
    return mask


@jit
def _carry(cells: Array, left: int, right: int, distance: int) -> None:
    """Carry tokens over the gap so that the cursor moves by `distance`."""
    if distance > 0:
        for k in range(distance):
            cells[left + k] = cells[right + k]
    else:
        for k in range(1, 1 - distance):
            cells[right - k] = cells[left - k]


@jit
def replay_one(actions: Array, num_draft: int, num_text: int, rules: Array, width: int, cells: Array,
               windows: Array, masks: Array, canvases: Array) -> Any:  # fmt: skip
    """Replay a history; returns (index of the first invalid action or -1, length, cursor, left, right).

    `rules`: prefix, suffix, max_length, operator bits. The first `num_draft` actions may pass through
    protected text. windows[i] is the canvas beside the cursor after action i, masks[i] what was valid
    before it, canvases[i] the whole canvas after it with CURSOR at the cursor and -1 behind its end; each may
    have no rows. The final canvas stands in cells[width:left] and cells[right:-width].
    """
    max_length = rules[2]
    low, tail, operators = 0, 0, rules[3] | MOVE_BIT
    size, state = len(cells) - width, 0
    cells[:width] = num_text
    cells[size:] = num_text
    left, right = width, size
    has_windows, has_masks, has_canvases = len(windows) > 0, len(masks) > 0, len(canvases) > 0
    is_usual = has_windows and width == 4 and not has_canvases
    for i in range(len(actions)):
        action = actions[i]
        length, cursor = left - width + size - right, left - width
        if i == num_draft:
            low, tail, operators = rules[0], rules[1], rules[3]
        offset = action - num_text
        is_text = offset < 0
        is_plain_insert = is_text and state == 0 and length < max_length
        if has_masks or not is_plain_insert:
            mask = valid_mask(length, cursor, state, low, tail, max_length, operators, 2)
            if has_masks:
                masks[i] = mask
            if not (mask >> (NUM_SPECIAL if is_text else offset)) & 1:
                return i, length, cursor, left, right
        if is_text:
            left -= 1 if state == REPLACING else 0
            cells[left] = action
            left += 1
            state = 0
        elif MOVES <= offset < REPLACE:
            exponent = (offset - MOVES) >> 1
            distance = -(1 << exponent) if (offset - MOVES) & 1 else 1 << exponent
            _carry(cells, left, right, distance)
            left += distance
            right += distance
        elif offset == DELETE:
            left -= 1
        elif offset == REPLACE:
            state = REPLACING
        else:
            state = STOPPED
        if is_usual:
            # Unrolled, and no function: a call with array arguments costs 30 ns here.
            a, b, c, d = cells[left - 4], cells[left - 3], cells[left - 2], cells[left - 1]
            e, f, g, h = cells[right], cells[right + 1], cells[right + 2], cells[right + 3]
            windows[i, 0], windows[i, 1], windows[i, 2], windows[i, 3] = a, b, c, d
            windows[i, 4], windows[i, 5], windows[i, 6], windows[i, 7] = e, f, g, h
            continue
        for k in range(width if has_windows else 0):
            windows[i, k] = cells[left - width + k]
            windows[i, width + k] = cells[right + k]
        for k in range(canvases.shape[1] if has_canvases else 0):
            place = width + k
            if place < left:
                canvases[i, k] = cells[place]
            elif place == left:
                canvases[i, k] = num_text
            else:
                place += right - left - 1
                canvases[i, k] = cells[place] if place < size else -1
    return -1, left - width + size - right, left - width, left, right


@jit
def replay_many(rows: Array, begins: Array, num_text: int, rules: Array, width: int, cells: Array,
                windows: Array, targets: Array, offsets: Array) -> Any:  # fmt: skip
    """Replay rows[i, begins[i]:] and compare each final canvas with its target; returns how many differ."""
    num_bad = 0
    no_masks, no_canvases = np.empty(0, np.int64), np.empty((0, 0), np.int32)
    for i in range(len(begins)):
        actions = rows[i, begins[i] :]
        bad, length, _, left, right = replay_one(
            actions, 0, num_text, rules, width, cells, windows[: len(actions)], no_masks, no_canvases
        )
        is_same = bad < 0 and _holds(cells, width, length, left, right, targets[offsets[i] : offsets[i + 1]])
        num_bad += 0 if is_same else 1
    return num_bad


@jit
def _holds(cells: Array, width: int, length: int, left: int, right: int, text: Array) -> bool:
    """Whether the canvas that `replay_one` left behind is this text."""
    if length != len(text):
        return False
    for k in range(length):
        place = width + k
        if cells[place if place < left else right + place - left] != text[k]:
            return False
    return True


@jit
def fill_rows(examples: Array, tokens: Array, drawn: Array, has_loss: Array, begins: Array, num_text: int,
              rules: Array, width: int, cells: Array, history: Array, actions: Array, labels: Array, masks: Array,
              positions: Array, segments: Array, windows: Array, canvases: Array) -> Any:  # fmt: skip
    """Write examples into packed rows, in the order given; returns the first that does not lead to its text, or -1.

    examples[k]: row, column, segment, index into `drawn`, first token, prefix, target and suffix length. The
    arrays of rows are one column wider than the rows: an example's last window spills into the next START.
    """
    num_windows, num_canvases = windows.shape[2], canvases.shape[2]
    for k in range(len(examples)):
        row, col, segment, i = examples[k, 0], examples[k, 1], examples[k, 2], examples[k, 3]
        first, prefix, target, suffix = examples[k, 4], examples[k, 5], examples[k, 6], examples[k, 7]
        count = write_draft(history, tokens, first, prefix, target, suffix, num_text)
        num_draft = count
        for j in range(begins[i], drawn.shape[1]):
            history[count] = drawn[i, j]
            count += 1
        rules[0], rules[1] = prefix, suffix
        actions[row, col] = num_text + 1
        for j in range(num_windows):
            windows[row, col, j] = num_text
        for j in range(num_canvases):
            canvases[row, col, j] = num_text if j == 0 else -1
        for j in range(count):
            actions[row, col + j + 1] = history[j]
            is_learned = j >= num_draft and has_loss[i, begins[i] + j - num_draft]
            labels[row, col + j] = history[j] if is_learned else -1
            positions[row, col + j] = j
            segments[row, col + j] = segment
        after = col + count + 1
        bad, length, _, left, right = replay_one(
            history[:count], num_draft, num_text, rules, width, cells,
            windows[row, col + 1 : after if num_windows else col + 1], masks[row, col : col + count],
            canvases[row, col + 1 : after if num_canvases else col + 1],
        )  # fmt: skip
        if bad >= 0 or not _holds(
            cells, width, length, left, right, tokens[first : first + prefix + target + suffix]
        ):
            return k
    return -1


@jit
def write_draft(history: Array, tokens: Array, first: int, prefix: int, target: int, suffix: int,
                num_text: int) -> int:  # fmt: skip
    """history.py's `draft_history` of a prefix and a suffix with the cursor between; returns its length."""
    for j in range(prefix):
        history[j] = tokens[first + j]
    for j in range(suffix):
        history[prefix + j] = tokens[first + prefix + target + j]
    count, left, exponent = prefix + suffix, suffix, MAX_MOVE_EXPONENT
    while left:
        while left < 1 << exponent:
            exponent -= 1
        history[count] = num_text + MOVES + 2 * exponent + 1
        left -= 1 << exponent
        count += 1
    return count
