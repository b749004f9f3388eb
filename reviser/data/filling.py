"""Trajectories into rows: every array that the model reads, written by a kernel or by the plain executor.

The kernel knows INSERT, MOVE, STOP, DELETE, REPLACE and JUMP. Where the rules enable another operator, canvas.py
writes the rows, some hundred times slower: operators are tried out there before they deserve a kernel. On the
kernel's own operators both write the same arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.actions import DELETE, EVERYTHING, JUMPS, MOVES, REPLACE, START, STOP
from reviser.canvas import Canvas, Rules, apply, valid_mask
from reviser.data.drawing import Orders
from reviser.data.examples import Examples
from reviser.errors import ActionError, DataError
from reviser.orders.checked import explain_replay
from reviser.orders.draw import Rows
from reviser.orders.history import follow_births
from reviser.orders.policies import has_kernel
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import order_name
from reviser.orders.replay import FOREVER, encode_rules, fill_rows, jit, missing_operators

Array = npt.NDArray[Any]
EVERY_TOKEN = 1 << 30
FAR = 12
"""How many tokens a mistake has at most for what stands behind it to be learned."""


@dataclass(frozen=True, slots=True)
class RowArrays:
    """What the model reads of rows, one column wider than they are: the kernel writes one past an example's end."""

    actions: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    valid: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int32]
    segments: npt.NDArray[np.int32]
    windows: npt.NDArray[np.int32]
    canvases: npt.NDArray[np.int32]
    cursors: npt.NDArray[np.int32]
    lives: npt.NDArray[np.int32]

    @classmethod
    def blank(
        cls, num_rows: int, row: int, rules: Rules, width: int, num_cells: int, has_cursors: bool = False
    ) -> RowArrays:
        """Nothing but padding; `width` tokens at either side of the cursor, `num_cells` of a canvas."""
        alphabet, shape = rules.alphabet, (num_rows, row + 1)
        return cls(
            np.full(shape, alphabet.pad, np.int32),
            np.full(shape, -1, np.int32),
            np.full(shape, EVERYTHING, np.int64),
            np.zeros(shape, np.int32),
            np.full(shape, -1, np.int32),
            np.full((*shape, 2 * width), alphabet.none, np.int32),
            np.full((*shape, num_cells), -1, np.int32),
            np.zeros(shape if has_cursors else (num_rows, 0), np.int32),
            np.zeros((*shape, 3 if "jump" in rules.operators else 0), np.int32),
        )


def fill(table: Array, examples: Examples, drawn: Rows, rules: Rules, arrays: RowArrays, orders: Orders) -> None:
    """Write examples that their orders drew into blank rows; each line of `table` is what `fill_rows` reads."""
    write = fill_by_executor if missing_operators(rules) else fill_by_kernel
    bad = write(table, examples, drawn, rules, arrays)
    if bad >= 0:
        i = int(table[bad, 3])
        reason = _explain(examples, i, tuple(drawn[i].tolist()), rules)
        order = orders.of(bool(examples.told[i]))
        advice = "" if has_kernel(order) else "; fix its draw"
        raise DataError(
            f"order {order_name(order)}: an example of document {int(examples.document[i])} does not replay: "
            f"{reason}{advice}"
        )


def fill_by_kernel(table: Array, examples: Examples, drawn: Rows, rules: Rules, arrays: RowArrays) -> int:
    """Write all examples; returns the first line whose trajectory does not lead to its text, or -1."""
    width, most = arrays.windows.shape[2] // 2, arrays.actions.shape[1]
    num_cells = rules.max_length + 2 * width + 1
    bad: int = fill_rows(
        table, examples.tokens, drawn.actions, drawn.has_loss, drawn.begins, rules.alphabet.num_text,
        encode_rules(rules), width, np.empty(num_cells, np.int32),
        np.empty(num_cells if arrays.lives.size else 0, np.int32), np.empty(most, np.int32),
        np.empty(most + 1, np.int32), arrays.actions, arrays.labels, arrays.valid,
        arrays.positions, arrays.segments, arrays.windows, arrays.canvases, arrays.lives,
    )  # fmt: skip
    if arrays.cursors.size:
        find_cursors(arrays.actions, arrays.segments, rules.alphabet.num_text, arrays.cursors)
    return bad


