"""Episodes: rollouts of prompts as packed rows, in which every action that the model chose has a label.

    prompts -> drafts -> rollouts, K a prompt -> Packed rows, and the flat place of each chosen action in them

An episode begins with a draft and, perhaps, with some actions of the text's own trajectory, which an oracle takes;
neither has labels. Masks, windows and landings are those that the engine saw, so log-probabilities come out the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.actions import REPLACE
from reviser.canvas import FIXED, Canvas
from reviser.data.examples import Examples
from reviser.data.packing import Drawn, Packed, Packer, fit
from reviser.orders.draw import Rows
from reviser.own_states.rollouts import Rollout
from reviser.training.heldout import take_rows

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PackedEpisodes:
    """Rows of episodes. places[i]: where in the flattened rows the labels of episode i are, and steps[i] which of its
    actions those are."""

    rows: Packed
    places: list[Array]
    steps: list[Array]


class Warmth:
    """A guide that takes the first actions of each draft, as they are given."""

    def __init__(self, beginnings: Sequence[Sequence[int]]) -> None:
        self.beginnings, self.sizes = beginnings, np.array([len(each) for each in beginnings], np.int64)

    def is_asked(self, numbers: Array, steps: Array) -> Array:
        return np.asarray(steps < self.sizes[numbers])

    def choose(self, numbers: Sequence[int], steps: Sequence[int], canvases: Sequence[Canvas]) -> list[int]:
        return [int(self.beginnings[number][step]) for number, step in zip(numbers, steps, strict=True)]


def oracle_beginnings(packer: Packer, examples: Examples, share: float, limits: Sequence[int]) -> list[list[int]]:
    """The first actions of each text's own trajectory, that share of it, never its last and fewer than its limit."""
    if share <= 0:
        return [[] for _ in range(len(examples))]
    drawn = packer.draw(examples).rows
    actions = [drawn[i].tolist() for i in range(len(examples))]
    return [each[: min(int(share * (len(each) - 1)), most - 1)] for each, most in zip(actions, limits, strict=True)]


def pack_rollouts(
    packer: Packer, examples: Examples, rollouts: Sequence[Rollout], max_actions: int
) -> PackedEpisodes:
    """Rows of rollouts, of which number i began with example i."""
    # A rollout may fill its canvas further than any text of the data does.
    packer = replace(packer, longest_canvas=packer.rules.max_length)
    drawn = Drawn(_written(examples, rollouts), _as_rows(rollouts), _sizes(rollouts))
    places, num_rows = fit(drawn.sizes, packer.row)
    filled = packer.fill(drawn, places, num_rows)
    rows = take_rows(filled, slice(None), slice(int(filled.num_actions.max())))
    width, spots, steps = rows.labels.shape[1], [], []
    for rollout, (row, column, _) in zip(rollouts, places.tolist(), strict=True):
        chosen = np.flatnonzero(~np.array(rollout.is_guided, bool))
        first = row * width + column + len(rollout.draft.actions)
        spots.append(first + chosen)
        steps.append(chosen)
        if len(rollout.actions) == min(max_actions, (packer.context or width) - 1 - len(rollout.draft.actions)):
            # With one action left, the engine allows none that needs another.
            last = len(rollout.draft.actions) + len(rollout.actions) - 1
            rows.valid[row, column + last] &= ~(1 << REPLACE)
    return PackedEpisodes(rows, spots, steps)


def _sizes(rollouts: Sequence[Rollout]) -> Array:
    return np.array([len(each.draft.actions) + len(each.actions) for each in rollouts], np.int64)


def _as_rows(rollouts: Sequence[Rollout]) -> Rows:
    count, longest = len(rollouts), max(len(each.actions) for each in rollouts)
    actions, has_loss = np.zeros((count, longest), np.int32), np.zeros((count, longest), np.uint8)
    begins = np.array([longest - len(each.actions) for each in rollouts], np.int64)
    for i, each in enumerate(rollouts):
        actions[i, begins[i] :] = each.actions
        has_loss[i, begins[i] :] = ~np.array(each.is_guided, bool)
    return Rows(actions, has_loss, begins, np.zeros(count))


def _written(examples: Examples, rollouts: Sequence[Rollout]) -> Examples:
    """The same examples with what was written in place of their targets."""
    drafts = [
        examples.tokens[start : start + count] for start, count in zip(examples.drafts, examples.drafted, strict=True)
    ]
    canvases = [np.array(each.canvas.tokens, np.int32) for each in rollouts]
    tokens = np.concatenate([np.empty(0, np.int32), *canvases, *drafts])
    ends = np.cumsum([len(each) for each in (*canvases, *drafts)], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    count = len(rollouts)
    length = np.array([len(each) for each in canvases], np.int64) - examples.prefix - examples.suffix
    inner = examples.inner.copy()
    for i in np.flatnonzero(examples.has_gaps).tolist():
        inner[i, :, 0] = filled_sizes(rollouts[i].canvas, int(examples.prefix[i]), inner[i, :, 1].tolist())
    return replace(
        examples, tokens=tokens, first=starts[:count], length=length, inner=inner,
        drafts=np.where(examples.drafted > 0, starts[count:], 0),
    )  # fmt: skip


def filled_sizes(canvas: Canvas, prefix: int, given: Sequence[int]) -> list[int]:
    """How many tokens stand in each gap but the last of a canvas: what is given behind each gap is fixed."""
    place, sizes = prefix, []
    for count in given:
        start = place
        while count and not canvas.marks[place + 1] & FIXED:
            place += 1
        sizes.append(place - start)
        place += count
    return sizes
