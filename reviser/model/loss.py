"""Negative log-likelihood over the valid actions: hidden states and labels in, nats and gradients out.

    labels  [B, T] int64   the next action; negative where there is nothing to learn
    valid   [B, T] int64   bit j: action V + j is valid; bit 34: inserting is; None: no mask at all
    weights [B, T] float   how much a position counts; None: 1
    columns                what the softmax runs over: an alphabet's V + 34 actions, or the first N rows

p(action | history) is the softmax over valid actions alone; with a mask, padding is never one of them. A mask needs
an alphabet; without one, a number of columns is enough.
`reference_nats` is the definition. `loss` computes it and its gradients chunk by chunk in the forward pass, so that
no logits are kept and nothing is computed twice; `nats` is the same without gradients.

>>> hidden, weight = torch.zeros(1, 2, 4), torch.ones(38, 4)
>>> total, count = loss(hidden, weight, torch.tensor([[2, -1]]), None, Alphabet(num_text=4, pad=3))
>>> round(total.item(), 4), count.item()  # log 38
(3.6376, 1.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from reviser.actions import EVERYTHING, NUM_SPECIAL, Alphabet
from reviser.model.layers import FUSED

INSERT_BIT = NUM_SPECIAL
"""The bit of `valid` behind those of the special actions: whether any token may be inserted."""

CHUNKS = {"cuda": 8192, "cpu": 1024}
"""Positions whose logits exist at once, 8192 of them 0.8 GB at 50,304 rows in half precision."""

Columns = Alphabet | int
"""What is scored: the actions of an alphabet, or that many of the first rows, none of which can be masked."""
Score = Callable[[Tensor, Tensor, Tensor | None, Tensor, Columns], tuple[Tensor, Tensor]]


def num_columns(columns: Columns) -> int:
    return columns if isinstance(columns, int) else columns.size


def allowed(valid: Tensor, alphabet: Alphabet) -> Tensor:
    """[..] masks to [.., V + 34] bool: which actions are valid."""
    actions = torch.arange(alphabet.size, device=valid.device)
    bits = torch.where(actions < alphabet.num_text, INSERT_BIT, actions - alphabet.num_text)
    return ((valid[..., None] >> bits) & 1).bool() & (actions != alphabet.pad)


def reference_nats(
    hidden: Tensor, weight: Tensor, labels: Tensor, valid: Tensor | None, alphabet: Alphabet
) -> Tensor:
    """[B, T] nats of each label, 0 where there is none; plain, differentiable, with all logits at once."""
    logits = (hidden @ weight[: alphabet.size].T).float()
    if valid is not None:
        logits = logits.masked_fill(~allowed(valid, alphabet) & (labels >= 0)[..., None], -torch.inf)
    picked = logits.log_softmax(dim=-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return -picked.where(labels >= 0, 0.0)


def loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    valid: Tensor | None,
    columns: Columns,
    weights: Tensor | None = None,
    chunk: int | None = None,
    fuse: bool = False,
    score: Score | None = None,
) -> tuple[Tensor, Tensor]:
    """The weighted sum of nats, and the sum of the weights of all labels: divide sums, never means.

    `weight` [rows, d] may have more rows than there are columns. Under autocast the products are in its dtype, the
    softmax and the sum of the weight's gradient in float32. `fuse` scores in one Triton kernel, where it can run;
    `score` replaces the softmax by another loss.
    """
    weights = torch.ones_like(labels, dtype=torch.float32) if weights is None else weights.float()
    weights = weights.where(labels >= 0, 0.0)
    run: Callable[..., Tensor] = _ChunkedLoss.apply
    own = score_chunk if FUSED is None or not fuse else FUSED.score
    total = run(hidden, weight, labels, valid, weights, columns, chunk, score or own)
    return total, weights.sum()


@torch.no_grad()
def nats(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    valid: Tensor | None,
    columns: Columns,
    chunk: int | None = None,
) -> Tensor:
    """[B, T] float32 nats of each label, 0 where there is none."""
    flat, matrix = _operands(hidden, weight)
    out = torch.zeros(labels.numel(), device=hidden.device)
    for part in _parts(flat, chunk):
        chosen = labels.flatten()[part]
        scores = mask_scores(_product(flat[part], matrix), chosen, _some(valid, part), columns)
        picked = scores.gather(1, chosen.clamp(min=0)[:, None])[:, 0]
        out[part] = (scores.logsumexp(dim=-1) - picked).where(chosen >= 0, 0.0)
    return out.view_as(labels)


def score_chunk(
    logits: Tensor, labels: Tensor, valid: Tensor | None, weights: Tensor, columns: Columns
) -> tuple[Tensor, Tensor]:
    """Nats [C], and weights * (softmax - label) [C, rows] in the logits' dtype, which may be overwritten."""
    scores = mask_scores(logits, labels, valid, columns)
    normaliser = scores.logsumexp(dim=-1, keepdim=True)
    picked = scores.gather(1, labels.clamp(min=0)[:, None])
    is_label = torch.arange(logits.shape[1], device=logits.device) == labels[:, None]
    gradient = ((scores - normaliser).exp() - is_label.float()) * weights[:, None]
    return (normaliser - picked)[:, 0].where(labels >= 0, 0.0), gradient.to(logits.dtype)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        valid: Tensor | None,
        weights: Tensor,
        columns: Columns,
        chunk: int | None,
        score: Score,
    ) -> Tensor:
        flat, matrix = _operands(hidden, weight)
        total = torch.zeros((), device=hidden.device)
        for_hidden = torch.empty_like(flat)
        for_weight = torch.zeros_like(weight, dtype=torch.float32)
        for part in _parts(flat, chunk):
            logits, shares = _product(flat[part], matrix), weights.flatten()[part]
            values, gradient = score(logits, labels.flatten()[part], _some(valid, part), shares, columns)
            total += (values * shares).sum()
            with torch.autocast(hidden.device.type, enabled=False):
                torch.mm(gradient, matrix, out=for_hidden[part])
                for_weight += gradient.T @ flat[part]
        ctx.save_for_backward(for_hidden.view_as(hidden), for_weight)
        ctx.dtypes = hidden.dtype, weight.dtype
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        for_hidden, for_weight = ctx.saved_tensors
        of_hidden, of_weight = ctx.dtypes
        grads = (for_hidden * gradient).to(of_hidden), (for_weight * gradient).to(of_weight)
        return *grads, None, None, None, None, None, None


