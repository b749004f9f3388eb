"""A model of the hub to a folder: fetched aside, loaded and compared with its checksums, and only then put in place.

>>> pull("me/mine", "mine", revision="v1")  # doctest: +SKIP
Pulled(folder=PosixPath('mine'), commit='8f3b...', files=('config.json', ...), num_bytes=30721158, left_out=())

What the hub holds besides a model folder's files is not fetched. Files larger than `LIMITS` are refused before they
are fetched, and one that turns out larger than the hub said is refused while it is.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reviser.diffusion.denoiser_folder import load_model, load_tokenizer
from reviser.errors import CheckpointError, HubError, ReviserError
from reviser.hub.hub_client import FILES, Hub, check_name, explaining, import_client
from reviser.model.checkpoint import replacing_folder
from reviser.model.folder import CARD, CONFIG, FORMATS, TOKENIZER, WEIGHTS, read_config

LIMITS = {CONFIG: 1 << 20, CARD: 1 << 20, TOKENIZER: 64 << 20, WEIGHTS: 16 << 30}
"""The most bytes of each file; far beyond any model that this package trains."""
OF_THE_HUB = (".gitattributes",)
"""What the hub adds to every model."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What was fetched, and from which commit."""

    folder: Path
    commit: str
    files: tuple[str, ...]
    num_bytes: int
    left_out: tuple[str, ...]
    """What else the hub holds under that name."""


def pull(
    name: str,
    folder: str | os.PathLike[str],
    *,
    revision: str | None = None,
    force: bool = False,
    hub: Hub | None = None,
) -> Pulled:
    """Fetch a model; `revision` is a branch, a tag or a commit, and `force` replaces a model folder."""
    hub, target = hub or Hub(), Path(folder)
    check_name(name)
    _check_target(target, force)
    api = hub.connect()
    with explaining(hub, "pull", name, revision):
        listed = api.model_info(name, revision=revision, files_metadata=True)
        sizes = {each.rfilename: each.size for each in listed.siblings or ()}
    wanted = _check_listing(name, sizes)
    with replacing_folder(target) as part:
        _check_room(part, sum(wanted.values()))
        with explaining(hub, "pull", name, revision):
            for file, size in wanted.items():
                _fetch(api, name, file, str(listed.sha), part, size)
        _check_model(name, part)
    others = sorted(sizes.keys() - wanted.keys() - set(OF_THE_HUB))
    return Pulled(target, str(listed.sha), tuple(wanted), sum(wanted.values()), tuple(others))


def _check_target(target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not force:
        raise CheckpointError(f"{target} already exists; give another folder, or replace it with --force")
    if not (target / CONFIG).is_file():
        raise CheckpointError(f"{target} is no model folder, so --force does not replace it; give another folder")


def _check_listing(name: str, sizes: dict[str, int | None]) -> dict[str, int]:
    """How many bytes each file has that is to be fetched."""
    for file in (CONFIG, WEIGHTS):
        if file not in sizes:
            raise CheckpointError(f"{name} is no model folder: it holds no {file}; give a model that reviser pushed")
    wanted: dict[str, int] = {}
    for file in FILES:
        if file not in sizes:
            continue
        size, most = sizes[file], LIMITS[file]
        if size is None:
            raise HubError(f"the hub does not say how large {file} of {name} is; nothing was fetched")
        if size > most:
            raise CheckpointError(
                f"{file} of {name} has {size:,} bytes, but at most {most:,} are fetched; give another model"
            )
        wanted[file] = size
    return wanted


def _check_room(part: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(part).free
    if num_bytes > free:
        raise CheckpointError(
            f"the model has {num_bytes:,} bytes, but only {free:,} are free at {part.parent}; "
            "free some space or give a folder elsewhere"
        )


def _fetch(api: Any, name: str, file: str, commit: str, part: Path, size: int) -> None:
    # Of one commit, so that files of two pushes are never mixed.
    api.hf_hub_download(name, file, revision=commit, local_dir=part, tqdm_class=_bounded(size))
    shutil.rmtree(part / ".cache", ignore_errors=True)  # the client's notes
    if (found := (part / file).stat().st_size) != size:
        raise HubError(f"{file} of {name} came with {found:,} bytes, but the hub says {size:,}; run it again")


def _bounded(size: int) -> Any:
    """A progress bar, shown in terminals alone, that ends the download of a file with more bytes than were named."""
    bar: Any = import_client().utils.tqdm

    class BoundedBar(bar):  # type: ignore[misc]
        num_seen: float = 0

        def update(self, n: float | None = 1) -> Any:
            self.num_seen += n or 0
            if self.num_seen > size:
                raise HubError(f"more than the {size:,} bytes that the hub had named were sent; nothing was kept")
            return super().update(n)

    return BoundedBar


def _check_model(name: str, part: Path) -> None:
    """Load it all, which compares the checksums of settings, weights and tokenizer."""
    try:
        described = read_config(part, FORMATS)
        if described.weights_sha256 is None:
            raise CheckpointError(f"{part / CONFIG} has no weights_sha256, so that nothing can be checked")
        load_model(part)
        load_tokenizer(part)
    except ReviserError as error:
        text = str(error).replace(f"{part}{os.sep}", f"{name}: ").replace(str(part), name)
        raise CheckpointError(f"{text}; nothing was kept") from error
