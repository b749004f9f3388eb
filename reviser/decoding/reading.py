"""How probable a model finds the tokens of texts, each read once from left to right.

>>> from reviser.config import ModelConfig
>>> config = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=40)
>>> [first, second] = score_tokens(Transformer(config), None, [[104, 105], [106]])
>>> len(first), len(second), max(first + second) < 0
(2, 1, True)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from reviser.canvas import Rules
from reviser.decoding.cpu.array_reading import TOGETHER
from reviser.decoding.cpu.step import CpuStep, Steps
from reviser.decoding.drafts import DraftInputs, draft_inputs
from reviser.model.cache import Cache
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft


@torch.no_grad()
def score_tokens(
    model: Transformer, steps: Steps | None, texts: Sequence[Sequence[int]], begins: Sequence[int] | None = None
) -> list[list[float]]:
    """The log-probability of every token of texts, or of those from `begins` on, given all before it, among tokens.

    `steps` may be kernels that read faster than the model.
    """
    scores: list[list[float]] = []
    for start in range(0, len(texts), TOGETHER):
        some = texts[start : start + TOGETHER]
        firsts = [0] * len(some) if begins is None else begins[start : start + TOGETHER]
        scores += _score_together(model, steps, some, firsts)
    return scores


def _score_together(
    model: Transformer, steps: Steps | None, texts: Sequence[Sequence[int]], firsts: Sequence[int]
) -> list[list[float]]:
    rules, device = Rules(model.config.alphabet, max_length=model.config.max_length), model.embedding.weight.device
    drafts = [Draft.continuation(list(tokens), rules) for tokens in texts]
    rows = _read(model, steps, draft_inputs(drafts, model.config, device))
    scores = []
    for tokens, first, hidden in zip(texts, firsts, rows, strict=True):
        logits = model.logits(hidden[first : len(tokens)]).float()[:, : model.config.num_text]
        logits[:, model.config.pad] = -torch.inf
        wanted = torch.tensor(tokens[first:], device=device, dtype=torch.int64)[:, None]
        scores.append(logits.log_softmax(dim=-1).gather(1, wanted)[:, 0].tolist())
    return scores


def _read(model: Transformer, steps: Steps | None, inputs: DraftInputs) -> Sequence[Tensor]:
    """Hidden states [S, d] of each text, behind START and every token."""
    n, longest = inputs.actions.shape
    weight = model.embedding.weight
    cache = Cache.empty(model.config, n, weight.device, weight.dtype, context=longest)
    if isinstance(steps, CpuStep):
        return steps.read_all(inputs, torch.arange(n), cache)
    was_training = model.training
    model.eval()
    try:
        return list(model.step(inputs.actions, inputs.canvas, cache, inputs.counts))
    finally:
        model.train(was_training)
