"""What a model folder says of its training: the settings of a run and where it ended in, `Trained` out.

>>> from reviser.actions import Alphabet
>>> from reviser.config import override
>>> from reviser.training.recipes import small
>>> recipe_of(override(small(Alphabet(8192, 0)), ["train.steps=600", "data.jobs.infill=0.3"]))
'small --set data.jobs.infill=0.3 --set train.steps=600'
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from reviser.config import to_dict
from reviser.model.folder import HeldoutBound, Trained
from reviser.training.families import find_family
from reviser.training.heldout import Bound
from reviser.training.recipes import RECIPES
from reviser.training.settings import RunConfig


def describe(settings: RunConfig, steps: int, data_sha256: str, bounds: Mapping[str, Bound]) -> Trained:
    """A run after some steps, with the bounds of its held-out text by job."""
    data = settings.data
    return Trained(
        data.order if find_family(settings.family).uses_order else settings.family,
        " ".join(f"{name}={value}" for name, value in _leaves(to_dict(data.jobs))),
        recipe_of(settings),
        data_sha256,
        steps,
        steps * settings.step_positions,
        tuple(
            HeldoutBound(job, bound.nats_per_token, bound.error, bound.bits_per_byte) for job, bound in bounds.items()
        ),
    )


def recipe_of(settings: RunConfig) -> str:
    """The recipe with the fewest changes that gives these settings, as `reviser train` takes it."""
    wanted = dict(_leaves(to_dict(settings)))
    recipes = {name: recipe(settings.model.alphabet) for name, recipe in RECIPES.items()}
    changes = {
        name: [f"{key}={wanted[key]}" for key, value in _leaves(to_dict(config)) if wanted[key] != value]
        for name, config in recipes.items() if type(config) is type(settings)
    }  # fmt: skip
    nearest = min(changes, key=lambda name: len(changes[name]))
    return shlex.join([nearest, *(word for change in changes[nearest] for word in ("--set", change))])


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every setting by its dotted name, as `--set` takes it."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, ",".join(map(str, value)) if isinstance(value, list) else str(value)
