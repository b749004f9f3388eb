"""The executor as a numba kernel: replay a history, with cursor windows and validity masks on the way.

`replay_one` runs a whole history (draft actions, then generated ones) over a gap buffer and writes, for
each action, the w tokens left and right of the cursor after it, and the mask of actions that were valid
before it. It knows INSERT, MOVE, STOP, DELETE, REPLACE and JUMP. canvas.py is the reference and knows all operators;
a test holds the two equal over a million random actions.

    cells   . . a b c _ _ _ d e . .       w "none" cells at either end make every window
                ^left     ^right          two plain copies, whatever the edges

A cell holds a token with its marks above it. Where JUMPs are enabled, a second buffer holds the step that inserted
each token, and `lives` says for how long each step's token stands on the canvas, which a pointer chooses from:

    step          0      1    2    3       4          lives[s, 0]: the step that took away what step s had inserted;
                  START  The  cat  DELETE  JUMP 0     FOREVER where none did, 0 where there is nothing to land on
    lives[:, 0]   ever   ever  3   0       0          lives[t, 1:]: where the next action jumps to and from, as steps
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reviser import compiled
from reviser.actions import DELETE, JUMP, JUMPS, MAX_MOVE_EXPONENT, MOVES, NUM_SPECIAL, OPERATORS, REPLACE, STOP
from reviser.canvas import CLOSED, FIXED, Rules

Array = npt.NDArray[Any]
KERNEL_OPERATORS = ("move", "delete", "replace", "jump")
MOVE_BIT, DELETE_BIT, REPLACE_BIT, JUMP_BIT = (1 << i for i in range(4))
REPLACING, STOPPED = 1, 2
FOREVER = 1 << 30
"""The death of what stays on the canvas."""

MARK_SHIFT = 28
TOKEN = (1 << MARK_SHIFT) - 1
"""The bits of a cell that are its token; its marks stand above them."""

_IS_FIXED, _IS_CLOSED = FIXED << MARK_SHIFT, CLOSED << MARK_SHIFT

_INSERT_MASK = np.int64(1) << NUM_SPECIAL
_FORTH = np.array([sum(1 << (MOVES + 2 * i) for i in range(n)) for n in range(11)], np.int64)
_BACK = _FORTH << 1
_BITS = np.array([min(i.bit_length(), MAX_MOVE_EXPONENT + 1) for i in range(1024)], np.int64)

jit = compiled.jit()


def missing_operators(rules: Rules) -> list[str]:
    """The enabled operators that only canvas.py knows."""
    return [name for name in OPERATORS if name in rules.operators and name not in KERNEL_OPERATORS]


def operator_bits(rules: Rules) -> int:
    """The enabled operators as one number."""
    if missing_operators(rules):
        raise ValueError(f"the replay kernel has no {missing_operators(rules)[0]}; replay with canvas.py")
    return sum(1 << i for i, name in enumerate(KERNEL_OPERATORS) if name in rules.operators)


def encode_rules(rules: Rules) -> npt.NDArray[np.int64]:
    """Rules as the kernels read them: maximum length, operators as bits, whether drafts JUMP to their cursor."""
    return np.array([rules.max_length, operator_bits(rules), int(bool(rules.has_jumps))], np.int64)


@jit
def _num_bits(value: int) -> Any:
    return _BITS[value] if value < 1024 else MAX_MOVE_EXPONENT + 1


@jit
def valid_mask(length: int, state: int, moves: int, can_delete: bool, can_replace: bool, num_closed: int,
               max_length: int, operators: int, actions_left: int) -> Any:  # fmt: skip
    """canvas.py's `valid_mask` of a state given by its numbers; `moves` are the bits of valid MOVEs."""
    mask = np.int64(0)
    if state == STOPPED or actions_left < 1:
        return mask
    if state == REPLACING:
        return _INSERT_MASK
    mask |= np.int64(1) << STOP
    if length < max_length:
        mask |= _INSERT_MASK
    if operators & MOVE_BIT:
        mask |= moves
    if operators == MOVE_BIT:
        return mask
    if operators & DELETE_BIT and can_delete:
        mask |= np.int64(1) << DELETE
    if operators & REPLACE_BIT and can_replace and actions_left >= 2:
        mask |= np.int64(1) << REPLACE
    # The cursor stands at one open boundary; a JUMP needs another.
    if operators & JUMP_BIT and length >= num_closed + 1:
        mask |= np.int64(1) << JUMP
    return mask


