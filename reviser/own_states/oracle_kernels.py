"""The oracle by kernel: every state of many rollouts, with the action that a shortest script would take there.

A canvas is protected text with free stretches between it, and the goal of each stretch is a text. The table of edit
costs is filled from the stretch's end, row by row, so an edit leaves all rows valid that stand for text on its right:

    goal  a b c d      canvas  a x | c d      after INSERT b:  rows of "", "d", "c d" stay, that of "b c d" is new

A model that edits from left to right leaves little to fill. oracle.py is the plain reference; tests hold both equal.

Shape letters: R rollouts, K stretches of one, S states. Arrays of several rollouts are flat, with offsets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.actions import DELETE, JUMPS, MAX_MOVE_EXPONENT, MOVES, REPLACE, STOP
from reviser.canvas import CLOSED, FIXED
from reviser.orders.kernels import _below, jit
from reviser.orders.replay import REPLACE_BIT, write_draft, write_marks
from reviser.orders.script_kernels import _count_common, _write_hunk

Array = npt.NDArray[Any]
NONE = -1
"""No label, or no script: nothing that could be done from here is any good, or the canvas has no room for it."""
CURSOR, LENGTH, PENDING, HUNKS, DISTANCE = range(5)
"""The numbers of a state: cursor, tokens, a pending REPLACE, places that differ, edits that are left to do."""


@jit
def find_stretches(marks: Array, length: int, starts: Array, ends: Array) -> Any:
    """Where the free stretches of a canvas begin and end, as boundaries; returns how many there are."""
    if len(marks) == 0:
        starts[0], ends[0] = 0, length
        return 1
    count = 0
    for boundary in range(length + 1):
        if marks[boundary] & CLOSED:
            continue
        if boundary == 0 or marks[boundary - 1] & CLOSED or marks[boundary] & FIXED:
            starts[count] = boundary
            count += 1
        ends[count - 1] = boundary
    return count


@jit
def _fill_table(cells: Array, end: int, goal: Array, table: Array, first: int, last: int) -> None:
    """Rows first..last of the costs of edits: table[r, j] is that from the r tokens before `end` to goal[j:]."""
    m = len(goal)
    for r in range(first, last + 1):
        token = cells[end - r]
        table[r, m] = r
        for j in range(m - 1, -1, -1):
            here = table[r - 1, j + 1] + (0 if token == goal[j] else 2)
            table[r, j] = min(here, min(table[r - 1, j], table[r, j + 1]) + 1)


@jit
def _trace(cells: Array, start: int, end: int, goal: Array, offset: int, table: Array, front: int, can_replace: int,
           hunks: Array, count: int) -> Any:  # fmt: skip
    """Add the hunks of a stretch: where each begins and ends on the canvas, and among all goals; how many then."""
    i, j, n, m = front, front, end - start, len(goal)
    from_i, from_j = i, j
    while True:
        is_over = i == n and j == m
        is_same = i < n and j < m and cells[start + i] == goal[j] and table[n - i, j] == table[n - i - 1, j + 1]
        if is_over or is_same:
            if from_i < i or from_j < j:
                hunks[count, 0], hunks[count, 1] = start + from_i, start + i
                hunks[count, 2], hunks[count, 3] = offset + from_j, offset + j
                count += 1
            if is_over:
                return count
            i, j = i + 1, j + 1
            from_i, from_j = i, j
        elif can_replace and i < n and j < m and table[n - i, j] == table[n - i - 1, j + 1] + 2 \
                and cells[start + i] != goal[j]:  # fmt: skip
            i, j = i + 1, j + 1
        elif i < n and table[n - i, j] == table[n - i - 1, j] + 1:
            i += 1
        else:
            j += 1


@jit
def _compare(cells: Array, starts: Array, ends: Array, goals: Array, bounds: Array, tables: Array, places: Array,
             valid: Array, can_replace: int, hunks: Array, state: Array) -> None:  # fmt: skip
    """Find all hunks of a canvas, in order; `valid` counts the rows of each stretch's table that are filled."""
    count, distance = 0, 0
    for k in range(len(starts)):
        goal = goals[bounds[k] : bounds[k + 1]]
        m, n = len(goal), ends[k] - starts[k]
        table = tables[places[k] : places[k + 1]].reshape(-1, m + 1)
        if valid[k] == 0:
            for j in range(m + 1):
                table[0, j] = m - j
            valid[k] = 1
        front = _count_common(cells[starts[k] : ends[k]], goal)
        _fill_table(cells, ends[k], goal, table, valid[k], n - front)
        valid[k] = max(valid[k], n - front + 1)
        distance += table[n - front, front]
        count = _trace(cells, starts[k], ends[k], goal, bounds[k], table, front, can_replace, hunks, count)
    state[HUNKS], state[DISTANCE] = count, distance


