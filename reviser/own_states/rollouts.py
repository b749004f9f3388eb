"""Rollouts: the present weights of a model act on drafts, many at a time, and everything they did is told.

    drafts, weights, a seed  ->  of each draft: actions, log-probabilities, the canvas behind them, what ended it

A `Roller` keeps an engine and a copy of the weights in the engine's own precision. `take` copies weights from a model
that is being trained, in memory and in place, so kernels and CUDA graphs stay as they are. What is rolled out depends
on the weights, the draft, the seed and the draft's number alone.

A `Guide` may act instead of the model in some states: an oracle that helps out, or that takes the first steps.

>>> from reviser.config import ModelConfig; from reviser.canvas import Rules
>>> config = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=40)
>>> roller = Roller(config, num_rows=2)
>>> roller.take(Transformer(config))
>>> [rollout] = roller.roll([Draft.continuation([104, 105], Rules(config.alphabet, max_length=20))], seed=1)
>>> len(rollout.actions) == len(rollout.log_probabilities) == len(rollout.is_guided)
True
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reviser.actions import JUMP
from reviser.canvas import Canvas
from reviser.config import ModelConfig
from reviser.decoding.board import Board
from reviser.decoding.engine import Chosen, Engine
from reviser.decoding.requests import EndedBy, Request
from reviser.decoding.sampling import Sampling
from reviser.model.pointer import score_landings
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft
from reviser.orders.rng import Random

Array = npt.NDArray[Any]
OWN = Sampling(temperature=1.0, top_k=0)
"""The model's own distribution: a log-probability is that of the action that was drawn."""
NOBODY = -1
"""What a guide says where it has no advice."""


class Guide(Protocol):
    """Acts instead of the model in some states; drafts are named by their number in the call."""

    def is_asked(self, numbers: Array, steps: Array) -> Array:
        """Of drafts and the numbers of their next actions: which of these it wants to decide, as booleans."""
        ...

    def choose(self, numbers: Sequence[int], steps: Sequence[int], canvases: Sequence[Canvas]) -> Sequence[int]:
        """A valid action for each of those, or NOBODY to leave it to the model."""
        ...


@dataclass(frozen=True, slots=True)
class Rollout:
    """What became of a draft."""

    draft: Draft
    actions: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    """The model's own, before temperature and truncation, of guided actions too."""
    is_guided: tuple[bool, ...]
    """Which actions the guide chose."""
    canvas: Canvas
    ended_by: EndedBy

    @property
    def has_stopped(self) -> bool:
        """Whether the last action is STOP; otherwise the context or `max_actions` ended it."""
        return self.canvas.is_stopped


class Roller:
    """Rolls weights out, `num_rows` drafts at a time; bf16 on a GPU and float32 on a CPU."""

    def __init__(
        self,
        config: ModelConfig,
        device: torch.device | str = "cpu",
        num_rows: int = 256,
        sampling: Sampling = OWN,
        max_actions: int = 256,
    ) -> None:
        place = torch.device(device)
        dtype = torch.bfloat16 if place.type == "cuda" else torch.float32
        self.model = Transformer(config).to(place, dtype).eval()
        self.max_actions = max_actions
        self.engine = GuidedEngine(self.model, sampling, num_rows)

    @torch.no_grad()
    def take(self, model: Transformer) -> None:
        """Use the present weights of a model of the same config from now on."""
        given = dict(model.named_parameters())
        for name, own in self.model.named_parameters():
            own.copy_(given[name])

    def roll(self, drafts: Sequence[Draft], seed: int, guide: Guide | None = None) -> list[Rollout]:
        """What the weights make of each draft, in the order of the drafts."""
        done = dict(self.stream(drafts, seed, guide))
        return [done[number] for number in range(len(drafts))]

    def stream(self, drafts: Sequence[Draft], seed: int, guide: Guide | None = None) -> Iterator[tuple[int, Rollout]]:
        """Number and rollout of each draft as it ends."""
        requests = [
            Request(draft, self.max_actions, Random.of(seed, number).state) for number, draft in enumerate(drafts)
        ]
        self.engine.guide, self.engine.guided = guide, {}
        for number, done in self.engine.stream(requests):
            guided = self.engine.guided.pop(number, set())
            flags = tuple(step in guided for step in range(len(done.actions)))
            yield (
                number,
                Rollout(drafts[number], done.actions, done.log_probabilities, flags, done.canvas, done.ended_by),
            )


class GuidedEngine(Engine):
    """An engine in which a guide may choose; without one it writes what any engine writes."""

    guide: Guide | None = None

    def _allocate(self, num_rows: int) -> None:
        super()._allocate(num_rows)
        self.guided: dict[int, set[int]] = {}
        """Of each draft that is being rolled out, the actions that the guide chose, by number."""
        self.advice = torch.full((num_rows,), NOBODY, device=self.device)
        self._taken = np.zeros(num_rows, np.int64)

    def _refill(self, board: Board, waiting: deque[tuple[int, Request]]) -> None:
        free = [row for row, owner in enumerate(self.owners) if owner is None]
        super()._refill(board, waiting)
        self._taken[free] = 0

    def _advance(self, board: Board) -> None:
        if self.guide is not None:
            self._ask(board, self.guide)
        self._taken += 1
        super()._advance(board)

    def _ask(self, board: Board, guide: Guide) -> None:
        """Have the guide decide where it wants to; this waits for the device, so it is done for no other step."""
        busy = np.array([row for row, owner in enumerate(self.owners) if owner is not None], np.int64)
        numbers = np.array([self.owners[row] for row in busy], np.int64)
        is_asked = guide.is_asked(numbers, self._taken[busy])
        rows = busy[is_asked].tolist()
        if not rows:
            return
        asked = zip(rows, numbers[is_asked].tolist(), board.canvases(rows), strict=True)
        going = [
            (row, number, int(self._taken[row]), canvas) for row, number, canvas in asked if not canvas.is_stopped
        ]
        advice = np.full(self.num_rows, NOBODY, np.int64)
        if going:
            _, wanted, steps, canvases = zip(*going, strict=True)
            for (row, number, step, _), action in zip(going, guide.choose(wanted, steps, canvases), strict=True):
                advice[row] = action
                if action != NOBODY:
                    self.guided.setdefault(number, set()).add(step)
        self.advice.copy_(torch.from_numpy(advice))

    def _choose(self, board: Board) -> Chosen:
        chosen = super()._choose(board)
        if self.device.type == "cpu" and not bool((self.advice != NOBODY).any()):
            return chosen
        advice, shared = self.advice.clone(), self.model.config.alphabet.num_text + JUMP
        # A graph clears it for the next step.
        self.advice.fill_(NOBODY)
        is_guided = advice != NOBODY
        actions = torch.where(is_guided, advice, chosen.actions)
        rows = torch.where(is_guided, advice.clamp(max=shared), chosen.rows)
        return Chosen(rows, actions, chosen.log_p, self._land_guided(board, actions, is_guided, chosen.landed))

    def _land_guided(self, board: Board, actions: Tensor, is_guided: Tensor, landed: Tensor | None) -> Tensor | None:
        """[B] log-probabilities of where all actions jump to, guided ones too."""
        keys, first = self.cache.pointers, self.model.config.alphabet.jump(0)
        if keys is None or not self._has_landings(board):
            return landed
        log_p = score_landings(self._queries(), keys, board.landings())
        places = (actions - first).clamp(min=0, max=log_p.shape[1] - 1)
        guided = log_p.gather(1, places[:, None])[:, 0].where(actions >= first, 0.0)
        return torch.where(is_guided, guided, self._nowhere if landed is None else landed)