@jit
def learn_given(table: Array, is_chosen: Array, tokens: Array, labels: Array) -> None:
    """Label what is given to chosen examples of filled rows: all that their finished texts have too, but for what
    comes first behind a gap or a mistake. So nobody learns to make mistakes."""
    for k in range(len(table)):
        if not is_chosen[table[k, 3]]:
            continue
        row, first, prefix, target, suffix = table[k, 0], table[k, 4], table[k, 5], table[k, 6], table[k, 7]
        place, drafted = table[k, 1] + prefix, table[k, 9]
        for j in range(prefix):
            labels[row, place - prefix + j] = tokens[first + j]
        text, draft = tokens[first + prefix : first + prefix + target], tokens[table[k, 8] : table[k, 8] + drafted]
        missed = learn_kept(draft, text, labels[row, place : place + drafted]) if drafted else 1
        place, begin = place + drafted, first + prefix
        for j in range(11, table.shape[1], 2):
            begin += table[k, j]
            for i in range(1, table[k, j + 1]):
                labels[row, place + i] = tokens[begin + i]
            place, begin = place + table[k, j + 1], begin + table[k, j + 1]
        begin = first + prefix + target
        for i in range(missed, suffix):
            labels[row, place + i] = tokens[begin + i]


@jit
def learn_kept(draft: Array, text: Array, labels: Array) -> Any:
    """Label the tokens of a draft that its text keeps, up to a mistake behind which they are not soon alike again;
    returns how many tokens behind the draft are not to be learned: all of them, the first or none."""
    i, j = 0, 0
    while i < len(draft) and j < len(text):
        if draft[i] == text[j]:
            labels[i] = draft[i]
            i, j = i + 1, j + 1
            continue
        skipped = _next_alike(draft, text, i, j)
        if skipped < 0:
            return 1 if max(len(draft) - i, len(text) - j) <= FAR else EVERY_TOKEN
        # What comes first behind a mistake may be half of it.
        i, j = i + skipped // (FAR + 1) + 1, j + skipped % (FAR + 1) + 1
    left = max(len(draft) - i, len(text) - j)
    return 0 if left <= 0 else 1 if left <= FAR else EVERY_TOKEN


@jit
def _next_alike(draft: Array, text: Array, i: int, j: int) -> Any:
    """How many tokens of both to skip until two in a row are alike, or the last ones; the fewest, or -1."""
    for total in range(1, 2 * FAR + 1):
        for a in range(max(total - FAR, 0), min(total, FAR) + 1):
            x, y = i + a, j + total - a
            if x >= len(draft) or y >= len(text) or draft[x] != text[y]:
                continue
            is_last = x + 1 == len(draft) and y + 1 == len(text)
            if is_last or (x + 1 < len(draft) and y + 1 < len(text) and draft[x + 1] == text[y + 1]):
                return a * (FAR + 1) + total - a
    return -1


@jit
def mark_mistakes(table: Array, given: Array, sizes: Array, labels: Array, lives: Array, ahead: int, num_text: int,
                  mistakes: Array) -> None:  # fmt: skip
    """Say of the places of drafts in filled rows whether something is edited there: behind which tokens its script
    lands. `given` and `sizes` count the positions of each example's draft and of all of it.

    A place counts if the next `ahead` positions belong to the draft's history too, which tells nothing of the script.
    """
    for k in range(len(table)):
        row, col, i, prefix, drafted = table[k, 0], table[k, 1], table[k, 3], table[k, 5], table[k, 9]
        last = min(prefix + drafted, given[i] - ahead)
        if not drafted:
            continue
        for step in range(prefix, last + 1):
            mistakes[row, col + step] = 0
        for step in range(given[i], sizes[i]):
            place = lives[row, col + step, 1]
            if prefix <= place <= last:
                mistakes[row, col + place] = 1
        # The cursor stands at the draft's end already.
        first = labels[row, col + given[i]] - num_text
        if prefix + drafted == last and first != STOP and first < JUMPS:
            mistakes[row, col + last] = 1


@jit
def find_cursors(actions: Array, segments: Array, num_text: int, cursors: Array) -> None:
    """Where the cursor stands after each action of filled rows, a sum of what actions do to it; 0 in padding."""
    for r in range(len(actions)):
        cursor, is_replacing = 0, False
        for c in range(actions.shape[1]):
            offset = actions[r, c] - num_text
            if offset == START:
                cursor, is_replacing = 0, False
            elif offset < 0:
                cursor += 0 if is_replacing else 1
                is_replacing = False
            elif MOVES <= offset < REPLACE:
                distance = 1 << ((offset - MOVES) >> 1)
                cursor += -distance if (offset - MOVES) & 1 else distance
            elif offset >= JUMPS:
                cursor = offset - JUMPS
            elif offset == DELETE:
                cursor -= 1
            elif offset == REPLACE:
                is_replacing = True
            cursors[r, c] = cursor if segments[r, c] >= 0 else 0


