"""A model folder of our own as a causal evaluator, held to writing from left to right: `reviser:FOLDER` names it.

-log p of a token is that of its INSERT at the end of what stands before it, among all INSERTs. Any model folder will
do; one trained left to right (`ar_small`) knows best what it says.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor

from reviser.canvas import Rules
from reviser.decoding.drafts import draft_inputs
from reviser.errors import ConfigError
from reviser.evaluation.evaluator import Evaluator, hash_weights
from reviser.evaluation.mdlm_evaluator import Reader
from reviser.model.checkpoint import from_pretrained, tokenizer_of
from reviser.model.folder import find
from reviser.model.transformer import Transformer
from reviser.orders.record import Draft
from reviser.tokenizer import Tokenizer

OWN = "reviser:"


class OwnNetwork:
    """START and the ids of a text to scores of every text token that may follow each of them."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.config = model, SimpleNamespace(model_type="reviser", use_cache=False)
        self.device, self.dtype = model.head_weight.device, model.head_weight.dtype

    def __call__(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        config = self.model.config
        rules = Rules(config.alphabet, max_length=config.context)
        rows = [row[1:count] for row, count in zip(input_ids.tolist(), attention_mask.sum(1).tolist(), strict=True)]
        given = draft_inputs([Draft.continuation(row, rules) for row in rows], config, self.device)
        logits = self.model.logits(self.model.hidden(given.actions, given.canvas))[..., : config.num_text]
        logits[..., config.pad] = -torch.inf
        return SimpleNamespace(logits=logits)


class OwnReader(Reader):
    """Texts begin with START."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.bos_token_id = tokenizer.alphabet.start
        self.all_special_ids = [self.bos_token_id]
        self.chat_template = None


def open_own(name: str, kind: str, device: str, dtype: str) -> Evaluator:
    """The evaluator of `reviser:FOLDER`; a run folder or a hub id will do too."""
    if kind not in ("auto", "causal"):
        raise ConfigError(f"evaluator {name} is a causal model, but a {kind} one is needed; give another")
    folder = find(name.removeprefix(OWN) or None)
    model, reader = from_pretrained(folder, device, getattr(torch, dtype)), OwnReader(tokenizer_of(folder))
    return Evaluator(
        name, hash_weights(folder), "causal", OwnNetwork(model), reader, model.config.context, has_start=True
    )
