"""What every engine does with requests: rows are filled, stepped together, read when they finish, and filled again.

`Engine` holds its rows in tensors, `ArrayEngine` in arrays; each says how a row begins, how all rows take a step, and
what a row has chosen.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import starmap
from typing import Any

from reviser.canvas import Rules
from reviser.config import ModelConfig
from reviser.decoding.requests import Alternatives, Decoded, Event, Request, check_room, find_end
from reviser.errors import ConfigError
from reviser.orders.record import Draft


def keep_valid(ids: Sequence[int], scores: Sequence[float]) -> Alternatives:
    """Of a step's best actions those that are valid."""
    return tuple((action, score) for action, score in zip(ids, scores, strict=True) if score > -math.inf)


class RowLoop(ABC):
    """Rows that requests are given to as they become free."""

    config: ModelConfig
    num_rows: int
    num_alternatives: int
    look_every = 1
    """Steps between two looks at which rows have finished."""
    owners: list[int | None]
    """The request of each row."""
    budgets: list[int]
    """How many actions it has left at most."""
    scores: Any
    best_actions: Any
    """[B, T, n]: the most probable actions of every step, and in `best_scores` their log-probabilities."""
    best_scores: Any

    @abstractmethod
    def _keep_board(self, rules: Rules, longest: int) -> Any:
        """A board for canvases of that length."""

    @abstractmethod
    def _begin(self, rows: Sequence[int], drafts: Sequence[Draft], numbers: Sequence[int]) -> None:
        """Read drafts into rows, and make the random numbers of each."""

    @abstractmethod
    def _advance(self, board: Any) -> None:
        """One action in every row."""

    @abstractmethod
    def _step(self, board: Any) -> Any:
        """The same at once; the chosen actions [B]."""

    @abstractmethod
    def _recorded(self, rows: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
        """What each row has chosen so far, with log-probabilities."""

    def write(self, requests: Sequence[Request]) -> list[Decoded]:
        """What each request grows into, in the order of the requests."""
        done = dict(self.stream(requests))
        return [done[index] for index in range(len(requests))]

    def stream(self, requests: Sequence[Request]) -> Iterator[tuple[int, Decoded]]:
        """Index and result of each request as it finishes."""
        if not requests:
            return
        for request in requests:
            check_room(request.draft, self.config, request.max_actions)
        board = self._board(requests)
        waiting = deque(enumerate(requests))
        with self._working():
            self._refill(board, waiting)
            while any(owner is not None for owner in self.owners):
                # No row can go on for longer than its budget.
                count = max(min(self.look_every, max(self.budgets)), 1)
                for _ in range(count):
                    self._advance(board)
                self.budgets = [budget - count for budget in self.budgets]
                yield from self._collect(board, requests)
                self._refill(board, waiting)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """All rows free."""
        self.owners = [None] * self.num_rows
        yield

    def _board(self, requests: Sequence[Request]) -> Any:
        rules = [request.draft.rules for request in requests]
        if any(given.operators != rules[0].operators or given.alphabet != rules[0].alphabet for given in rules):
            raise ConfigError("requests of one call must share their alphabet and operators; split them")
        return self._keep_board(rules[0], max(given.max_length for given in rules))

    def _refill(self, board: Any, waiting: deque[tuple[int, Request]]) -> None:
        """Give waiting requests to free rows, and read their drafts in one forward pass."""
        free = [row for row, owner in enumerate(self.owners) if owner is None][: len(waiting)]
        if not free:
            return
        taken = [waiting.popleft() for _ in free]
        budgets = [each.budget(self.config.context) for _, each in taken]
        drafts = [each.draft for _, each in taken]
        ages = [len(draft.actions) + 1 for draft in drafts]
        board.load(free, [draft.canvas for draft in drafts], [draft.rules for draft in drafts], budgets, ages=ages)
        self._begin(free, drafts, [each.number for _, each in taken])
        for row, (index, _), budget in zip(free, taken, budgets, strict=True):
            self.owners[row], self.budgets[row] = index, budget

    def events(self, request: Request) -> Iterator[Event]:
        """Each action of one request as it is chosen."""
        check_room(request.draft, self.config, request.max_actions)
        board, step = self._board([request]), 0
        with self._working():
            self._refill(board, deque([(0, request)]))
            while int(board.left[0]) > 0:
                actions = self._step(board)
                [alternatives] = self._alternatives(0, slice(step, step + 1))
                score = float(self.scores[0, step])
                yield Event(step, int(actions[0]), score, alternatives, board.canvases([0])[0])
                step += 1

    def _alternatives(self, row: int, steps: slice) -> tuple[Alternatives, ...]:
        """What was recorded of some steps of a row; invalid actions are no alternatives."""
        ids, scores = (each[row, steps].tolist() for each in (self.best_actions, self.best_scores))
        return tuple(starmap(keep_valid, zip(ids, scores, strict=True)))

    def _collect(
        self, board: Any, requests: Sequence[Request] | Mapping[int, Request]
    ) -> Iterator[tuple[int, Decoded]]:
        """The results of rows that have finished, which are free from then on."""
        left = board.left.tolist()
        rows = [row for row, owner in enumerate(self.owners) if owner is not None and left[row] == 0]
        if not rows:
            return
        for row, canvas, (chosen, scored) in zip(rows, board.canvases(rows), self._recorded(rows), strict=True):
            index = self.owners[row]
            self.owners[row] = None
            assert index is not None
            ended_by = find_end(requests[index], canvas, len(chosen), self.config.context)
            others = self._alternatives(row, slice(len(chosen))) if self.num_alternatives else ()
            yield index, Decoded(chosen, scored, canvas, ended_by, others)