def fill_by_executor(table: Array, examples: Examples, drawn: Rows, rules: Rules, arrays: RowArrays) -> int:
    """`fill_by_kernel` for all operators, one action after another."""
    masks: dict[tuple[object, ...], int] = {}
    for line, (row, col, segment, i) in enumerate(table[:, :4].tolist()):
        draft = examples.draft(i, rules)
        num_drafted, history = len(draft.actions), (*draft.actions, *drawn[i].tolist())
        here = slice(col, col + len(history))
        is_learned = np.concatenate([np.zeros(num_drafted, bool), drawn.has_loss[i, drawn.begins[i] :] > 0])
        arrays.actions[row, here] = (rules.alphabet.start, *history[:-1])
        arrays.labels[row, here] = np.where(is_learned, history, -1)
        arrays.positions[row, here] = range(len(history))
        arrays.segments[row, here] = segment
        try:
            states = _replay(draft, history)
        except ActionError:
            return line
        for step, canvas in enumerate(states[:-1]):
            is_generated = step >= num_drafted
            allowed = draft.rules if is_generated else draft.rules.for_draft()
            gap = (draft.prefix, draft.suffix) if is_generated else (0, 0)
            is_alike = not (is_generated and draft.visits)
            arrays.valid[row, col + step] = (
                _mask(canvas, allowed, gap, masks) if is_alike else valid_mask(canvas, allowed)
            )
            _show(canvas, rules.alphabet.none, arrays.windows[row, col + step], arrays.canvases[row, col + step])
            if arrays.cursors.size:
                arrays.cursors[row, col + step] = canvas.cursor
        if arrays.lives.size:
            arrays.lives[row, col : col + len(history) + 1] = trace_lives(draft, history, states)
        if states[-1].tokens != examples.text(i):
            return line
    return -1


def _replay(draft: Draft, history: Sequence[int]) -> list[Canvas]:
    """The canvas before each action of a history and behind the last; marks are set when the draft is written."""
    states, num_drafted = [Canvas()], len(draft.actions)
    for step, action in enumerate(history):
        if step == num_drafted:
            states[-1] = draft.canvas
        states.append(apply(states[-1], action, draft.rules if step >= num_drafted else draft.rules.for_draft()))
    return states


def trace_lives(draft: Draft, history: Sequence[int], states: Sequence[Canvas]) -> Array:
    """What replay.py calls `lives`, by the plain executor: [len(history) + 1, 3]."""
    alphabet, births = draft.rules.alphabet, tuple[int, ...]()
    lives = np.zeros((len(history) + 1, 3), np.int32)
    lives[0, 0] = FOREVER
    for step, (action, before) in enumerate(zip(history, states, strict=False)):
        if step == len(draft.actions):
            closed = [place for place in range(len(before.tokens) + 1) if not before.is_open(place)]
            lives[[births[place - 1] if place else 0 for place in closed], 0] = 0
        lives[step, 1:] = -1
        if alphabet.is_jump(action):
            places = alphabet.landing(action), before.cursor
            lives[step, 1:] = [births[place - 1] if place else 0 for place in places]
        after = follow_births(births, before, action, step + 1, alphabet)
        lives[list(set(births) - set(after)), 0] = step + 1
        lives[step + 1, 0] = FOREVER if step + 1 in after else 0
        births = after
    return lives


def _mask(canvas: Canvas, rules: Rules, gap: tuple[int, int], known: dict[tuple[object, ...], int]) -> int:
    """`valid_mask`, which takes long and is the same for all canvases that are alike in these respects; `gap` are the
    numbers of protected tokens on either side."""
    cursor, length = canvas.cursor, len(canvas.tokens)
    reach, forth, room = cursor - gap[0], length - gap[1] - cursor, rules.max_length - length
    can_paste = 0 < len(canvas.clipboard) <= room
    # Moves are powers of two, and no action spans more than 8 tokens.
    alike = (
        rules.operators, canvas.is_replacing, canvas.is_stopped, room > 0, can_paste, min(cursor, 8), min(reach, 8),
        reach.bit_length(), forth.bit_length(),
    )  # fmt: skip
    if alike not in known:
        known[alike] = valid_mask(canvas, rules)
    return known[alike]


def _show(canvas: Canvas, none: int, window: Array, cells: Array) -> None:
    """A canvas as the model sees it: the tokens beside the cursor, and all tokens with a mark at the cursor."""
    if len(window):
        window[:] = canvas.window(len(window) // 2, none)
    if len(cells):
        shown = (*canvas.tokens[: canvas.cursor], none, *canvas.tokens[canvas.cursor :])[: len(cells)]
        cells[: len(shown)] = shown


def _explain(examples: Examples, i: int, actions: tuple[int, ...], rules: Rules) -> str:
    drawn = Trajectory(examples.draft(i, rules), actions, (True,) * len(actions))
    return explain_replay(drawn, examples.text(i)) or "its rows could not be filled"
