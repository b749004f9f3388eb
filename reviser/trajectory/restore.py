"""Obfuscation and its inverse: take a target apart, and get the actions that put it together again.

Each step of an obfuscation has one inverse; the restoration is those inverses from the last to the
first, and STOP.

    obfuscation   Hi , | how   DELETE   Hi | how   DELETE   | how   MOVE +1   how |   DELETE   |
    restoration   INSERT how   MOVE -1   INSERT Hi   INSERT ,   STOP

A cell that noise or a misplacing edit has put where it does not belong is marked, and the restoration
inserts it without loss: nobody should learn to make the mistake, only to mend it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reviser.trajectory.record import Seed, Trajectory


@dataclass(frozen=True, slots=True)
class Cell:
    token: int
    is_noise: bool = False


class Obfuscation:
    """The editable part of a canvas being taken apart; cursors count from its start."""

    def __init__(self, seed: Seed, target: Sequence[int]) -> None:
        self.seed = seed
        self.alphabet = seed.rules.alphabet
        self.cells = [Cell(token) for token in seed.editable(target)]
        self.room = seed.rules.max_length - seed.rules.prefix - seed.rules.suffix
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

    def insert_noise(self, tokens: Sequence[int]) -> None:
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
        back = self._way(self.cursor - size - to)
        self._inverses.append([(self.alphabet.cut(size), True), *back, (self.alphabet.paste, True)])
        self.cursor = to + size

    def forget_copy(self, size: int, source: int) -> None:
        """Remove the span left of the cursor, which stands a second time left of boundary `source`
        of what remains; the restoration copies it from there."""
        del self.cells[self.cursor - size : self.cursor]
        back = self._way(self.cursor - size - source)
        self._inverses.append([(self.alphabet.copy(size), True), *back, (self.alphabet.paste, True)])
        self.cursor = source

    def _way(self, distance: int) -> list[tuple[int, bool]]:
        return [(action, True) for action in self.alphabet.spell(distance)]

    def restoration(self, log_q: float | None) -> Trajectory:
        """The trajectory that puts the target together again."""
        steps = [step for group in reversed(self._inverses) for step in group] + [(self.alphabet.stop, True)]
        actions, has_loss = zip(*steps, strict=True)
        return Trajectory(self.seed, actions, has_loss, log_q)
