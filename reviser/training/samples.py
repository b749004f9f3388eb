"""Texts a model writes on the way: a few prompts, one file a step, so that a person can read along."""

from __future__ import annotations

from reviser.decoding.engine import PAPER, Engine, Request
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft
from reviser.tokenizer import Tokenizer
from reviser.training.settings import RunConfig

PROMPTS = ("", "The old lighthouse", "In the spring of that year,")
MAX_ACTIONS = 64


def write_samples(model: Transformer, tokenizer: Tokenizer, settings: RunConfig) -> str:
    """What each prompt grows into, with its number of actions."""
    # A tiny model may have no room for all of a prompt.
    room = min(settings.model.context // 2, settings.model.max_length)
    prompts = [tokenizer.encode(prompt)[:room] for prompt in PROMPTS]
    requests = [
        Request(Draft.continuation(tokens, settings.rules), MAX_ACTIONS, number)
        for number, tokens in enumerate(prompts)
    ]
    parts = []
    for tokens, written in zip(prompts, Engine(model, PAPER, len(requests)).write(requests), strict=True):
        title = f"--- {tokenizer.decode(tokens)!r}, {len(written.actions)} actions, ended by {written.ended_by}"
        parts.append(f"{title}\n{tokenizer.decode(written.canvas.tokens)}\n")
    return "\n".join(parts)
