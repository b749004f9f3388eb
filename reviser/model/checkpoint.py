"""Model folders: a model and its tokenizer in, four files out, and back.

    config.json         the settings, what the tokenizer's sha256 must be
    model.safetensors   the weights, exactly V + 34 action rows
    tokenizer.json      text <-> tokens
    README.md           the model card

>>> save_pretrained(model, "my-model", tokenizer)  # doctest: +SKIP
>>> model = from_pretrained("my-model", device="cuda", dtype=torch.bfloat16)  # doctest: +SKIP

A folder appears whole or not at all, and nothing in it is executed when it is read.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from reviser import config as settings
from reviser import tokenizer as tokenizers
from reviser.config import ModelConfig
from reviser.errors import CheckpointError, ConfigError, MissingPackageError, TokenizerError
from reviser.model.card import model_card
from reviser.model.transformer import Transformer
from reviser.tokenizer import Tokenizer

CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "README.md"
FORMAT, VERSION = "reviser", 1

ACTION_TABLES = ("embedding.weight", "head.weight")
"""Tensors with padding rows in memory that no file holds."""


@dataclass(frozen=True)
class FolderConfig:
    """What config.json says."""

    model: ModelConfig
    tokenizer_sha256: str | None = None
    missing_tokenizer: str | None = None
    """Name of the tokenizer that is wanted where the folder holds none."""
    format: str = FORMAT
    version: int = VERSION


def save_pretrained(
    model: Transformer,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer | None,
    *,
    notes: str = "",
    missing_tokenizer: str | None = None,
    dtype: torch.dtype | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a model folder; `notes` go into its card, `dtype` rounds the weights."""
    target = Path(folder)
    if target.exists() and not overwrite:
        raise CheckpointError(f"{target} already exists; give another folder, or remove it first")
    if tokenizer is not None:
        check_tokenizer(model.config, tokenizer)
    sha256 = None if tokenizer is None else tokenizer.sha256
    described = FolderConfig(model.config, sha256, missing_tokenizer)
    tensors = {name: tensor.to("cpu", dtype).contiguous() for name, tensor in weights(model).items()}
    with _draft(target) as draft:
        settings.dump(described, draft / CONFIG)
        save_file(tensors, draft / WEIGHTS, metadata={"format": "pt"})
        (draft / CARD).write_text(model_card(model.config, sha256, missing_tokenizer, notes), encoding="utf-8")
        if tokenizer is not None:
            tokenizer.save(draft)
    return target


def from_pretrained(
    spec: str | os.PathLike[str],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Transformer:
    """The model of a folder or hub id, ready to evaluate."""
    folder = find(spec)
    config = read_config(folder).model
    with torch.device("meta"):
        model = Transformer(config)
    model.to_empty(device=device)
    load_weights(model, read_weights(folder / WEIGHTS), str(folder / WEIGHTS))
    return model.to(dtype).eval()


def tokenizer_of(spec: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a model folder or hub id; one that the folder only names is loaded by name."""
    folder = find(spec)
    described = read_config(folder)
    if not (folder / TOKENIZER).is_file():
        if described.missing_tokenizer is None:
            raise CheckpointError(f"{folder} holds no {TOKENIZER}; copy the one the model was trained with there")
        tokenizer = tokenizers.load(described.missing_tokenizer)
    else:
        tokenizer = tokenizers.load(folder / TOKENIZER)
        if tokenizer.sha256 != described.tokenizer_sha256:
            raise CheckpointError(f"{folder / TOKENIZER} is not the tokenizer the model was trained with")
    check_tokenizer(described.model, tokenizer)
    return tokenizer


def check_tokenizer(config: ModelConfig, tokenizer: Tokenizer) -> None:
    """A tokenizer with other ids than the model's is an error."""
    if (tokenizer.num_text, tokenizer.pad) != (config.num_text, config.pad):
        raise TokenizerError(
            f"the tokenizer has {tokenizer.num_text} tokens and pad {tokenizer.pad}, "
            f"the model {config.num_text} and {config.pad}; give the one the model was made with"
        )


def find(spec: str | os.PathLike[str]) -> Path:
    """The folder of a model: a path, or a hub id that is fetched."""
    folder = Path(spec)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{folder} is a file; give the model's folder")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(spec)):
        raise CheckpointError(f"no model folder {spec}; give a folder, or a hub id like name/model")
    return _fetch(str(spec))


def _fetch(hub_id: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        needed_for = f"{hub_id} is no folder here, and fetching it"
        raise MissingPackageError("huggingface_hub", needed_for, "pip install huggingface_hub") from error
    try:
        return Path(snapshot_download(hub_id, allow_patterns=[CONFIG, WEIGHTS, TOKENIZER, CARD]))
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"{hub_id} is no folder here, and not on the hub or out of reach: {reason}") from error


def read_config(folder: Path) -> FolderConfig:
    """The checked config.json of a model folder."""
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{folder} is no model folder: it holds no {CONFIG}")
    try:
        described = settings.load(FolderConfig, path)
    except ConfigError as error:
        raise CheckpointError(f"{path} does not describe a model: {error}") from error
    if (described.format, described.version) != (FORMAT, VERSION):
        found = f"{described.format} {described.version}"
        raise CheckpointError(f"{path} has the format {found}; this version reads {FORMAT} {VERSION}")
    return described


def weights(model: Transformer) -> dict[str, Tensor]:
    """The model's tensors as files hold them: no padding rows."""
    size = model.config.alphabet.size
    tensors: dict[str, Tensor] = model.state_dict()
    return {name: tensor[:size] if name in ACTION_TABLES else tensor for name, tensor in tensors.items()}


@torch.no_grad()
def load_weights(model: Transformer, tensors: Mapping[str, Tensor], source: str) -> None:
    """Copy tensors into the model; `source` is named when one is missing, unexpected or misshapen."""
    wanted = weights(model)
    for name in sorted(wanted.keys() ^ tensors.keys()):
        problem = "is missing" if name in wanted else "is not part of the model"
        raise CheckpointError(f"{source}: tensor {name} {problem}")
    for name, place in wanted.items():
        given = tensors[name]
        if given.shape != place.shape:
            shapes = f"{tuple(given.shape)}, the config wants {tuple(place.shape)}"
            raise CheckpointError(f"{source}: tensor {name} has the shape {shapes}")
        place.copy_(given)
    for name in ACTION_TABLES:
        if name in wanted:
            model.get_parameter(name)[model.config.alphabet.size :].zero_()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or cut short ({error}); copy it again") from error


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` when all went well."""
    draft, old = (target.with_name(f".{target.name}.{os.getpid()}.{kind}") for kind in ("new", "old"))
    draft.mkdir(parents=True)
    try:
        yield draft
        if target.exists():
            target.rename(old)
        draft.rename(target)
    finally:
        for leftover in (draft, old):
            shutil.rmtree(leftover, ignore_errors=True)
