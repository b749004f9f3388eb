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
from dataclasses import dataclass

import torch
from torch import Tensor

from reviser.canvas import Canvas, apply, valid_mask
from reviser.config import ModelConfig
from reviser.decoding.sampling import Chooser, Sampling, repeated_tokens, uniform
from reviser.errors import ConfigError
from reviser.model.conditioning import CanvasInput
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a decoder wrote: generated actions, their log-probabilities, the canvas, whether it stopped itself."""

    actions: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    canvas: Canvas
    has_stopped: bool


@torch.no_grad()
def decode(model: Transformer, draft: Draft, sampling: Sampling, max_actions: int, number: int = 0) -> Decoded:
    """Write from a draft; `max_actions` bounds the generated actions, the model's context the whole history, and
    `number` decides all random choices."""
    check_room(draft, model.config, max_actions)
    rules, canvas = draft.rules, draft.canvas
    budget = min(max_actions, model.config.context - 1 - len(draft.actions))
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
    return Decoded(tuple(actions), tuple(scores), canvas, canvas.is_stopped)


def check_room(draft: Draft, config: ModelConfig, max_actions: int) -> None:
    size, room = len(draft.tokens), draft.rules.max_length
    if max_actions < 1:
        raise ConfigError(f"max_actions={max_actions} must be at least 1")
    if len(draft.actions) + 1 >= config.context:
        raise ConfigError(
            f"a prompt of {size} tokens leaves no room in a context of {config.context} positions; shorten it"
        )
    if size > room:
        raise ConfigError(f"a prompt of {size} tokens does not fit a canvas of {room}; shorten it")
    if config.canvas.has_rows and room > config.max_length:
        raise ConfigError(f"a canvas of {room} tokens is more than the {config.max_length} that this model can see")


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
