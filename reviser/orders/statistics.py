"""What trajectories look like: the ten rows of the paper's table, cursor travel and lengths.

Draft actions and STOP are not counted; places are relative to the part between the protected ends. For
an order alone, with no model, these are the null statistics that a model's must be held against.

    relative position   where an INSERT lands: 0 at the front, 1 at the end, of what is there already
    end-append          an INSERT with the cursor at the end of the editable part
    move                one action that takes the cursor elsewhere, MOVE or JUMP
    jump                one way of the cursor: a JUMP, or all MOVEs in a row
    backward revision   an INSERT left of text that stands already, after a backward move
    turn                a move right behind a move the other way, which takes some of it back
    operation           what is done, however it is spelled: a jump, a REPLACE with its INSERT, any other action
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reviser.actions import Alphabet
from reviser.canvas import Canvas
from reviser.orders.record import Trajectory

MASS = (1, 2, 4, 8)


@dataclass(slots=True)
class Counts:
    """Sums over trajectories, from which every statistic follows."""

    trajectories: int = 0
    actions: int = 0
    tokens: int = 0
    inserts: int = 0
    moves: int = 0
    others: int = 0
    jumps: int = 0
    operations: int = 0
    back_moves: int = 0
    turns: int = 0
    travel: int = 0
    distances: dict[int, int] = field(default_factory=dict)
    end_appends: int = 0
    relative_sum: float = 0.0
    relative_count: int = 0
    revised: int = 0
    lengths: list[int] = field(default_factory=list)

    def add(self, trajectory: Trajectory) -> None:
        draft, alphabet = trajectory.draft, trajectory.draft.rules.alphabet
        given = draft.prefix + draft.suffix
        has_moved_back = has_revised = has_moved = False
        before = 0
        state: Canvas | None = None
        for state, action in zip(trajectory.states(), trajectory.actions, strict=False):
            if action == alphabet.stop:
                break
            self.actions += 1
            is_jump, distance = alphabet.is_jump(action), travel(action, state, alphabet)
            if distance:
                self._add_move(distance)
                self.turns += distance * before < 0
                has_moved_back |= distance < 0
            elif alphabet.is_insert(action) and not state.is_replacing:
                place, length = state.cursor - draft.prefix, len(state.tokens) - given
                self._add_insert(place, length)
                has_revised |= has_moved_back and place < length
            else:
                self.others += 1
            # MOVEs behind a MOVE spell the same jump, and an INSERT behind REPLACE is part of that.
            is_move = bool(distance) and not is_jump
            self.jumps += is_jump or (is_move and not has_moved)
            self.operations += not (is_move and has_moved) and not state.is_replacing
            before, has_moved = distance, is_move
        final = state or draft.canvas
        self.trajectories += 1
        self.lengths.append(len(final.tokens) - given)
        self.tokens += self.lengths[-1]
        self.revised += has_revised

    def _add_move(self, distance: int) -> None:
        self.moves += 1
        self.back_moves += distance < 0
        self.travel += abs(distance)
        self.distances[abs(distance)] = self.distances.get(abs(distance), 0) + 1

    def _add_insert(self, place: int, length: int) -> None:
        self.inserts += 1
        self.end_appends += place == length
        if length:
            self.relative_sum += place / length
            self.relative_count += 1


def travel(action: int, canvas: Canvas, alphabet: Alphabet) -> int:
    """How far an action takes the cursor without an edit: a MOVE its distance, a JUMP the way to its landing."""
    return alphabet.landing(action) - canvas.cursor if alphabet.is_jump(action) else alphabet.distance(action)


def summarise(trajectories: Iterable[Trajectory], num_bytes: int | None = None) -> dict[str, Any]:
    """All statistics of some trajectories, as one flat JSON-ready object; those a byte where their texts' size is
    known."""
    counts = Counts()
    for trajectory in trajectories:
        counts.add(trajectory)
    mean = counts.tokens / counts.trajectories if counts.trajectories else 0.0
    spread = sum((length - mean) ** 2 for length in counts.lengths)
    sizes = (
        {}
        if num_bytes is None
        else {
            "actions_per_byte": _share(counts.actions, num_bytes),
            "operations_per_byte": _share(counts.operations, num_bytes),
        }
    )
    return {
        "trajectories": counts.trajectories,
        "actions_per_token": _share(counts.actions, counts.tokens),
        "operations_per_token": _share(counts.operations, counts.tokens),
        "insert_fraction": _share(counts.inserts, counts.actions),
        "move_fraction": _share(counts.moves, counts.actions),
        "other_fraction": _share(counts.others, counts.actions),
        "jumps_per_token": _share(counts.jumps, counts.tokens),
        "mean_move_distance": _share(counts.travel, counts.moves),
        "move_mass": {str(d): _share(counts.distances.get(d, 0), counts.moves) for d in MASS},
        "backward_fraction": _share(counts.back_moves, counts.moves),
        "turn_fraction": _share(counts.turns, counts.moves),
        "mean_insertion_position": _share(counts.relative_sum, counts.relative_count),
        "end_append_fraction": _share(counts.end_appends, counts.inserts),
        "non_end_append_fraction": _share(counts.inserts - counts.end_appends, counts.inserts),
        "revised_fraction": _share(counts.revised, counts.trajectories),
        "travel_per_token": _share(counts.travel, counts.tokens),
        "mean_tokens": mean,
        "std_tokens": math.sqrt(spread / counts.trajectories) if counts.trajectories else 0.0,
        "mean_actions": _share(counts.actions, counts.trajectories),
        **sizes,
    }


def _share(part: float, whole: float) -> float | None:
    """part / whole; None where there is nothing to divide by."""
    return part / whole if whole else None


ROWS = (
    ("Actions per output token", "actions_per_token", "{:.2f}"),
    ("Operations per token", "operations_per_token", "{:.2f}"),
    ("Actions per byte", "actions_per_byte", "{:.3f}"),
    ("Operations per byte", "operations_per_byte", "{:.3f}"),
    ("Insert fraction", "insert_fraction", "{:.1%}"),
    ("Move fraction", "move_fraction", "{:.1%}"),
    ("Jumps per token", "jumps_per_token", "{:.3f}"),
    ("Mean |d| of moves", "mean_move_distance", "{:.2f}"),
    ("Move mass on 1/2/4/8", "move_mass", "{:.1%}"),
    ("Backward moves", "backward_fraction", "{:.1%}"),
    ("Mean insertion position", "mean_insertion_position", "{:.2f}"),
    ("End-appends", "end_append_fraction", "{:.1%}"),
    ("Not end-appends", "non_end_append_fraction", "{:.1%}"),
    ("With a backward revision", "revised_fraction", "{:.1%}"),
    ("Moves that turn back", "turn_fraction", "{:.1%}"),
    ("Other operators", "other_fraction", "{:.1%}"),
    ("Cursor travel per token", "travel_per_token", "{:.2f}"),
    ("Tokens (mean)", "mean_tokens", "{:.1f}"),
    ("Tokens (std)", "std_tokens", "{:.1f}"),
    ("Actions (mean)", "mean_actions", "{:.1f}"),
)


def rows_of(columns: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """The rows of a table of which some column knows something; older results know less."""
    known = set().union(*columns)
    return [row for row in ROWS if row[1] in known]


def format_table(columns: dict[str, dict[str, Any]]) -> str:
    """Statistics side by side, one column each."""
    widths = [max(28, len(name) + 2) for name in columns]
    lines = [" " * 26 + "".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))]
    for title, key, form in rows_of(columns.values()):
        cells = [_format(values.get(key), form) for values in columns.values()]
        lines.append(f"{title:<26}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    return "\n".join(lines) + "\n"


def _format(value: Any, form: str) -> str:
    if isinstance(value, dict):
        return ", ".join(_format(part, form) for part in value.values())
    return "-" if value is None else form.format(value)
