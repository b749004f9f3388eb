"""The batched decoder: many drafts at once, keys and values cached, rows refilled as sequences stop.

Each row of a `Board` holds one sequence. A step chooses an action for every row from the hidden state behind its
history, executes it, and feeds it to the model; a row that has finished takes the next request, whose draft is read
in one forward pass. For a JUMP the cached keys of the model's pointer say where to. What is chosen depends on the
row's own scores and on (seed, step) alone, so a result does not depend on its neighbours, and equals what
reference.py writes.

>>> from reviser.config import ModelConfig; from reviser.canvas import Rules
>>> config = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=40)
>>> draft = Draft.continuation([104, 105], Rules(config.alphabet, max_length=20))
>>> [written] = Engine(Transformer(config), GREEDY).write([Request(draft, max_actions=3)])
>>> len(written.actions) <= 3
True

Shape letters: B rows, d width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from reviser.actions import JUMP
from reviser.canvas import Rules
from reviser.decoding.backends import Reads, board_for, chooser_for, steps_for
from reviser.decoding.board import Board
from reviser.decoding.cpu.array_chooser import ChoiceLog, record_actions, score_landing_arrays
from reviser.decoding.cpu.step import Steps
from reviser.decoding.drafts import draft_inputs
from reviser.decoding.requests import Decoded, Event, Request
from reviser.decoding.row_loop import RowLoop
from reviser.decoding.sampling import GREEDY, PAPER, Sampling, seed_tensor, uniforms
from reviser.decoding.scanning import scan
from reviser.errors import ConfigError
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput
from reviser.model.pointer import score_landings
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft

if TYPE_CHECKING:
    from reviser.decoding.gpu.graph import Graph

__all__ = ["Engine", "Request", "GREEDY", "PAPER"]

HOST_EVERY = 8
"""Steps between two looks at which rows have finished, where a look makes the host wait for the device."""


class Chosen(NamedTuple):
    """What was chosen in every row."""

    rows: Tensor
    """[B]: all JUMPs as the row they share."""
    actions: Tensor
    """[B]."""
    log_p: Tensor
    """[B, A]: the log-probabilities that rows were drawn from."""
    landed: Tensor | None
    """[B]: of where JUMPs go, 0 for other actions; None where nothing jumps."""


class Engine(RowLoop):
    """Decodes requests with one model and one way of sampling, `num_rows` at a time.

    `steps` takes the model's steps and, where it can (`Reads`), reads drafts; None picks the fastest exact ones for
    this model and device. `num_alternatives` is how many of the most probable actions are kept for every step.
    """

    def __init__(
        self,
        model: Transformer,
        sampling: Sampling = PAPER,
        num_rows: int = 16,
        steps: Steps | None = None,
        num_alternatives: int = 0,
    ) -> None:
        if num_rows < 1:
            raise ConfigError(f"num_rows={num_rows} must be at least 1")
        config = self.config = model.config
        self.model, self.sampling = model, sampling
        self.stepper = steps_for(model) if steps is None else steps
        self.device, self.dtype = model.embedding.weight.device, model.embedding.weight.dtype
        self.chooser = chooser_for(sampling, config.alphabet, self.device)
        self.num_alternatives = min(num_alternatives, config.alphabet.size)
        self.look_every = 1 if self.device.type == "cpu" else HOST_EVERY
        self._allocate(num_rows)

    def _allocate(self, num_rows: int) -> None:
        """All that is kept for each row, empty."""
        config = self.model.config
        self.num_rows = num_rows
        self.cache = Cache.empty(config, num_rows, self.device, self.dtype)
        self.hidden = torch.zeros(num_rows, config.width, device=self.device, dtype=self.dtype)
        self.chances, self.landing_chances = (
            torch.zeros(num_rows, config.context + 1, dtype=torch.float64, device=self.device) for _ in range(2)
        )
        self._nowhere = torch.zeros(num_rows, device=self.device)
        self.steps = torch.zeros(num_rows, dtype=torch.int64, device=self.device)
        self.last = torch.full((num_rows,), config.alphabet.start, device=self.device)
        self.actions = torch.zeros(num_rows, config.context + 1, dtype=torch.int64, device=self.device)
        self.scores = torch.zeros(num_rows, config.context + 1, device=self.device)
        recorded = self.actions, self.scores, self.steps, self.last
        self._record_arrays = ChoiceLog(*(each.numpy() for each in recorded)) if self.device.type == "cpu" else None
        shape = num_rows, config.context + 1, self.num_alternatives
        self.best_actions = torch.zeros(shape, dtype=torch.int64, device=self.device)
        self.best_scores = torch.zeros(shape, device=self.device)
        self.owners: list[int | None] = [None] * num_rows
        self.budgets = [0] * num_rows
        self._kept: Board | None = None
        self._graph: Graph | None = None

    @torch.no_grad()
    def stream(self, requests: Sequence[Request]) -> Iterator[tuple[int, Decoded]]:
        """Index and result of each request as it finishes."""
        yield from super().stream(requests)

    @torch.no_grad()
    def events(self, request: Request) -> Iterator[Event]:
        """Each action of one request as it is chosen."""
        yield from super().events(request)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """All rows free, and the model without dropout until the end."""
        was_training = self.model.training
        if was_training:
            self.model.eval()
        try:
            with super()._working():
                yield
        finally:
            if was_training:
                self.model.train()

    def _keep_board(self, rules: Rules, longest: int) -> Board:
        """The board of the last call where it fits: a graph knows the tensors it was captured with, and elsewhere
        making a board takes as long as a step."""
        kept, is_here = self._kept, self.device.type == "cpu"
        if (
            kept is None
            or (kept.alphabet, kept.operators) != (rules.alphabet, rules.operators)
            or kept.max_length < longest
            # A longer board is a slower one.
            or (is_here and kept.max_length > longest)
        ):
            longest = longest if is_here else max(longest, self.model.config.max_length)
            kept = board_for(rules, self.num_rows, longest, self.device, self.model.config.canvas.window)
            self._kept, self._graph = kept, None
        return kept

    def _begin(self, rows: Sequence[int], drafts: Sequence[Draft], numbers: Sequence[int]) -> None:
        places = torch.tensor(rows, device=self.device)
        self._prefill(drafts, places)
        seeds = seed_tensor(numbers, self.device)
        # All of a row's random numbers at once: made step by step they would cost as much as the board.
        steps = torch.arange(self.chances.shape[1], device=self.device)
        self.chances.index_copy_(0, places, uniforms(seeds[:, None], steps))
        if self.model.pointer is not None:
            self.landing_chances.index_copy_(0, places, uniforms(seeds[:, None], steps, draw=1))
        self.steps.index_fill_(0, places, 0)
        self.last.index_fill_(0, places, self.model.config.alphabet.start)

    def _prefill(self, drafts: Sequence[Draft], places: Tensor) -> None:
        """Keys, values and last hidden states of drafts, all read at once, into their rows."""
        inputs = draft_inputs(drafts, self.model.config, self.device)
        if isinstance(self.stepper, Reads):
            self.hidden.index_copy_(0, places, self.stepper.read(inputs, places, self.cache).to(self.dtype))
            return
        longest, counts = inputs.actions.shape[1], inputs.counts
        cache = Cache.empty(self.model.config, len(drafts), self.device, self.dtype, context=longest)
        hidden = self.model.step(inputs.actions, inputs.canvas, cache, counts)
        for layer, (keys, values) in enumerate(zip(cache.keys, cache.values, strict=True)):
            self.cache.keys[layer][places, :, :longest] = keys[:, :, :longest]
            self.cache.values[layer][places, :, :longest] = values[:, :, :longest]
        if self.cache.pointers is not None and cache.pointers is not None:
            self.cache.pointers[places, :longest] = cache.pointers[:, :longest]
        self.cache.lengths.index_copy_(0, places, counts)
        final = hidden.gather(1, (counts - 1)[:, None, None].expand(-1, 1, hidden.shape[-1]))[:, 0]
        self.hidden.index_copy_(0, places, final.to(self.dtype))

    def _advance(self, board: Board) -> None:
        """A step, as a CUDA graph where there is a GPU."""
        if self.device.type != "cuda":
            self._step(board)
            return
        if self._graph is None:
            from reviser.decoding.gpu.graph import Graph

            self._graph = Graph(partial(self._step, board))
        self._graph()

    def _step(self, board: Board) -> Tensor:
        """One action in every row; nothing here makes the host wait."""
        choice = self._choose(board)
        self._take(board, choice)
        return choice.actions

    def _choose(self, board: Board) -> Chosen:
        sampling, valid = self.sampling, board.valid()
        log_p = self.chooser.log_probabilities(self.stepper.logits(self.hidden), valid)
        if sampling.scan and self.cache.pointers is not None and self._has_landings(board):
            landings = self._score_landings(board)
            found = scan(log_p, landings, board.cursor, self.steps == 0, self.model.config.alphabet, sampling.scan)
            return Chosen(found.rows, found.actions, log_p, found.landed)
        rows = self.chooser.draw(
            log_p,
            valid,
            self.chances.gather(1, self.steps[:, None])[:, 0],
            last=self.last,
            grown=board.grown if sampling.min_tokens else None,
            banned=board.repeated(sampling.no_repeat) if sampling.no_repeat else None,
        )
        actions, landed = self._land(board, rows)
        return Chosen(rows, actions, log_p, landed)

    def _land(self, board: Board, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Actions [B] of the chosen rows [B], with the log-probabilities of where JUMPs go."""
        keys, jump = self.cache.pointers, self.model.config.alphabet.num_text + JUMP
        if keys is None or not self._has_landings(board):
            return rows, None
        if self.device.type == "cpu" and jump not in rows.tolist():
            return rows, None
        chances = self.landing_chances.gather(1, self.steps[:, None])[:, 0]
        return self.chooser.land(rows, self._queries(), keys, board.landings(), chances)

    def _queries(self) -> Tensor:
        pointer = self.model.pointer
        assert pointer is not None
        if self.device.type == "cpu":
            # Row by row: a product of matrices may add in another order when there are more rows.
            return torch.stack([pointer.query(row) for row in self.hidden])
        return pointer.query(self.hidden)

    def _score_landings(self, board: Board) -> Tensor:
        """[B, L + 1] the log-probabilities of where a JUMP of each row goes."""
        keys = self.cache.pointers
        assert keys is not None
        queries, births = self._queries(), board.landings()
        if self.device.type == "cpu" and keys.dtype == torch.float32:
            return torch.from_numpy(score_landing_arrays(*(each.numpy() for each in (queries, keys, births))))
        return score_landings(queries, keys, births)

    def _take(self, board: Board, choice: Chosen) -> None:
        """Record actions and their scores, execute them, and take the model's next step."""
        self._record(board, choice)
        actions = choice.actions
        board.apply(actions)
        is_here = self.device.type == "cpu"
        if is_here and not any(board.left.tolist()):
            return  # nobody reads what would come
        hidden = self.stepper.step(actions[:, None], self._shown(board), self.cache, board.left.clamp(max=1))[:, 0]
        # A graph knows one tensor; elsewhere a copy would only take time.
        self.hidden = hidden if is_here else self.hidden.copy_(hidden)

    def _record(self, board: Board, choice: Chosen) -> None:
        rows, actions, log_p, landed = choice
        if self.num_alternatives:
            self._record_alternatives(board, log_p)
        if self._record_arrays is not None:
            more = self._nowhere if landed is None else landed
            record_actions(self._record_arrays, board.left.numpy(), actions.numpy(), log_p.numpy(), more.numpy())
            return
        column, scores = self._column(board), log_p.gather(1, rows[:, None])
        self.actions.scatter_(1, column, actions[:, None])
        self.scores.scatter_(1, column, scores if landed is None else scores + landed[:, None])
        self.last.copy_(actions)
        self.steps.add_(board.left > 0)

    def _record_alternatives(self, board: Board, log_p: Tensor) -> None:
        values, ids = self._split_jumps(board, log_p).topk(self.num_alternatives)
        # Behind the actions before JUMP's row stand its landings, whose ids begin one later.
        ids = ids + (ids >= self.model.config.alphabet.size - 1) if self._has_landings(board) else ids
        places = self._column(board)[:, :, None].expand(-1, 1, self.num_alternatives)
        self.best_actions.scatter_(1, places, ids[:, None])
        self.best_scores.scatter_(1, places, values[:, None])

    def _split_jumps(self, board: Board, log_p: Tensor) -> Tensor:
        """The log-probabilities [B, A] with those of all landings in place of the last row's."""
        if self.cache.pointers is None or not self._has_landings(board):
            return log_p
        return torch.cat([log_p[:, :-1], log_p[:, -1:] + self._score_landings(board)], dim=1)

    def _has_landings(self, board: Board) -> bool:
        return self.cache.pointers is not None and "jump" in board.operators

    def _column(self, board: Board) -> Tensor:
        """[B, 1] where this step's records go; those of idle rows to the last column, which nobody reads."""
        return torch.where(board.left > 0, self.steps, self.actions.shape[1] - 1)[:, None]

    def _shown(self, board: Board) -> CanvasInput:
        canvas = self.model.config.canvas
        return CanvasInput(
            windows=board.windows(canvas.window)[:, None] if canvas.has_windows else None,
            rows=board.rows()[:, None] if canvas.has_rows else None,
            cursors=board.cursor[:, None] if canvas.has_cursor else None,
        )

    def _recorded(self, rows: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
        places = torch.tensor(rows, device=self.device)
        counts = self.steps.index_select(0, places).tolist()
        actions, scores = (each.index_select(0, places).cpu().numpy() for each in (self.actions, self.scores))
        for number, count in enumerate(counts):
            yield tuple(actions[number, :count].tolist()), tuple(scores[number, :count].tolist())
