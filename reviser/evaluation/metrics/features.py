"""Features of texts: numbers that say where a text lies among others, for MAUVE.

| named by | a text's features, from its first tokens |
|---|---|
| `mean:NAME` | the mean of a model's last states, [D] |
| `last:NAME` | the state at its last token, [D] (Pillutla et al. 2021) |
| `logp:NAME` | log p of each token from those before it, by a causal model, [num_tokens]; 0 behind the text's end |
| `bert:NAME` | log p of each token from all others, by a masked model, [num_tokens]; 0 behind the text's end |

NAME is an evaluator's: a short name, a folder, a GGUF file, a hub id. A token's log p under `bert` is taken with that
token alone masked (Salazar et al. 2020), one pass of the model for each token.

>>> parse("bert:bert-base-uncased"), parse("smollm2")
(('bert', 'bert-base-uncased'), ('mean', 'smollm2'))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from reviser.evaluation.evaluator import Evaluator, Kind
from reviser.evaluation.evaluators import load

Features = npt.NDArray[np.float32]
KINDS: dict[str, Kind] = {"mean": "encoder", "last": "encoder", "logp": "causal", "bert": "masked"}
"""Ways to make features, and the kind of model each takes."""
DEFAULT = "mean"
Row = tuple[list[int], list[int]]
"""The ids that a model reads of a text, and the places of those that are the text's own."""


def parse(text: str) -> tuple[str, str]:
    """The way and the model of WAY:NAME, or of NAME alone."""
    way, _, name = text.partition(":")
    return (way, name) if way in KINDS and name else (DEFAULT, text)


def load_features(text: str, device: str = "cpu", dtype: str = "float32", has_remote_code: bool = False) -> Evaluator:
    way, name = parse(text)
    return load(name, KINDS[way], device, dtype, has_remote_code)


def embed(
    encoder: Evaluator,
    texts: Sequence[str],
    way: str = DEFAULT,
    num_tokens: int = 100,
    batch: int = 32,
    advance: Callable[[int], None] = lambda _: None,
) -> Features:
    """[n, D]: the features of each text's first tokens, special ones around them not counted."""
    room = min(num_tokens + encoder.tokenizer.num_special_tokens_to_add(), encoder.limit)
    order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
    features: dict[int, Features] = {}
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        rows = [_tokenise(encoder, texts[index], room) for index in part]
        if way == "bert":
            made = _pseudo_likelihoods(encoder, rows, num_tokens, batch)
        elif way == "logp":
            made = _likelihoods(encoder, rows, num_tokens)
        else:
            made = _states(encoder, [ids for ids, _ in rows], way == "last")
        features |= zip(part, made, strict=True)
        advance(len(part))
    return np.stack([features[index] for index in range(len(texts))])


def _tokenise(encoder: Evaluator, text: str, room: int) -> Row:
    tokenizer = encoder.tokenizer
    found = tokenizer(text.strip(), truncation=True, max_length=room, return_special_tokens_mask=True)
    ids, first = list(found["input_ids"]), int(encoder.has_start)
    own = [first + place for place, is_special in enumerate(found["special_tokens_mask"]) if not is_special]
    return [tokenizer.bos_token_id] * first + ids, own


def _states(encoder: Evaluator, rows: Sequence[list[int]], is_last: bool) -> Features:
    # An empty text without special tokens is one padding token, the same for every such text.
    ids, mask = _pad(encoder, [row or [0] for row in rows])
    with torch.inference_mode():
        states = encoder.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state.float()
    lengths = mask.sum(1)
    last = states[torch.arange(len(rows), device=states.device), lengths - 1]
    made: Features = (last if is_last else (states * mask[..., None]).sum(1) / lengths[:, None]).cpu().numpy()
    return made


def _likelihoods(encoder: Evaluator, rows: Sequence[Row], num_tokens: int) -> Features:
    """[n, num_tokens]: log p of each of a text's tokens from those before; 0 where none stand before."""
    made = np.zeros((len(rows), num_tokens), np.float32)
    ids, mask = _pad(encoder, [ids or [0] for ids, _ in rows])
    with torch.inference_mode():
        logits = encoder.model(input_ids=ids, attention_mask=mask.long()).logits
        for row, (_, own) in enumerate(rows):
            first = int(bool(own) and own[0] == 0)
            at = torch.tensor(own[first:], dtype=torch.int64, device=ids.device)
            chosen = logits[row, at - 1].float().log_softmax(-1).gather(1, ids[row, at, None])
            made[row, first : len(own)] = chosen[:, 0].cpu().numpy()
    return made


def _pseudo_likelihoods(encoder: Evaluator, rows: Sequence[Row], num_tokens: int, batch: int) -> Features:
    """[n, num_tokens]: log p of each of a text's tokens from all others."""
    made = np.zeros((len(rows), num_tokens), np.float32)
    spots = [(row, number, place) for row, (_, own) in enumerate(rows) for number, place in enumerate(own)]
    for start in range(0, len(spots), batch):
        part = spots[start : start + batch]
        ids, mask = _pad(encoder, [rows[row][0] for row, _, _ in part])
        here = torch.arange(len(part), device=ids.device)
        at = torch.tensor([place for _, _, place in part], device=ids.device)
        wanted = ids[here, at]
        ids[here, at] = encoder.tokenizer.mask_token_id
        with torch.inference_mode():
            logits = encoder.model(input_ids=ids, attention_mask=mask.long()).logits[
                here, at - int(encoder.is_shifted)
            ]
        found = logits.float().log_softmax(-1)[here, wanted].cpu().numpy()
        made[[row for row, _, _ in part], [number for _, number, _ in part]] = found
    return made


def _pad(encoder: Evaluator, rows: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """ids and mask [B, T], padded on the right."""
    T = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (T - len(row))] for row in rows], device=encoder.device)
    lengths = torch.tensor([len(row) for row in rows], device=encoder.device)
    return ids, torch.arange(T, device=encoder.device) < lengths[:, None]
