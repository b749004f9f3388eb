"""The whole config of a run: model, data, optimizer, training; a recipe returns one of these."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from reviser.canvas import Rules
from reviser.config import ModelConfig, load_any
from reviser.data.examples import JobConfig
from reviser.errors import ConfigError
from reviser.mistakes.mistake_kinds import MistakeConfig
from reviser.orders.registry import parse_order
from reviser.training.families import check_family


@dataclass(frozen=True)
class DataConfig:
    """Where text comes from and how it is turned into rows of trajectories."""

    order: str = "runs:jump=0.05,start=end"
    """The order policy, e.g. random-walk, left-to-right, 0.8*runs+0.2*left-to-right."""
    jobs: JobConfig = field(default_factory=JobConfig)
    row: int = 1024
    """Positions of a row, into which examples are packed; at least model.context."""
    workers: int = 2
    """Threads that draw trajectories; processes where the order has no kernel."""
    errors: str = ""
    """The table that mistakes are made with, where jobs.edit asks for some; by default errors.npz of the data."""
    mistakes: MistakeConfig = field(default_factory=MistakeConfig)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"data.workers={self.workers} must be at least 1")


@dataclass(frozen=True)
class OptimizerConfig:
    name: Literal["adamw", "muon"] = "adamw"
    lr: float = 1e-3
    min_lr: float = 1e-4
    warmup: int = 100
    """Steps of linear warm-up."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls from lr to min_lr."""
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    """Largest norm of the gradient."""
    muon_lr: float = 3e-3
    """Learning rate of the matrices under muon; lr is then that of everything else."""

    def __post_init__(self) -> None:
        for name in ("lr", "muon_lr", "clip", "eps"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"optimizer.{name}={getattr(self, name)} must be above 0")
        for name in ("warmup", "weight_decay"):
            if getattr(self, name) < 0:
                raise ConfigError(f"optimizer.{name}={getattr(self, name)} must be 0 or more")
        if not 0 <= self.min_lr <= self.lr:
            raise ConfigError(f"optimizer.min_lr={self.min_lr} must lie between 0 and lr={self.lr}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"optimizer.{name}={getattr(self, name)} must be at least 0 and below 1")


@dataclass(frozen=True)
class TrainConfig:
    steps: int = 1000
    rows: int = 64
    """Rows of one step, over all processes."""
    accumulate: int = 1
    """In how many parts a step's rows are computed."""
    precision: Literal["auto", "bf16", "float32"] = "auto"
    """What matrix products compute in; auto is bf16 on a GPU and float32 on a CPU."""
    compile: bool = True
    """Whether a GPU runs the model compiled; a CPU never does."""
    find_mistakes: float = 0.0
    """Weight of another loss on drafts: whether something is edited at each of their places, which tells more about
    mistakes than the edits alone. It is not part of the held-out bounds, and is part of the loss that is shown."""
    masked: bool = True
    """Whether the softmax in the loss runs over valid actions alone, as it does in decoding."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """How several processes share the work."""
    seed: int = 0
    init: str = ""
    """A model folder or hub id whose weights training begins with; nothing draws them at random."""
    log_every: int = 10
    eval_every: int = 500
    eval_examples: int = 256
    """Held-out examples that continue a text."""
    eval_infill: int = 0
    """Held-out examples that fill a gap, measured apart; their suffix is as long as their prefix."""
    eval_edit: int = 0
    """Held-out drafts to edit, measured apart."""
    eval_prefix: int = 32
    eval_length: int = 128
    sample_every: int = 500
    save_every: int = 500
    keep: int = 2
    """How many checkpoints are kept."""

    def __post_init__(self) -> None:
        for name in (
            "steps", "rows", "accumulate", "log_every", "eval_every", "eval_examples", "eval_length", "sample_every",
            "save_every", "keep",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name}={getattr(self, name)} must be at least 1")
        for name in ("eval_prefix", "eval_infill", "eval_edit", "find_mistakes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"train.{name}={getattr(self, name)} must be 0 or more")
        if self.eval_infill and not self.eval_prefix:
            raise ConfigError(
                f"train.eval_infill={self.eval_infill} needs text on both sides of a gap; set train.eval_prefix to 1 "
                "or more"
            )
        if self.rows % self.accumulate:
            raise ConfigError(f"train.rows={self.rows} does not divide into accumulate={self.accumulate} parts")


@dataclass(frozen=True)
class DaggerConfig:
    """Learning from the states that the model gets into itself (docs/own-states.md); without rounds there is none."""

    rounds: int = 0
    """How often the model acts, to learn from it; train.steps - after are shared out evenly among the rounds."""
    rollouts: int = 16384
    """Drafts that it acts on in each round; it learns from all rounds so far."""
    share: float = 0.5
    """Share of a step's rows that come from own states; the others are the teacher's, as without DAgger."""
    mixing: float = 0.5
    """In the first round, how probable it is that the oracle acts instead of the model, at each action."""
    decay: float = 0.5
    """What that probability is multiplied with from one round to the next."""
    labels: Literal["splice", "states", "both"] = "splice"
    """What is learned of a rollout. states: the oracle's action in every state, and the script that ends the work.
    splice: that script alone, from behind one of the model's wrong actions. both: the same with the states before."""
    infill: float = 0.0
    """Share of the documents' drafts that are gaps to fill; the others have mistakes to correct."""
    after: int = 0
    """Steps without own states before the first round."""
    temperature: float = 1.0
    """At which the model acts; 0 always takes its most probable action."""
    rows: int = 256
    """Drafts that it acts on at the same time."""
    max_actions: int = 96
    """Actions after which it is stopped."""

    def __post_init__(self) -> None:
        for name, least in (("rounds", 0), ("after", 0), ("rollouts", 1), ("rows", 1), ("max_actions", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"dagger.{name}={getattr(self, name)} must be {least} or more")
        for name in ("mixing", "decay", "infill"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"dagger.{name}={getattr(self, name)} must be between 0 and 1")
        if not 0 < self.share < 1:
            raise ConfigError(f"dagger.share={self.share} must be above 0 and below 1")
        if self.temperature < 0:
            raise ConfigError(f"dagger.temperature={self.temperature} must be 0 or more")


@dataclass(frozen=True)
class RunConfig:
    model: ModelConfig
    family: str = "reviser"
    """What learns: reviser, a model that edits; mdlm or sedd, diffusion models, which have no order (data.order)."""
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    dagger: DaggerConfig = field(default_factory=DaggerConfig)

    has_given_model: ClassVar[bool] = False
    """Whether the model is always that of train.init."""

    def __post_init__(self) -> None:
        check_family(self.family)
        if self.dagger.rounds:
            self._check_dagger()
        order = parse_order(self.data.order)
        missing = sorted(order.needs - set(self.model.operators))
        if missing:
            raise ConfigError(f"data.order={self.data.order} uses {missing[0]}, which is not in model.operators")
        jobs, edits = self.data.jobs, {"jump", "delete"}
        if jobs.has_edits and not edits <= set(self.model.operators):
            raise ConfigError(
                f"data.jobs.{'edit' if jobs.edit else 'pairs'} takes the operators jump and delete; "
                f"model.operators is {','.join(self.model.operators)}"
            )
        if jobs.learn_given and self.family != "reviser":
            raise ConfigError(f"data.jobs.learn_given is for models that edit; family={self.family} reads both sides")
        if jobs.told:
            self._check_told()
        if jobs.num_inner:
            setting = "gaps" if jobs.gaps[1] > 1 else "sparse"
            if self.family != "reviser":
                raise ConfigError(f"data.jobs.{setting} is for models that edit; family={self.family} fills one gap")
            if "jump" not in self.model.operators:
                raise ConfigError(
                    f"data.jobs.{setting} takes the operator jump, which goes from one gap to the next; "
                    f"model.operators is {','.join(self.model.operators)}"
                )
        if self.train.find_mistakes and not (jobs.has_edits and self.family == "reviser"):
            raise ConfigError(
                f"train.find_mistakes={self.train.find_mistakes} needs drafts to edit; set data.jobs.edit or "
                "data.jobs.pairs, for a model that edits"
            )
        if self.train.find_mistakes and self.dagger.rounds:
            raise ConfigError(
                f"train.find_mistakes={self.train.find_mistakes} and dagger.rounds={self.dagger.rounds} do not go "
                "together: a model's own wrong edits would count as mistakes; set one of them to 0"
            )
        if self.train.eval_edit and not (jobs.edit or jobs.pairs):
            raise ConfigError(
                f"train.eval_edit={self.train.eval_edit} needs drafts; set data.jobs.edit or data.jobs.pairs"
            )
        if self.data.row < self.model.context:
            raise ConfigError(f"data.row={self.data.row} is shorter than model.context={self.model.context}")
        if jobs.longest_edit >= self.model.context:
            raise ConfigError(
                f"data.jobs make texts to edit of up to {jobs.longest_edit} tokens, model.context is "
                f"{self.model.context}; lower data.jobs.draft"
            )
        longest = self.data.jobs.longest
        if longest > self.model.max_length:
            raise ConfigError(
                f"data.jobs make canvases of up to {longest} tokens, model.max_length is {self.model.max_length}"
            )

    @property
    def step_positions(self) -> int:
        """Positions that a step learns from."""
        return self.train.rows * self.data.row

    @property
    def trainer(self) -> str:
        """What trains by such a config. Own states are a room to the right of this one, so it is given by name."""
        return "reviser.own_states.dagger:DaggerTrainer" if self.dagger.rounds else "reviser.training.loop:Trainer"

    def _check_told(self) -> None:
        name, operators = self.data.jobs.told_order, set(self.model.operators)
        if self.family != "reviser":
            raise ConfigError(f"data.jobs.told is for models that edit; family={self.family} has no order")
        missing = sorted({"jump", *parse_order(name).needs} - operators)
        if missing:
            raise ConfigError(
                f"data.jobs.told with told_order={name} takes the operator {missing[0]}; model.operators is "
                f"{','.join(self.model.operators)}"
            )

    def _check_dagger(self) -> None:
        dagger, jobs, train, operators = self.dagger, self.data.jobs, self.train, self.model.operators
        if self.family != "reviser":
            raise ConfigError(f"dagger.rounds={dagger.rounds} is for models that edit; family={self.family} does not")
        if not {"jump", "delete"} <= set(operators):
            raise ConfigError(
                f"dagger.rounds={dagger.rounds} takes the operators jump and delete, with which mistakes are undone; "
                f"model.operators is {','.join(operators)}"
            )
        if not (jobs.has_edits or dagger.infill):
            raise ConfigError(
                f"dagger.rounds={dagger.rounds} needs drafts; set data.jobs.edit, data.jobs.pairs or dagger.infill"
            )
        if dagger.infill and not jobs.infill:
            raise ConfigError(f"dagger.infill={dagger.infill} needs gaps in training too; set data.jobs.infill")
        if train.steps - dagger.after < dagger.rounds:
            raise ConfigError(
                f"dagger.rounds={dagger.rounds} need a step each; train.steps={train.steps} and "
                f"dagger.after={dagger.after} leave {max(train.steps - dagger.after, 0)}"
            )
        if train.rows // train.accumulate < 2:
            raise ConfigError(
                f"dagger.rounds={dagger.rounds} share a part's rows with the teacher's; train.rows={train.rows} in "
                f"accumulate={train.accumulate} parts leave one row, make it two or more"
            )

    @property
    def rules(self) -> Rules:
        return Rules(self.model.alphabet, frozenset(self.model.operators), max_length=self.model.max_length)


KINDS = {"ppo": "reviser.own_states.ppo_settings:PpoRunConfig"}
"""Sections that make a config one of another kind, and where that is."""


def find_place(place: str) -> Any:
    """What a name like package.module:name stands for, imported only now."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def load_settings(path: Path, **about: Any) -> RunConfig:
    """The config of a run, of whatever kind; `about` as in `config.load`."""
    return load_any(_kind_of, path, **about)


def _kind_of(values: dict[str, Any]) -> type[RunConfig]:
    """What settings are of, by the sections that they have."""
    kinds: list[type[RunConfig]] = [find_place(place) for section, place in KINDS.items() if section in values]
    return kinds[0] if kinds else RunConfig
