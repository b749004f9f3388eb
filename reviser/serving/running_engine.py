"""A batch that never ends: requests join and leave an engine between steps, and what they chose is told on the way.

    add(7, request)          joins at the next step, or when a row is free
    drop(7)                  leaves at once
    finish([7]) -> results   ends at once, with what it has written
    advance() -> StepNews    one step: new actions of those who are watched, and results of those who have finished

The rows, the random numbers and the steps are the engine's, so every request gets what `Engine.write` gives it.

>>> from reviser.config import ModelConfig
>>> config = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=40)
>>> engine = RunningEngine(Transformer(config), num_rows=2)
>>> engine.add(7, Request(Draft.continuation([104], engine.rules), max_actions=1), is_watched=True)
>>> [told], [(key, written)] = engine.advance()
>>> key, told.actions == written.actions, engine.is_busy
(7, True, False)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import starmap
from typing import NamedTuple

import torch

from reviser.canvas import Rules
from reviser.decoding.cpu.step import Steps
from reviser.decoding.engine import Engine
from reviser.decoding.requests import Alternatives, Decoded, Request, check_room
from reviser.decoding.row_loop import keep_valid
from reviser.decoding.sampling import PAPER, Sampling
from reviser.errors import ConfigError
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft

__all__ = ["RunningEngine", "StepNews", "Told", "Draft"]


class Told(NamedTuple):
    """Actions of a watched request since it was last told of."""

    key: int
    first: int
    """The number of the first action."""
    actions: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    alternatives: tuple[Alternatives, ...]
    """One for each action; empty where the engine keeps none."""


class StepNews(NamedTuple):
    """What a step brought."""

    told: list[Told]
    done: list[tuple[int, Decoded]]


class RunningEngine(Engine):
    """An engine that is stepped by its owner; its board is as long as the model's canvas.

    On a CPU it has few rows while few are needed, for idle ones take time, and at most `num_rows`.
    """

    def __init__(
        self,
        model: Transformer,
        sampling: Sampling = PAPER,
        num_rows: int = 16,
        steps: Steps | None = None,
        num_alternatives: int = 0,
    ) -> None:
        is_here, config = model.embedding.weight.device.type == "cpu", model.config
        super().__init__(model, sampling, min(num_rows, 1) if is_here else num_rows, steps, num_alternatives)
        self.most_rows = num_rows
        self.rules = Rules(config.alphabet, frozenset(config.operators), max_length=config.max_length)
        self._board_here = self._keep_board(self.rules, config.max_length)
        self._asked: dict[int, Request] = {}
        self._waiting: deque[tuple[int, Request]] = deque()
        self._watched: dict[int, int] = {}
        """How many actions of each watched request have been told."""

    @property
    def is_busy(self) -> bool:
        return bool(self._asked)

    @property
    def num_waiting(self) -> int:
        """Requests without a row."""
        return len(self._waiting)

    @property
    def num_decoding(self) -> int:
        """Rows that are taken."""
        return sum(owner is not None for owner in self.owners)

    def add(self, key: int, request: Request, is_watched: bool = False) -> None:
        """Let a request join under a key of the caller's."""
        check_room(request.draft, self.model.config, request.max_actions)
        rules = request.draft.rules
        if (rules.alphabet, rules.operators) != (self.rules.alphabet, self.rules.operators):
            raise ConfigError("a request of a running batch must have the model's own alphabet and operators")
        if rules.max_length > self.rules.max_length:
            raise ConfigError(
                f"a canvas of {rules.max_length} tokens is more than the model's {self.rules.max_length}"
            )
        self._asked[key] = request
        self._waiting.append((key, request))
        if is_watched:
            self._watched[key] = 0

    def drop(self, key: int) -> None:
        """Let a request go, wherever it is; an unknown key is no error, for it may just have finished."""
        if self._asked.pop(key, None) is None:
            return
        self._watched.pop(key, None)
        self._waiting = deque(each for each in self._waiting if each[0] != key)
        if key in self.owners:
            row = self.owners.index(key)
            self._board_here.left[row] = 0
            self.owners[row] = None

    @torch.no_grad()
    def finish(self, keys: Sequence[int]) -> list[tuple[int, Decoded]]:
        """End requests that are being decoded, and give what they came to; they need no more of it."""
        rows = [row for row, owner in enumerate(self.owners) if owner in keys]
        if not rows:
            return []
        self._board_here.left[rows] = 0
        return self._collect_done()

    @torch.no_grad()
    def advance(self) -> StepNews:
        """A step of all rows; on a GPU as many as are taken between two looks at it."""
        self._fit_rows()
        self._refill(self._board_here, self._waiting)
        budgets = [budget for budget, owner in zip(self.budgets, self.owners, strict=True) if owner is not None]
        if not budgets:
            return StepNews([], [])
        count = max(min(self.look_every, max(budgets)), 1)
        for _ in range(count):
            self._advance(self._board_here)
        self.budgets = [budget - count for budget in self.budgets]
        told = self._tell()
        return StepNews(told, self._collect_done())

    def _collect_done(self) -> list[tuple[int, Decoded]]:
        done = list(self._collect(self._board_here, self._asked))
        for key, _ in done:
            del self._asked[key]
            self._watched.pop(key, None)
        return done

    def _fit_rows(self) -> None:
        """On a CPU, take as many rows as are needed, in powers of two, and give back all but a quarter's worth."""
        needed = min(len(self._asked), self.most_rows)
        if self.device.type == "cpu" and not needed <= self.num_rows <= 4 * max(needed, 1):
            self._resize(min(1 << max(needed - 1, 0).bit_length(), self.most_rows))

    def _resize(self, num_rows: int) -> None:
        """Rows that are taken move to the front of as many as are wanted."""
        kept = [row for row, owner in enumerate(self.owners) if owner is not None]
        longest = max(self.cache.lengths[kept].tolist(), default=0)
        before = self._list_rows(longest)
        owners, budgets = [self.owners[row] for row in kept], [self.budgets[row] for row in kept]
        self._allocate(num_rows)
        self._board_here = self._keep_board(self.rules, self.rules.max_length)
        for old, new in zip(before, self._list_rows(longest), strict=True):
            new[: len(kept)] = old[kept]
        self.owners[: len(kept)], self.budgets[: len(kept)] = owners, budgets

    def _list_rows(self, longest: int) -> list[torch.Tensor]:
        """All tensors whose first dimension is the rows, of caches the slots that so many steps fill."""
        cache, board = self.cache, self._board_here
        pointers = () if cache.pointers is None else (cache.pointers[:, :longest],)
        drawn = self.chances, self.landing_chances, self.steps, self.last
        written = self.actions, self.scores, self.best_actions, self.best_scores
        canvases = board.cells, board.clipboard, board.numbers.T
        slots = [each[:, :, :longest] for each in (*cache.keys, *cache.values)]
        return [*slots, *pointers, cache.lengths, self.hidden, *drawn, *written, *canvases]

    def _tell(self) -> list[Told]:
        """What is new in rows that are watched, read for all of them at once: row by row it would take as long as a
        tenth of a step."""
        rows = [(row, key) for row, key in enumerate(self.owners) if key is not None and key in self._watched]
        if not rows:
            return []
        counts = self.steps.tolist()
        sizes = [counts[row] - self._watched[key] for row, key in rows]
        places = torch.tensor([[row] for row, _ in rows], device=self.device)
        firsts = torch.tensor([[self._watched[key]] for _, key in rows], device=self.device)
        steps = (firsts + torch.arange(max(sizes), device=self.device)).clamp_(max=self.actions.shape[1] - 1)
        read = [each[places, steps].tolist() for each in (self.actions, self.scores)]
        others = [each[places, steps].tolist() for each in (self.best_actions, self.best_scores)]
        told = []
        for number, ((row, key), size) in enumerate(zip(rows, sizes, strict=True)):
            actions, scores = (tuple(each[number][:size]) for each in read)
            ranked = zip(*(each[number][:size] for each in others), strict=True) if self.num_alternatives else ()
            told.append(Told(key, self._watched[key], actions, scores, tuple(starmap(keep_valid, ranked))))
            self._watched[key] = counts[row]
        return told
