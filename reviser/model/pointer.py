"""Where a JUMP goes: a query of the present state against a key of the step that inserted each token.

    history   START  The  cat  sat  .          canvas  The cat sat .
    position    0     1    2    3   4          JUMP 1 goes behind "The": its score is query(h4) . key(h1)

A boundary is named by the token on its left, and that by the step which inserted it; the front by START. Nothing
about a past step changes when the canvas does, so keys are computed once and cached, and a canvas of any length needs
no new weights. The head scores JUMP as one action; the pointer's softmax over the valid boundaries shares that
probability out:

    p(JUMP i) = p(JUMP) p(i | JUMP)

So probabilities of all valid actions sum to one, and steps that do not jump pay nothing for the pointer.

Shape letters: B rows, T positions, J jumps, P pointer width, d width.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from reviser.config import ModelConfig


class Pointer(nn.Module):
    """Two matrices from hidden states [.., d] to queries and keys [.., P]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.query_matrix = nn.Linear(config.width, config.pointer_width, bias=False)
        self.key_matrix = nn.Linear(config.width, config.pointer_width, bias=False)
        self.scale = config.pointer_width**-0.5

    def query(self, hidden: Tensor) -> Tensor:
        """Scaled, so that scores are plain products."""
        return cast(Tensor, self.query_matrix(hidden) * self.scale)

    def key(self, hidden: Tensor) -> Tensor:
        return cast(Tensor, self.key_matrix(hidden))


def score_landings(queries: Tensor, keys: Tensor, births: Tensor) -> Tensor:
    """[B, P] queries, [B, S, P] keys of all steps and [B, L + 1] births (-1: no valid landing) to log-probabilities.

    [B, L + 1] float32: the log-softmax over a row's valid landings, -inf elsewhere; all -inf where there is none.
    """
    scores = torch.einsum("bp,bsp->bs", queries.float(), keys.float())
    picked = scores.gather(1, births.clamp(min=0)).masked_fill(births < 0, -torch.inf)
    # A row without a landing would give NaN.
    total = picked.logsumexp(dim=-1, keepdim=True)
    return (picked - total).masked_fill(births < 0, -torch.inf)


def landing_nats(queries: Tensor, keys: Tensor, jumps: Tensor, deaths: Tensor) -> Tensor:
    """The nats of where jumps go, [B, J]: rows of packed examples, each jump among the steps of its own example.

    queries [B, J, P], keys [B, T, P]. jumps [B, J, 4]: the column before a JUMP, then steps of its example: that
    column's, the one that the JUMP goes to (-1: no jump at all), the one of the token left of the cursor. A step s is
    a landing at step t where s <= t < deaths[B, T], which counts in steps too.
    """
    column, step, point, here = jumps.unbind(dim=-1)
    columns, first, is_jump = torch.arange(keys.shape[1], device=keys.device), column - step, point >= 0
    scores = (queries @ keys.transpose(1, 2)).float()
    is_there = (columns >= first[..., None]) & (columns <= column[..., None])
    is_there &= (deaths[:, None] > step[..., None]) & (columns != (first + here)[..., None])
    # What fills up a row points somewhere, so that no softmax is empty.
    is_there |= ~is_jump[..., None]
    log_p = scores.masked_fill(~is_there, -torch.inf).log_softmax(dim=-1)
    return -log_p.gather(-1, (first + point).clamp(min=0)[..., None])[..., 0].where(is_jump, 0.0)