def _operands(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Flattened hidden states and the matrix, both in the dtype of matrix products."""
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    return hidden.detach().flatten(0, -2).to(dtype), weight.detach().to(dtype)


def _parts(flat: Tensor, chunk: int | None) -> Iterator[slice]:
    """The places of each chunk."""
    chunk = chunk or CHUNKS.get(flat.device.type, 1024)
    return (slice(start, start + chunk) for start in range(0, len(flat), chunk))


def _some(valid: Tensor | None, part: slice) -> Tensor | None:
    return None if valid is None else valid.flatten()[part]


def _product(flat: Tensor, matrix: Tensor) -> Tensor:
    with torch.autocast(flat.device.type, enabled=False):
        return flat @ matrix.T


def mask_scores(logits: Tensor, labels: Tensor, valid: Tensor | None, columns: Columns) -> Tensor:
    """[C, rows] float32 scores without invalid actions, padding and the rows behind the last column."""
    scores = logits.float()
    scores[:, num_columns(columns) :] = -torch.inf
    if valid is not None:
        alphabet = _alphabet(columns)
        # Not by `allowed`, which shifts bits for every column.
        mask = valid.where(labels >= 0, EVERYTHING)[:, None]
        bits = torch.arange(NUM_SPECIAL, device=mask.device)
        scores[:, alphabet.pad] = -torch.inf
        scores[:, alphabet.num_text : alphabet.size].masked_fill_((mask >> bits) & 1 == 0, -torch.inf)
        scores[:, : alphabet.num_text].masked_fill_((mask >> INSERT_BIT) & 1 == 0, -torch.inf)
    return scores


def _alphabet(columns: Columns) -> Alphabet:
    if isinstance(columns, int):
        raise ValueError(f"a mask needs an alphabet, not {columns} columns: its bits are special actions")
    return columns