@jit
def _is_closed(cells: Array, left: int, right: int, width: int, front: int, boundary: int) -> Any:
    if boundary == 0:
        return front & CLOSED != 0
    place = width + boundary - 1
    return cells[place if place < left else place + right - left] & _IS_CLOSED != 0


@jit
def _find_moves(cells: Array, left: int, right: int, width: int, front: int, length: int) -> Any:
    """The bits of MOVEs to open boundaries, one by one: for canvases with closed boundaries between open ones."""
    bits, cursor = np.int64(0), left - width
    for exponent in range(MAX_MOVE_EXPONENT + 1):
        forth, back = cursor + (1 << exponent), cursor - (1 << exponent)
        if forth <= length and not _is_closed(cells, left, right, width, front, forth):
            bits |= np.int64(1) << (MOVES + 2 * exponent)
        if back >= 0 and not _is_closed(cells, left, right, width, front, back):
            bits |= np.int64(1) << (MOVES + 2 * exponent + 1)
    return bits


@jit
def _mark(cells: Array, births: Array, lives: Array, left: int, right: int, width: int, size: int,
          marks: Array) -> Any:  # fmt: skip
    """Mark a canvas; returns how many boundaries are closed, the first and last open ones as distances from the ends,
    and whether all between those are open."""
    num_closed, low, high, length = 0, -1, -1, left - width + size - right
    for boundary in range(length + 1):
        place = width + boundary - 1
        place = place if place < left else place + right - left
        if boundary:
            cells[place] |= marks[boundary] << MARK_SHIFT
        if marks[boundary] & CLOSED:
            num_closed += 1
            if len(births):
                lives[births[place] if boundary else 0, 0] = 0
        else:
            low = boundary if low < 0 else low
            high = boundary
    return num_closed, low, length - high, high - low + 1 == length + 1 - num_closed


@jit
def _distance(offset: int, cursor: int) -> Any:
    """How far a MOVE or a JUMP takes the cursor; `offset` is its id behind those of tokens."""
    if offset >= JUMPS:
        return offset - JUMPS - cursor
    distance = 1 << ((offset - MOVES) >> 1)
    return -distance if (offset - MOVES) & 1 else distance


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
def _show(cells: Array, left: int, right: int, width: int, size: int, num_text: int, windows: Array, canvases: Array,
          i: int) -> None:  # fmt: skip
    """Write windows[i], of any width, and canvases[i], where there are rows."""
    for k in range(width if len(windows) else 0):
        windows[i, k] = cells[left - width + k] & TOKEN
        windows[i, width + k] = cells[right + k] & TOKEN
    for k in range(canvases.shape[1] if len(canvases) else 0):
        place = width + k
        if place < left:
            canvases[i, k] = cells[place] & TOKEN
        elif place == left:
            canvases[i, k] = num_text
        else:
            place += right - left - 1
            canvases[i, k] = cells[place] & TOKEN if place < size else -1


