"""What rollouts begin with: drafts whose targets are known, by number, without end.

Drafts come from the slots of the training data, drawn with streams of their own: documents with mistakes made in
them, pairs, and texts with gaps. Number n is slot n of an endless series of shuffled epochs, so a number is all that
has to be kept of a draft.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.canvas import Rules
from reviser.data.drawing import history_sizes
from reviser.data.examples import Examples, JobConfig
from reviser.data.slots import Slots
from reviser.orders.draw import allocate_rows
from reviser.orders.record import Draft

Array = npt.NDArray[Any]


class Seeds:
    """Drafts with known targets, for one seed and one set of rules."""

    def __init__(self, slots: Slots, rules: Rules, context: int, seed: int) -> None:
        self.slots, self.rules, self.context, self.seed = slots, rules, context, seed
        self._orders: dict[int, Array] = {}

    @classmethod
    def of(cls, slots: Slots, infill: float, rules: Rules, context: int, seed: int) -> Seeds:
        """Drafts out of the data of some slots; `infill` is the share of documents' drafts that have gaps."""
        jobs = seed_jobs(slots.jobs, infill)
        return cls(Slots(slots.documents, jobs, slots.marks, slots.maker, -1, slots.breaks), rules, context, seed)

    def examples(self, numbers: Array) -> Examples:
        """The examples of some numbers."""
        epochs, places = np.divmod(np.asarray(numbers, np.int64), len(self.slots))
        slots = np.empty(len(places), np.int64)
        for epoch in np.unique(epochs).tolist():
            slots[epochs == epoch] = self._shuffle(epoch)[places[epochs == epoch]]
        return self.slots.examples(slots, self.seed, epochs)

    def _shuffle(self, epoch: int) -> Array:
        # Several threads ask, and each looks at the dictionary once.
        order = self._orders.get(epoch)
        if order is None:
            order = self.slots.shuffle(self.seed, epoch)
            self._orders = {**self._orders, epoch: order}
        return order

    def choose(self, numbers: Array) -> Array:
        """Those numbers whose drafts leave room for actions, on the canvas and in the context."""
        examples = self.examples(numbers)
        room = self.context - num_drafted(examples, self.rules)
        tokens = examples.prefix + np.maximum(examples.length, examples.drafted) + examples.suffix
        return numbers[(room >= 2) & (tokens <= self.rules.max_length)]

    def drafts(self, examples: Examples) -> list[Draft]:
        return [examples.draft(i, self.rules) for i in range(len(examples))]


def seed_jobs(jobs: JobConfig, infill: float) -> JobConfig:
    """The jobs of drafts to act on: nothing that only continues, for many continuations are right."""
    edit = 1.0 - infill if jobs.edit else 0.0
    if not edit and not infill:
        return replace(jobs, pairs=1.0, told=0.0)
    return replace(jobs, edit=edit, infill=1.0 if infill else 0.0, told=0.0)


def num_drafted(examples: Examples, rules: Rules) -> npt.NDArray[np.int64]:
    """How many actions write each draft."""
    nothing = allocate_rows(len(examples), 0)
    nothing.begins[:] = 0
    return history_sizes(examples, nothing, rules)


def find_goals(examples: Examples, i: int) -> list[tuple[int, ...]]:
    """What the free stretches of a draft are to become."""
    if examples.inner[i].any():
        return examples.split(i)[1]
    return [tuple(examples.target(i).tolist())]
