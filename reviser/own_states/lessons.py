"""Rollouts to lessons: what the model did, what the oracle would have done in each state, and how it ends well.

    the model   JUMP 4   REPLACE   b      STOP                     wrong: c was right, and there was more to do
    lesson      JUMP 4   REPLACE   b      REPLACE  c   JUMP 7 ...  the script goes on where the model left off
    labels      JUMP 4   REPLACE   c      REPLACE  c   JUMP 7 ...  what is learned

What is learned of a lesson (`dagger.labels`): `states` follows the model to its end and labels all of it, `splice`
follows it up to one of its wrong actions and labels only the script from there, `both` labels the way there too.

A lesson is a trajectory from its draft to its target like any other, so it is packed like any other, with labels of
its own where the model acted. Only the number of its draft is kept (seeds.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reviser.canvas import Canvas
from reviser.data.examples import Examples, streams
from reviser.decoding.sampling import seed_tensor, uniforms
from reviser.errors import CheckpointError
from reviser.files import BAD_ARRAYS, replacing
from reviser.orders.replay import encode_rules
from reviser.orders.rng import Random
from reviser.own_states.oracle import find_free
from reviser.own_states.oracle_kernels import label_many, label_one
from reviser.own_states.seeds import Seeds, find_goals, num_drafted

Array = npt.NDArray[Any]
Labels = Literal["splice", "states", "both"]
CUTS = 2
"""The stream that decides where a lesson is cut, beside those of drafts and of the model's actions."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """Some lessons; the actions of all stand one behind another."""

    numbers: npt.NDArray[np.int64]
    """Which draft each begins with."""
    sizes: npt.NDArray[np.int64]
    """Positions that each takes, its draft's included."""
    cuts: npt.NDArray[np.int64]
    """How many actions of each the model chose."""
    ends: npt.NDArray[np.int64]
    """Where each ends among the actions of all."""
    actions: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    """What is learned of each action's state, -1: nothing."""
    landings: npt.NDArray[np.int32]
    """Where a label that JUMPs goes to and comes from, as steps; only of what the model chose."""

    def __len__(self) -> int:
        return len(self.numbers)

    def save(self, path: Path) -> None:
        """Write all of them, or nothing."""
        with replacing(path) as file:
            np.savez(file, **{each.name: getattr(self, each.name) for each in fields(self)})

    @classmethod
    def load(cls, path: Path) -> Lessons:
        try:
            with open(path, "rb") as file, np.load(file) as arrays:
                return cls(**{each.name: arrays[each.name] for each in fields(cls)})
        except (OSError, *BAD_ARRAYS) as error:
            said = str(error).split("\n")[0]
            raise CheckpointError(
                f"{path}: the rollouts of a round can't be read ({said}); remove the checkpoints of its steps and "
                "resume, so that they are made again"
            ) from None

    @classmethod
    def join(cls, parts: Sequence[Lessons]) -> Lessons:
        """All lessons of some, in this order."""
        joined: dict[str, Any] = {
            each.name: np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)
        }
        counts = np.concatenate([np.diff(part.ends, prepend=0) for part in parts])
        return cls(**joined | {"ends": np.cumsum(counts)})


@dataclass(frozen=True, slots=True)
class Marked:
    """Lessons, and what was found out about the rollouts they come from."""

    lessons: Lessons
    num_wrong: int
    """Actions that led away from the target."""
    num_undone: int
    """Those after which the distance came back."""
    num_actions: int
    num_solved: int
    """Rollouts that ended with their target."""


def make_lessons(
    seeds: Seeds, numbers: Array, rollouts: Sequence[Sequence[int]], seed: int, labels: Labels = "splice"
) -> Marked:
    """Lessons of rollouts, each given by the number of its draft and its actions; releases the GIL."""
    examples, rules = seeds.examples(numbers), seeds.rules
    flat = np.fromiter((action for each in rollouts for action in each), np.int32)
    ends, count, room = np.cumsum([len(each) for each in rollouts]), len(numbers), seeds.context
    drafted, rng = num_drafted(examples, rules), streams(Random.of(seed, CUTS), np.asarray(numbers, np.int64))
    actions, learned = (np.zeros((count, room), np.int32) for _ in range(2))
    landings = np.zeros((count, room, 2), np.int32)
    cuts, counts = (np.zeros(count, np.int64) for _ in range(2))
    wrongs = np.zeros((count, 4), np.int64)
    label_many(
        examples.tokens, _table(examples), flat, ends, rules.alphabet.num_text, encode_rules(rules), seeds.context,
        int(labels != "states"), int(labels != "splice"), rng, actions, learned, landings, cuts, counts, wrongs,
    )  # fmt: skip
    kept = np.flatnonzero(counts)
    is_there = np.arange(room) < counts[kept, None]
    lessons = Lessons(
        np.asarray(numbers, np.int64)[kept], drafted[kept] + counts[kept], cuts[kept], np.cumsum(counts[kept]),
        actions[kept][is_there], learned[kept][is_there], landings[kept][is_there],
    )  # fmt: skip
    wrong, undone, acted, _ = wrongs.sum(axis=0).tolist()
    return Marked(lessons, wrong, undone, acted, int((wrongs[:, 3] == 0).sum()))


def _table(examples: Examples) -> npt.NDArray[np.int64]:
    """Examples as `label_many` reads them."""
    parts = examples.first, examples.prefix, examples.length, examples.suffix, examples.drafts, examples.drafted
    inner = examples.inner.reshape(len(examples), 2 * examples.inner.shape[1])
    return np.concatenate([np.stack(parts, axis=1), inner], axis=1).astype(np.int64)


class OracleGuide:
    """The oracle as a guide of rollouts: at each action it acts with some probability."""

    def __init__(self, examples: Examples, seeds: Seeds, chance: float, seed: int) -> None:
        self.examples, self.rules, self.chance, self.seed = examples, seeds.rules, chance, seed

    def is_asked(self, numbers: Array, steps: Array) -> Array:
        import torch

        states = [Random.of(self.seed, number).state for number in numbers.tolist()]
        drawn = uniforms(seed_tensor(states), torch.from_numpy(steps))
        return np.asarray(drawn.numpy() < self.chance)

    def choose(self, numbers: Sequence[int], steps: Sequence[int], canvases: Sequence[Canvas]) -> Sequence[int]:
        return [self._advise(*each) for each in zip(numbers, steps, canvases, strict=True)]

    def _advise(self, number: int, step: int, canvas: Canvas) -> int:
        goals, rules = find_goals(self.examples, number), self.rules
        free = np.array(find_free(canvas), np.int64)
        flat = np.fromiter((token for goal in goals for token in goal), np.int32)
        label, landing = np.zeros(1, np.int32), np.zeros((1, 2), np.int32)
        size, distance = np.zeros(1, np.int64), np.zeros(1, np.int64)
        label_one(
            np.array(canvas.tokens, np.int32), canvas.cursor, int(step > 0), int(canvas.is_replacing),
            np.ascontiguousarray(free[:, 0]), np.ascontiguousarray(free[:, 1]), flat,
            np.cumsum([0, *map(len, goals)]), np.zeros(0, np.int32), 0, rules.alphabet.num_text, rules.max_length,
            int("replace" in rules.operators), label, landing, size, distance,
        )  # fmt: skip
        return int(label[0])