@jit
def replay_one(actions: Array, num_draft: int, marks: Array, num_text: int, rules: Array, width: int, cells: Array,
               births: Array, windows: Array, masks: Array, canvases: Array, lives: Array) -> Any:  # fmt: skip
    """Replay a history; returns (index of the first invalid action or -1, length, cursor, left, right).

    `rules`: as `encode_rules` gives them. The first `num_draft` actions write a draft, which `marks` then protect
    (the front's, one for each token; none: nothing). windows[i] is the canvas beside the cursor after action i,
    masks[i] what was valid before it, canvases[i] the whole canvas after it with CURSOR at the cursor and -1 behind
    its end; lives[i + 1] belongs to action i, lives[0] to START. Each may have no rows; `lives` needs `births`,
    scratch as long as `cells`. The final canvas stands in cells[width:left] and cells[right:-width], with marks.
    """
    max_length, operators, front = rules[0], rules[1] | (JUMP_BIT if rules[2] else MOVE_BIT), 0
    low, tail, num_closed, is_plain = 0, 0, 0, True
    size, state = len(cells) - width, 0
    cells[:width] = num_text
    cells[size:] = num_text
    left, right = width, size
    has_masks, has_lives, is_shown = len(masks) > 0, len(lives) > 0, len(windows) + len(canvases) > 0
    is_usual = len(windows) > 0 and width == 4 and len(canvases) == 0
    if has_lives:
        lives[0, 0] = FOREVER
    for i in range(len(actions)):
        action = actions[i]
        length, cursor = left - width + size - right, left - width
        if i == num_draft:
            operators = rules[1]
            if len(marks):
                front = marks[0]
                num_closed, low, tail, is_plain = _mark(cells, births, lives, left, right, width, size, marks)
        offset = action - num_text
        is_text = offset < 0
        if has_masks or not (is_text and state == 0 and length < max_length and is_plain):
            if is_plain:
                moves = _BACK[_num_bits(max(cursor - low, 0))] | _FORTH[_num_bits(max(length - tail - cursor, 0))]
            else:
                moves = _find_moves(cells, left, right, width, front, length) if operators & MOVE_BIT else 0
            can_replace = cursor > 0 and cells[left - 1] & _IS_FIXED == 0
            can_delete = can_replace and not _is_closed(cells, left, right, width, front, cursor - 1)
            mask = valid_mask(length, state, moves, can_delete, can_replace, num_closed, max_length, operators, 2)
            if has_masks:
                masks[i] = mask
            # The row that all JUMPs share leads nowhere.
            if not (mask >> (NUM_SPECIAL if is_text else min(offset, JUMP))) & 1 or offset == JUMP:
                return i, length, cursor, left, right
        if has_lives:
            lives[i + 1, 0], lives[i, 1], lives[i, 2] = FOREVER if is_text else 0, -1, -1
        if offset == DELETE or (is_text and state == REPLACING):
            left -= 1
            if has_lives:
                lives[births[left], 0] = i + 1
        if is_text:
            cells[left] = action
            if has_lives:
                births[left] = i + 1
            left += 1
            state = 0
        elif MOVES <= offset < REPLACE or offset >= JUMPS:
            place, distance = offset - JUMPS, _distance(offset, cursor)
            if place >= 0:
                if place > length or distance == 0 or _is_closed(cells, left, right, width, front, place):
                    return i, length, cursor, left, right
                if has_lives:
                    at = width + place - 1
                    lives[i, 1] = births[at if at < left else at + right - left] if place else 0
                    lives[i, 2] = births[left - 1] if cursor else 0
            _carry(cells, left, right, distance)
            if has_lives:
                _carry(births, left, right, distance)
            left += distance
            right += distance
        elif offset != DELETE:
            state = REPLACING if offset == REPLACE else STOPPED
        if is_usual:
            # Unrolled, and no function: a call with array arguments costs 30 ns here.
            a, b, c, d = cells[left - 4], cells[left - 3], cells[left - 2], cells[left - 1]
            e, f, g, h = cells[right], cells[right + 1], cells[right + 2], cells[right + 3]
            windows[i, 0], windows[i, 1], windows[i, 2], windows[i, 3] = a & TOKEN, b & TOKEN, c & TOKEN, d & TOKEN
            windows[i, 4], windows[i, 5], windows[i, 6], windows[i, 7] = e & TOKEN, f & TOKEN, g & TOKEN, h & TOKEN
        elif is_shown:
            _show(cells, left, right, width, size, num_text, windows, canvases, i)
    return -1, left - width + size - right, left - width, left, right


@jit
def replay_many(rows: Array, begins: Array, num_text: int, rules: Array, width: int, cells: Array,
                windows: Array, targets: Array, offsets: Array) -> Any:  # fmt: skip
    """Replay rows[i, begins[i]:] and compare each final canvas with its target; returns how many differ."""
    num_bad = 0
    zero: Any = np.int64(0)  # a number that stands in a call would be a type of its own, and a kernel
    no_masks, no_canvases, none = np.empty(0, np.int64), np.empty((0, 0), np.int32), np.empty(0, np.int32)
    for i in range(len(begins)):
        actions = rows[i, begins[i] :]
        bad, length, _, left, right = replay_one(
            actions, zero, none, num_text, rules, width, cells, none, windows[: len(actions)], no_masks, no_canvases,
            no_canvases,
        )  # fmt: skip
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
        if cells[place if place < left else right + place - left] & TOKEN != text[k]:
            return False
    return True


