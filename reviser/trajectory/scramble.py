"""An order that exercises every operator: runs with edits in between, undone by the restoration.

    obfuscation                        what the restoration learns
    insert one noise token             DELETE
    insert 2, 4 or 8 noise tokens      CUT k
    replace a token by noise           REPLACE, INSERT the right one
    exchange two tokens                SWAP
    cut a span and paste it elsewhere  CUT k, moves, PASTE
    remove a span that stands twice    COPY k, moves, PASTE

An edit is tried with probability `edit` before each delete; its kind is drawn uniformly, and nothing
happens where that kind is not possible or its operator not enabled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reviser.actions import SPAN_SIZES
from reviser.errors import ConfigError
from reviser.trajectory.orders import (
    NoiseSource,
    check_blank,
    check_choice,
    draw_noise,
    jump_anywhere,
    num_places,
    place_cursor,
)
from reviser.trajectory.record import Seed, Trajectory
from reviser.trajectory.restore import Obfuscation
from reviser.trajectory.rng import Random, check_probability, threshold

KINDS = ("noise", "replace", "swap", "displace", "noise-span", "copy")
NEEDS = (
    frozenset({"delete"}),
    frozenset({"replace"}),
    frozenset({"swap"}),
    frozenset({"cut", "paste"}),
    frozenset({"cut"}),
    frozenset({"copy", "paste"}),
)


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

    def draw(self, seed: Seed, target: Sequence[int], rng: Random) -> Trajectory:
        tokens = check_blank(self, seed, target)
        enabled = [needs <= seed.rules.operators for needs in NEEDS]
        work, has_jumped = Obfuscation(seed, target), False
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

    def _edit(self, work: Obfuscation, target: Sequence[int], enabled: list[bool], rng: Random) -> bool:
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

    def _insert_noise(self, work: Obfuscation, target: Sequence[int], size: int, rng: Random) -> bool:
        if len(work.cells) + size > work.room:
            return False
        work.insert_noise([draw_noise(work, target, self.noise_from, rng) for _ in range(size)])
        return True

    def log_q(self, trajectory: Trajectory) -> float:
        raise ConfigError("Scramble has no likelihood: a bound would have to pay for its noise; use another order")


def _find_copy(work: Obfuscation, size: int) -> int:
    """The first boundary of the canvas without the span left of the cursor that has a clean copy of
    that span on its left; 0 where there is none."""
    span = [cell.token for cell in work.cells[work.cursor - size : work.cursor]]
    rest = work.cells[: work.cursor - size] + work.cells[work.cursor :]
    for end in range(size, len(rest) + 1):
        found = rest[end - size : end]
        if [cell.token for cell in found] == span and not any(cell.is_noise for cell in found):
            return end
    return 0
