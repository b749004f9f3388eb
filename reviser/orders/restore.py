"""Obfuscation and its inverse: take a target apart, and get the actions that put it together again.

Each step of an obfuscation has one inverse; the restoration is those inverses from the last to the
first, and STOP.

    obfuscation   Hi , | how   DELETE   Hi | how   DELETE   | how   MOVE +1   how |   DELETE   |
    restoration   INSERT how   MOVE -1   INSERT Hi   INSERT ,   STOP

A cell that is noise is marked, and the restoration inserts it without loss: nobody should learn to make the mistake,
only to undo it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reviser.orders.record import Draft, Trajectory


@dataclass(frozen=True, slots=True)
class Cell:
    token: int
    is_noise: bool = False


class Obfuscation:
    """The editable part of a canvas being taken apart; cursors count from its start."""

    def __init__(self, draft: Draft, target: Sequence[int]) -> None:
        self.draft = draft
        self.alphabet = draft.rules.alphabet
        self.cells = [Cell(token) for token in draft.editable(target)]
        self.room = draft.rules.max_length - draft.rules.prefix - draft.rules.suffix
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
        """Move to a boundary; the restoration spells the way back, largest move first."""
        self._inverses.append(self._way(self.cursor - to))
        self.cursor = to

    def insert_noise(self, token: int) -> None:
        """Put a noise token at the cursor; the restoration deletes it."""
        self.cells.insert(self.cursor, Cell(token, is_noise=True))
        self.cursor += 1
        self._inverses.append([(self.alphabet.delete, True)])

    def _way(self, distance: int) -> list[tuple[int, bool]]:
        return [(action, True) for action in self.alphabet.spell(distance)]

    def restoration(self, log_q: float | None) -> Trajectory:
        """The trajectory that puts the target together again."""
        steps = [step for group in reversed(self._inverses) for step in group] + [(self.alphabet.stop, True)]
        actions, has_loss = zip(*steps, strict=True)
        return Trajectory(self.draft, actions, has_loss, log_q)
