"""A seeded canvas, a trajectory from it, and the file that keeps trajectories.

Every job is a seed and a target: to continue is to seed the prefix, to infill is to seed prefix and
suffix and move back to the gap, to edit is to seed the given text. A trajectory file holds one JSON
object a line and replays under its own rules.

>>> rules = Rules(Alphabet(num_text=257, pad=256))
>>> seed = Seed.infill([1, 2], [3, 4, 5], rules)
>>> [rules.alphabet.name(a) for a in seed.actions[5:]], seed.cursor
(['MOVE -2', 'MOVE -1'], 2)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reviser.actions import Alphabet
from reviser.canvas import Canvas, Rules, apply, replay
from reviser.errors import ActionError, ConfigError, ReviserError, TrajectoryError


@dataclass(frozen=True, slots=True)
class Seed:
    """What is on the canvas before the first generated action, and where the cursor stands."""

    tokens: tuple[int, ...]
    cursor: int
    rules: Rules

    @classmethod
    def continuation(cls, prefix: Sequence[int], rules: Rules) -> Seed:
        return cls(tuple(prefix), len(prefix), replace(rules, prefix=len(prefix), suffix=0))

    @classmethod
    def infill(cls, prefix: Sequence[int], suffix: Sequence[int], rules: Rules) -> Seed:
        bounded = replace(rules, prefix=len(prefix), suffix=len(suffix))
        return cls((*prefix, *suffix), len(prefix), bounded)

    @classmethod
    def edit(cls, tokens: Sequence[int], rules: Rules) -> Seed:
        return cls(tuple(tokens), len(tokens), replace(rules, prefix=0, suffix=0))

    @property
    def actions(self) -> tuple[int, ...]:
        """The history that writes the seed: its tokens in order, then the way back to the cursor."""
        return self.tokens + self.rules.alphabet.spell(self.cursor - len(self.tokens))

    @property
    def canvas(self) -> Canvas:
        return Canvas(self.tokens, self.cursor)

    def editable(self, target: Sequence[int]) -> tuple[int, ...]:
        """The part of a target between the protected texts, which must be the seed's."""
        rules, end = self.rules, len(target) - self.rules.suffix
        prefix, suffix = self.tokens[: rules.prefix], self.tokens[len(self.tokens) - rules.suffix :]
        if end < rules.prefix or tuple(target[: rules.prefix]) != prefix or tuple(target[end:]) != suffix:
            raise ConfigError("the target does not begin and end with the seed's protected text")
        if len(target) > rules.max_length:
            raise ConfigError(
                f"the target has {len(target)} tokens and the canvas holds at most {rules.max_length}; "
                "shorten it or raise max_length"
            )
        return tuple(target[rules.prefix : end])


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Actions that lead from a seed to a target and end in STOP.

    `has_loss` is False where an action is noise that nobody should learn to make; `log_q` is the
    log-probability that the order draws this trajectory, None for orders that have no likelihood.
    """

    seed: Seed
    actions: tuple[int, ...]
    has_loss: tuple[bool, ...]
    log_q: float | None = None

    @property
    def history(self) -> tuple[int, ...]:
        return self.seed.actions + self.actions

    def states(self) -> Iterator[Canvas]:
        """The canvas before the first action and after each."""
        canvas = self.seed.canvas
        yield canvas
        for action in self.actions:
            canvas = apply(canvas, action, self.seed.rules)
            yield canvas

    @property
    def final(self) -> Canvas:
        return replay(self.seed.canvas, self.actions, self.seed.rules)


def to_record(trajectory: Trajectory, **extra: Any) -> dict[str, Any]:
    """The JSON object of a trajectory; `extra` adds text, tokenizer, scores and the like."""
    rules = trajectory.seed.rules
    record: dict[str, Any] = {
        **extra,
        "seed_actions": list(trajectory.seed.actions),
        "actions": list(trajectory.actions),
        "prefix": rules.prefix,
        "suffix": rules.suffix,
        "max_length": rules.max_length,
        "operators": sorted(rules.operators),
        "num_text": rules.alphabet.num_text,
        "pad": rules.alphabet.pad,
        "log_q": trajectory.log_q,
    }
    if not all(trajectory.has_loss):
        record["has_loss"] = [int(loss) for loss in trajectory.has_loss]
    return record


def from_record(record: dict[str, Any]) -> Trajectory:
    """The trajectory of a JSON object, replayed action by action under its own rules."""
    try:
        alphabet = Alphabet(int(record["num_text"]), int(record["pad"]))
        rules = Rules(
            alphabet,
            frozenset(record["operators"]),
            int(record["prefix"]),
            int(record["suffix"]),
            int(record["max_length"]),
        )
        seed_actions, actions = (tuple(map(int, record[key])) for key in ("seed_actions", "actions"))
        has_loss = tuple(map(bool, record.get("has_loss", [1] * len(actions))))
    except KeyError as missing:
        raise TrajectoryError(f"the field {missing} is missing") from None
    except (TypeError, ValueError) as error:
        raise TrajectoryError(f"a field has the wrong type: {error}") from None
    seeded = _replay_named(Canvas(), seed_actions, rules.for_seeding(), "seed action")
    _check_bounds(seeded, rules)
    _replay_named(seeded, actions, rules, "action")
    if not actions or actions[-1] != alphabet.stop:
        raise TrajectoryError("the last action is not STOP")
    if len(has_loss) != len(actions):
        raise TrajectoryError(f"has_loss has {len(has_loss)} entries for {len(actions)} actions")
    seed = Seed(seeded.tokens, seeded.cursor, rules)
    if seed.actions != seed_actions:
        raise TrajectoryError("the seed actions are not the tokens in order followed by the moves to the cursor")
    return Trajectory(seed, actions, has_loss, record.get("log_q"))


def _replay_named(canvas: Canvas, actions: Sequence[int], rules: Rules, what: str) -> Canvas:
    for index, action in enumerate(actions):
        try:
            canvas = apply(canvas, action, rules)
        except ActionError as error:
            raise TrajectoryError(f"{what} {index}: {error}") from None
    return canvas


def _check_bounds(canvas: Canvas, rules: Rules) -> None:
    low, high = rules.prefix, len(canvas.tokens) - rules.suffix
    if not low <= canvas.cursor <= high:
        raise TrajectoryError(f"the seed leaves the cursor at {canvas.cursor}, outside the editable {low}..{high}")


def read_records(path: Path | str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and JSON object of each line of a trajectory file; `-` reads standard input."""
    import sys

    try:
        lines = sys.stdin.read().splitlines() if str(path) == "-" else Path(path).read_text("utf8").splitlines()
    except OSError as error:
        raise TrajectoryError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TrajectoryError(f"{path} is not UTF-8 text; a trajectory file has one JSON object a line") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise TrajectoryError(f"{path}, line {number}: not JSON ({error.msg})") from None
        if not isinstance(record, dict):
            raise TrajectoryError(f"{path}, line {number}: a JSON object is wanted, not {type(record).__name__}")
        yield number, record


def read_trajectories(path: Path | str) -> Iterator[Trajectory]:
    """All trajectories of a file; the error of a bad one says on which line it stands."""
    for number, record in read_records(path):
        try:
            yield from_record(record)
        except ReviserError as error:
            raise TrajectoryError(f"{path}, line {number}: {error}") from None


def dump_records(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
