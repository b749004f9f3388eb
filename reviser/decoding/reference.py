"""The paper's algorithm 1, one sequence, no cache: a page anyone can check.

    history <- START, seed actions          (one forward pass reads them all)
    repeat   logits <- model(history)[-1]
             invalid actions out, then temperature, then top-k, then draw
             canvas <- executor(canvas, action); history <- history + action
    until    STOP, or no action is left

What the fast decoder does is defined by this one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reviser.canvas import Canvas, apply, valid_actions
from reviser.config import ModelConfig
from reviser.errors import ConfigError
from reviser.model.conditioning import CanvasInput
from reviser.model.transformer import Transformer
from reviser.trajectory.record import Seed


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an action is drawn from the model's distribution. temperature 0 takes the most probable."""

    temperature: float = 0.9
    top_k: int = 50

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.top_k < 0:
            raise ConfigError(f"temperature={self.temperature} and top_k={self.top_k} must be 0 or more")


@dataclass(frozen=True, slots=True)
class Written:
    """What a decoder wrote: generated actions, their log-probabilities, the canvas, whether it stopped itself."""

    actions: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    canvas: Canvas
    has_stopped: bool


@torch.no_grad()
def decode(
    model: Transformer, seed: Seed, sampling: Sampling, max_actions: int, generator: torch.Generator
) -> Written:
    """Write from a seed; `max_actions` bounds the generated actions, the model's context the whole history."""
    alphabet, rules, canvas = seed.rules.alphabet, seed.rules, seed.canvas
    budget = min(max_actions, model.config.context - 1 - len(seed.actions))
    _check_room(seed, model.config, max_actions)
    history, states = _seeded(seed)
    actions: list[int] = []
    scores: list[float] = []
    while len(actions) < budget and not canvas.is_stopped:
        logits = model(_tensor(history, model), _show(states, model))[0, -1].float()
        valid = valid_actions(canvas, rules, budget - len(actions))
        action, score = _draw(logits, torch.tensor(valid, device=logits.device), sampling, generator)
        canvas = apply(canvas, action, rules, budget - len(actions))
        actions.append(action)
        scores.append(score)
        history.append(action)
        states.append(canvas)
    return Written(tuple(actions), tuple(scores), canvas, bool(actions) and actions[-1] == alphabet.stop)


def _check_room(seed: Seed, config: ModelConfig, max_actions: int) -> None:
    size, room = len(seed.tokens), seed.rules.max_length
    if max_actions < 1:
        raise ConfigError(f"max_actions={max_actions} must be at least 1")
    if len(seed.actions) + 1 >= config.context:
        raise ConfigError(
            f"a prompt of {size} tokens leaves no room in a context of {config.context} positions; shorten it"
        )
    if size > room:
        raise ConfigError(f"a prompt of {size} tokens does not fit a canvas of {room}; shorten it")
    if config.canvas.has_rows and room > config.max_length:
        raise ConfigError(f"a canvas of {room} tokens is more than the {config.max_length} that this model can see")


def _seeded(seed: Seed) -> tuple[list[int], list[Canvas]]:
    """The history that writes the seed, and the canvas after each of its entries."""
    canvas, free = Canvas(), seed.rules.for_seeding()
    history, states = [seed.rules.alphabet.start], [canvas]
    for action in seed.actions:
        canvas = apply(canvas, action, free)
        history.append(action)
        states.append(canvas)
    return history, states


def _draw(logits: Tensor, valid: Tensor, sampling: Sampling, generator: torch.Generator) -> tuple[int, float]:
    """An action and its log-probability among the valid ones, before temperature and top-k."""
    log_p = logits[valid].log_softmax(dim=-1)
    if sampling.temperature == 0:
        place = int(log_p.argmax())
        return int(valid[place]), float(log_p[place])
    scaled = log_p / sampling.temperature
    if 0 < sampling.top_k < len(scaled):
        scaled = scaled.masked_fill(scaled < scaled.topk(sampling.top_k).values[-1], -torch.inf)
    place = int(torch.multinomial(scaled.softmax(dim=-1).cpu(), 1, generator=generator))
    return int(valid[place]), float(log_p[place])


def _tensor(values: object, model: Transformer) -> Tensor:
    return torch.tensor([values], device=model.embedding.weight.device)


def _show(states: list[Canvas], model: Transformer) -> CanvasInput:
    """What the model is shown of each canvas."""
    config = model.config
    if config.canvas.has_windows:
        none = config.alphabet.none
        return CanvasInput(windows=_tensor([state.window(config.canvas.window, none) for state in states], model))
    if config.canvas.has_rows:
        longest = max(len(state.tokens) for state in states) + 1
        return CanvasInput(rows=_tensor([_row(state, longest, config.alphabet.none) for state in states], model))
    return CanvasInput()


def _row(state: Canvas, size: int, cursor: int) -> list[int]:
    row = [*state.tokens[: state.cursor], cursor, *state.tokens[state.cursor :]]
    return row + [-1] * (size - len(row))