@jit
def _find_here(hunks: Array, count: int, cursor: int) -> Any:
    """The hunk whose edits begin at the cursor, or NONE."""
    for k in range(count):
        if hunks[k, 1] == cursor:
            return k
    return NONE


@jit
def _has_room(hunks: Array, count: int, first: int, length: int, max_length: int) -> Any:
    """Whether the canvas never exceeds its maximum when `first` is edited before the others, which come in order."""
    for turn in range(-1, count):
        k = first if turn < 0 else turn
        if k < 0 or (turn >= 0 and k == first):
            continue
        length += hunks[k, 3] - hunks[k, 2] - (hunks[k, 1] - hunks[k, 0])
        if length > max_length:
            return False
    return True


@jit
def _advise(hunks: Array, state: Array, goals: Array, is_begun: int, num_text: int, max_length: int,
            can_replace: int) -> Any:  # fmt: skip
    """The first action of the script from a state without a pending REPLACE, and how long the script is; or NONE."""
    count, cursor = state[HUNKS], state[CURSOR]
    if count == 0:
        return num_text + STOP, 1
    here = _find_here(hunks, count, cursor) if is_begun else NONE
    if not _has_room(hunks, count, here, state[LENGTH], max_length):
        return NONE, NONE
    k = max(here, 0)
    place, doomed, written = hunks[k, 1], hunks[k, 1] - hunks[k, 0], hunks[k, 3] - hunks[k, 2]
    size = state[DISTANCE] + count + 1
    if place != cursor:
        return num_text + JUMPS + place, size
    is_replacing = 1 if can_replace and doomed and written else 0
    if doomed > is_replacing:
        return num_text + DELETE, size - 1
    return num_text + REPLACE if is_replacing else goals[hunks[k, 2]], size - 1


@jit
def _write(row: Array, hunks: Array, state: Array, goals: Array, is_begun: int, num_text: int,
           can_replace: int) -> Any:  # fmt: skip
    """The script, with STOP, into the beginning of a row; returns its length."""
    count, cursor, shift, size = state[HUNKS], state[CURSOR], 0, 0
    here = _find_here(hunks, count, cursor) if is_begun else NONE
    begun = 0 if here < 0 else hunks[here, 3] - hunks[here, 2] - (hunks[here, 1] - hunks[here, 0])
    for turn in range(-1, count):
        k = here if turn < 0 else turn
        if k < 0 or (turn >= 0 and k == here):
            continue
        doomed, tokens = hunks[k, 1] - hunks[k, 0], goals[hunks[k, 2] : hunks[k, 3]]
        before = 0 if turn < 0 else shift + (begun if here >= 0 and k > here else 0)
        place = hunks[k, 1] + before
        size = _write_hunk(row, size, place, doomed, tokens, num_text, cursor, can_replace)
        cursor = place + len(tokens) - doomed
        shift += len(tokens) - doomed if turn >= 0 else 0
    row[size] = num_text + STOP
    return size + 1


@jit
def _advise_pending(cells: Array, births: Array, starts: Array, ends: Array, goals: Array, bounds: Array,
                    tables: Array, places: Array, valid: Array, can_replace: int, hunks: Array,
                    state: Array) -> Any:  # fmt: skip
    """What to insert for the token left of the cursor, which is being replaced: what is missing there without it."""
    cursor, token, birth = state[CURSOR], cells[state[CURSOR] - 1], births[state[CURSOR] - 1]
    _remove(cells, births, starts, ends, valid, cursor, state)
    _compare(cells, starts, ends, goals, bounds, tables, places, valid, can_replace, hunks, state)
    advice = NONE
    for k in range(state[HUNKS]):
        is_here = hunks[k, 0] <= cursor - 1 <= hunks[k, 1]
        if is_here and hunks[k, 2] < hunks[k, 3] and advice == NONE:
            advice = goals[hunks[k, 2]]
    _put(cells, births, starts, ends, valid, cursor - 1, token, birth, state)
    return advice