@jit
def fill_rows(examples: Array, tokens: Array, drawn: Array, has_loss: Array, begins: Array, num_text: int,
              rules: Array, width: int, cells: Array, births: Array, history: Array, marks: Array, actions: Array,
              labels: Array, masks: Array, positions: Array, segments: Array, windows: Array, canvases: Array,
              lives: Array) -> Any:  # fmt: skip
    """Write examples into packed rows, in the order given; returns the first that does not lead to its text, or -1.

    examples[k]: row, column, segment, index into `drawn`, first token, prefix, target and suffix length, first token
    of the draft and its length, whether it is told to be out of order, then the sizes of inner gaps and of what is
    given behind each. `births`, `history` and `marks` are scratch. The arrays of rows are one column wider than the
    rows: an example's last window spills into the next START.
    """
    num_windows, num_canvases, num_lives = windows.shape[2], canvases.shape[2], lives.shape[2]
    for k in range(len(examples)):
        row, col, segment, i = examples[k, 0], examples[k, 1], examples[k, 2], examples[k, 3]
        first, prefix, target, suffix = examples[k, 4], examples[k, 5], examples[k, 6], examples[k, 7]
        drafts, drafted, told, inner = examples[k, 8], examples[k, 9], examples[k, 10], examples[k, 11:]
        count = write_draft(
            history, tokens, first, prefix, target, suffix, drafts, drafted, told, inner, num_text, rules[2]
        )  # fmt: skip
        num_given = prefix + drafted + suffix
        for j in range(1, len(inner), 2):
            num_given += inner[j]
        write_marks(marks, prefix, drafted, suffix, inner)
        num_draft = count
        for j in range(begins[i], drawn.shape[1]):
            history[count] = drawn[i, j]
            count += 1
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
            history[:count], num_draft, marks[: num_given + 1], num_text, rules, width, cells, births,
            windows[row, col + 1 : after if num_windows else col + 1], masks[row, col : col + count],
            canvases[row, col + 1 : after if num_canvases else col + 1],
            lives[row, col : after if num_lives else col],
        )  # fmt: skip
        if bad >= 0 or not _holds(
            cells, width, length, left, right, tokens[first : first + prefix + target + suffix]
        ):
            return k
    return -1


@jit
def write_draft(history: Array, tokens: Array, first: int, prefix: int, target: int, suffix: int, drafts: int,
                drafted: int, told: int, inner: Array, num_text: int, has_jumps: int) -> int:  # fmt: skip
    """history.py's `draft_history` of a prefix, a draft and a suffix with the cursor behind the draft; its length.

    By JUMPs the cursor goes to the draft's front first. inner[0::2] are the sizes of gaps in the target and
    inner[1::2] those of what is given behind them: with any of these there is no draft, and the cursor goes through
    all gaps to the first. Where it is told to write out of order, nothing but a prefix is given, and the cursor goes
    to the front and back twice.
    """
    for j in range(prefix):
        history[j] = tokens[first + j]
    for j in range(drafted):
        history[prefix + j] = tokens[drafts + j]
    count, place = prefix + drafted, first + prefix
    for k in range(0, len(inner), 2):
        place += inner[k]
        for j in range(inner[k + 1]):
            history[count + j] = tokens[place + j]
        count += inner[k + 1]
        place += inner[k + 1]
    for j in range(suffix):
        history[count + j] = tokens[first + prefix + target + j]
    if drafted and has_jumps:
        history[count + suffix] = num_text + JUMPS + prefix
        history[count + suffix + 1] = num_text + JUMPS + count
        return count + suffix + 2
    if told:
        for j in range(4):
            history[count + j] = num_text + JUMPS + (prefix if j % 2 else 0)
        return count + 4
    gap = count
    count = _write_way(history, count + suffix, count + suffix, suffix, num_text, has_jumps)
    for k in range(len(inner) - 1, 0, -2):
        count = _write_way(history, count, gap, inner[k], num_text, has_jumps)
        gap -= inner[k]
    return count


@jit
def _write_way(history: Array, count: int, start: int, distance: int, num_text: int, has_jumps: int) -> int:
    """The way back from a boundary; returns how many actions the history has then."""
    left, exponent = distance, MAX_MOVE_EXPONENT
    if has_jumps and left:
        history[count] = num_text + JUMPS + start - left
        return count + 1
    while left:
        while left < 1 << exponent:
            exponent -= 1
        history[count] = num_text + MOVES + 2 * exponent + 1
        left -= 1 << exponent
        count += 1
    return count


@jit
def write_marks(marks: Array, prefix: int, drafted: int, suffix: int, inner: Array) -> None:
    """The marks of `Draft.revision`: what stands around the draft is fixed, and its boundaries are closed; with inner
    gaps those of `Draft.gaps`."""
    end = prefix + drafted
    for j in range(end + suffix + 1):
        is_fixed = 0 < j <= prefix or j > end
        marks[j] = (FIXED if is_fixed else 0) | (CLOSED if j < prefix or j > end else 0)
    for k in range(1, len(inner), 2):
        if inner[k]:
            for j in range(inner[k] + suffix):
                marks[end + 1 + j] = FIXED | CLOSED
            end += inner[k]
            marks[end] = FIXED
