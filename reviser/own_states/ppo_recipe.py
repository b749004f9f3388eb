"""The recipe `ppo_small`: from a trained model, in the shape of that model, to one whose texts a judge prefers."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import wraps

from reviser.actions import Alphabet
from reviser.data.examples import JobConfig
from reviser.own_states.ppo_settings import PpoRunConfig
from reviser.training.recipes import Recipe, find_recipe, small
from reviser.training.settings import OptimizerConfig, RunConfig, TrainConfig


def ppo_small(alphabet: Alphabet) -> PpoRunConfig:
    """A hundred rounds of 512 continuations; a few minutes on an H200 from a model as large as `small`."""
    config = with_ppo(small(alphabet))
    return replace(
        config,
        data=replace(
            config.data, order="left-to-right",
            jobs=JobConfig(prefix=(16, 48), length=(48, 128), gap=(1, 63), suffix=(1, 63)),
        ),
        optimizer=OptimizerConfig(lr=3e-5, min_lr=3e-5, warmup=5, schedule="constant", weight_decay=0.0),
        train=TrainConfig(
            steps=100, rows=512, compile=False, log_every=1, eval_every=25, sample_every=25, save_every=25,
        ),
    )  # fmt: skip


def ppo_recipe(name: str | None) -> Recipe:
    """A recipe with the section `ppo`; without a name, `ppo_small`."""
    recipe = ppo_small if name is None else find_recipe(name)

    @wraps(recipe)
    def make(alphabet: Alphabet) -> PpoRunConfig:
        return with_ppo(recipe(alphabet))

    return make


def with_ppo(config: RunConfig) -> PpoRunConfig:
    """A config with the section `ppo`; one that has it stays as it is."""
    if isinstance(config, PpoRunConfig):
        return config
    return PpoRunConfig(**{each.name: getattr(config, each.name) for each in fields(RunConfig)})