@jit
def _remove(cells: Array, births: Array, starts: Array, ends: Array, valid: Array, cursor: int,
            state: Array) -> None:  # fmt: skip
    """Take away the token left of a boundary."""
    for place in range(cursor, state[LENGTH]):
        cells[place - 1], births[place - 1] = cells[place], births[place]
    _shift(starts, ends, valid, cursor, -1)
    state[LENGTH] -= 1


@jit
def _put(cells: Array, births: Array, starts: Array, ends: Array, valid: Array, cursor: int, token: int, birth: int,
         state: Array) -> None:  # fmt: skip
    """Put a token at a boundary."""
    for place in range(state[LENGTH], cursor, -1):
        cells[place], births[place] = cells[place - 1], births[place - 1]
    cells[cursor], births[cursor] = token, birth
    _shift(starts, ends, valid, cursor, 1)
    state[LENGTH] += 1


@jit
def _shift(starts: Array, ends: Array, valid: Array, cursor: int, by: int) -> None:
    """A stretch has grown or shrunk left of a boundary, or at it; the rows for what stands behind it stay valid."""
    for k in range(len(starts)):
        if starts[k] > cursor:
            starts[k] += by
            ends[k] += by
        elif ends[k] >= cursor:
            valid[k] = min(valid[k], ends[k] - cursor + 1)
            ends[k] += by


@jit
def _execute(action: int, num_text: int, step: int, cells: Array, births: Array, starts: Array, ends: Array,
             valid: Array, state: Array) -> None:  # fmt: skip
    """Apply an action that is valid."""
    offset = action - num_text
    if offset < 0:
        if state[PENDING]:
            _remove(cells, births, starts, ends, valid, state[CURSOR], state)
            state[CURSOR] -= 1
            state[PENDING] = 0
        _put(cells, births, starts, ends, valid, state[CURSOR], action, step, state)
        state[CURSOR] += 1
    elif offset == DELETE:
        _remove(cells, births, starts, ends, valid, state[CURSOR], state)
        state[CURSOR] -= 1
    elif offset >= JUMPS:
        state[CURSOR] = offset - JUMPS
    elif offset == REPLACE:
        state[PENDING] = 1
    elif MOVES <= offset <= MOVES + 2 * MAX_MOVE_EXPONENT + 1:
        distance = 1 << ((offset - MOVES) >> 1)
        state[CURSOR] += -distance if (offset - MOVES) & 1 else distance


@jit
def _place_tables(starts: Array, ends: Array, bounds: Array, more: int, places: Array) -> Any:
    """Where the table of each stretch begins, with rows for `more` tokens than it has; returns the size of all."""
    places[0] = 0
    for k in range(len(starts)):
        rows = ends[k] - starts[k] + more + 1
        places[k + 1] = places[k] + rows * (bounds[k + 1] - bounds[k] + 1)
    return places[len(starts)]


