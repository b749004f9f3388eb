"""Families of models: what the training loop asks of each, and which there are, by name.

The loop, the run folder, data, optimizers and checkpoints are the same for every family. A `Family` provides the
rest: the network, its loss, how examples become rows, what is measured on held-out text, and how a model folder is
written and read. `reviser` is one, the diffusion models `mdlm` and `sedd` are two more; `register_family`
adds others.

>>> find_family("reviser").name
'reviser'
>>> find_family("mdml")
Traceback (most recent call last):
reviser.errors.ConfigError: no family 'mdml'; families are reviser, mdlm, sedd; did you mean mdlm?
"""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from reviser.errors import ConfigError

if TYPE_CHECKING:
    from reviser.data.batches import Batch, RowPacker
    from reviser.data.shards import Shards
    from reviser.model.folder import Trained
    from reviser.model.transformer import Transformer
    from reviser.tokenizer import Tokenizer
    from reviser.training.distributed import Team
    from reviser.training.heldout import Texts
    from reviser.training.objective import Learner, Part
    from reviser.training.settings import RunConfig


Job = Literal["continue", "infill", "edit"]


class Family(Protocol):
    """A kind of model that can be trained."""

    @property
    def name(self) -> str:
        """As `family=NAME` in a config, and as the format of its model folders."""
        ...

    @property
    def uses_order(self) -> bool:
        """Whether it learns from trajectories, which data.order draws."""
        ...

    def make_model(self, settings: RunConfig) -> Transformer:
        """A model with fresh weights, on the CPU."""
        ...

    def make_objective(self, model: Transformer, settings: RunConfig, fuse: bool) -> Learner:
        """The model with its loss; `fuse` allows kernels that only a GPU has."""
        ...

    def make_packer(self, settings: RunConfig, tokenizer: Tokenizer | None) -> RowPacker:
        """What turns examples into rows."""
        ...

    def make_heldout(self, settings: RunConfig, shards: Shards, count: int, job: Job) -> Texts | None:
        """`count` held-out texts of a job; None where their likelihood cannot be bounded."""
        ...

    def prepare(self, batch: Batch, settings: RunConfig, team: Team) -> Part:
        """A batch as tensors on the host."""
        ...

    def write_samples(self, model: Transformer, tokenizer: Tokenizer, settings: RunConfig) -> str:
        """Texts for a person to read."""
        ...

    def save_model(self, model: Transformer, folder: Path, tokenizer: Tokenizer, trained: Trained) -> None:
        """Write the model folder, in place of one that is there."""
        ...

    def load_model(self, spec: str) -> Transformer:
        """The model of a folder or hub id."""
        ...

    def count_parameters(self, settings: RunConfig) -> int:
        """The parameters of a config's model, without making it."""
        ...


_PLACES = {
    "reviser": "reviser.training.reviser_family:REVISER",
    "mdlm": "reviser.diffusion.denoising_family:MDLM",
    "sedd": "reviser.diffusion.denoising_family:SEDD",
}
"""Where each family is, so that a name can be checked without importing torch, or the family's modules."""
_registered: dict[str, Family] = {}


def register_family(family: Family) -> None:
    """Make a family known by its name; a name that another kind of family has is an error."""
    known = _registered.get(family.name)
    # A cell of a notebook that is run again defines the same class again.
    is_other = known is not None and _name_of(known) != _name_of(family)
    if family.name in _PLACES or is_other:
        raise ConfigError(f"there is already a family {family.name!r}; give this one another name")
    _registered[family.name] = family


def _name_of(family: Family) -> tuple[str, str]:
    return type(family).__module__, type(family).__qualname__


def check_family(name: str) -> None:
    """A family that does not exist is an error."""
    known = list(dict.fromkeys([*_PLACES, *_registered]))
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"no family {name!r}; families are {', '.join(known)}{hint}")


def find_family(name: str) -> Family:
    """The family of a name."""
    check_family(name)
    if name not in _registered:
        module, _, attribute = _PLACES[name].partition(":")
        _registered[name] = cast(Family, getattr(importlib.import_module(module), attribute))
    return _registered[name]


def count_parameters(settings: RunConfig) -> int:
    """The parameters of a config's model, whatever its family."""
    return find_family(settings.family).count_parameters(settings)
