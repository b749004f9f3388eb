"""An MDLM as a masked evaluator: its model folder in, what evalppl.py asks of a `transformers` masked model out.

It scores pseudo-likelihoods of systems' texts, as any masked evaluator does; `--evaluator mdlm:FOLDER` names it.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from reviser.diffusion.denoiser import Mdlm
from reviser.diffusion.denoiser_folder import denoiser_tokenizer, load_denoiser
from reviser.errors import ConfigError
from reviser.evaluation.evaluator import Evaluator, hash_weights
from reviser.tokenizer import Tokenizer

NAMED = "mdlm:"


class Network:
    """Ids to scores of every text token at every place."""

    def __init__(self, model: Mdlm) -> None:
        self.model, self.config = model, SimpleNamespace(model_type=model.family)
        self.device, self.dtype = model.head_weight.device, model.head_weight.dtype

    def __call__(self, input_ids: Tensor) -> SimpleNamespace:
        hidden = self.model.hidden(input_ids)
        return SimpleNamespace(logits=self.model.logits(hidden)[..., : self.model.config.num_text])


class Reader:
    """Our tokenizer with the words that `transformers` has for it."""

    is_fast, eos_token_id = True, None
    bos_token_id: int | None = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.mask_token_id = tokenizer, tokenizer.alphabet.none
        self.all_special_ids = [self.mask_token_id]

    def __call__(self, text: str, return_offsets_mapping: bool = True) -> dict[str, Any]:
        ids = self.tokenizer.encode(text)
        return {"input_ids": ids, "offset_mapping": find_spans(self.tokenizer.pieces(ids))}


def find_spans(pieces: list[str]) -> list[tuple[int, int]]:
    """Where each token's characters stand; all tokens of one character have its place."""
    spans: list[tuple[int, int]] = []
    end = sum(map(len, pieces))
    for piece in reversed(pieces):
        spans.append(spans[-1] if not piece and spans else (end - len(piece), end))
        end -= len(piece)
    return spans[::-1]


def open_mdlm(name: str, kind: str, device: str, dtype: str) -> Evaluator:
    """The evaluator of `mdlm:FOLDER`."""
    if kind not in ("auto", "masked"):
        raise ConfigError(f"evaluator {name} is a masked model, but a {kind} one is needed; give another")
    folder = Path(name.removeprefix(NAMED))
    model = load_denoiser(folder, device, getattr(torch, dtype))
    if not isinstance(model, Mdlm):
        raise ConfigError(f"evaluator {name} is {model.family}, whose scores are not probabilities; give an MDLM")
    reader = Reader(denoiser_tokenizer(folder))
    return Evaluator(name, hash_weights(folder), "masked", Network(model), reader, model.config.context)
