"""The author's published checkpoints: his .pt file in, a model folder out.

His file is a dict that holds the state dict under `model` among optimizer states, or the bare state dict. The
shape is read off the tensors alone, since released files need not carry a config. Rotary tables are computed,
not read, and his canvas tensors are dropped: they were never trained (history-only trunk).

>>> import_checkpoint("reviser_100m.pt", "reviser-100m")  # doctest: +SKIP
"""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from reviser import tokenizer as tokenizers
from reviser.actions import NUM_SPECIAL
from reviser.config import ModelConfig
from reviser.errors import CheckpointError, MissingPackageError
from reviser.model.checkpoint import load_weights, save_pretrained, weights
from reviser.model.transformer import Transformer, make_meta, num_parameters
from reviser.tokenizer import Tokenizer

PREFIX = re.compile(r"^(?:module\.|_orig_mod\.)+")
DROPPED = re.compile(r"(?:^|\.)rope\.|^canvas_")
LAYER = re.compile(r"layers\.layers\.(\d+)\.")
THETA = 10000.0
HEAD_WIDTH = 64
"""Of both published models; a file without rotary tables does not say."""

EMBEDDING, HEAD, POSITIONS = (
    "token_embedding.embedding.weight",
    "output_proj.weight",
    "position_embedding.weight",
)
FIRST_MLP = "layers.layers.0.mlp.fc1.weight"

QKV = "attention.qkv.weight"
BLOCK = {f"self_attn.{which}_proj.weight": QKV for which in "qkv"}
"""His names inside a layer to ours; queries, keys and values are stacked in this order."""
BLOCK |= {"self_attn.o_proj.weight": "attention.out.weight"}
for _part in ("weight", "bias"):
    BLOCK |= {f"ln_self_attn.{_part}": f"attention_norm.{_part}", f"ln_mlp.{_part}": f"mlp_norm.{_part}"}
    BLOCK |= {f"mlp.fc1.{_part}": f"mlp.up.{_part}", f"mlp.fc2.{_part}": f"mlp.down.{_part}"}


@dataclass(frozen=True)
class Imported:
    """What was found in the author's file, and where it was written."""

    folder: Path
    config: ModelConfig
    num_parameters: int
    missing_tokenizer: str | None


def import_checkpoint(
    file: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] = "gpt2",
) -> Imported:
    """Convert one file; where the tokenizer's package is not installed, the folder says which it needs."""
    tensors = read_tensors(file)
    words, missing = _tokenizer(tokenizer)
    config = infer_config(tensors, str(file))
    if words is not None and words.num_text == config.num_text:
        config = replace(config, pad=words.pad)
    model = make_meta(config)
    model.to_empty(device="cpu")
    load_weights(model, rename(tensors, model, str(file)), str(file))
    notes = f"Converted from the author's checkpoint `{Path(file).name}`; canvas and rotary tensors dropped."
    path = save_pretrained(model, folder, words, notes=notes, missing_tokenizer=missing)
    return Imported(path, config, num_parameters(config), missing)