@jit
def label_one(tokens: Array, cursor: int, is_begun: int, is_pending: int, starts: Array, ends: Array, goals: Array,
              bounds: Array, actions: Array, num_draft: int, num_text: int, max_length: int, can_replace: int,
              labels: Array, landings: Array, sizes: Array, distances: Array) -> None:  # fmt: skip
    """Label the states of one rollout, which is a canvas and S actions. `is_begun`: the cursor is where an action has
    put it, so what is to be done there comes first; a draft's cursor says nothing.

    Of state t, before action t (the last is behind them all): labels[t] is the oracle's action, landings[t] where it
    JUMPs to and from, as the steps that inserted the tokens there (-1: no JUMP), sizes[t] how long the script is, and
    distances[t] how many edits are left; NONE where there is none.
    """
    count, K = len(actions), len(starts)
    starts, ends, places = starts.copy(), ends.copy(), np.zeros(K + 1, np.int64)
    room = len(tokens) + count + 1
    cells, births = np.empty(room, np.int32), np.empty(room, np.int32)
    for k in range(len(tokens)):
        cells[k], births[k] = tokens[k], k + 1
    tables = np.empty(_place_tables(starts, ends, bounds, count + 1, places), np.int16)
    valid, hunks, state = np.zeros(K, np.int64), np.empty((room + K, 4), np.int64), np.zeros(5, np.int64)
    state[CURSOR], state[LENGTH], state[PENDING] = cursor, len(tokens), is_pending
    for t in range(count + 1):
        landings[t, 0], landings[t, 1], sizes[t] = -1, -1, NONE
        if state[PENDING]:
            labels[t] = _advise_pending(
                cells, births, starts, ends, goals, bounds, tables, places, valid, can_replace, hunks, state
            )  # fmt: skip
            # The token that is being replaced still stands there.
            _compare(cells, starts, ends, goals, bounds, tables, places, valid, can_replace, hunks, state)
        else:
            _compare(cells, starts, ends, goals, bounds, tables, places, valid, can_replace, hunks, state)
            labels[t], sizes[t] = _advise(
                hunks, state, goals, is_begun or t > 0, num_text, max_length, can_replace
            )  # fmt: skip
        distances[t] = state[DISTANCE]
        place = labels[t] - num_text - JUMPS
        if place >= 0:
            landings[t, 0] = births[place - 1] if place else 0
            landings[t, 1] = births[state[CURSOR] - 1] if state[CURSOR] else 0
        if t < count:
            _execute(actions[t], num_text, num_draft + t + 1, cells, births, starts, ends, valid, state)


@jit
def finish_one(tokens: Array, cursor: int, starts: Array, ends: Array, goals: Array, bounds: Array, actions: Array,
               num_text: int, can_replace: int, row: Array) -> Any:  # fmt: skip
    """The script from the state behind some actions, with STOP, into the beginning of a row; returns its length."""
    K, room = len(starts), len(tokens) + len(actions) + 1
    starts, ends, places = starts.copy(), ends.copy(), np.zeros(K + 1, np.int64)
    cells, births = np.empty(room, np.int32), np.empty(room, np.int32)
    cells[: len(tokens)] = tokens
    valid, hunks, state = np.zeros(K, np.int64), np.empty((room + K, 4), np.int64), np.zeros(5, np.int64)
    state[CURSOR], state[LENGTH] = cursor, len(tokens)
    for t in range(len(actions)):
        _execute(actions[t], num_text, 0, cells, births, starts, ends, valid, state)
    tables, valid = np.empty(_place_tables(starts, ends, bounds, 1, places), np.int16), np.zeros(K, np.int64)
    _compare(cells, starts, ends, goals, bounds, tables, places, valid, can_replace, hunks, state)
    return _write(row, hunks, state, goals, int(len(actions) > 0), num_text, can_replace)


@jit
def _take_goals(tokens: Array, place: int, length: int, inner: Array, goals: Array, bounds: Array) -> Any:
    """What the stretches of an example are to become: its target, or what fills each of its gaps; how many there are.

    inner[0::2] are the sizes of all gaps but the last, inner[1::2] those of what is given behind each.
    """
    count, size, end = 0, 0, place + length
    bounds[0] = 0
    for k in range(0, len(inner), 2):
        if inner[k + 1] == 0:
            continue
        for j in range(inner[k]):
            goals[size + j] = tokens[place + j]
        size += inner[k]
        place += inner[k] + inner[k + 1]
        count += 1
        bounds[count] = size
    for j in range(end - place):
        goals[size + j] = tokens[place + j]
    bounds[count + 1] = size + end - place
    return count + 1


@jit
def _choose_cut(count: int, num_draft: int, context: int, is_cut: int, sizes: Array, distances: Array, rng: Array,
                has_stopped: bool) -> Any:  # fmt: skip
    """The state from which the oracle goes on, or NONE: the last one, or one behind a random wrong action."""
    last = count - 1 if has_stopped else count
    while last >= 0 and (sizes[last] == NONE or num_draft + last + sizes[last] > context):
        last -= 1
    if last < 0 or not is_cut:
        return last
    chosen, num_wrong = last, 0
    for t in range(1, last + 1):
        is_wrong = distances[t] > distances[t - 1] or (t == last and distances[t] > 0)
        if is_wrong and sizes[t] != NONE and num_draft + t + sizes[t] <= context:
            num_wrong += 1
            chosen = t if _below(rng, num_wrong) == 0 else chosen
    return chosen


