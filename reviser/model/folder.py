"""What a model folder says about itself, read without torch: a path or a hub id in, its checked config.json out.

    config.json         the model's settings, how its weights are held and their sha256, how it was trained
    model.safetensors   the weights, exactly V + 34 action rows
    tokenizer.json      text <-> tokens
    README.md           the model card, made from config.json

>>> read_config(find("runs/debug/model")).weights  # doctest: +SKIP
'float32'

The folder of a run stands for its finished model or, before that, for its newest checkpoint.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from reviser import config as settings
from reviser import tokenizer as tokenizers
from reviser.config import ModelConfig
from reviser.errors import CheckpointError, ConfigError, MissingPackageError, TokenizerError
from reviser.files import hash_file
from reviser.packages import HUB
from reviser.tokenizer import Tokenizer

CONFIG, WEIGHTS, TOKENIZER, CARD = "config.json", "model.safetensors", "tokenizer.json", "README.md"
RUN, CHECKPOINTS = "run.json", "checkpoints"
"""What only the folder of a run has; its models lie inside."""
FORMAT, VERSION = "reviser", 1
FORMATS = (FORMAT, "mdlm", "sedd")
"""The families that have model folders."""
SHIPPED = Path(__file__).parents[1] / "pretrained" / "reviser-small"
"""The model that comes with the package."""
SCALE = ".scale"
"""The suffix that the scales of an int8 matrix have after its name."""

Weights = Literal["float32", "bf16", "int8"]
"""How a folder holds its matrices; all else is float32."""


@dataclass(frozen=True)
class HeldoutBound:
    """The bound on a job's held-out text, measured when training ended."""

    job: str
    nats_per_token: float
    error: float | None
    bits_per_byte: float


@dataclass(frozen=True)
class Trained:
    """Where the weights come from."""

    order: str
    """The order policy, by its name."""
    jobs: str
    """How examples were cut, as settings of data.jobs."""
    recipe: str
    """The nearest recipe and what was changed, as `reviser train` takes it."""
    data_sha256: str
    """Which data it was, as the run's checkpoints say it."""
    steps: int
    positions: int
    """Of all rows of all steps, filled or not."""
    bounds: tuple[HeldoutBound, ...] = ()


@dataclass(frozen=True)
class FolderConfig:
    """What config.json says."""

    model: ModelConfig
    tokenizer_sha256: str | None = None
    missing_tokenizer: str | None = None
    """Name of the tokenizer to load where the folder holds none."""
    format: str = FORMAT
    version: int = VERSION
    weights: Weights = "float32"
    trained: Trained | None = None
    notes: str = ""
    """Text for the end of the card."""
    weights_sha256: str | None = None
    """Of model.safetensors; None in folders of version 0.1, which are loaded unchecked."""


def find(spec: str | os.PathLike[str] | None) -> Path:
    """The folder of a model: a path, a run folder, or a hub id; None and "shipped" are the shipped model."""
    if not (spec is None or isinstance(spec, str | os.PathLike)):
        raise ConfigError(
            f"{spec!r}, of type {type(spec).__name__}, names no model; give a folder, a hub id like name/model, or "
            "nothing for the shipped model"
        )
    folder = Path(SHIPPED if spec is None or spec == "shipped" else spec)
    if (folder / RUN).is_file():
        return folder / "model" if (folder / "model").is_dir() else _newest_checkpoint(folder)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{folder} is a file; give the model's folder")
    if folder == SHIPPED:
        raise CheckpointError("no model is shipped with this copy of reviser; give a model folder (--model FOLDER)")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(spec)):
        raise CheckpointError(f"no model folder {spec}; give a folder, or a hub id like name/model")
    return _fetch(str(spec))


def _newest_checkpoint(run: Path) -> Path:
    steps = checkpoint_steps(run)
    if not steps:
        raise CheckpointError(
            f"{run} is a run without a model or checkpoint yet; let it train longer, or give another folder"
        )
    newest = run / CHECKPOINTS / f"step-{steps[-1]:08d}"
    if not (newest / CONFIG).is_file():
        raise CheckpointError(
            f"{newest} was saved by an older version, without the {CONFIG} that loading it takes; "
            f"run: reviser train --resume {run}"
        )
    return newest


