"""Model folders: a model and its tokenizer in, four files out, and back (folder.py says which).

>>> save_pretrained(model, "my-model", tokenizer)  # doctest: +SKIP
>>> model = from_pretrained("my-model", device="cuda", dtype=torch.bfloat16)  # doctest: +SKIP
>>> pack_folder("my-model", "my-small-model", "int8")  # doctest: +SKIP

A folder is written completely or not at all, and nothing in it is executed when it is read.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from reviser import config as settings
from reviser.errors import CheckpointError
from reviser.files import claimed, hash_file, remove_leftovers
from reviser.model.card import model_card
from reviser.model.conditioning import try_canvas
from reviser.model.folder import (
    CARD,
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    FolderConfig,
    Trained,
    Weights,
    check_tokenizer,
    checking_weights,
    find,
    open_weights,
    read_config,
    tokenizer_of,
)
from reviser.model.quantize import check_packed, fill, keep_rounded, matrices, pack, split_scales
from reviser.model.transformer import Transformer, make_meta, num_parameters
from reviser.tokenizer import Tokenizer

__all__ = [
    "CONFIG", "WEIGHTS", "FolderConfig", "Trained", "find", "read_config",
    "save_pretrained", "from_pretrained", "from_tensors", "pack_folder", "tokenizer_of", "check_tokenizer",
    "weights", "load_weights", "read_weights", "write_weights",
]  # fmt: skip

ACTION_TABLES = ("embedding.weight", "head.weight")
"""Tensors with padding rows in memory that no file holds."""


def save_pretrained(
    model: Transformer,
    folder: str | os.PathLike[str],
    tokenizer: Tokenizer | None,
    *,
    notes: str = "",
    missing_tokenizer: str | None = None,
    weights: Weights = "float32",
    trained: Trained | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a model folder; `notes` and `trained` go into its card, `weights` says how its matrices are rounded."""
    target = Path(folder)
    if not overwrite:
        _check_free(target)
    if tokenizer is not None:
        check_tokenizer(model.config, tokenizer)
    sha256 = None if tokenizer is None else tokenizer.sha256
    folder_config = FolderConfig(
        model.config, sha256, missing_tokenizer, weights=weights, trained=trained, notes=notes.strip()
    )
    tensors = _packed(model, weights)
    with replacing_folder(target) as part:
        write_weights(part, tensors, folder_config)
        (part / CARD).write_text(model_card(folder_config, num_parameters(model.config)), encoding="utf-8")
        if tokenizer is not None:
            tokenizer.save(part)
    return target


def write_weights(folder: Path, tensors: dict[str, Tensor], described: FolderConfig) -> None:
    """Write model.safetensors, and config.json with its sha256."""
    path = folder / WEIGHTS
    # One entry alone: several would be written in any order, and the file would have another sha256 each time.
    save_file(tensors, path, metadata={"weights": described.weights})
    settings.dump(replace(described, weights_sha256=hash_file(path)), folder / CONFIG)
    # safetensors makes the file readable by its owner alone.
    path.chmod((folder / CONFIG).stat().st_mode)


def from_pretrained(
    spec: str | os.PathLike[str],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Transformer:
    """The model of a folder or hub id, ready to evaluate."""
    folder = find(spec)
    folder_config, source = read_config(folder), folder / WEIGHTS
    with checking_weights(folder, folder_config):
        model = make_meta(folder_config.model)
        tensors = read_weights(source)
        check_packed(tensors, matrices(model), folder_config.weights, str(source))
        return from_tensors(model, tensors, str(source), device, dtype)


def from_tensors(
    model: Transformer,
    tensors: Mapping[str, Tensor],
    source: str,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Transformer:
    """A model of `make_meta`, with the tensors of a file as its weights, ready to evaluate."""
    _give_storage(model, device, dtype)
    load_weights(model, tensors, source)
    try_canvas(model)
    return model.eval()


def pack_folder(spec: str | os.PathLike[str], folder: str | os.PathLike[str], weights: Weights) -> Path:
    """Write a copy of a model folder with its matrices in another format."""
    _check_free(Path(folder))
    source = find(spec)
    folder_config = read_config(source)
    tokenizer = tokenizer_of(source) if (source / TOKENIZER).is_file() else None
    model = from_pretrained(source)
    try:
        return save_pretrained(
            model, folder, tokenizer, notes=folder_config.notes, missing_tokenizer=folder_config.missing_tokenizer,
            weights=weights, trained=folder_config.trained,
        )  # fmt: skip
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error


def weights(model: Transformer) -> dict[str, Tensor]:
    """The model's tensors as files hold them: no padding rows."""
    size = model.config.alphabet.size
    tensors: dict[str, Tensor] = model.state_dict()
    return {name: tensor[:size] if name in ACTION_TABLES else tensor for name, tensor in tensors.items()}


@torch.no_grad()
def load_weights(model: Transformer, tensors: Mapping[str, Tensor], source: str) -> None:
    """Copy tensors into the model; `source` is named when one is missing, unexpected or misshapen."""
    wanted = weights(model)
    found, scales = split_scales(tensors, source)
    for name in sorted(wanted.keys() ^ found.keys()):
        problem = "is missing" if name in wanted else "is not part of the model"
        raise CheckpointError(f"{source}: tensor {name} {problem}")
    for name, place in wanted.items():
        if found[name].shape != place.shape:
            shapes = f"{tuple(found[name].shape)}, but the config says {tuple(place.shape)}"
            raise CheckpointError(f"{source}: tensor {name} has the shape {shapes}")
        _check_finite(f"{source}: tensor {name}", scales.get(name, found[name]))
        fill(place, found[name], scales.get(name))
        if name in scales and name not in ACTION_TABLES:
            keep_rounded(model.get_parameter(name), found[name], scales[name])
    for name in ACTION_TABLES:
        if name in wanted:
            model.get_parameter(name)[model.config.alphabet.size :].zero_()


def _check_finite(what: str, tensor: Tensor) -> None:
    """Refuse NaN and infinity: a model with one of them scores nothing."""
    # aminmax is one pass without a copy; both ends are NaN where anything is.
    has_any = tensor.is_floating_point() and tensor.numel()
    if has_any and not all(end.isfinite() for end in tensor.aminmax()):
        raise CheckpointError(f"{what} holds NaN or infinity; copy the file again")


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    with open_weights(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def _give_storage(model: Transformer, device: torch.device | str, dtype: torch.dtype) -> None:
    """Like `to_empty`, which would import sympy and take longer than everything else here."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(torch.empty(parameter.shape, dtype=dtype, device=device)))


def _packed(model: Transformer, how: Weights) -> dict[str, Tensor]:
    return pack(weights(model), matrices(model), how)


def _check_free(target: Path) -> None:
    if target.exists():
        raise CheckpointError(f"{target} already exists; give another folder, or remove it first")


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """A new folder that takes the place of `target` when the block ends without an error."""
    part, old = (target.with_name(f".{target.name}.{os.getpid()}.{kind}") for kind in ("new", "old"))
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    for suffix in (".new", ".old"):
        remove_leftovers(target, suffix)
    part.mkdir()
    try:
        with claimed(part):
            yield part
            if target.exists():
                target.rename(old)
            part.rename(target)
    finally:
        for leftover in (part, old):
            shutil.rmtree(leftover, ignore_errors=True)
