"""Editing as a reader does: from left to right, past every place where a change is not probable enough.

A model that has learned to edit from left to right divides its next step between changing something at the cursor,
jumping to one of the boundaries and stopping. What it gives to boundary i is the probability that the next change is
there, so it is small wherever an earlier change is likely too. Divided by all that is left behind i, it says how
probable a change at i is for a reader who has passed everything before:

    jump to      boundary 3   boundary 7   boundary 9   stop
    next step    0.3          0.3          0.3          0.1
    given that   0.3          0.3 / 0.7    0.3 / 0.4

A reader who asks for 0.5 goes to boundary 9, where the most probable step would have been boundary 3.

>>> alphabet = Alphabet(num_text=4, pad=3)
>>> log_p = torch.full((1, alphabet.size), -torch.inf)
>>> log_p[0, alphabet.num_text + STOP], log_p[0, alphabet.num_text + JUMP] = torch.tensor([0.1, 0.9]).log()
>>> third = torch.tensor([[-torch.inf, 0.0, 0.0, 0.0]]).log_softmax(dim=-1)
>>> found = scan(log_p, third, torch.tensor([3]), torch.tensor([True]), alphabet, least=0.5)
>>> int(found.actions) - alphabet.jump(0)
3

Shape letters: B rows, A actions, L tokens of a canvas.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from reviser.actions import JUMP, STOP, Alphabet


class Found(NamedTuple):
    """What a reader does next in every row."""

    rows: Tensor
    """[B]: all JUMPs as the row they share."""
    actions: Tensor
    """[B]."""
    landed: Tensor
    """[B]: what makes a JUMP's log-probability that of a change there, given that there is none before; 0 for other
    actions."""


def scan(
    log_p: Tensor, landings: Tensor, cursors: Tensor, is_first: Tensor, alphabet: Alphabet, least: float
) -> Found:
    """The next action of readers who pass over changes less probable than `least`.

    log_p [B, A] are those of valid actions, landings [B, L + 1] the log-probabilities of where a JUMP goes; is_first
    [B] says whether it is a row's first action. At first the cursor [B] stands behind the text and everything is
    ahead of a reader, who later does not go back.
    """
    stop, jump = alphabet.num_text + STOP, alphabet.num_text + JUMP
    stops, jumps = (log_p[:, each].double().exp() for each in (stop, jump))
    changes = (1 - stops - jumps).clamp(min=0)
    places = torch.arange(landings.shape[1], device=log_p.device)
    shares = landings.double().exp() * jumps[:, None]
    is_ahead = is_first[:, None] | (places > cursors[:, None])
    ahead = torch.where(is_ahead, shares, 0.0)
    left = (1 - changes - (shares - ahead).sum(dim=-1))[:, None] - (ahead.cumsum(dim=-1) - ahead)
    chances = (ahead / left.clamp(min=1e-12)).clamp(max=1.0)
    is_due = (chances >= least) & (ahead > 0)
    due = torch.where(is_due, places, landings.shape[1] - 1).amin(dim=-1)
    own = log_p.clone()
    own[:, stop], own[:, jump] = -torch.inf, -torch.inf
    is_here, has_due = changes >= least, is_due.any(dim=-1)
    rows = torch.where(is_here, own.max(dim=-1).indices, torch.where(has_due, jump, stop))
    is_jump = rows == jump
    given = chances.gather(1, due[:, None])[:, 0].log().float() - log_p[:, jump]
    actions = torch.where(is_jump, alphabet.jump(0) + due, rows)
    return Found(rows, actions, torch.where(is_jump, given, 0.0))
