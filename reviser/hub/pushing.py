"""A model folder to the hub: it must load here first, and then all its files arrive in one commit or none does.

>>> push("runs/mine/model", "me/mine", private=True)  # doctest: +SKIP
Pushed(url='https://huggingface.co/me/mine', commit='8f3b...', files=('config.json', ...), num_bytes=30721158, ...)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reviser.diffusion.denoiser_folder import load_model, load_tokenizer
from reviser.errors import CheckpointError, HubError
from reviser.hub.hub_client import FILES, HINT, Hub, check_name, explaining, import_client
from reviser.model.folder import CONFIG, FORMATS, find, read_config

MAIN = "main"
"""The branch that every model has."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What was sent, and where it is now."""

    url: str
    commit: str
    files: tuple[str, ...]
    num_bytes: int
    left_out: tuple[str, ...]
    """What else the folder holds."""


def push(
    folder: str | os.PathLike[str],
    name: str,
    *,
    revision: str = MAIN,
    private: bool = False,
    hub: Hub | None = None,
) -> Pushed:
    """Send a model folder, or that of a run; `revision` is a branch, which is made where it is missing."""
    hub = hub or Hub()
    source = check_folder(folder)
    api = hub.connect()
    check_name(name)
    if not hub.has_token:
        raise HubError(f"pushing {name} needs a token; {HINT}")
    with explaining(hub, "push", name, revision):
        _prepare(api, name, private)
        if revision != MAIN:
            api.create_branch(name, branch=revision, exist_ok=True)
        files = tuple(each for each in FILES if (source / each).is_file())
        add = import_client().CommitOperationAdd
        done = api.create_commit(
            name,
            [add(path_in_repo=each, path_or_fileobj=source / each) for each in files],
            commit_message="Push a model folder of reviser",
            revision=revision,
        )
    num_bytes = sum((source / each).stat().st_size for each in files)
    others = sorted(path.name for path in source.iterdir() if path.name not in files)
    return Pushed(f"{api.endpoint}/{name}", str(done.oid), files, num_bytes, tuple(others))


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """The model folder of a path, once it has been loaded and has a checksum that others can compare."""
    if not Path(folder).is_dir():
        raise CheckpointError(f"no model folder {folder}; give one that is here")
    source = find(folder)
    load_model(source)
    load_tokenizer(source)
    if read_config(source, FORMATS).weights_sha256 is None:
        raise CheckpointError(
            f"{source / CONFIG} has no weights_sha256, which version 0.1 did not write; "
            f"run: reviser pack {source} NEW --weights float32, and push that"
        )
    return source


def _prepare(api: Any, name: str, private: bool) -> None:
    """Make the model's place at the hub; one that everybody reads is never taken for a private one."""
    if private and api.repo_exists(name) and not api.model_info(name).private:
        raise HubError(f"{name} is public already; push without --private, or give another name")
    api.create_repo(name, private=True if private else None, exist_ok=True)
