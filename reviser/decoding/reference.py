"""The paper's algorithm 1, one sequence, no cache: a page anyone can check.

    history <- START, draft actions          (one forward pass reads them all)
    repeat   logits <- model(history)[-1]
             invalid actions out, then temperature, then top-k, then draw
             a JUMP: where to, by the pointer's scores of the steps that inserted the tokens
             canvas <- executor(canvas, action); history <- history + action
    until    STOP, or no action is left

    with `scan`, a reader chooses instead: changes at the cursor if they are probable enough, else the first boundary
    where a change is, given that there is none before it, else STOP

What the fast decoder does is defined by this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from reviser.actions import JUMP, STOP, Alphabet
from reviser.canvas import Canvas, apply, valid_landings, valid_mask
from reviser.decoding.requests import Decoded, Request, check_room, find_end
from reviser.decoding.sampling import Chooser, Sampling, repeated_tokens, uniform
from reviser.model.conditioning import CanvasInput
from reviser.model.pointer import score_landings
from reviser.model.transformer import Transformer
from reviser.orders.history import follow_births
from reviser.orders.record import Draft


@torch.no_grad()
def decode(model: Transformer, draft: Draft, sampling: Sampling, max_actions: int, number: int = 0) -> Decoded:
    """Write from a draft; `max_actions` bounds the generated actions, the model's context the whole history, and
    `number` decides all random choices."""
    check_room(draft, model.config, max_actions)
    rules, canvas = draft.rules, draft.canvas
    request = Request(draft, max_actions, number)
    budget = request.budget(model.config.context)
    history, states = draft_history(draft)
    chooser = Chooser(sampling, rules.alphabet, model.embedding.weight.device)
    births = draft_births(history, states, rules.alphabet)
    actions: list[int] = []
    scores: list[float] = []
    while len(actions) < budget and not canvas.is_stopped:
        left = budget - len(actions)
        hidden = model.hidden(_tensor([history], model), show([states], model))
        valid = _tensor([valid_mask(canvas, rules, left)], model)
        landings = _tensor([find_births(canvas, births, valid_landings(canvas, rules, left))], model)
        if sampling.scan and model.pointer is not None and rules.has_jumps:
            log_p = chooser.log_probabilities(model.logits(hidden[:, -1]).float(), valid)
            pointed = score_landings(model.pointer.query(hidden[:, -1]), model.pointer.keys(hidden), landings)
            cursor = canvas.cursor if actions else None
            action, score = read_on(log_p[0].tolist(), pointed[0].tolist(), cursor, rules.alphabet, sampling.scan)
        else:
            chosen, scored = chooser.choose(
                model.logits(hidden[:, -1]).float(),
                valid,
                _chance(number, len(actions), 0, model),
                last=_tensor([actions[-1] if actions else rules.alphabet.start], model),
                grown=_tensor([len(canvas.tokens) - len(draft.tokens)], model),
                banned=_tensor([sorted(repeated_tokens(canvas, sampling.no_repeat)) or [rules.alphabet.pad]], model)
                if sampling.no_repeat
                else None,
            )
            if model.pointer is not None and int(chosen) == rules.alphabet.num_text + JUMP:
                query, keys = model.pointer.query(hidden[:, -1]), model.pointer.keys(hidden)
                chosen, landed = chooser.land(chosen, query, keys, landings, _chance(number, len(actions), 1, model))
                scored = scored + landed
            action, score = int(chosen), float(scored)
        births = follow_births(births, canvas, action, len(history), rules.alphabet)
        canvas = apply(canvas, action, rules, left)
        actions.append(action)
        scores.append(score)
        history.append(action)
        states.append(canvas)
    ended_by = find_end(request, canvas, len(actions), model.config.context)
    return Decoded(tuple(actions), tuple(scores), canvas, ended_by)


def read_on(
    log_p: Sequence[float], landings: Sequence[float], cursor: int | None, alphabet: Alphabet, least: float
) -> tuple[int, float]:
    """What a reader does next (scanning.py), and how probable that is; `cursor` is None before the first action."""
    stop, jump = alphabet.num_text + STOP, alphabet.num_text + JUMP
    p = [math.exp(each) for each in log_p]
    left = p[stop] + p[jump]
    if 1 - left >= least:
        best = max((action for action in range(len(p)) if action not in (stop, jump)), key=lambda action: p[action])
        return best, math.log(p[best])
    for boundary, share in enumerate(p[jump] * math.exp(each) for each in landings):
        if share > 0 and (cursor is None or boundary > cursor) and share >= least * left:
            return alphabet.jump(boundary), math.log(min(share / left, 1.0))
        left -= share
    return stop, math.log(p[stop])


def draft_history(draft: Draft) -> tuple[list[int], list[Canvas]]:
    """The history that writes the draft, and the canvas after each of its entries."""
    canvas, free = Canvas(), draft.rules.for_draft()
    history, states = [draft.rules.alphabet.start], [canvas]
    for action in draft.actions:
        canvas = apply(canvas, action, free)
        history.append(action)
        states.append(canvas)
    return history, states


def draft_births(history: Sequence[int], states: Sequence[Canvas], alphabet: Alphabet) -> tuple[int, ...]:
    """Which step inserted each token of a draft, given what `draft_history` gives."""
    births: tuple[int, ...] = ()
    for step, (before, action) in enumerate(zip(states, history[1:], strict=False), 1):
        births = follow_births(births, before, action, step, alphabet)
    return births


def find_births(canvas: Canvas, births: Sequence[int], landings: Sequence[int]) -> list[int]:
    """The step that each boundary of a canvas is known by: that of the token on its left, START for the front; -1 for
    what is no landing."""
    known, valid = (0, *births), set(landings)
    return [known[place] if place in valid else -1 for place in range(len(canvas.tokens) + 1)]


def _chance(number: int, step: int, draw: int, model: Transformer) -> Tensor:
    return torch.tensor([uniform(number, step, draw)], dtype=torch.float64, device=model.embedding.weight.device)


def _tensor(values: object, model: Transformer) -> Tensor:
    return torch.tensor(values, device=model.embedding.weight.device)


def show(states: Sequence[Sequence[Canvas]], model: Transformer) -> CanvasInput:
    """What the model is shown of each canvas, for rows of equally many canvases."""
    seen, none = model.config.canvas, model.config.alphabet.none
    longest = max(len(state.tokens) for row in states for state in row) + 1

    def each(look: Callable[[Canvas], object]) -> Tensor:
        return _tensor([[look(state) for state in row] for row in states], model)

    return CanvasInput(
        windows=each(lambda state: state.window(seen.window, none)) if seen.has_windows else None,
        rows=each(lambda state: _row(state, longest, none)) if seen.has_rows else None,
        cursors=each(lambda state: state.cursor) if seen.has_cursor else None,
    )


def _row(state: Canvas, size: int, cursor: int) -> list[int]:
    row = [*state.tokens[: state.cursor], cursor, *state.tokens[state.cursor :]]
    return row + [-1] * (size - len(row))
