"""Edit scripts by kernel: what `align` writes with JUMPs, hunk by hunk from left to right, for many texts at once.

    draft   a b c d      target   a x c        script   JUMP 2, REPLACE, x, JUMP 4, DELETE, STOP

    given   a | c |      target   a x c y      filling  x, JUMP 3, y, STOP

The draft may stand between protected texts; all of it may change. The references are align.py's `align` and
`fill_gaps`; tests hold kernels and references equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.actions import DELETE, JUMPS, REPLACE, STOP
from reviser.orders.kernels import TOO_LONG, jit

Array = npt.NDArray[Any]


@jit
def _count_common(a: Array, b: Array) -> Any:
    """How many tokens two texts share at the front."""
    front = 0
    while front < len(a) and front < len(b) and a[front] == b[front]:
        front += 1
    return front


@jit
def _fill_costs(a: Array, b: Array, costs: Array) -> None:
    """costs[i, j]: the actions of the cheapest edits from a[i:] to b[j:], the ways between them not counted."""
    n, m = len(a), len(b)
    for j in range(m + 1):
        costs[n, j] = m - j
    for i in range(n - 1, -1, -1):
        costs[i, m] = n - i
        for j in range(m - 1, -1, -1):
            here = costs[i + 1, j + 1] + (0 if a[i] == b[j] else 2)
            costs[i, j] = min(here, min(costs[i + 1, j], costs[i, j + 1]) + 1)


@jit
def _write_hunk(row: Array, count: int, place: int, doomed: int, tokens: Array, num_text: int, cursor: int,
                can_replace: int) -> int:  # fmt: skip
    """Replace `doomed` tokens left of boundary `place` by others; returns how many actions the row has then."""
    is_replacing = 1 if can_replace and doomed and len(tokens) else 0
    if count + 2 + doomed + len(tokens) > len(row):
        return len(row) + 1
    if place != cursor:
        row[count] = num_text + JUMPS + place
        count += 1
    for _ in range(doomed - is_replacing):
        row[count] = num_text + DELETE
        count += 1
    if is_replacing:
        row[count] = num_text + REPLACE
        count += 1
    for k in range(len(tokens)):
        row[count + k] = tokens[k]
    return count + len(tokens)


@jit
def _write_script(draft: Array, target: Array, offset: int, room: int, num_text: int, can_replace: int,
                  row: Array) -> int:  # fmt: skip
    """The script from a draft to a target, without STOP, into the beginning of `row`; returns its length.

    `offset`: how many tokens stand before the draft; `room`: how many it may have at any time. A script that does not
    fit is longer than the row.
    """
    front = _count_common(draft, target)
    a, b = draft[front:], target[front:]
    costs = np.empty((len(a) + 1, len(b) + 1), np.int16)
    _fill_costs(a, b, costs)
    i, j, from_i, from_j = 0, 0, 0, 0
    count, cursor, shift = 0, offset + len(draft), 0
    while i <= len(a):
        is_over = i == len(a) and j == len(b)
        is_same = i < len(a) and j < len(b) and a[i] == b[j] and costs[i, j] == costs[i + 1, j + 1]
        if is_over or is_same:
            if from_i < i or from_j < j:
                doomed, grown = i - from_i, j - from_j
                place = offset + front + i + shift
                count = _write_hunk(row, count, place, doomed, b[from_j:j], num_text, cursor, can_replace)
                shift += grown - doomed
                cursor = place + grown - doomed
                if count > len(row) or len(draft) + shift > room:
                    return len(row) + 1
            if is_over:
                break
            i, j = i + 1, j + 1
            from_i, from_j = i, j
        elif i < len(a) and j < len(b) and a[i] != b[j] and costs[i, j] == costs[i + 1, j + 1] + 2 and can_replace:
            i, j = i + 1, j + 1
        elif i < len(a) and costs[i, j] == costs[i + 1, j] + 1:
            i += 1
        else:
            j += 1
    return count


@jit
def write_scripts(tokens: Array, drafts: Array, drafted: Array, targets: Array, lengths: Array, offsets: Array,
                  rooms: Array, num_text: int, can_replace: int, rows: Array, loss: Array,
                  begins: Array) -> None:  # fmt: skip
    """The script of each draft tokens[drafts[i]:][:drafted[i]] to its target tokens[targets[i]:][:lengths[i]], with
    STOP, into the end of rows[i], from begins[i] on, or TOO_LONG there."""
    size = rows.shape[1]
    for i in range(len(drafts)):
        draft = tokens[drafts[i] : drafts[i] + drafted[i]]
        target = tokens[targets[i] : targets[i] + lengths[i]]
        row = rows[i]
        count = _write_script(draft, target, offsets[i], rooms[i], num_text, can_replace, row[: size - 1])
        begins[i] = TOO_LONG
        if count < size:
            begins[i] = size - 1 - count
            for k in range(count - 1, -1, -1):
                row[begins[i] + k] = row[k]
            row[size - 1] = num_text + STOP
            for k in range(begins[i], size):
                loss[i, k] = 1


@jit
def write_fillings(tokens: Array, targets: Array, lengths: Array, inner: Array, offsets: Array, num_text: int,
                   rows: Array, loss: Array, begins: Array) -> None:  # fmt: skip
    """What fills the gaps of each target tokens[targets[i]:][:lengths[i]], from left to right, with STOP, into the
    end of rows[i], from begins[i] on, or TOO_LONG there.

    inner[i, k]: the size of gap k and of what is given behind it; offsets[i]: how many tokens stand before a target.
    """
    size = rows.shape[1]
    for i in range(len(targets)):
        # The last gap is what is left; a gap of no tokens is not visited.
        last, count, is_away = lengths[i], 1, 0
        for k in range(inner.shape[1]):
            gap, given = inner[i, k, 0], inner[i, k, 1]
            last -= gap + given
            count += gap + (1 if gap and is_away else 0)
            is_away = 1 if given else is_away
        count += last + (1 if last and is_away else 0)
        begins[i] = TOO_LONG
        if count > size:
            continue
        begins[i] = size - count
        at, place, cursor = size - count, 0, 0
        for k in range(inner.shape[1] + 1):
            gap = last if k == inner.shape[1] else inner[i, k, 0]
            if gap and place != cursor:
                rows[i, at] = num_text + JUMPS + offsets[i] + place
                at += 1
            for j in range(gap):
                rows[i, at + j] = tokens[targets[i] + place + j]
            at += gap
            cursor = place + gap if gap else cursor
            place += gap + (inner[i, k, 1] if k < inner.shape[1] else 0)
        rows[i, at] = num_text + STOP
        for k in range(begins[i], size):
            loss[i, k] = 1
