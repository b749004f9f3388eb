"""Texts a model writes on the way: a few prompts, one file a step, so that a person can read along."""

from __future__ import annotations

from pathlib import Path

import torch

from reviser.decoding.reference import Sampling, decode
from reviser.model.transformer import Transformer
from reviser.tokenizer import Tokenizer
from reviser.training.settings import RunConfig
from reviser.trajectory.record import Seed

PROMPTS = ("", "The old lighthouse", "In the spring of that year,")
MAX_ACTIONS = 64


def write_samples(model: Transformer, tokenizer: Tokenizer, settings: RunConfig, folder: Path, step: int) -> None:
    """`folder`/step-00000100.txt: what each prompt grows into, with its number of actions."""
    was_training = model.training
    model.eval()
    parts = []
    for number, prompt in enumerate(PROMPTS):
        # A tiny model may have no room for all of a prompt.
        tokens = tokenizer.encode(prompt)[: min(settings.model.context // 2, settings.model.max_length)]
        seed = Seed.continuation(tokens, settings.rules)
        generator = torch.Generator().manual_seed(number)
        written = decode(model, seed, Sampling(), MAX_ACTIONS, generator)
        text = tokenizer.decode(written.canvas.tokens)
        ending = "stopped" if written.has_stopped else "out of actions"
        parts.append(f"--- {tokenizer.decode(tokens)!r}, {len(written.actions)} actions, {ending}\n{text}\n")
    model.train(was_training)
    (folder / f"step-{step:08d}.txt").write_text("\n".join(parts), encoding="utf8")