def checkpoint_steps(run: Path) -> list[int]:
    """The steps whose checkpoints a run folder holds, ascending."""
    try:
        names = os.listdir(run / CHECKPOINTS)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read {run / CHECKPOINTS}: {error.strerror}; make it readable") from None
    return sorted(int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit())


def _fetch(hub_id: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        needed_for = f"{hub_id} is not a folder here, and fetching it"
        raise MissingPackageError("huggingface_hub", needed_for, HUB) from error
    try:
        with quiet_hub():
            return Path(snapshot_download(hub_id, allow_patterns=[CONFIG, WEIGHTS, TOKENIZER, CARD]))
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(
            f"{hub_id} is not a folder here, and is not on the hub or cannot be reached: {reason}"
        ) from error


@contextmanager
def quiet_hub() -> Iterator[None]:
    """The hub's package logs every retry as a warning; what it gives up on is one error here."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def read_config(folder: Path, formats: Collection[str] = (FORMAT,)) -> FolderConfig:
    """The checked config.json of a model folder; `formats` are the families that will do."""
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{folder} is not a model folder: it holds no {CONFIG}")
    try:
        folder_config = settings.load(FolderConfig, path)
    except ConfigError as error:
        raise CheckpointError(f"{path} does not describe a model: {error}") from error
    if folder_config.format not in formats or folder_config.version != VERSION:
        found = f"{folder_config.format} {folder_config.version}"
        wanted = " or ".join(f"{each} {VERSION}" for each in formats)
        raise CheckpointError(f"{path} has the format {found}; this version reads {wanted}")
    return folder_config


def tokenizer_of(spec: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a model folder or hub id; one that the folder only names is loaded by name."""
    folder = find(spec)
    folder_config = read_config(folder)
    if not (folder / TOKENIZER).is_file():
        if folder_config.missing_tokenizer is None:
            raise CheckpointError(f"{folder} holds no {TOKENIZER}; copy the one the model was trained with there")
        tokenizer = tokenizers.load(folder_config.missing_tokenizer)
    else:
        tokenizer = tokenizers.load(folder / TOKENIZER)
        if tokenizer.sha256 != folder_config.tokenizer_sha256:
            raise CheckpointError(f"{folder / TOKENIZER} is not the tokenizer the model was trained with")
    check_tokenizer(folder_config.model, tokenizer)
    return tokenizer


def check_tokenizer(config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer whose ids are not the model's."""
    if (tokenizer.num_text, tokenizer.pad) != (config.num_text, config.pad):
        raise TokenizerError(
            f"the tokenizer has {tokenizer.num_text} tokens and pad {tokenizer.pad}, "
            f"the model {config.num_text} and {config.pad}; give the one the model was trained with"
        )


@contextmanager
def open_weights(path: Path, framework: Literal["numpy", "pt"]) -> Iterator[Any]:
    """A safetensors file; one that is missing or cut short is an error."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or cut short ({error}); copy it again") from error


@contextmanager
def checking_weights(folder: Path, described: FolderConfig) -> Iterator[None]:
    """Refuse damaged weights, which would change texts and results in silence; hashed while the block runs."""
    path = folder / WEIGHTS
    if described.weights_sha256 is None:
        yield
        return
    with ThreadPoolExecutor(1) as beside:
        hashing = beside.submit(hash_file, path)
        yield
    found = hashing.result()
    if found != described.weights_sha256:
        raise CheckpointError(
            f"{path} is damaged or was replaced: its sha256 is {found[:12]}..., but {CONFIG} says "
            f"{described.weights_sha256[:12]}...; copy the folder again"
        )


def count_weights(path: Path) -> int:
    """How many parameters a safetensors file holds; scales are none."""
    with open_weights(path, "numpy") as file:
        names = set(file.keys())
        parameters = names - {name + SCALE for name in names}
        sizes = [file.get_slice(name).get_shape() for name in parameters]
    return sum(map(math.prod, sizes))
