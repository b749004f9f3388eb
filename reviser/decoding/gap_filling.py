"""Gaps in a text: how they are written, and how a model that knows one gap at a time fills several in turn.

    The ___ lighthouse ___ until morning.      parts  "The", " lighthouse", " until morning."

In turn, each gap is filled as the only one, with everything else given; what is written is then given to the next.
The result is one trajectory, whose draft lets the cursor pass over what is given: where a gap's STOP was, the cursor
goes on to the next gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from zlib import crc32

from reviser.canvas import CLOSED, FIXED, Canvas, Rules, replay
from reviser.config import parse_jobs
from reviser.decoding.arguments import check_size, check_whole
from reviser.decoding.presets import BEST_OF, LONGEST_GAP, PAPER, Sampling
from reviser.decoding.requests import CUT_SHORT, Alternatives, Decoded, EndedBy, Request
from reviser.errors import ConfigError
from reviser.orders.record import Draft
from reviser.orders.rng import Random
from reviser.proofreading.rewriting import FILLINGS, ROOM, Place, Refilled

GAP = re.compile("_{3,}")
FILLED = 0.2
"""What a nat of a filling weighs where fillings are compared; one of what follows weighs 1. With 0, a filling is best
that says beforehand what follows; with 1, an empty one (LOG.md)."""
NEVER_TOLD = "was not trained to write out of order; train one with data.jobs.told"
Tokens = Sequence[int]


def split_gaps(text: str) -> list[str]:
    """The given parts of a text: what stands before each gap and behind the last.

    Most tokens begin with a space, so the space before a gap is left to the gap:

    >>> split_gaps("The old ___ until morning.")
    ['The old', ' until morning.']
    """
    parts = GAP.split(text)
    if len(parts) == 1:
        raise ConfigError("the text has no gap; write ___ where something is to be filled in")
    parts = [*(part.removesuffix(" ") for part in parts[:-1]), parts[-1]]
    if not all(parts[1:-1]):
        raise ConfigError("two gaps have nothing between them; write one ___ for both")
    return parts


def knows_gaps(jobs: str) -> bool:
    """Whether a model was trained on examples with several gaps, given the settings they were cut with.

    >>> knows_gaps("infill=0.5 gaps=1,6 sparse=0.0"), knows_gaps("infill=0.5")
    (True, False)
    """
    given = parse_jobs(jobs)
    return given.get("gaps", (1.0,))[-1] > 1 or given.get("sparse", (0.0,))[0] > 0


def knows_telling(jobs: str) -> bool:
    """Whether a model was trained to write out of order when it is told to."""
    return parse_jobs(jobs).get("told", (0.0,))[0] > 0


def check_telling(jobs: str, prompt: Tokens) -> None:
    """Refuse to tell a model to write out of order that never learned to, given the settings it was trained with.

    >>> check_telling("infill=0.5 told=0.4 told_order=ending", [7])
    >>> check_telling("infill=0.5", [7])
    Traceback (most recent call last):
    reviser.errors.ConfigError: this model was not trained to write out of order; train one with data.jobs.told
    """
    if not knows_telling(jobs):
        raise ConfigError(f"this model {NEVER_TOLD}")
    if not prompt:
        raise ConfigError("only what continues a prompt can be written out of order; give a prompt")


@dataclass(frozen=True)
class GapLimits:
    """How much may be written in gaps, in tokens."""

    max_tokens: int | None = LONGEST_GAP
    """In all gaps together, times their number; None: up to what the canvas holds."""
    min_length: int = 0
    """In each gap."""
    max_length: int | None = None
    """In each gap."""

    def __post_init__(self) -> None:
        least = check_size("min_length", self.min_length)
        for name in ("max_length", "max_tokens"):
            value = getattr(self, name)
            if value is not None and check_whole(name, value) < max(least, 1):
                raise ConfigError(f"{name}={value} must be at least {max(least, 1)}" + " (min_length)" * (least > 1))

    @property
    def is_strict(self) -> bool:
        """Whether gaps have limits of their own."""
        return self.min_length > 0 or self.max_length is not None

    @property
    def most(self) -> int | None:
        """The most tokens in one gap."""
        return min((each for each in (self.max_tokens, self.max_length) if each is not None), default=None)

    def room(self, num_gaps: int) -> int | None:
        """The most tokens in all gaps together."""
        return None if self.most is None else self.most * num_gaps


def gap_places(draft: Draft) -> list[int]:
    """How many given tokens stand before each gap of a draft."""
    return sorted({place for place in (*draft.visits, draft.cursor) if draft.canvas.is_open(place)})


def find_fillings(draft: Draft, canvas: Canvas) -> list[tuple[int, ...]]:
    """What stands in each gap of a canvas that came of a draft: all tokens that are not fixed, by their gap."""
    marks = canvas.marks or (0,) * (len(canvas.tokens) + 1)
    fillings: dict[int, list[int]] = {place: [] for place in gap_places(draft)}
    num_given = 0
    for token, mark in zip(canvas.tokens, marks[1:], strict=True):
        if mark & FIXED:
            num_given += 1
        else:
            fillings.setdefault(num_given, []).append(token)
    return [tuple(fillings[place]) for place in sorted(fillings)]


def find_followers(draft: Draft, canvas: Canvas) -> list[int]:
    """The places of the given tokens that stand behind the first gap, on a canvas that came of a draft."""
    marks = canvas.marks or (0,) * (len(canvas.tokens) + 1)
    given = [place for place, mark in enumerate(marks[1:]) if mark & FIXED]
    return given[gap_places(draft)[0] :]


def usual_best_of(parts: Sequence[str], sampling: Sampling) -> int:
    """How many fillings are tried where nobody says: several, if they can differ and something follows to tell."""
    return BEST_OF if parts[-1] and sampling.temperature else 1


def rate_filling(draft: Draft, canvas: Canvas, scores: Sequence[float]) -> float | None:
    """How well a filling fits, given the log-probabilities of all tokens from the first gap on, read from left to
    right: that of what is given there and a little of that of what stands between, divided by the number of given
    tokens. None where no log-probabilities are known."""
    if not scores:
        return None
    places, begin = find_followers(draft, canvas), gap_places(draft)[0]
    following = sum(scores[place - begin] for place in places)
    filled = sum(scores[: places[-1] + 1 - begin]) - following
    return (following + FILLED * filled) / len(places)


def passable(draft: Draft) -> Draft:
    """A draft with gaps under rules that let the cursor go from one to the next, over what is given."""
    places = gap_places(draft)
    marks = tuple(
        mark & ~CLOSED if places[0] <= boundary <= places[-1] else mark for boundary, mark in enumerate(draft.marks)
    )
    return Draft(draft.tokens, draft.cursor, draft.rules.for_draft(), marks, draft.visits)


def fill_in_turn(
    draft: Draft,
    parts: Sequence[Tokens],
    rules_for: Callable[[int], Rules],
    write: Callable[[Sequence[Request]], Sequence[Decoded]],
    max_actions: int,
    numbers: Sequence[Callable[[int], int]],
) -> list[Decoded]:
    """As many texts from a `passable` draft as there are `numbers`, each of which gives the random number of a gap.

    `rules_for` gives the rules for so many given tokens. A text whose actions are spent leaves its last gaps empty.
    """
    stages: list[list[Decoded]] = [[] for _ in numbers]
    for gap, part in enumerate(parts[:-1]):
        after = list(chain.from_iterable(parts[gap + 1 :]))
        rows, asked = [], []
        for row, done in enumerate(stages):
            left = max_actions - sum(len(each.actions) for each in done)
            if len(done) == gap and left > 0 and not (done and done[-1].ended_by in CUT_SHORT):
                tokens = done[-1].canvas.tokens if done else (*part, *after)
                before = tokens[: len(tokens) - len(after)]
                one = Draft.infill(before, after, rules_for(len(tokens)))
                rows.append(row)
                asked.append(Request(one, left, numbers[row](gap)))
        for row, decoded in zip(rows, write(asked), strict=True):
            stages[row].append(decoded)
    return [join_turns(draft, done) for done in stages]


def join_turns(draft: Draft, stages: Sequence[Decoded]) -> Decoded:
    """What was done in one gap after another as one trajectory; the log-probability of a gap's STOP is that of the
    way to the next gap."""
    rules, places, canvas = draft.rules, gap_places(draft), draft.canvas
    actions, scores, alternatives = list[int](), list[float](), list[Alternatives]()
    for number, stage in enumerate(stages):
        if number:
            [stop] = actions[-1:]
            place = places[number] + len(canvas.tokens) - len(draft.tokens)
            way = rules.alphabet.way(canvas.cursor, place, bool(rules.has_jumps))
            assert stop == rules.alphabet.stop
            actions[-1:] = way
            scores += [0.0] * (len(way) - 1)
            alternatives += [()] * (len(way) - 1) if stage.alternatives else []
            canvas = replay(canvas, way, rules)
        actions += stage.actions
        scores += stage.log_probabilities
        alternatives += stage.alternatives
        is_left = number + 1 < len(stages)
        canvas = replay(canvas, stage.actions[:-1] if is_left else stage.actions, rules)
    return Decoded(tuple(actions), tuple(scores), canvas, _end(stages, len(places)), tuple(alternatives))


def _end(stages: Sequence[Decoded], num_gaps: int) -> EndedBy:
    """What ended a text: whatever cut it short, or filled a gap to the brim."""
    last = stages[-1].ended_by
    if last in CUT_SHORT:
        return last
    if len(stages) < num_gaps:
        return "actions"
    return "length" if any(stage.ended_by == "length" for stage in stages) else "model"


def number_of_gap(seed: int, number: int, gap: int) -> int:
    return Random.of(seed, gap, number).state


def refill(
    gap: Callable[[str, str, int], Draft],
    write: Callable[[Sequence[Request], Sampling], Sequence[Any]],
    places: Sequence[Place],
) -> list[list[Refilled]]:
    """Several fillings of each place; what is drawn there depends on the text around it alone."""
    requests = []
    for place in places:
        draft, text = gap(place.left, place.right, place.room), crc32(f"{place.left}\0{place.right}".encode())
        requests += [Request(draft, ROOM * place.room, Random.of(text, number).state) for number in range(FILLINGS)]
    texts = [Refilled(each.new, each.num_actions, each.has_stopped) for each in write(requests, PAPER)]
    return [texts[start : start + FILLINGS] for start in range(0, len(texts), FILLINGS)]
