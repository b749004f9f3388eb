"""A draft, a trajectory from it, and the file that keeps trajectories.

Every job is a draft and a target: the draft is what stands on the canvas before the first generated action. To
continue a text, the draft is its beginning; to infill, both ends with the cursor at the gap, or all that stands
around several gaps with the cursor in the first; to edit, the whole text. A trajectory file holds one JSON object a
line and replays under its own rules.

>>> rules = Rules(Alphabet(num_text=257, pad=256))
>>> draft = Draft.infill([1, 2], [3, 4, 5], rules)
>>> [rules.alphabet.name(a) for a in draft.actions[5:]], draft.cursor
(['MOVE -2', 'MOVE -1'], 2)
>>> draft = Draft.gaps([[1, 2], [3], [4, 5]], rules)
>>> [rules.alphabet.name(a) for a in draft.actions[5:]], draft.cursor, draft.canvas.open_boundaries()
(['MOVE -2', 'MOVE -1'], 2, [2, 3])
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from operator import index
from pathlib import Path
from typing import Any

from reviser.actions import Alphabet
from reviser.canvas import CLOSED, FIXED, Canvas, Rules, apply, check_marks, protect, replay
from reviser.errors import ActionError, ConfigError, DataError, ReviserError, TrajectoryError
from reviser.files import is_intact, stamp
from reviser.orders.history import draft_history

VERSION = 1
"""Of a line; one that does not say its own is of this version, and one without a checksum is not checked."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What is on the canvas before the first generated action, where the cursor stands, and what is protected."""

    tokens: tuple[int, ...]
    cursor: int
    rules: Rules
    marks: tuple[int, ...] = ()
    """See `Canvas.marks`; empty where nothing is protected."""
    visits: tuple[int, ...] = ()
    """Boundaries that the history goes to, in this order, before it goes to the cursor."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "marks", self.canvas.marks)
        check_marks(self.marks)
        for place in self.visits:
            if not 0 <= place <= len(self.tokens):
                raise ConfigError(f"a draft of {len(self.tokens)} tokens can't visit boundary {place}")

    @classmethod
    def continuation(cls, prefix: Sequence[int], rules: Rules) -> Draft:
        return cls.infill(prefix, (), rules)

    @classmethod
    def told(cls, prefix: Sequence[int], rules: Rules) -> Draft:
        """A continuation that is told to be written out of order: its history goes to the front and back twice, which
        no other job begins with. It takes a prefix, and JUMPs."""
        if not prefix or not rules.has_jumps:
            raise ConfigError("only what continues a prompt, by a model that JUMPs, can be told to be out of order")
        plain, end = cls.continuation(prefix, rules), len(prefix)
        return cls(plain.tokens, end, rules, plain.marks, (0, end, 0))

    @classmethod
    def infill(cls, prefix: Sequence[int], suffix: Sequence[int], rules: Rules) -> Draft:
        return cls.revision(prefix, (), suffix, rules)

    @classmethod
    def gaps(cls, parts: Sequence[Sequence[int]], rules: Rules) -> Draft:
        """What is given around gaps: n + 1 parts for n gaps, of which the first and the last may be empty.

        All that is given is fixed, and only the gaps are open. The history visits them from the last to the first.
        """
        if len(parts) < 2:
            raise ConfigError("a draft with gaps takes the text before and behind each gap: two parts or more")
        if not all(len(part) for part in parts[1:-1]):
            raise ConfigError("two gaps have nothing between them; make one gap of them")
        ends = list(accumulate(map(len, parts)))
        size, places = ends[-1], ends[:-1]
        spans = [span for span in pairwise((0, *ends)) if span[0] < span[1]]
        closed = [*([0] if parts[0] else []), *([size] if parts[-1] else [])]
        marks = protect(size, spans, closed)
        return cls(tuple(chain.from_iterable(parts)), places[0], rules, marks, tuple(places[:0:-1]))

    @classmethod
    def revision(cls, prefix: Sequence[int], middle: Sequence[int], suffix: Sequence[int], rules: Rules) -> Draft:
        """A text to be changed between two that are protected; without one, a gap between them.

        By JUMPs, the history visits where the text begins and then its end. So it says what may be changed, and
        neither a continuation nor gaps, which are visited from the last to the first, begin like that.
        """
        start, end = len(prefix), len(prefix) + len(middle)
        size = end + len(suffix)
        spans = [span for span in ((0, start), (end, size)) if span[0] < span[1]]
        closed = [*([0] if prefix else []), *([size] if suffix else [])]
        visits = (start,) if middle and rules.has_jumps else ()
        return cls((*prefix, *middle, *suffix), end, rules, protect(size, spans, closed), visits)

    @classmethod
    def edit(cls, tokens: Sequence[int], rules: Rules, marks: Sequence[int] = ()) -> Draft:
        """A text to be changed, with the cursor behind it or, where that is closed, at the last open boundary; by
        JUMPs, the history visits the first one."""
        places = Canvas(tuple(tokens), marks=tuple(marks)).open_boundaries()
        if not places:
            raise ConfigError("all of the text is protected; leave some of it open")
        visits = (places[0],) if rules.has_jumps and places[0] < places[-1] else ()
        return cls(tuple(tokens), places[-1], rules, tuple(marks), visits)

    @property
    def actions(self) -> tuple[int, ...]:
        """The history that writes the draft."""
        return draft_history(self.tokens, self.cursor, self.rules.alphabet, bool(self.rules.has_jumps), self.visits)

    @property
    def canvas(self) -> Canvas:
        return Canvas(self.tokens, self.cursor, marks=self.marks)

    @property
    def prefix(self) -> int:
        """Tokens before the first open boundary."""
        return next((place for place, mark in enumerate(self.marks) if not mark & CLOSED), 0)

    @property
    def suffix(self) -> int:
        """Tokens behind the last open boundary."""
        return next((place for place, mark in enumerate(reversed(self.marks)) if not mark & CLOSED), 0)

    def editable(self, target: Sequence[int]) -> tuple[int, ...]:
        """The part of a target from the first open boundary to the last; what lies outside must be the draft's."""
        begin, end = self.prefix, len(target) - self.suffix
        prefix, suffix = self.tokens[:begin], self.tokens[len(self.tokens) - self.suffix :]
        if end < begin or tuple(target[:begin]) != prefix or tuple(target[end:]) != suffix:
            raise ConfigError("the target does not begin and end with the draft's protected text")
        if len(target) > self.rules.max_length:
            raise ConfigError(
                f"the target has {len(target)} tokens and the canvas holds at most {self.rules.max_length}; "
                "shorten it or raise max_length"
            )
        return tuple(target[begin:end])

    @property
    def is_blank(self) -> bool:
        """Whether all that may be done is to write in one gap: every token is fixed, one boundary open."""
        return self.prefix + self.suffix == len(self.tokens)


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
        **({"visits": list(trajectory.draft.visits)} if trajectory.draft.visits else {}),
        **_protection(trajectory.draft),
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
        num_text, pad, max_length = (index(record[key]) for key in ("num_text", "pad", "max_length"))
        alphabet, operators = Alphabet(num_text, pad), frozenset(record["operators"])
        # Files of version 0.1 say seed_actions.
        given = "seed_actions" if "seed_actions" in record else "draft_actions"
        draft_actions, actions = (tuple(map(index, record[key])) for key in (given, "actions"))
        has_loss = tuple(map(bool, record.get("has_loss", [1] * len(actions))))
        log_q = None if record.get("log_q") is None else float(record["log_q"])
        has_jumps = any(map(alphabet.is_jump, draft_actions)) or None
        rules = Rules(alphabet, operators, max_length, has_jumps)
    except KeyError as missing:
        raise TrajectoryError(f"the field {missing} is missing") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise TrajectoryError(f"a field has the wrong type: {error}") from None
    try:
        drafted = replay(Canvas(), draft_actions, rules.for_draft(), "draft action")
        marks, visits = _marks(record, len(drafted.tokens)), tuple(map(index, record.get("visits", ())))
        draft = Draft(drafted.tokens, drafted.cursor, rules, marks, visits)
        if not draft.canvas.is_open(draft.cursor):
            raise TrajectoryError(f"the draft leaves the cursor at {draft.cursor}, which is a closed boundary")
        replay(draft.canvas, actions, rules)
    except (ActionError, ConfigError) as error:
        raise TrajectoryError(str(error)) from None
    except KeyError as missing:
        raise TrajectoryError(f"the field {missing} is missing") from None
    except (TypeError, ValueError) as error:
        raise TrajectoryError(f"a field has the wrong type: {error}") from None
    if not actions or actions[-1] != rules.alphabet.stop:
        raise TrajectoryError("the last action is not STOP")
    if len(has_loss) != len(actions):
        raise TrajectoryError(f"has_loss has {len(has_loss)} entries for {len(actions)} actions")
    if draft.actions != draft_actions:
        raise TrajectoryError(
            "the draft actions are not the tokens in order followed by the way to the visits and the cursor"
        )
    if not is_intact(record):
        raise TrajectoryError("its checksum is not that of its fields: it is damaged or was changed")
    return Trajectory(draft, actions, has_loss, log_q)


