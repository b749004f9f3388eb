"""Obfuscation and its inverse: take a target apart, and get the actions that put it together again.

Each step of an obfuscation has one inverse; the restoration is those inverses from the last to the
first, and STOP.

    obfuscation   Hi , | how   DELETE   Hi | how   DELETE   | how   MOVE +1   how |   DELETE   |
    restoration   INSERT how   MOVE -1   INSERT Hi   INSERT ,   STOP

A jump goes back spelled in MOVEs, or by pointer: in one JUMP to the boundary (JUMP 0 above), counted from the front
of the canvas. `read_jump` reads either.

A cell that is noise is marked, and the restoration inserts it without loss: nobody should learn to make the mistake,
only to undo it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from reviser.actions import Alphabet
from reviser.errors import ConfigError
from reviser.orders.record import Draft, Trajectory

By = Literal["moves", "pointer"]
"""How a jump of the cursor is written: spelled in MOVEs, or as one JUMP."""


class Needing(Protocol):
    """What has to be enabled: all that an order is here."""

    @property
    def needs(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Cell:
    token: int
    is_noise: bool = False


class Obfuscation:
    """The editable part of a canvas being taken apart; cursors count from its start."""

    def __init__(self, draft: Draft, target: Sequence[int], by: By = "moves") -> None:
        self.draft, self.by, self.offset = draft, by, draft.prefix
        self.alphabet = draft.rules.alphabet
        self.cells = [Cell(token) for token in draft.editable(target)]
        self.room = draft.rules.max_length - draft.prefix - draft.suffix
        self.cursor = 0
        self._inverses: list[list[tuple[int, bool]]] = []

    @property
    def num_steps(self) -> int:
        return len(self._inverses)

    def delete(self) -> None:
        cell = self.cells.pop(self.cursor - 1)
        self.cursor -= 1
        self._inverses.append([(cell.token, not cell.is_noise)])

    def jump(self, to: int) -> None:
        """Move to a boundary; the restoration goes back in one JUMP, or in MOVEs, the largest first."""
        self._inverses.append(self._way(to, self.cursor))
        self.cursor = to

    def insert_noise(self, token: int) -> None:
        """Put a noise token at the cursor; the restoration deletes it."""
        self.cells.insert(self.cursor, Cell(token, is_noise=True))
        self.cursor += 1
        self._inverses.append([(self.alphabet.delete, True)])

    def _way(self, start: int, end: int) -> list[tuple[int, bool]]:
        way = self.alphabet.way(self.offset + start, self.offset + end, self.by == "pointer")
        return [(action, True) for action in way]

    def restoration(self, log_q: float | None) -> Trajectory:
        """The trajectory that puts the target together again."""
        steps = [step for group in reversed(self._inverses) for step in group] + [(self.alphabet.stop, True)]
        actions, has_loss = zip(*steps, strict=True)
        return Trajectory(self.draft, actions, has_loss, log_q)


def read_jump(actions: Sequence[int], index: int, here: int, alphabet: Alphabet, by: By) -> tuple[int, int] | None:
    """Where the jump that begins at actions[index] leads from boundary `here`, and the index behind it.

    None where a restoration would not write it so: in MOVEs and not by pointer or the other way around, not spelled
    from the largest MOVE to the smallest, or to where the cursor stands.
    """
    end = index
    if by == "pointer":
        there, end = alphabet.landing(actions[index]), index + 1
        is_written = alphabet.is_jump(actions[index]) and there != here
        return (there, end) if is_written and not is_jumping(actions, end, alphabet) else None
    while end < len(actions) and alphabet.is_move(actions[end]):
        end += 1
    there = here + sum(map(alphabet.distance, actions[index:end]))
    is_written = there != here and alphabet.spell(there - here) == tuple(actions[index:end])
    return (there, end) if is_written and not is_jumping(actions, end, alphabet) else None


def is_jumping(actions: Sequence[int], index: int, alphabet: Alphabet) -> bool:
    """Whether a MOVE or a JUMP stands at an index, which may lie behind the last action."""
    return index < len(actions) and (alphabet.is_move(actions[index]) or alphabet.is_jump(actions[index]))


def check_blank(order: Needing, draft: Draft, target: Sequence[int]) -> tuple[int, ...]:
    """The part to be grown; the draft must leave it blank and enable what the order uses."""
    missing = sorted(order.needs - draft.rules.operators)
    if missing:
        raise ConfigError(f"{type(order).__name__} draws {missing[0]} actions, which are not enabled here")
    if not draft.is_blank:
        raise ConfigError(f"{type(order).__name__} grows text from a blank; to change existing text use Diff")
    return draft.editable(target)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} does not exist; choose from {', '.join(allowed)}")


def check_by(by: str) -> None:
    check_choice("by", by, ("moves", "pointer"))


def jump_needs(by: By) -> frozenset[str]:
    """The operator that jumps are written with."""
    return frozenset({"jump" if by == "pointer" else "move"})
