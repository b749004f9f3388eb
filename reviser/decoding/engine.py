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

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from reviser.actions import JUMP
from reviser.canvas import Rules
from reviser.decoding.backends import Reads, board_for, chooser_for, steps_for
from reviser.decoding.board import Board
from reviser.decoding.cpu.sampling import ChoiceLog, record_actions
from reviser.decoding.cpu.step import Steps
from reviser.decoding.drafts import draft_inputs
from reviser.decoding.requests import Alternatives, Decoded, Event, Request, check_room, find_end
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


def keep_valid(ids: Sequence[int], scores: Sequence[float]) -> Alternatives:
    """Of a step's best actions those that are valid."""
    return tuple((action, score) for action, score in zip(ids, scores, strict=True) if score > -math.inf)


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


class Engine:
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
        config = model.config
        self.model, self.sampling = model, sampling
        self.stepper = steps_for(model) if steps is None else steps
        self.device, self.dtype = model.embedding.weight.device, model.embedding.weight.dtype
        self.chooser = chooser_for(sampling, config.alphabet, self.device)
        self.num_alternatives = min(num_alternatives, config.alphabet.size)
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

    def write(self, requests: Sequence[Request]) -> list[Decoded]:
        """What each request grows into, in the order of the requests."""
        done = dict(self.stream(requests))
        return [done[index] for index in range(len(requests))]

    @torch.no_grad()
    def stream(self, requests: Sequence[Request]) -> Iterator[tuple[int, Decoded]]:
        """Index and result of each request as it finishes."""
        if not requests:
            return
        for request in requests:
            check_room(request.draft, self.model.config, request.max_actions)
        board = self._board(requests)
        waiting = deque(enumerate(requests))
        look_every = 1 if self.device.type == "cpu" else HOST_EVERY
        with self._evaluating():
            self._refill(board, waiting)
            while any(owner is not None for owner in self.owners):
                # No row can go on for longer than its budget.
                count = max(min(look_every, max(self.budgets)), 1)
                for _ in range(count):
                    self._advance(board)
                self.budgets = [budget - count for budget in self.budgets]
                yield from self._collect(board, requests)
                self._refill(board, waiting)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """All rows free, and the model without dropout until the end."""
        was_training = self.model.training
        self.owners = [None] * self.num_rows
        if was_training:
            self.model.eval()
        try:
            yield
        finally:
            if was_training:
                self.model.train()

    def _board(self, requests: Sequence[Request]) -> Board:
        rules = [request.draft.rules for request in requests]
        if any(given.operators != rules[0].operators or given.alphabet != rules[0].alphabet for given in rules):
            raise ConfigError("requests of one call must share their alphabet and operators; split them")
        return self._keep_board(rules[0], max(given.max_length for given in rules))

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

    def _refill(self, board: Board, waiting: deque[tuple[int, Request]]) -> None:
        """Give waiting requests to free rows, and read their drafts in one forward pass."""
        free = [row for row, owner in enumerate(self.owners) if owner is None][: len(waiting)]
        if not free:
            return
        taken = [waiting.popleft() for _ in free]
        budgets = [each.budget(self.model.config.context) for _, each in taken]
        drafts = [each.draft for _, each in taken]
        ages = [len(draft.actions) + 1 for draft in drafts]
        board.load(free, [draft.canvas for draft in drafts], [draft.rules for draft in drafts], budgets, ages=ages)
        places = torch.tensor(free, device=self.device)
        self._prefill(drafts, places)
        numbers = seed_tensor([each.number for _, each in taken], self.device)
        # All of a row's random numbers at once: made step by step they would cost as much as the board.
        steps = torch.arange(self.chances.shape[1], device=self.device)
        self.chances.index_copy_(0, places, uniforms(numbers[:, None], steps))
        if self.model.pointer is not None:
            self.landing_chances.index_copy_(0, places, uniforms(numbers[:, None], steps, draw=1))
        self.steps.index_fill_(0, places, 0)
        self.last.index_fill_(0, places, self.model.config.alphabet.start)
        for row, (index, _), budget in zip(free, taken, budgets, strict=True):
            self.owners[row], self.budgets[row] = index, budget

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

    def _step(self, board: Board) -> None:
        """One action in every row; nothing here makes the host wait."""
        self._take(board, self._choose(board))

    def _choose(self, board: Board) -> Chosen:
        sampling, valid = self.sampling, board.valid()
        log_p = self.chooser.log_probabilities(self.stepper.logits(self.hidden), valid)
        if sampling.scan and self.cache.pointers is not None and self._has_landings(board):
            landings = score_landings(self._queries(), self.cache.pointers, board.landings())
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
        assert self.model.pointer is not None
        return self.model.pointer.query(self.hidden)

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
        landings = score_landings(self._queries(), self.cache.pointers, board.landings())
        return torch.cat([log_p[:, :-1], log_p[:, -1:] + landings], dim=1)

    def _has_landings(self, board: Board) -> bool:
        return self.cache.pointers is not None and "jump" in board.operators

    def _column(self, board: Board) -> Tensor:
        """[B, 1] where this step's records go; those of idle rows to the last column, which nobody reads."""
        return torch.where(board.left > 0, self.steps, self.actions.shape[1] - 1)[:, None]

    @torch.no_grad()
    def events(self, request: Request) -> Iterator[Event]:
        """Each action of one request as it is chosen."""
        check_room(request.draft, self.model.config, request.max_actions)
        board, step = self._board([request]), 0
        with self._evaluating():
            self._refill(board, deque([(0, request)]))
            while int(board.left[0]) > 0:
                choice = self._choose(board)
                self._take(board, choice)
                [alternatives] = self._alternatives(0, slice(step, step + 1))
                score = float(self.scores[0, step])
                yield Event(step, int(choice.actions[0]), score, alternatives, board.canvas(0))
                step += 1

    def _alternatives(self, row: int, steps: slice) -> tuple[Alternatives, ...]:
        """What was recorded of some steps of a row; invalid actions are no alternatives."""
        ids, scores = (each[row, steps].tolist() for each in (self.best_actions, self.best_scores))
        return tuple(starmap(keep_valid, zip(ids, scores, strict=True)))

    def _shown(self, board: Board) -> CanvasInput:
        canvas = self.model.config.canvas
        return CanvasInput(
            windows=board.windows(canvas.window)[:, None] if canvas.has_windows else None,
            rows=board.rows()[:, None] if canvas.has_rows else None,
            cursors=board.cursor[:, None] if canvas.has_cursor else None,
        )

    def _collect(
        self, board: Board, requests: Sequence[Request] | Mapping[int, Request]
    ) -> Iterator[tuple[int, Decoded]]:
        """The results of rows that have finished, which are free from then on."""
        left = board.left.tolist()
        rows = [row for row, owner in enumerate(self.owners) if owner is not None and left[row] == 0]
        if not rows:
            return
        places = torch.tensor(rows, device=self.device)
        counts = self.steps.index_select(0, places).tolist()
        actions = self.actions.index_select(0, places).cpu().numpy()
        scores = self.scores.index_select(0, places).cpu().numpy()
        for number, (row, canvas) in enumerate(zip(rows, board.canvases(rows), strict=True)):
            index, count = self.owners[row], counts[number]
            self.owners[row] = None
            assert index is not None
            chosen, scored = (tuple(each[number, :count].tolist()) for each in (actions, scores))
            ended_by = find_end(requests[index], canvas, count, self.model.config.context)
            others = self._alternatives(row, slice(count)) if self.num_alternatives else ()
            yield index, Decoded(chosen, scored, canvas, ended_by, others)
