"""The engine on arrays: what `Engine` writes with the kernels of a CPU, without torch.

Importing torch takes longer than reading a model and correcting a sentence. This engine has the numba kernels and
numpy alone, so a command begins to write that much sooner, and a step calls no operator of torch.

Shape letters: B rows, A actions, L tokens of a canvas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from reviser.actions import JUMP
from reviser.canvas import Rules
from reviser.decoding.cpu.array_board import ArrayBoard
from reviser.decoding.cpu.array_chooser import (
    ArrayChooser,
    ChoiceLog,
    record_actions,
    scan_arrays,
    score_landing_arrays,
    uniform_arrays,
)
from reviser.decoding.cpu.cells import KERNEL_OPERATORS, Array
from reviser.decoding.cpu.kernel_model import KernelCache, KernelModel
from reviser.decoding.drafts import draft_arrays
from reviser.decoding.presets import PAPER, Sampling
from reviser.decoding.row_loop import RowLoop
from reviser.errors import ConfigError
from reviser.orders.record import Draft


class ArraysChosen(NamedTuple):
    """engine.py's `Chosen` as arrays."""

    rows: Array
    actions: Array
    log_p: Array
    landed: Array


class ArrayEngine(RowLoop):
    """Decodes requests with one model and one way of sampling, `num_rows` at a time."""

    def __init__(
        self, model: KernelModel, sampling: Sampling = PAPER, num_rows: int = 16, num_alternatives: int = 0
    ) -> None:
        if num_rows < 1:
            raise ConfigError(f"num_rows={num_rows} must be at least 1")
        config = self.config = model.config
        self.model, self.sampling, self.num_rows = model, sampling, num_rows
        self.chooser = ArrayChooser(sampling, config.alphabet)
        self.num_alternatives = min(num_alternatives, config.alphabet.size)
        self.cache = KernelCache.empty(config, num_rows)
        self.hidden = np.zeros((num_rows, config.width), np.float32)
        self.chances, self.landing_chances = (np.zeros((num_rows, config.context + 1)) for _ in range(2))
        self.steps = np.zeros(num_rows, np.int64)
        self.last = np.full(num_rows, config.alphabet.start)
        self.actions = np.zeros((num_rows, config.context + 1), np.int64)
        self.scores = np.zeros((num_rows, config.context + 1), np.float32)
        self._log = ChoiceLog(self.actions, self.scores, self.steps, self.last)
        self._nowhere = np.zeros(num_rows, np.float32)
        shape = num_rows, config.context + 1, self.num_alternatives
        self.best_actions, self.best_scores = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        self.owners: list[int | None] = [None] * num_rows
        self.budgets = [0] * num_rows
        self._kept: ArrayBoard | None = None

    @staticmethod
    def knows(rules: Rules) -> bool:
        """Whether it has a board for such rules."""
        return rules.operators <= KERNEL_OPERATORS

    def _keep_board(self, rules: Rules, longest: int) -> ArrayBoard:
        """The board of the last call where it is of that length: to make one takes as long as a step."""
        kept = self._kept
        wanted = rules.alphabet, rules.operators, longest
        if kept is None or (kept.alphabet, kept.operators, kept.max_length) != wanted:
            kept = self._kept = ArrayBoard(rules.alphabet, rules.operators, self.num_rows, longest)
        return kept

    def _begin(self, rows: Sequence[int], drafts: Sequence[Draft], numbers: Sequence[int]) -> None:
        places = np.array(rows, np.int64)
        self.hidden[places] = self.model.read(draft_arrays(drafts, self.config), places, self.cache)
        # All of a row's random numbers at once: made step by step they would cost as much as the board.
        steps = np.arange(self.chances.shape[1])
        self.chances[places] = uniform_arrays(numbers, steps)
        if self.cache.pointers is not None:
            self.landing_chances[places] = uniform_arrays(numbers, steps, draw=1)
        self.steps[places], self.last[places] = 0, self.config.alphabet.start

    def _advance(self, board: ArrayBoard) -> None:
        self._step(board)

    def _step(self, board: ArrayBoard) -> Array:
        choice = self._choose(board)
        if self.num_alternatives:
            self._record_alternatives(board, choice.log_p)
        record_actions(self._log, board.left, choice.actions, choice.log_p, choice.landed)
        board.apply(choice.actions)
        rows = board.left.nonzero()[0]
        if len(rows):  # or nobody reads what would come
            canvas = self.config.canvas
            windows = board.windows(canvas.window)[:, None] if canvas.has_windows else None
            self.hidden = self.model.step(choice.actions, windows, self.cache, rows)
        return choice.actions

    def _choose(self, board: ArrayBoard) -> ArraysChosen:
        sampling, valid = self.sampling, board.valid()
        log_p = self.chooser.log_probabilities(self.model.logits(self.hidden), valid)
        if sampling.scan and self._has_landings(board):
            found = scan_arrays(
                log_p, self._score_landings(board), board.cursor, self.steps == 0, self.config.alphabet, sampling.scan
            )
            return ArraysChosen(found.rows, found.actions, log_p, found.landed)
        rows = self.chooser.draw(
            log_p,
            valid,
            self.chances[np.arange(self.num_rows), self.steps],
            last=self.last,
            grown=board.grown if sampling.min_tokens else None,
            banned=board.repeated(sampling.no_repeat) if sampling.no_repeat else None,
        )
        if not self._has_landings(board) or not (rows == self.config.alphabet.num_text + JUMP).any():
            return ArraysChosen(rows, rows, log_p, self._nowhere)
        chances = self.landing_chances[np.arange(self.num_rows), self.steps]
        queries, births = self.model.queries(self.hidden), board.landings()
        actions, landed = self.chooser.land(rows, queries, self._keys(), births, chances)
        return ArraysChosen(rows, actions, log_p, landed)

    def _record_alternatives(self, board: ArrayBoard, log_p: Array) -> None:
        """The best actions of rows that have any left, highest first and of equals the first."""
        num_others = log_p.shape[1] - 1
        if self._has_landings(board):
            # Behind the actions before JUMP's row stand its landings, whose ids begin one later.
            log_p = np.concatenate([log_p[:, :-1], log_p[:, -1:] + self._score_landings(board)], axis=1)
        for row in board.left.nonzero()[0].tolist():
            ids = _highest(log_p[row], self.num_alternatives)
            step = self.steps[row]
            self.best_scores[row, step] = log_p[row, ids]
            self.best_actions[row, step] = ids + (ids >= num_others if self._has_landings(board) else 0)

    def _score_landings(self, board: ArrayBoard) -> Array:
        return score_landing_arrays(self.model.queries(self.hidden), self._keys(), board.landings())

    def _keys(self) -> Array:
        assert self.cache.pointers is not None
        return self.cache.pointers

    def _has_landings(self, board: ArrayBoard) -> bool:
        return self.cache.pointers is not None and "jump" in board.operators

    def _recorded(self, rows: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
        for row in rows:
            count = int(self.steps[row])
            yield tuple(self.actions[row, :count].tolist()), tuple(self.scores[row, :count].tolist())


def _highest(scores: Array, count: int) -> Array:
    """The ids of the highest scores, falling."""
    ids = np.argpartition(scores, -count)[-count:] if count < len(scores) else np.arange(len(scores))
    return ids[np.lexsort((ids, -scores[ids]))]
