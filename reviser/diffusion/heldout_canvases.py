"""A denoiser's likelihood bound on held-out text: the texts that a Reviser is measured on, the same numbers out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from reviser.config import ModelConfig
from reviser.data.examples import Gap, heldout_examples
from reviser.data.shards import Shards
from reviser.diffusion.bound import bound_nats, common_room
from reviser.diffusion.denoiser import Denoiser
from reviser.errors import ConfigError
from reviser.model.transformer import Transformer
from reviser.training.heldout import Bound, Nats, count_bytes, summarise

SAMPLES = 4
"""Noise levels a text; one would make the bound of a few hundred texts too rough to follow."""


class HeldoutCanvases:
    """A fixed set of held-out examples on canvases with the same room."""

    def __init__(self, shards: Shards, count: int, prefix: int, length: int, infill: bool = False) -> None:
        examples = heldout_examples(shards, count, prefix, length, infill)
        self.gaps = []
        for i, first in enumerate(examples.first.tolist()):
            ends = np.cumsum([first, examples.prefix[i], examples.length[i], examples.suffix[i]]).tolist()
            before, target, behind = (examples.tokens[a:b].tolist() for a, b in pairwise(ends))
            self.gaps.append(Gap(target, before, behind))
        self.room = common_room(self.gaps)
        self.num_tokens = examples.length
        self.num_bytes = count_bytes(examples, shards.tokenizer)

    def check_fits(self, config: ModelConfig) -> None:
        """Refuse a model whose table of positions is too short."""
        longest = max(len(gap.prefix) + self.room + len(gap.suffix) for gap in self.gaps)
        if config.positions == "absolute" and longest > config.context:
            raise ConfigError(
                f"held-out canvases take up to {longest} places and the model has a table of {config.context}; "
                "measure shorter texts"
            )

    def score(
        self, model: Transformer, device: torch.device, precision: str = "float32", rank: int = 0, world: int = 1
    ) -> Nats:
        """The bound of each example; one of several processes scores every `world`-th and leaves 0 elsewhere."""
        assert isinstance(model, Denoiser)
        was_training = model.training
        model.eval()
        own, nats = range(rank, len(self.gaps), world), np.zeros(len(self.gaps))
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            gaps = [self.gaps[i] for i in own]
            nats[list(own)] = bound_nats(model, gaps, self.room, SAMPLES, device=device, numbers=own)
        model.train(was_training)
        return nats

    def summarise(self, nats: Nats) -> Bound:
        """The bound, given that of each example."""
        return summarise(nats, np.zeros(len(nats)), self.num_tokens, self.num_bytes)
