"""Model folders of denoisers: the four files of every model folder, with the family as the format's name.

>>> save_denoiser(model, "my-mdlm", tokenizer)  # doctest: +SKIP
>>> family_of("my-mdlm")  # doctest: +SKIP
'mdlm'
>>> model, tokenizer = load_denoiser("my-mdlm"), denoiser_tokenizer("my-mdlm")  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from reviser import tokenizer as tokenizers
from reviser.diffusion.denoiser import FAMILIES, Denoiser, num_parameters
from reviser.diffusion.published import describe, is_published, load_published, published_tokenizer
from reviser.errors import CheckpointError
from reviser.model import checkpoint
from reviser.model.checkpoint import (
    check_tokenizer,
    from_pretrained,
    load_weights,
    pack_folder,
    read_weights,
    replacing_folder,
    tokenizer_of,
    write_weights,
)
from reviser.model.folder import (
    CARD,
    CONFIG,
    FORMAT,
    TOKENIZER,
    WEIGHTS,
    FolderConfig,
    Trained,
    Weights,
    checking_weights,
    find,
    read_config,
)
from reviser.model.quantize import check_packed, matrices, pack
from reviser.model.transformer import Transformer
from reviser.tokenizer import Tokenizer

HEAD = """---
library_name: reviser
pipeline_tag: text-generation
---
# {title}

It reads a canvas with masked places, both ways, and scores what stands there: a baseline for models that write by
editing.

```python
from reviser.diffusion.denoiser_folder import load_denoiser
model = load_denoiser("path/of/this/folder")
```
"""
TITLES = {
    "mdlm": "A masked diffusion language model (MDLM, Sahoo et al. 2024)",
    "sedd": "A score entropy discrete diffusion model (SEDD absorb, Lou et al. 2024)",
}


def save_denoiser(
    model: Denoiser,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer,
    *,
    weights: Weights = "float32",
    trained: Trained | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a model folder; `trained` goes into its card, `weights` says how its matrices are rounded."""
    target = Path(folder)
    if target.exists() and not overwrite:
        raise CheckpointError(f"{target} already exists; give another folder, or remove it first")
    check_tokenizer(model.config, tokenizer)
    folder_config = FolderConfig(
        model.config, tokenizer.sha256, format=model.family, weights=weights, trained=trained
    )
    tensors = pack(checkpoint.weights(model), matrices(model), weights)
    with replacing_folder(target) as part:
        write_weights(part, tensors, folder_config)
        (part / CARD).write_text(_card(folder_config), encoding="utf-8")
        tokenizer.save(part)
    return target


def load_denoiser(
    spec: str | os.PathLike[str], device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Denoiser:
    """The denoiser of a folder or hub id, ready to evaluate."""
    folder = find(spec)
    folder_config = read_denoiser(folder)
    with torch.device("meta"):
        model = FAMILIES[folder_config.format](folder_config.model).to(dtype)
    model.to_empty(device=device)
    with checking_weights(folder, folder_config):
        tensors = read_weights(folder / WEIGHTS)
        check_packed(tensors, matrices(model), folder_config.weights, str(folder / WEIGHTS))
        load_weights(model, tensors, str(folder / WEIGHTS))
    return model.eval()


def denoiser_tokenizer(spec: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a denoiser's folder or hub id."""
    folder = find(spec)
    folder_config = read_denoiser(folder)
    tokenizer = tokenizers.load(folder / TOKENIZER)
    if tokenizer.sha256 != folder_config.tokenizer_sha256:
        raise CheckpointError(f"{folder / TOKENIZER} is not the tokenizer the model was trained with")
    check_tokenizer(folder_config.model, tokenizer)
    return tokenizer


def load_model(spec: str | os.PathLike[str], device: torch.device | str = "cpu") -> Transformer:
    """The model of any family's folder, or of published:MODEL, ready to evaluate."""
    if is_published(spec):
        return load_published(spec, device)
    return load_denoiser(spec, device) if family_of(spec) in FAMILIES else from_pretrained(spec, device)


def load_tokenizer(spec: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of any family's folder, or of published:MODEL."""
    if is_published(spec):
        return published_tokenizer()
    return denoiser_tokenizer(spec) if family_of(spec) in FAMILIES else tokenizer_of(spec)


def read_denoiser(folder: Path) -> FolderConfig:
    """The checked config.json of a denoiser's folder."""
    family = family_of(folder)
    if family not in FAMILIES:
        raise CheckpointError(f"{folder / CONFIG} has the format {family}; denoisers are {', '.join(FAMILIES)}")
    return read_config(folder, FAMILIES)


def pack_model(spec: str | os.PathLike[str], folder: str | os.PathLike[str], weights: Weights) -> Path:
    """Write a copy of any family's folder with its matrices in another format."""
    if family_of(spec) not in FAMILIES:
        return pack_folder(spec, folder, weights)
    model, tokenizer, trained = load_denoiser(spec), denoiser_tokenizer(spec), read_denoiser(find(spec)).trained
    return save_denoiser(model, folder, tokenizer, weights=weights, trained=trained)


def family_of(spec: str | os.PathLike[str]) -> str:
    """The format's name of a model folder, a hub id or published:MODEL: reviser, mdlm or sedd."""
    if is_published(spec):
        return describe(spec).family
    folder = find(spec)
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{folder} is not a model folder: it holds no {CONFIG}")
    try:
        values = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} does not describe a model: {error}") from error
    return str(values.get("format", FORMAT)) if isinstance(values, dict) else FORMAT


def _card(folder_config: FolderConfig) -> str:
    config, trained = folder_config.model, folder_config.trained
    found = {
        "parameters": f"{num_parameters(folder_config.format, config):,}",
        "layers, width, heads": f"{config.num_layers}, {config.width}, {config.num_heads}",
        "MLP": f"{config.ff_width} units, {config.activation}",
        "positions": f"{config.positions}, trained with canvases of at most {config.context}",
        "text tokens": f"{config.num_text:,}, padding among them: it ends a text",
        "tokenizer": f"tokenizer.json, sha256 {folder_config.tokenizer_sha256}",
    }
    if trained is not None:
        found |= {"trained": f"{trained.steps:,} steps, {trained.positions:,} positions: {trained.recipe}"}
        found |= {
            f"held-out {bound.job}": f"at most {bound.nats_per_token:.4f} "
            f"± {'-' if bound.error is None else f'{bound.error:.4f}'} nats per token, "
            f"{bound.bits_per_byte:.4f} bits per byte"
            for bound in trained.bounds
        }
    table = [f"| {name} | {value} |" for name, value in found.items()]
    return "\n".join([HEAD.format(title=TITLES[folder_config.format]), "| | |", "|---|---|", *table, ""])