@jit
def label_many(tokens: Array, examples: Array, rollouts: Array, ends: Array, num_text: int, rules: Array,
               context: int, is_cut: int, is_labelled: int, rng: Array, actions: Array, labels: Array,
               landings: Array, cuts: Array, counts: Array, wrongs: Array) -> None:  # fmt: skip
    """Make a lesson of each rollout: what the model did up to a state, then the oracle's script, with labels.

    examples[i]: first token, prefix, target and suffix length, draft and its length, inner gaps (as `fill_rows` reads
    them). rollouts[:ends[i]] are the actions of all up to i. The lesson of i is actions[i, :counts[i]], of which the
    first cuts[i] are the model's: with `is_cut` up to one of its wrong actions, labelled if `is_labelled`. labels and
    landings are as in `label_one`; a lesson that fits nowhere has count 0.
    wrongs[i]: wrong actions, those that are undone later, states, and the edits that the model left to do.
    """
    room, max_length = actions.shape[1] + 1, rules[0]
    history, marks = np.empty(2 * room + max_length, np.int32), np.empty(max_length + 2, np.int32)
    goals, bounds = np.empty(max_length + 2, np.int32), np.empty(examples.shape[1] + 2, np.int64)
    starts, stops = np.empty(max_length + 2, np.int64), np.empty(max_length + 2, np.int64)
    own, own_landings = np.empty(room, np.int32), np.empty((room, 2), np.int32)
    sizes, distances = np.empty(room, np.int64), np.empty(room, np.int64)
    can_replace = 1 if rules[1] & REPLACE_BIT else 0
    zero: Any = np.int64(0)  # see replay_many
    row = np.empty(2 * room + 2 * max_length, np.int32)
    for i in range(len(examples)):
        first, prefix, target, suffix = examples[i, 0], examples[i, 1], examples[i, 2], examples[i, 3]
        drafts, drafted, inner = examples[i, 4], examples[i, 5], examples[i, 6:]
        num_draft = write_draft(
            history, tokens, first, prefix, target, suffix, drafts, drafted, zero, inner, num_text, rules[2]
        )  # fmt: skip
        length, cursor = prefix + drafted + suffix, prefix + drafted
        for k in range(1, len(inner), 2):
            length += inner[k]
        write_marks(marks, prefix, drafted, suffix, inner)
        K = find_stretches(marks[: length + 1], length, starts, stops)
        K_goals = _take_goals(tokens, first + prefix, target, inner, goals, bounds)
        did = rollouts[ends[i - 1] if i else 0 : ends[i]]
        counts[i], cuts[i] = 0, 0
        if K_goals != K or len(did) >= room:
            continue
        canvas = history[:length]
        label_one(
            canvas, cursor, zero, zero, starts[:K], stops[:K], goals, bounds, did, num_draft, num_text, max_length,
            can_replace, own, own_landings, sizes, distances,
        )  # fmt: skip
        has_stopped = len(did) > 0 and did[-1] == num_text + STOP
        _count_wrong(distances, len(did), wrongs[i])
        cut = _choose_cut(len(did), num_draft, context, is_cut, sizes, distances, rng[i : i + 1], has_stopped)
        if cut < 0:
            continue
        size = finish_one(
            canvas, cursor, starts[:K], stops[:K], goals, bounds, did[:cut], num_text, can_replace, row
        )  # fmt: skip
        for t in range(cut):
            actions[i, t], labels[i, t] = did[t], own[t] if is_labelled else NONE
            landings[i, t, 0], landings[i, t, 1] = own_landings[t, 0], own_landings[t, 1]
        for t in range(size):
            actions[i, cut + t] = labels[i, cut + t] = row[t]
        cuts[i], counts[i] = cut, cut + size


@jit
def _count_wrong(distances: Array, count: int, found: Array) -> None:
    """Count actions that lead away from the goal, and those of them after which the distance comes back."""
    found[0], found[1], found[2], found[3] = 0, 0, count, distances[count]
    for t in range(count):
        if distances[t + 1] > distances[t]:
            found[0] += 1
            for later in range(t + 2, count + 1):
                if distances[later] <= distances[t]:
                    found[1] += 1
                    break
