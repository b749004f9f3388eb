"""Probabilities of all valid actions, spelled out; and drafts with random protection."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from tiny import show
from torch import Tensor

from reviser.canvas import CLOSED, Rules, apply, valid_actions
from reviser.decoding.reference import draft_history
from reviser.model.transformer import Transformer
from reviser.orders.history import follow_births
from reviser.orders.record import Draft


@st.composite
def protected(draw: st.DrawFn, tokens: list[int], rules: Rules) -> Draft:
    """A draft with some of its tokens fixed and some boundaries closed, at an open one."""
    fixed = draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
    closed = draw(st.lists(st.booleans(), min_size=len(tokens) + 1, max_size=len(tokens) + 1))
    marks = [2 * closed[0], *(fix + 2 * (fix and close) for fix, close in zip(fixed, closed[1:], strict=True))]
    places = [place for place, mark in enumerate(marks) if not mark & CLOSED]
    if not places:
        marks[-1] &= ~CLOSED
        places = [len(tokens)]
    return Draft(tuple(tokens), draw(st.sampled_from(places)), rules, tuple(marks))


def plain_keys(model: Transformer, states: Tensor) -> Tensor:
    """The pointer's keys [T, P] of steps with these states [T, d], as the last one sees them, term by term."""
    assert model.pointer is not None
    matrices, T = [model.pointer.key_matrix.weight], len(states)
    if model.pointer.ahead_matrix is not None:
        matrices += model.pointer.ahead_matrix.weight.split(len(matrices[0]))
    terms = [[K @ states[s + j] for j, K in enumerate(matrices) if s + j < T] for s in range(T)]
    return torch.stack([torch.stack(each).sum(dim=0) for each in terms])


@torch.no_grad()
def score_actions(
    model: Transformer, draft: Draft, actions: tuple[int, ...], max_actions: int
) -> list[dict[int, float]]:
    """The log-probability of every valid action before each of some actions, spelled out from one forward pass."""
    rules, canvas, alphabet = draft.rules, draft.canvas, draft.rules.alphabet
    history, states = draft_history(draft)
    first = len(history) - 1
    for action in actions:
        canvas = apply(canvas, action, rules)
        history.append(action)
        states.append(canvas)
    hidden = model.hidden(torch.tensor([history]), show(states, model.config))[0]
    logits, births, scored = model.logits(hidden), tuple(range(1, len(draft.tokens) + 1)), []
    states[first] = draft.canvas
    for index, action in enumerate(actions):
        now, canvas = hidden[first + index], states[first + index]
        valid = valid_actions(canvas, rules, max_actions - index)
        jumps = [each for each in valid if alphabet.is_jump(each)]
        rows = [each for each in valid if each not in jumps] + ([alphabet.size - 1] if jumps else [])
        log_p = dict(zip(rows, logits[first + index, rows].log_softmax(-1).tolist(), strict=True))
        if jumps:
            assert model.pointer is not None
            at = [(0, *births)[alphabet.landing(each)] for each in jumps]
            keys = plain_keys(model, hidden[: first + index + 1])[at]
            landed = (keys @ model.pointer.query(now)).log_softmax(-1).tolist()
            some = log_p.pop(alphabet.size - 1)
            log_p |= {each: some + score for each, score in zip(jumps, landed, strict=True)}
        scored.append(log_p)
        births = follow_births(births, canvas, action, first + index + 1, alphabet)
    return scored
