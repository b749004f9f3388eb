"""The paper's algorithm 1, one sequence, no cache: a page anyone can check.

    history <- START, draft actions          (one forward pass reads them all)
    repeat   logits <- model(history)[-1]
             invalid actions out, then temperature, then top-k, then draw
             canvas <- executor(canvas, action); history <- history + action
    until    STOP, or no action is left

What the fast decoder does is defined by this one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from reviser.canvas import Canvas, apply, valid_mask
from reviser.decoding.requests import Decoded, Request, check_room, find_end
from reviser.decoding.sampling import Chooser, Sampling, repeated_tokens, uniform
from reviser.model.conditioning import CanvasInput
from reviser.model.transformer import Transformer
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
    actions: list[int] = []
    scores: list[float] = []
    while len(actions) < budget and not canvas.is_stopped:
        logits = model(_tensor([history], model), show([states], model))[:, -1].float()
        mask = _tensor([valid_mask(canvas, rules, budget - len(actions))], model)
        action, score = chooser.choose(
            logits,
            mask,
            torch.tensor([uniform(number, len(actions))], dtype=torch.float64, device=logits.device),
            last=_tensor([actions[-1] if actions else rules.alphabet.start], model),
            grown=_tensor([len(canvas.tokens) - len(draft.tokens)], model),
            banned=_tensor([sorted(repeated_tokens(canvas, sampling.no_repeat)) or [rules.alphabet.pad]], model)
            if sampling.no_repeat
            else None,
        )
        canvas = apply(canvas, int(action), rules, budget - len(actions))
        actions.append(int(action))
        scores.append(float(score))
        history.append(int(action))
        states.append(canvas)
    ended_by = find_end(request, canvas, len(actions), model.config.context)
    return Decoded(tuple(actions), tuple(scores), canvas, ended_by)


def draft_history(draft: Draft) -> tuple[list[int], list[Canvas]]:
    """The history that writes the draft, and the canvas after each of its entries."""
    canvas, free = Canvas(), draft.rules.for_draft()
    history, states = [draft.rules.alphabet.start], [canvas]
    for action in draft.actions:
        canvas = apply(canvas, action, free)
        history.append(action)
        states.append(canvas)
    return history, states


def _tensor(values: object, model: Transformer) -> Tensor:
    return torch.tensor(values, device=model.embedding.weight.device)


def show(states: Sequence[Sequence[Canvas]], model: Transformer) -> CanvasInput:
    """What the model is shown of each canvas, for rows of equally many canvases."""
    config, none = model.config, model.config.alphabet.none
    if config.canvas.has_windows:
        windows = [[state.window(config.canvas.window, none) for state in row] for row in states]
        return CanvasInput(windows=_tensor(windows, model))
    if config.canvas.has_rows:
        longest = max(len(state.tokens) for row in states for state in row) + 1
        return CanvasInput(rows=_tensor([[_row(state, longest, none) for state in row] for row in states], model))
    return CanvasInput()


def _row(state: Canvas, size: int, cursor: int) -> list[int]:
    row = [*state.tokens[: state.cursor], cursor, *state.tokens[state.cursor :]]
    return row + [-1] * (size - len(row))