def _protection(draft: Draft) -> dict[str, list[int]]:
    """The fixed tokens and closed boundaries of a draft, by their numbers."""
    marks = draft.marks
    fixed = [place for place, mark in enumerate(marks[1:]) if mark & FIXED]
    return {"fixed": fixed, "closed": [boundary for boundary, mark in enumerate(marks) if mark & CLOSED]}


def _marks(record: dict[str, Any], size: int) -> tuple[int, ...]:
    """The marks of a draft of `size` tokens; files of version 0.1 have a protected prefix and suffix instead."""
    if "fixed" not in record:
        prefix, suffix = index(record["prefix"]), index(record["suffix"])
        if min(prefix, suffix) < 0 or prefix + suffix > size:
            raise ConfigError(f"a protected prefix of {prefix} and suffix of {suffix} on a draft of {size} tokens")
        spans = [(start, end) for start, end in ((0, prefix), (size - suffix, size)) if start < end]
        return protect(size, spans, [*([0] if prefix else []), *([size] if suffix else [])])
    fixed, closed = (set(map(index, record[key])) for key in ("fixed", "closed"))
    for name, numbers, most in (("fixed", fixed, size - 1), ("closed", closed, size)):
        if numbers and not 0 <= min(numbers) <= max(numbers) <= most:
            raise ConfigError(f"{name} names {max(numbers)} and goes from 0 to {most}")
    return (
        tuple((FIXED if place - 1 in fixed else 0) | (CLOSED if place in closed else 0) for place in range(size + 1))
        if fixed or closed
        else ()
    )


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
    if record.get("version", VERSION) != VERSION:
        raise TrajectoryError(f"it is of version {record['version']!r}, and this program reads version {VERSION}")
    return record


def read_trajectories(path: Path | str) -> Iterator[Trajectory]:
    """All trajectories of a file; the error of a bad one says on which line it stands."""
    for number, line in read_lines(path):
        try:
            yield from_record(parse_record(line))
        except ReviserError as error:
            raise TrajectoryError(f"{path}, line {number}: {error}") from None


def dump_records(records: Iterable[dict[str, Any]]) -> str:
    """The content of a trajectory file."""
    stamped = (stamp({"version": VERSION, **record}) for record in records)
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in stamped)
