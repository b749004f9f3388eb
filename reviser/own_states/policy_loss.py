"""The loss of PPO: packed episodes with old log-probabilities and advantages in, one number with a gradient out.

    L = - sum min(r A, clip(r) A)  -  c_e entropy  +  c_kl KL(p, start)  +  c_type KL(types of p, types of start)

r is p(action) over what it was when the action was chosen, A the advantage, `start` the model that training began
with. Entropy and divergences are exact sums over all valid actions of a state, not estimates from the one that was
chosen. A JUMP's landing is a second choice: where a JUMP was chosen, the terms of its landing are added.

The value head reads states and gives them no gradient, so it has a loss and an optimizer of its own.

>>> log_p = torch.tensor([-1.0, -1.0], requires_grad=True)
>>> clipped_losses(log_p, torch.tensor([-1.0, -1.5]), torch.tensor([2.0, 1.0]), clip=0.2)
tensor([-2.0000, -1.2000], grad_fn=<NegBackward0>)

Shape letters: B rows, T positions, N labels, A actions, K types.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from reviser.actions import DELETE, JUMP, MOVES, NUM_SPECIAL, REPLACE, STOP, Alphabet
from reviser.model.loss import mask_scores
from reviser.model.transformer import Transformer
from reviser.own_states.ppo_settings import PpoConfig
from reviser.training.objective import Inputs, Learner, chunk_of, jump_log_p

TYPES = ("insert", "move", "delete", "replace", "stop", "other")
FAR = -1e4
"""Stands for the log of 0, where it is multiplied by 0."""


@dataclass(frozen=True)
class Terms:
    """[N] of the labels of a batch; types [N, K]: the probability of each type of action."""

    log_p: Tensor
    entropy: Tensor
    kl: Tensor
    type_kl: Tensor
    types: Tensor


@dataclass(frozen=True)
class Episodes:
    """Packed episodes and what is known of each label, in the order of `inputs.chosen`; those that fill it up
    carry 0."""

    inputs: Inputs
    old: Tensor
    advantages: Tensor
    returns: Tensor

    @property
    def num_labels(self) -> int:
        return self.inputs.num_labels

    @property
    def count(self) -> float:
        return self.inputs.count

    def to(self, device: torch.device) -> Episodes:
        known = (each.to(device, non_blocking=True) for each in (self.old, self.advantages, self.returns))
        return Episodes(self.inputs.to(device), *known)


def clipped_losses(log_p: Tensor, old: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """[N] minus the clipped gain of each action."""
    ratio = (log_p - old).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def type_table(alphabet: Alphabet, device: torch.device | str = "cpu") -> Tensor:
    """[A] the type of each action."""
    table = torch.full((alphabet.size,), TYPES.index("other"))
    table[: alphabet.num_text] = TYPES.index("insert")
    special = table[alphabet.num_text :]
    special[MOVES:REPLACE] = special[JUMP] = TYPES.index("move")
    special[DELETE], special[REPLACE] = TYPES.index("delete"), TYPES.index("replace")
    special[STOP] = TYPES.index("stop")
    return table.to(device)


def divergence(log_p: Tensor, log_r: Tensor) -> Tensor:
    """KL(p, r) over the last axis; what is -inf in both counts nothing."""
    return (log_p.exp() * (log_p.clamp(min=FAR) - log_r.clamp(min=FAR))).sum(-1)


def entropy(log_p: Tensor) -> Tensor:
    """In nats, over the last axis."""
    return -(log_p.exp() * log_p.clamp(min=FAR)).sum(-1)


def choice_terms(
    logits: Tensor, labels: Tensor, valid: Tensor, alphabet: Alphabet, table: Tensor, reference: Tensor | None = None
) -> Terms:
    """The terms of [N, rows] logits, of which those of invalid actions are overwritten; `reference` are those of the
    starting model. Labels below 0 fill up and mean nothing."""
    log_p = mask_scores(logits, labels, valid, alphabet).log_softmax(-1)[:, : alphabet.size]
    picked = log_p.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    types = _sum_types(log_p, table)
    nothing = torch.zeros_like(picked)
    if reference is None:
        return Terms(picked, entropy(log_p), nothing, nothing, types)
    log_r = mask_scores(reference, labels, valid, alphabet).log_softmax(-1)[:, : alphabet.size]
    logs = (each.clamp(min=torch.finfo(torch.float32).tiny).log() for each in (types, _sum_types(log_r, table)))
    return Terms(picked, entropy(log_p), divergence(log_p, log_r), divergence(*logs), types)


def _sum_types(log_p: Tensor, table: Tensor) -> Tensor:
    """[N, K]. Tokens are one sum, and the few actions behind them a product: adding by index would be slow."""
    num_text = len(table) - NUM_SPECIAL
    special = log_p[:, num_text:].exp() @ F.one_hot(table[num_text:], len(TYPES)).to(log_p.dtype)
    inserts = log_p[:, :num_text].exp().sum(-1, keepdim=True)
    return special + F.pad(inserts, (0, len(TYPES) - 1))


def action_terms(
    model: Transformer, hidden: Tensor, inputs: Inputs, start: tuple[Transformer, Tensor] | None
) -> Terms:
    """The terms of all labels of a batch, given the hidden states [B, T, d]; `start` are the model that training
    began with and its hidden states. Logits exist for a chunk at a time."""
    assert inputs.valid is not None
    alphabet, chunk = model.config.alphabet, chunk_of(inputs.actions.numel())
    table, labels = type_table(alphabet, hidden.device), model.rows_of(inputs.labels)
    picked = hidden.flatten(0, 1).index_select(0, inputs.chosen)
    others = None if start is None else start[1].flatten(0, 1).index_select(0, inputs.chosen)

    def score(part: slice, states: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        # In float32: the steps of bf16 would be larger than the clip allows ratios to be.
        with torch.autocast(states.device.type, enabled=False):
            reference = None if start is None or others is None else _product(others[part], start[0].head_weight)
            found = choice_terms(
                _product(states, weight), labels[part], cast(Tensor, inputs.valid)[part], alphabet, table, reference
            )
        return found.log_p, found.entropy, found.kl, found.type_kl, found.types

    found = [
        checkpoint(score, part, picked[part], model.head_weight, use_reentrant=False)
        for part in (slice(first, first + chunk) for first in range(0, len(labels), chunk))
    ]
    terms = Terms(*(torch.cat(each) for each in zip(*found, strict=True)))
    return _add_landings(terms, model, hidden, inputs, start)


def _product(states: Tensor, weight: Tensor) -> Tensor:
    return states.float() @ weight.float().T


def _add_landings(
    terms: Terms, model: Transformer, hidden: Tensor, inputs: Inputs, start: tuple[Transformer, Tensor] | None
) -> Terms:
    """The terms of where JUMPs went, added to those of the JUMPs."""
    log_p, jumps = jump_log_p(model, hidden, inputs), inputs.jumps
    if log_p is None or jumps is None:
        return terms
    column, step, point, _ = jumps.unbind(-1)
    is_jump = point >= 0
    landed = log_p.gather(-1, (column - step + point).clamp(min=0)[..., None])[..., 0]
    # A place of the flattened rows to the label there.
    labels = torch.zeros(hidden.shape[:2].numel(), dtype=torch.int64, device=hidden.device)
    labels[inputs.chosen[: inputs.num_labels]] = torch.arange(inputs.num_labels, device=hidden.device)
    rows = torch.arange(len(hidden), device=hidden.device)[:, None]
    places = labels[(rows * hidden.shape[1] + column)[is_jump]]
    kl = terms.kl
    if start is not None:
        before = jump_log_p(*start, inputs)
        assert before is not None
        kl = kl.index_add(0, places, divergence(log_p, before)[is_jump])
    return replace(
        terms,
        log_p=terms.log_p.index_add(0, places, landed[is_jump]),
        entropy=terms.entropy.index_add(0, places, entropy(log_p)[is_jump]),
        kl=kl,
    )


class PolicyObjective(Learner):
    """A model, the model it began as, and a value head, with the loss of PPO."""

    def __init__(self, model: Transformer, fuse: bool, config: PpoConfig) -> None:
        super().__init__(model, fuse)
        self.config = config
        self.value_head = nn.Linear(model.config.width, 1) if config.advantage == "value" else None
        if self.value_head is not None:
            # Half of the reward of a rank, whatever the state.
            nn.init.zeros_(self.value_head.weight)
            nn.init.constant_(self.value_head.bias, 0.5)
            self.value_head.to(model.head_weight.device)
        self.start: list[Transformer] = []
        """The model that training began with, frozen; in a list, so that its weights are not this module's."""
        self.seen: dict[str, Tensor] = {}
        """Sums over the labels of the last batch."""

    def forward(self, episodes: Episodes) -> Tensor:
        """The summed loss of all labels."""
        config, inputs = self.config, episodes.inputs
        terms, hidden = self.terms(inputs)
        real = slice(inputs.num_labels)
        old, advantages = episodes.old[real], episodes.advantages[real]
        policy = clipped_losses(terms.log_p[real], old, advantages, config.clip)
        penalty = config.kl_weight * terms.kl + config.type_weight * terms.type_kl
        total = policy.sum() + (penalty - config.entropy_weight * terms.entropy)[real].sum()
        with torch.no_grad():
            ratio = (terms.log_p[real] - old).exp()
            self.seen = {
                "policy": policy.sum(), "kl": terms.kl[real].sum(), "entropy": terms.entropy[real].sum(),
                "type_kl": terms.type_kl[real].sum(), "clipped": ((ratio - 1).abs() > config.clip).float().sum(),
            }  # fmt: skip
        if self.value_head is None:
            return total
        errors = (self.values(hidden, inputs)[real] - episodes.returns[real]).square().sum() / 2
        self.seen["value_loss"] = errors.detach()
        return total + errors

    def terms(self, inputs: Inputs) -> tuple[Terms, Tensor]:
        """The terms of all labels, and the hidden states."""
        hidden = self.trunk(inputs.actions, inputs.canvas, inputs.layout)
        start = None
        if self.start:
            with torch.no_grad():
                [frozen] = self.start
                start = frozen, frozen.hidden(inputs.actions, inputs.canvas, inputs.layout)
        return action_terms(self.model, hidden, inputs, start), hidden

    @torch.no_grad()
    def look(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """[N] log-probabilities of the labels, and values of the states before them, 0 without a value head."""
        hidden = self.model.hidden(inputs.actions, inputs.canvas, inputs.layout)
        log_p = action_terms(self.model, hidden, inputs, None).log_p
        return log_p, torch.zeros_like(log_p) if self.value_head is None else self.values(hidden, inputs)

    def values(self, hidden: Tensor, inputs: Inputs) -> Tensor:
        """[N] what the value head expects of the state before each label."""
        assert self.value_head is not None
        states = hidden.detach().flatten(0, 1).index_select(0, inputs.chosen)
        with torch.autocast(states.device.type, enabled=False):
            return cast(Tensor, self.value_head(states.float()))[:, 0]
