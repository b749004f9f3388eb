"""DAgger (Ross, Gordon, Bagnell 2011): the model acts, an oracle says what would have been right, it learns that.

    round 1   weights -> rollouts (the oracle acts with probability mixing) -> labels -> lessons of round 1 -> steps
    round 2   weights -> rollouts (mixing * decay)                          -> labels -> lessons of 1 and 2 -> steps

A step's rows are in part lessons of all rounds so far, in part the teacher's examples, fresh as ever. Weights go to
the rollouts in memory. The lessons of a round are written to the run folder, so a run that was stopped continues with
the same ones; a round's first step makes them again, from the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from reviser.data.batches import Batches, Position
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.decoding.presets import GREEDY, Sampling
from reviser.errors import CheckpointError, ConfigError, DataError
from reviser.orders.rng import Random
from reviser.own_states.lessons import Lessons, Marked, OracleGuide, make_lessons
from reviser.own_states.own_rows import MixedBatches, OwnRows
from reviser.own_states.rollouts import Roller
from reviser.own_states.seeds import Seeds
from reviser.training.distributed import Team
from reviser.training.families import Family
from reviser.training.feed import Feed, Work, Works
from reviser.training.loop import Trainer
from reviser.training.runs import Run
from reviser.training.settings import RunConfig

CHUNK = 256
"""Rollouts that are labelled together."""
DRAFTS, ACTIONS, ADVICE, ROWS = range(4)
"""What is random, each with a stream of its own."""
SMALLEST = 1e-3
"""Below this the oracle does not act any more."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round's rollouts were like, and how long they took."""

    number: int
    num_rollouts: int
    mixing: float
    parts: list[Marked]
    acting_s: float
    waiting_s: float
    """For labels, when all rollouts had ended."""
    labelling_s: float
    """Of all threads together."""

    def as_metrics(self) -> dict[str, float]:
        actions = sum(part.num_actions for part in self.parts)
        wrong, undone = (sum(getattr(part, name) for part in self.parts) for name in ("num_wrong", "num_undone"))
        return {
            "round": self.number + 1, "mixing": self.mixing, "rollouts": self.num_rollouts,
            "rollout_actions": actions, "rollouts_solved": sum(part.num_solved for part in self.parts),
            "wrong_actions": wrong, "undone_actions": undone, "acting_s": round(self.acting_s, 3),
            "label_waiting_s": round(self.waiting_s, 3), "labelling_s": round(self.labelling_s, 3),
        }  # fmt: skip

    def describe(self, rounds: int) -> str:
        found = self.as_metrics()
        solved = found["rollouts_solved"] / max(self.num_rollouts, 1)
        return (
            f"round {self.number + 1}/{rounds}: {self.num_rollouts:,} rollouts, {found['rollout_actions']:,.0f} "
            f"actions in {self.acting_s:.1f} s, oracle {self.mixing:.0%}; {solved:.1%} "
            f"ended with their target, {found['wrong_actions']:,.0f} wrong actions, {found['undone_actions']:,.0f} "
            f"undone; waited {self.waiting_s:.2f} s for labels"
        )


