"""An order for tests alone: runs with edits in between, so that trajectories use every operator; it has no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reviser.actions import SPAN_SIZES
from reviser.errors import ConfigError
from reviser.orders.policies import (
    NoiseSource,
    draw_noise,
    jump_anywhere,
    num_places,
    place_cursor,
)
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import register_order
from reviser.orders.restore import Cell, Obfuscation, check_blank, check_choice
from reviser.orders.rng import Random, check_probability, threshold

KINDS = ("noise", "replace", "swap", "displace", "noise-span", "copy")
NEEDS = (
    frozenset({"delete"}),
    frozenset({"replace"}),
    frozenset({"swap"}),
    frozenset({"cut", "paste"}),
    frozenset({"cut"}),
    frozenset({"copy", "paste"}),
)


class Editing(Obfuscation):
    """An obfuscation that also makes the edits every operator mends."""

    def insert_noises(self, tokens: Sequence[int]) -> None:
        """Put 1, 2, 4 or 8 noise tokens at the cursor; the restoration deletes or cuts them."""
        self.cells[self.cursor : self.cursor] = [Cell(token, is_noise=True) for token in tokens]
        self.cursor += len(tokens)
        undo = self.alphabet.delete if len(tokens) == 1 else self.alphabet.cut(len(tokens))
        self._inverses.append([(undo, True)])

    def replace(self, token: int) -> None:
        """Put a noise token in place of the one left of the cursor."""
        old = self.cells[self.cursor - 1]
        self.cells[self.cursor - 1] = Cell(token, is_noise=True)
        self._inverses.append([(self.alphabet.replace, True), (old.token, not old.is_noise)])

    def swap(self) -> None:
        pair = slice(self.cursor - 2, self.cursor)
        self.cells[pair] = [Cell(cell.token, is_noise=True) for cell in reversed(self.cells[pair])]
        self._inverses.append([(self.alphabet.swap, True)])

    def displace(self, size: int, to: int) -> None:
        """Cut the span left of the cursor and paste it at a boundary of what remains."""
        span = [Cell(cell.token, is_noise=True) for cell in self.cells[self.cursor - size : self.cursor]]
        del self.cells[self.cursor - size : self.cursor]
        self.cells[to:to] = span
        back = self._way(to, self.cursor - size)
        self._inverses.append([(self.alphabet.cut(size), True), *back, (self.alphabet.paste, True)])
        self.cursor = to + size

    def forget_copy(self, size: int, source: int) -> None:
        """Remove the span left of the cursor, which stands a second time left of boundary `source`
        of what remains; the restoration copies it from there."""
        del self.cells[self.cursor - size : self.cursor]
        back = self._way(source, self.cursor - size)
        self._inverses.append([(self.alphabet.copy(size), True), *back, (self.alphabet.paste, True)])
        self.cursor = source


@dataclass(frozen=True, slots=True)
class Scramble:
    """`Runs` in which an edit is tried with probability `edit` before each delete."""

    edit: float = 0.1
    jump: float = 0.05
    start: Literal["uniform", "end"] = "end"
    noise_from: NoiseSource = "document"

    def __post_init__(self) -> None:
        check_probability("edit", self.edit, high=0.3)
        check_probability("jump", self.jump, high=0.99)
        check_choice("start", self.start, ("uniform", "end"))
        check_choice("noise_from", self.noise_from, ("vocabulary", "document"))

    @property
    def has_likelihood(self) -> bool:
        return False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"move"})

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        tokens = check_blank(self, draft, target)
        enabled = [needs <= draft.rules.operators for needs in NEEDS]
        work, has_jumped = Editing(draft, target), False
        place_cursor(work, self.start, rng)
        edits, jumps = threshold(self.edit), threshold(self.jump)
        while work.cells:
            if not has_jumped and rng.chance(edits) and self._edit(work, tokens, enabled, rng):
                continue
            if not has_jumped and (work.cursor == 0 or (num_places(work) and rng.chance(jumps))):
                has_jumped = jump_anywhere(work, rng)
            else:
                work.delete()
                has_jumped = False
        return work.restoration(None)

    def _edit(self, work: Editing, target: Sequence[int], enabled: list[bool], rng: Random) -> bool:
        """Make an edit of a random kind; False where that kind is not possible."""
        kind = rng.below(len(KINDS))
        size = 1 if kind == 0 else 1 if kind == 1 else 2 if kind == 2 else SPAN_SIZES[rng.below(3)]
        if not enabled[kind]:
            return False
        if kind in (0, 4):
            return self._insert_noise(work, target, size, rng)
        span = work.cells[work.cursor - size : work.cursor] if work.cursor >= size else []
        if not span or any(cell.is_noise for cell in span):
            return False
        if kind == 1:
            work.replace(draw_noise(work, target, self.noise_from, rng))
        elif kind == 2 and span[0].token != span[1].token:
            work.swap()
        elif kind == 3 and len(work.cells) > size:
            place = rng.below(len(work.cells) - size)
            work.displace(size, place + (place >= work.cursor - size))
        elif kind == 5 and (source := _find_copy(work, size)):
            work.forget_copy(size, source)
        else:
            return False
        return True

    def _insert_noise(self, work: Editing, target: Sequence[int], size: int, rng: Random) -> bool:
        if len(work.cells) + size > work.room:
            return False
        work.insert_noises([draw_noise(work, target, self.noise_from, rng) for _ in range(size)])
        return True

    def log_q(self, trajectory: Trajectory) -> float:
        raise ConfigError("Scramble has no likelihood: a bound would have to pay for its noise; use another order")


def _find_copy(work: Editing, size: int) -> int:
    """The first boundary of the canvas without the span left of the cursor that has a clean copy of
    that span on its left; 0 where there is none."""
    span = [cell.token for cell in work.cells[work.cursor - size : work.cursor]]
    rest = work.cells[: work.cursor - size] + work.cells[work.cursor :]
    for end in range(size, len(rest) + 1):
        found = rest[end - size : end]
        if [cell.token for cell in found] == span and not any(cell.is_noise for cell in found):
            return end
    return 0


register_order("scramble", Scramble)
