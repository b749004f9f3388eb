"""Where a JUMP goes: a query of the present state against a key of the step that inserted each token.

    history   START  The  cat  sat  .          canvas  The cat sat .
    position    0     1    2    3   4          JUMP 1 goes behind "The": its score is query(h4) . key(h1)

A boundary is named by the token on its left, and that by the step which inserted it; the front by START. Nothing
about a past step changes when the canvas does, so keys are cached, and a canvas of any length needs no new weights.
The head scores JUMP as one action; the pointer's softmax over the valid boundaries shares that probability out:

    p(JUMP i) = p(JUMP) p(i | JUMP)

So probabilities of all valid actions sum to one, and steps that do not jump pay nothing for the pointer.

The state of step s has seen nothing behind its token: that "a" is wrong in "a apple" shows one step later. With
`pointer_ahead` = A the key of s takes in the next A states of the history, as far as step t knows them, the one that
makes the query:

    key_s(t) = K_0 h_s + K_1 h_(s+1) + .. + K_A h_(s+A)          only terms with s + j <= t

Seen from step t: it gives K_0 h_t to its own key and adds K_j h_t to that of step t - j. These are its parts. So a
cache that adds them as steps come always holds key_s(t).

Shape letters: B rows, T positions, J jumps, A steps ahead, P pointer width, d width.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reviser.config import ModelConfig


class Pointer(nn.Module):
    """Matrices from hidden states [.., d] to queries [.., P] and to the parts of keys, K_0 and all others."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, P, A = config.width, config.pointer_width, config.pointer_ahead
        self.query_matrix = nn.Linear(d, P, bias=False)
        self.key_matrix = nn.Linear(d, P, bias=False)
        self.ahead_matrix = nn.Linear(d, A * P, bias=False) if A else None
        self.scale = P**-0.5

    def query(self, hidden: Tensor) -> Tensor:
        """Scaled, so that scores are plain products."""
        return cast(Tensor, self.query_matrix(hidden) * self.scale)

    def parts(self, hidden: Tensor) -> Tensor:
        """[.., A + 1, P]: what each step gives to its own key, and to the keys of the A steps before it."""
        own = self.key_matrix(hidden)
        if self.ahead_matrix is None:
            return cast(Tensor, own[..., None, :])
        return torch.cat([own, self.ahead_matrix(hidden)], dim=-1).view(*own.shape[:-1], -1, own.shape[-1])

    def suspicions(self, hidden: Tensor) -> Tensor:
        """[B, T, d] states of rows to [B, T]: the first number of each step's key, with all that it takes in ahead.

        Training may ask that it says whether something is edited behind the step's token, as a logit
        (train.find_mistakes); queries use it as they like.
        """
        first = [self.key_matrix.weight[:1]]
        if self.ahead_matrix is not None:
            first.append(self.ahead_matrix.weight[:: self.key_matrix.weight.shape[0]])
        parts = F.linear(hidden, torch.cat(first))
        total = parts[..., 0]
        for j in range(1, min(parts.shape[-1], hidden.shape[1])):
            total = total + F.pad(parts[:, j:, j], (0, j))
        return total

    def keys(self, hidden: Tensor, counts: Tensor | None = None) -> Tensor:
        """[B, T, d] states of whole histories to [B, T, P]: the keys of all steps, as the last step sees them.

        `counts` [B] says how many steps of a row are real (None: all); the keys of the rest mean nothing.
        """
        parts, T = self.parts(hidden), hidden.shape[1]
        if counts is not None:
            is_real = torch.arange(T, device=hidden.device) < counts[:, None]
            parts = parts.masked_fill(~is_real[..., None, None], 0)
        keys = parts[:, :, 0].clone()
        for j in range(1, min(parts.shape[2], T)):
            keys[:, :-j] += parts[:, j:, j]
        return keys


def score_landings(queries: Tensor, keys: Tensor, births: Tensor) -> Tensor:
    """[B, P] queries, [B, S, P] keys of all steps and [B, L + 1] births (-1: no valid landing) to log-probabilities.

    [B, L + 1] float32: the log-softmax over a row's valid landings, -inf elsewhere; all -inf where there is none.
    """
    scores = torch.einsum("bp,bsp->bs", queries.float(), keys.float())
    picked = scores.gather(1, births.clamp(min=0)).masked_fill(births < 0, -torch.inf)
    # A row without a landing would give NaN.
    total = picked.logsumexp(dim=-1, keepdim=True)
    return (picked - total).masked_fill(births < 0, -torch.inf)


def landing_log_p(queries: Tensor, parts: Tensor, jumps: Tensor, deaths: Tensor) -> Tensor:
    """[B, J, T] log-probabilities of the columns that jumps may go to, -inf elsewhere: rows of packed examples, each
    jump among the steps of its own example.

    queries [B, J, P], parts [B, T, A + 1, P]. jumps [B, J, 4]: the column before a JUMP, then steps of its example:
    that column's, the one that the JUMP goes to (-1: no jump at all), the one of the token left of the cursor. A step
    s is a landing at step t where s <= t < deaths[B, T], which counts in steps too.
    """
    column, step, point, here = jumps.unbind(dim=-1)
    columns, first, is_jump = torch.arange(parts.shape[1], device=parts.device), column - step, point >= 0
    scores = _score_columns(queries, parts, column)
    is_there = (columns >= first[..., None]) & (columns <= column[..., None])
    is_there &= (deaths[:, None] > step[..., None]) & (columns != (first + here)[..., None])
    # What fills up a row points somewhere, so that no softmax is empty.
    is_there |= ~is_jump[..., None]
    return scores.masked_fill(~is_there, -torch.inf).log_softmax(dim=-1)


def landed_nats(log_p: Tensor, jumps: Tensor) -> Tensor:
    """[B, J] nats of the columns that jumps went to, 0 where there is no jump."""
    column, step, point, _ = jumps.unbind(dim=-1)
    place = (column - step + point).clamp(min=0)
    return -log_p.gather(-1, place[..., None])[..., 0].where(point >= 0, 0.0)


def _score_columns(queries: Tensor, parts: Tensor, column: Tensor) -> Tensor:
    """[B, J, T] float32: each query's products with the keys of all columns, as its own column [B, J] sees them.

    A landing and a query are of one example, so what is between them is too.
    """
    T, scores = parts.shape[1], (queries @ parts[:, :, 0].transpose(1, 2)).float()
    for j in range(1, min(parts.shape[2], T)):
        more = (queries @ parts[:, j:, j].transpose(1, 2)).float()
        is_known = torch.arange(j, T, device=parts.device) <= column[..., None]
        scores = scores + F.pad(more.where(is_known, 0.0), (0, j))
    return scores