class DaggerTrainer(Trainer):
    """A trainer that learns from own states too, by the settings of `dagger`."""

    def __init__(
        self,
        settings: RunConfig,
        slots: Slots,
        team: Team,
        run: Run | None = None,
        heldout: Shards | None = None,
        family: Family | None = None,
    ) -> None:
        if team.world > 1:
            raise ConfigError(f"dagger.rounds={settings.dagger.rounds} runs in one process, not in {team.world}")
        super().__init__(settings, slots, team, run, heldout, family)
        if settings.model.canvas.has_rows:
            # A model may fill a canvas beyond any target.
            self.packer = replace(cast(Packer, self.packer), longest_canvas=settings.model.max_length)
        self.seeds = Seeds.of(
            slots, settings.dagger.infill, settings.rules, settings.model.context, self._random(DRAFTS)
        )
        self.lessons: list[Lessons] = []
        self._roller: Roller | None = None

    def _random(self, *parts: int) -> int:
        return Random.of(self.settings.train.seed, *parts).state >> 1

    def first_step(self, number: int) -> int:
        """The step that a round begins with, the first being round 0; behind the last round, the end."""
        train, dagger = self.settings.train, self.settings.dagger
        return dagger.after + (train.steps - dagger.after) * number // dagger.rounds

    @property
    def round(self) -> int:
        """The round of the next step; -1 before the first."""
        rounds = range(self.settings.dagger.rounds)
        return max((number for number in rounds if self.first_step(number) <= self.step), default=-1)

    def feed(self, note: Callable[[str], None] | None = None) -> Works:
        return RoundFeed(self, note)

    def feed_round(self, note: Callable[[str], None] | None) -> Works:
        """The work of the round of the next step, from that step on; its rollouts are made where it begins."""
        number = self.round
        if number < 0:
            return super().feed(note)
        first = self.first_step(number)
        if self.step == first:
            self.position = Position()
        self._collect_lessons(number, note)
        data, train = self.settings.data, self.settings.train
        num_rows = train.rows // train.accumulate
        num_own = min(max(round(self.settings.dagger.share * num_rows), 1), num_rows - 1)
        packer = cast(Packer, self.packer)
        own = OwnRows(Lessons.join(self.lessons), self.seeds, packer, self._random(ROWS, number))
        stream = MixedBatches(
            self.slots, packer, num_rows, self._random(ROWS, number, 1), data.workers, self.position, own, num_own,
            (self.step - first) * train.accumulate,
        )  # fmt: skip
        return Feed(cast(Batches, stream), train.accumulate, self.prepare)

    def _collect_lessons(self, number: int, note: Callable[[str], None] | None) -> None:
        """Have the lessons of all rounds up to one, which are made, kept or read."""
        is_beginning = self.step == self.first_step(number)
        for missing in range(len(self.lessons), number if is_beginning else number + 1):
            self.lessons.append(self._read_round(missing))
        if is_beginning:
            del self.lessons[number:]
            done = self.roll_out(number)
            self.lessons.append(Lessons.join([part.lessons for part in done.parts]))
            if not sum(map(len, self.lessons)):
                raise DataError("no rollout leaves room for its correction; raise model.context or shorten data.jobs")
            self._keep(done, note)

    def _keep(self, done: Round, note: Callable[[str], None] | None) -> None:
        if self.run is not None:
            path = self._path(done.number)
            with self.run.writing(path):
                path.parent.mkdir(exist_ok=True)
                self.lessons[done.number].save(path)
            # It belongs to the step that comes, so that a run which is resumed here records it once.
            self.run.record(step=self.step + 1, **done.as_metrics())
        if note is not None:
            note(done.describe(self.settings.dagger.rounds))

    def _path(self, number: int) -> Path:
        assert self.run is not None
        return self.run.folder / "rollouts" / f"round-{number + 1:04d}-step-{self.first_step(number):08d}.npz"

    def _read_round(self, number: int) -> Lessons:
        if self.run is None:
            raise CheckpointError("the rollouts of earlier rounds were not kept; begin the run again")
        path = self._path(number)
        if not path.exists():
            raise CheckpointError(
                f"{path}: the rollouts of round {number + 1} are missing; a run resumes with the train.steps, "
                "dagger.rounds and dagger.after that it began with"
            )
        return Lessons.load(path)

    def roll_out(self, number: int) -> Round:
        """Let the present weights act on the drafts of a round, and make lessons of what they do on the way."""
        dagger, began = self.settings.dagger, time.perf_counter()
        numbers = self.seeds.choose(np.arange(number * dagger.rollouts, (number + 1) * dagger.rollouts))
        if not len(numbers):
            raise DataError("no draft leaves room for an action; raise model.context or shorten data.jobs")
        examples, mixing = self.seeds.examples(numbers), dagger.mixing * dagger.decay**number
        guide = OracleGuide(examples, self.seeds, mixing, self._random(ADVICE, number)) if mixing > SMALLEST else None
        roller = self._take_weights()
        spent: list[float] = []

        def label(chosen: list[int], actions: list[tuple[int, ...]]) -> Marked:
            start = time.perf_counter()
            marked = make_lessons(self.seeds, numbers[chosen], actions, self.settings.train.seed, dagger.labels)
            spent.append(time.perf_counter() - start)
            return marked

        with ThreadPoolExecutor(self.settings.data.workers, thread_name_prefix="labels") as pool:
            ahead, chosen, actions = list[Future[Marked]](), list[int](), list[tuple[int, ...]]()
            for index, rollout in roller.stream(self.seeds.drafts(examples), self._random(ACTIONS, number), guide):
                chosen.append(index)
                actions.append(rollout.actions)
                if len(chosen) == CHUNK:
                    ahead.append(pool.submit(label, chosen, actions))
                    chosen, actions = [], []
            if chosen:
                ahead.append(pool.submit(label, chosen, actions))
            acted = time.perf_counter()
            parts = [each.result() for each in ahead]
        done = time.perf_counter()
        return Round(number, len(numbers), mixing, parts, acted - began, done - acted, sum(spent))

    def _take_weights(self) -> Roller:
        dagger = self.settings.dagger
        if self._roller is None:
            sampling = Sampling(temperature=dagger.temperature, top_k=0) if dagger.temperature else GREEDY
            self._roller = Roller(
                self.settings.model, self.team.device, dagger.rows, sampling, dagger.max_actions
            )  # fmt: skip
        self._roller.take(self.model)
        return self._roller


class RoundFeed:
    """The work of one round after another; between two of them nothing is prepared, for the weights are needed."""

    def __init__(self, trainer: DaggerTrainer, note: Callable[[str], None] | None) -> None:
        self.trainer, self.note = trainer, note
        self._open: Works | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def __iter__(self) -> Iterator[Work]:
        trainer = self.trainer
        while True:
            began = time.perf_counter()
            self._open, number = trainer.feed_round(self.note), trainer.round
            spent = time.perf_counter() - began
            for work in self._open:
                # The first step of a round has waited for its rollouts.
                yield replace(work, waited_s=work.waited_s + spent)
                spent = 0.0
                if trainer.round != number:
                    break
            self._open.close()
