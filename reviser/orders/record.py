"""A draft, a trajectory from it, and the file that keeps trajectories.

Every job is a draft and a target: the draft is what stands on the canvas before the first generated action. To
continue a text, the draft is its beginning; to infill, both ends with the cursor at the gap; to edit, the whole
text. A trajectory file holds one JSON object a line and replays under its own rules.

>>> rules = Rules(Alphabet(num_text=257, pad=256))
>>> draft = Draft.infill([1, 2], [3, 4, 5], rules)
>>> [rules.alphabet.name(a) for a in draft.actions[5:]], draft.cursor
(['MOVE -2', 'MOVE -1'], 2)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any

from reviser.actions import Alphabet
from reviser.canvas import Canvas, Rules, apply, replay
from reviser.errors import ActionError, ConfigError, DataError, ReviserError, TrajectoryError
from reviser.orders.history import draft_history


@dataclass(frozen=True, slots=True)
class Draft:
    """What is on the canvas before the first generated action, and where the cursor stands."""

    tokens: tuple[int, ...]
    cursor: int
    rules: Rules

    @classmethod
    def continuation(cls, prefix: Sequence[int], rules: Rules) -> Draft:
        return cls(tuple(prefix), len(prefix), replace(rules, prefix=len(prefix), suffix=0))

    @classmethod
    def infill(cls, prefix: Sequence[int], suffix: Sequence[int], rules: Rules) -> Draft:
        bounded = replace(rules, prefix=len(prefix), suffix=len(suffix))
        return cls((*prefix, *suffix), len(prefix), bounded)

    @classmethod
    def edit(cls, tokens: Sequence[int], rules: Rules) -> Draft:
        return cls(tuple(tokens), len(tokens), replace(rules, prefix=0, suffix=0))

    @property
    def actions(self) -> tuple[int, ...]:
        """The history that writes the draft."""
        return draft_history(self.tokens, self.cursor, self.rules.alphabet)

    @property
    def canvas(self) -> Canvas:
        return Canvas(self.tokens, self.cursor)

    def editable(self, target: Sequence[int]) -> tuple[int, ...]:
        """The part of a target between the protected texts, which must be the draft's."""
        rules, end = self.rules, len(target) - self.rules.suffix
        prefix, suffix = self.tokens[: rules.prefix], self.tokens[len(self.tokens) - rules.suffix :]
        if end < rules.prefix or tuple(target[: rules.prefix]) != prefix or tuple(target[end:]) != suffix:
            raise ConfigError("the target does not begin and end with the draft's protected text")
        if len(target) > rules.max_length:
            raise ConfigError(
                f"the target has {len(target)} tokens and the canvas holds at most {rules.max_length}; "
                "shorten it or raise max_length"
            )
        return tuple(target[rules.prefix : end])


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Actions that lead from a draft to a target and end in STOP.

    `has_loss` is False where an action is noise that nobody should learn to make; `log_q` is the
    log-probability that the order draws this trajectory, None for orders that have no likelihood.
    """

    draft: Draft
    actions: tuple[int, ...]
    has_loss: tuple[bool, ...]
    log_q: float | None = None

    @property
    def history(self) -> tuple[int, ...]:
        return self.draft.actions + self.actions

    def states(self) -> Iterator[Canvas]:
        """The canvas before the first action and after each."""
        canvas = self.draft.canvas
        yield canvas
        for action in self.actions:
            canvas = apply(canvas, action, self.draft.rules)
            yield canvas

    @property
    def final(self) -> Canvas:
        return replay(self.draft.canvas, self.actions, self.draft.rules)


def to_record(trajectory: Trajectory, **extra: Any) -> dict[str, Any]:
    """The JSON object of a trajectory; `extra` adds text, tokenizer, scores and the like."""
    rules = trajectory.draft.rules
    record: dict[str, Any] = {
        **extra,
        "draft_actions": list(trajectory.draft.actions),
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
        num_text, pad, *bounds = (index(record[key]) for key in ("num_text", "pad", "prefix", "suffix", "max_length"))
        rules = Rules(Alphabet(num_text, pad), frozenset(record["operators"]), *bounds)
        # Files of version 0.1 say seed_actions.
        given = "seed_actions" if "seed_actions" in record else "draft_actions"
        draft_actions, actions = (tuple(map(index, record[key])) for key in (given, "actions"))
        has_loss = tuple(map(bool, record.get("has_loss", [1] * len(actions))))
        log_q = None if record.get("log_q") is None else float(record["log_q"])
    except KeyError as missing:
        raise TrajectoryError(f"the field {missing} is missing") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise TrajectoryError(f"a field has the wrong type: {error}") from None
    try:
        drafted = replay(Canvas(), draft_actions, rules.for_draft(), "draft action")
        _check_bounds(drafted, rules)
        replay(drafted, actions, rules)
    except ActionError as error:
        raise TrajectoryError(str(error)) from None
    if not actions or actions[-1] != rules.alphabet.stop:
        raise TrajectoryError("the last action is not STOP")
    if len(has_loss) != len(actions):
        raise TrajectoryError(f"has_loss has {len(has_loss)} entries for {len(actions)} actions")
    draft = Draft(drafted.tokens, drafted.cursor, rules)
    if draft.actions != draft_actions:
        raise TrajectoryError("the draft actions are not the tokens in order followed by the moves to the cursor")
    return Trajectory(draft, actions, has_loss, log_q)


def _check_bounds(canvas: Canvas, rules: Rules) -> None:
    low, high = rules.prefix, len(canvas.tokens) - rules.suffix
    if not low <= canvas.cursor <= high:
        raise TrajectoryError(f"the draft leaves the cursor at {canvas.cursor}, outside the editable {low}..{high}")


def read_lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """Number and content of each line of a trajectory file that is not blank; `-` reads standard input."""
    try:
        text = sys.stdin.read() if str(path) == "-" else Path(path).read_text("utf8")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; a trajectory file has one JSON object a line") from None
    # Not splitlines: it also splits at U+2028 and the like, which JSON may hold as they are.
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def parse_record(line: str) -> dict[str, Any]:
    """The JSON object of one line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TrajectoryError(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise TrajectoryError(f"expected a JSON object, not {type(record).__name__}")
    return record


def read_trajectories(path: Path | str) -> Iterator[Trajectory]:
    """All trajectories of a file; the error of a bad one says on which line it stands."""
    for number, line in read_lines(path):
        try:
            yield from_record(parse_record(line))
        except ReviserError as error:
            raise TrajectoryError(f"{path}, line {number}: {error}") from None


def dump_records(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
