"""Orders that write whole sentences out of order, each from left to right.

    Sentences    takes sentences away leftwards, jumps with probability p after each: Runs, with sentences for tokens
    Outline      first the opening sentence of each group, then back to fill the groups in
    Ending       first the ending, then back to write what leads up to it

    One . Two . Three . Four .      Outline(every=2) writes   One . Three .   JUMP   Two .   JUMP   Four .
                                    Ending() writes           Four .   JUMP   One . Two . Three .

A sentence ends with a token of `Rules.ends`; where several follow each other, such as a full stop and a line break,
with the last of them. What stands behind the last end is a sentence too, so a text without ends is one, and is
written from left to right.

>>> from reviser.actions import Alphabet; from reviser.canvas import Rules
>>> rules = Rules(Alphabet(num_text=257, pad=256), frozenset({"jump"}), ends=frozenset({46}))
>>> text = [1, 46, 2, 46, 3, 46]
>>> [rules.alphabet.name(a) for a in Outline().draw(Draft.continuation([], rules), text, Random.of(0)).actions[4:]]
['JUMP 2', 'INSERT 2', 'INSERT 46', 'STOP']
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar, Literal

from reviser.canvas import Rules
from reviser.errors import ConfigError
from reviser.orders.record import Draft, Trajectory
from reviser.orders.restore import (
    By,
    Obfuscation,
    check_blank,
    check_by,
    check_choice,
    is_jumping,
    jump_needs,
    read_jump,
)
from reviser.orders.rng import Random, check_probability, threshold

WRITTEN, STOPPED = -1, -2
"""A step that writes a sentence, and the end; other steps are jumps, and say where to."""
NO_ENDS = "{} cuts texts at the ends of sentences, and no token is known to end one; set Rules.ends"


def cut_sentences(tokens: Sequence[int], ends: Set[int]) -> list[int]:
    """Where each sentence ends, as a boundary.

    >>> cut_sentences([1, 2, 46, 10, 3, 46, 4], {46, 10})
    [4, 6, 7]
    """
    last = len(tokens) - 1
    return [i + 1 for i, token in enumerate(tokens) if i == last or (token in ends and tokens[i + 1] not in ends)]


def check_ends(order: object, rules: Rules) -> frozenset[int]:
    """The tokens that end a sentence; there must be some."""
    if not rules.ends:
        raise ConfigError(NO_ENDS.format(type(order).__name__))
    return rules.ends


@dataclass(frozen=True, slots=True)
class Sentences:
    """Takes sentences away leftwards and jumps with probability `jump` after each.

    It begins with any sentence, or with the last. A jump leads behind any other sentence that is left, with equal
    probability, and that sentence goes next. With nothing left of the cursor it always jumps. So what is written last
    may stand anywhere, and the text ends there, without a jump to its end.
    """

    jump: float = 0.5
    start: Literal["end", "uniform"] = "uniform"
    by: By = "pointer"

    has_likelihood: ClassVar[bool] = True
    needs_ends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_probability("jump", self.jump)
        check_choice("start", self.start, ("end", "uniform"))
        check_by(self.by)

    @property
    def needs(self) -> frozenset[str]:
        return jump_needs(self.by)

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        stops = cut_sentences(check_blank(self, draft, target), check_ends(self, draft.rules))
        work = Obfuscation(draft, target, self.by)
        log_q = self._take_apart(work, [end - start for start, end in pairwise([0, *stops])], rng)
        return work.restoration(log_q)

    def _take_apart(self, work: Obfuscation, sizes: list[int], rng: Random) -> float:
        """Remove sentences of these sizes; `cursor` counts sentences, `work.cursor` tokens."""
        cursor, log_q = len(sizes), 0.0
        if self.start == "uniform" and sizes:
            cursor, log_q = 1 + rng.below(len(sizes)), -math.log(len(sizes))
        work.cursor = sum(sizes[:cursor])
        jumps, has_jumped = threshold(self.jump), True
        while sizes:
            count = len(sizes) - (cursor > 0)
            if not has_jumped and (cursor == 0 or (count and rng.chance(jumps))):
                log_q += (math.log(self.jump) if cursor else 0.0) - math.log(count)
                place = 1 + rng.below(count)
                cursor = place + (0 < cursor <= place)
                work.jump(sum(sizes[:cursor]))
                has_jumped = True
                continue
            log_q += math.log1p(-self.jump) if count and not has_jumped else 0.0
            cursor -= 1
            for _ in range(sizes.pop(cursor)):
                work.delete()
            has_jumped = False
        return log_q

    def log_q(self, trajectory: Trajectory) -> float:
        steps = read_sentences(trajectory, check_ends(self, trajectory.draft.rules), self.by)
        if steps is None:
            return -math.inf
        log_jump = math.log(self.jump) if self.jump else -math.inf
        log_stay = math.log1p(-self.jump) if self.jump < 1 else -math.inf
        cursor, count, total = 0, 0, 0.0
        for step, after in pairwise([*steps, STOPPED]):
            if step == WRITTEN:
                cursor, count = cursor + 1, count + 1
                total += log_stay if count > 1 and after == WRITTEN else 0.0
            elif cursor == 0 or after == STOPPED:
                return -math.inf
            else:
                cursor = step
                total += log_jump - math.log(count - 1) if cursor else -math.log(count)
        if self.start == "uniform" and count:
            return total - math.log(count) if cursor else -math.inf
        return total if cursor == count else -math.inf


class Planned(ABC):
    """An order with one trajectory for each text, so q = 1: stretches of it, with the jumps between their places."""

    __slots__ = ()
    by: By
    has_likelihood: ClassVar[bool] = True
    needs_ends: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return jump_needs(self.by)

    @abstractmethod
    def plan(self, stops: list[int]) -> list[tuple[int, int]]:
        """The stretches of a text whose sentences end at `stops`, in the order they are written."""

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        actions = self._write(draft, check_blank(self, draft, target))
        return Trajectory(draft, actions, (True,) * len(actions), 0.0)

    def _write(self, draft: Draft, tokens: tuple[int, ...]) -> tuple[int, ...]:
        alphabet, offset = draft.rules.alphabet, draft.prefix
        actions, written, cursor = list[int](), list[tuple[int, int]](), 0
        for start, end in self.plan(cut_sentences(tokens, check_ends(self, draft.rules))):
            place = sum(there[1] - there[0] for there in written if there[0] < start)
            if place != cursor:
                actions += alphabet.way(offset + cursor, offset + place, self.by == "pointer")
            actions += tokens[start:end]
            written.append((start, end))
            cursor = place + end - start
        return (*actions, alphabet.stop)

    def log_q(self, trajectory: Trajectory) -> float:
        draft = trajectory.draft
        again = self._write(draft, draft.editable(trajectory.final.tokens))
        return 0.0 if again == trajectory.actions else -math.inf


@dataclass(frozen=True, slots=True)
class Outline(Planned):
    """First the opening sentence of each group of `every` sentences, then back to the front to fill the groups in.

    A text of one group is written from left to right.
    """

    every: int = 2
    by: By = "pointer"

    def __post_init__(self) -> None:
        if self.every < 2:
            raise ConfigError(f"every={self.every} is not a number of sentences in a group; it must be at least 2")
        check_by(self.by)

    def plan(self, stops: list[int]) -> list[tuple[int, int]]:
        sentences = list(pairwise([0, *stops]))
        groups = [sentences[k : k + self.every] for k in range(0, len(sentences), self.every)]
        rest = [(group[0][1], group[-1][1]) for group in groups if len(group) > 1]
        return [group[0] for group in groups] + rest


@dataclass(frozen=True, slots=True)
class Ending(Planned):
    """First the last `sentences` sentences, then back to the front to write what leads up to them.

    A text with no more sentences than that is written from left to right.
    """

    sentences: int = 1
    by: By = "pointer"

    def __post_init__(self) -> None:
        if self.sentences < 1:
            raise ConfigError(f"sentences={self.sentences} is not a number of sentences; it must be at least 1")
        check_by(self.by)

    def plan(self, stops: list[int]) -> list[tuple[int, int]]:
        if len(stops) <= self.sentences:
            return [(0, stops[-1])] if stops else []
        cut = stops[-1 - self.sentences]
        return [(cut, stops[-1]), (0, cut)]


def read_sentences(trajectory: Trajectory, ends: Set[int], by: By) -> list[int] | None:
    """A trajectory in sentences of its final text: WRITTEN, or behind how many sentences a jump leads.

    None where it does anything but write whole sentences from left to right and jump between them.
    """
    tokens = _read_tokens(trajectory, by)
    if tokens is None:
        return None
    jumps, places, text = tokens
    sizes = {start: end - start for start, end in pairwise([0, *cut_sentences(text, ends)])}
    there, cursor, steps, index = list[int](), 0, list[int](), 0
    while index < len(places):
        if jumps[index]:
            bounds = list(accumulate(there, initial=0))
            if places[index] not in bounds:
                return None
            cursor, index = bounds.index(places[index]), index + 1
            steps.append(cursor)
            continue
        start = places[index]
        size = sizes.get(start, 0)
        end = index + size
        if not size or any(jumps[index:end]) or places[index:end] != list(range(start, start + size)):
            return None
        there.insert(cursor, size)
        cursor, index = cursor + 1, end
        steps.append(WRITTEN)
    return steps


def _read_tokens(trajectory: Trajectory, by: By) -> tuple[list[bool], list[int], list[int]] | None:
    """Which steps jump; where each jump leads, or where each inserted token stands at the end; and the final text."""
    alphabet, offset, actions = trajectory.draft.rules.alphabet, trajectory.draft.prefix, trajectory.actions[:-1]
    jumps, places, text = list[bool](), list[int](), list[int]()
    cursor = index = 0
    while index < len(actions):
        jumps.append(is_jumping(actions, index, alphabet))
        if jumps[-1]:
            read = read_jump(actions, index, offset + cursor, alphabet, by)
            if read is None:
                return None
            cursor, index = read[0] - offset, read[1]
            places.append(cursor)
            continue
        if not alphabet.is_insert(actions[index]):
            return None
        text.insert(cursor, len(places))
        places.append(actions[index])
        cursor, index = cursor + 1, index + 1
    tokens = [places[number] for number in text]
    for place, number in enumerate(text):
        places[number] = place
    return jumps, places, tokens