def read_tensors(file: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The state dict of either layout, prefixes of wrappers stripped; nothing in the file is executed."""
    if not Path(file).is_file():
        raise CheckpointError(f"no file {file}")
    try:
        is_zip = zipfile.is_zipfile(file)
        if is_zip:
            _check_sums(file)
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip)
    except (
        RuntimeError,
        pickle.UnpicklingError,
        EOFError,
        OSError,
        ValueError,
        KeyError,
        zipfile.BadZipFile,
    ) as error:
        reason = str(error).strip().partition("\n")[0].partition(". ")[0][:120]
        raise CheckpointError(
            f"{file} is not a checkpoint, or is damaged or cut short: {reason}; fetch the file again"
        ) from error
    state = found.get("model", found) if isinstance(found, dict) else found
    if not isinstance(state, dict) or not all(map(_is_tensor, state.items())):
        raise CheckpointError(f"{file} holds no state dict, neither under 'model' nor at the top level")
    return {PREFIX.sub("", name): value for name, value in state.items()}


def _is_tensor(item: tuple[object, object]) -> bool:
    return isinstance(item[0], str) and isinstance(item[1], Tensor)


def _check_sums(file: str | os.PathLike[str]) -> None:
    """Compare every part of a .pt file with its CRC, which torch ignores."""
    with zipfile.ZipFile(file) as parts:
        damaged = parts.testzip()
    if damaged is not None:
        raise ValueError(f"the CRC of {damaged} does not fit")


def infer_config(tensors: Mapping[str, Tensor], file: str) -> ModelConfig:
    """The model's shape, read off the tensors; padding is taken to be the last token, as in GPT-2."""
    rows, width = _shape(tensors, EMBEDDING, file)
    layers = {int(match[1]) for name in tensors if (match := LAYER.match(name))}
    ff_width, _ = _shape(tensors, FIRST_MLP, file)
    if layers != set(range(len(layers))):
        lacking = next(number for number in range(len(layers)) if number not in layers)
        raise CheckpointError(f"{file}: it has a layer {max(layers)}, but no layer {lacking}")
    is_absolute = POSITIONS in tensors
    num_text = rows - NUM_SPECIAL
    if num_text < 1:
        raise CheckpointError(f"{file}: tensor {EMBEDDING} has {rows} rows, of which {NUM_SPECIAL} are not text")
    return ModelConfig(
        num_text=num_text,
        pad=num_text - 1,
        num_layers=max(layers) + 1,
        width=width,
        num_heads=width // _head_width(tensors, width, file),
        ff_width=ff_width,
        context=_shape(tensors, POSITIONS, file)[0] if is_absolute else _rope_rows(tensors, width),
        norm="layer",
        qk_norm=False,
        activation="gelu",
        positions="absolute" if is_absolute else "rope",
        rope_theta=THETA,
        tied=HEAD not in tensors,
        dropout=0.1,
    )


def names(config: ModelConfig) -> dict[str, str]:
    """Every tensor that a file of this shape holds, with our name for it."""
    pairs = {EMBEDDING: "embedding.weight", "final_ln.weight": "norm.weight", "final_ln.bias": "norm.bias"}
    pairs |= {} if config.tied else {HEAD: "head.weight"}
    pairs |= {POSITIONS: "positions.weight"} if config.positions == "absolute" else {}
    for layer in range(config.num_layers):
        pairs |= {f"layers.layers.{layer}.{his}": f"blocks.{layer}.{ours}" for his, ours in BLOCK.items()}
    return pairs


def rename(tensors: Mapping[str, Tensor], model: Transformer, file: str) -> dict[str, Tensor]:
    """The tensors under our names; a missing, unknown or misshapen one is named as the file names it."""
    pairs, wanted = names(model.config), weights(model)
    kept = {name: tensor for name, tensor in tensors.items() if not DROPPED.search(name)}
    for name in sorted(pairs.keys() ^ kept.keys()):
        problem = "is missing" if name in pairs else "is none of the author's"
        raise CheckpointError(f"{file}: tensor {name} {problem}")
    found: dict[str, list[Tensor]] = {}
    for name, ours in pairs.items():
        rows, *rest = wanted[ours].shape
        shape = (rows // 3, *rest) if ours.endswith(QKV) else (rows, *rest)
        if kept[name].shape != shape:
            given = tuple(kept[name].shape)
            raise CheckpointError(f"{file}: tensor {name} has the shape {given}, but its other tensors imply {shape}")
        found.setdefault(ours, []).append(kept[name])
    return {ours: torch.cat(parts) for ours, parts in found.items()}


def _shape(tensors: Mapping[str, Tensor], name: str, file: str) -> tuple[int, int]:
    if name not in tensors:
        raise CheckpointError(f"{file}: tensor {name} is missing")
    if tensors[name].ndim != 2:
        raise CheckpointError(f"{file}: tensor {name} has the shape {tuple(tensors[name].shape)}, not two sizes")
    rows, columns = tensors[name].shape
    return rows, columns


def _head_width(tensors: Mapping[str, Tensor], width: int, file: str) -> int:
    frequencies = tensors.get("rope.inv_freq")
    head_width = HEAD_WIDTH if frequencies is None else 2 * len(frequencies)
    if width % head_width:
        raise CheckpointError(f"{file}: width {width} does not divide into heads of {head_width}")
    if frequencies is not None:
        expected = THETA ** -(torch.arange(0, head_width, 2) / head_width)
        if not torch.allclose(frequencies.float(), expected, rtol=1e-4):
            raise CheckpointError(f"{file}: tensor rope.inv_freq is not that of theta {THETA:.0f}")
    return head_width


def _rope_rows(tensors: Mapping[str, Tensor], width: int) -> int:
    """Positions the model was trained with; without tables, those of the published model of its width."""
    if "rope.cos_cached" in tensors:
        return len(tensors["rope.cos_cached"])
    return 512 if width >= 896 else 256


def _tokenizer(spec: str | os.PathLike[str]) -> tuple[Tokenizer | None, str | None]:
    try:
        return tokenizers.load(spec if isinstance(spec, str) else Path(spec)), None
    except MissingPackageError:
        return None, str(spec)
