"""How probable a model finds the tokens of texts: reading.py without torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reviser.canvas import Rules
from reviser.decoding.cpu.cells import Array
from reviser.decoding.cpu.kernel_model import KernelCache, KernelModel
from reviser.decoding.drafts import draft_arrays
from reviser.orders.record import Draft

TOGETHER = 16
"""Texts that are read at once."""


def score_by_kernels(
    model: KernelModel, texts: Sequence[Sequence[int]], begins: Sequence[int] | None = None
) -> list[list[float]]:
    """As `reading.score_tokens`."""
    scores: list[list[float]] = []
    for start in range(0, len(texts), TOGETHER):
        some = texts[start : start + TOGETHER]
        firsts = [0] * len(some) if begins is None else begins[start : start + TOGETHER]
        scores += _score_together(model, some, firsts)
    return scores


def _score_together(model: KernelModel, texts: Sequence[Sequence[int]], firsts: Sequence[int]) -> list[list[float]]:
    config = model.config
    rules = Rules(config.alphabet, max_length=config.max_length)
    inputs = draft_arrays([Draft.continuation(list(tokens), rules) for tokens in texts], config)
    cache = KernelCache.empty(config, len(texts), context=inputs.actions.shape[1])
    rows = model.read_all(inputs, np.arange(len(texts)), cache)
    scores = []
    for tokens, first, hidden in zip(texts, firsts, rows, strict=True):
        logits = model.float_logits(hidden[first : len(tokens)])[:, : config.num_text]
        logits[:, config.pad] = -np.inf
        scores.append(_log_p(logits, np.array(tokens[first:], np.int64)).tolist())
    return scores


def _log_p(logits: Array, wanted: Array) -> Array:
    """The log-softmax [n] of rows [n, V] at the wanted places [n]."""
    top = logits.max(axis=-1, initial=-np.inf)
    total = np.exp(logits - top[:, None]).sum(axis=-1)
    scores: Array = logits[np.arange(len(wanted)), wanted] - top - np.log(total)
    return scores
