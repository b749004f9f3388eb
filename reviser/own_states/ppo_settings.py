"""The settings of reinforcement learning, the section `ppo` of a run's config, and the recipe `ppo_small`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import ClassVar, Literal

from reviser.actions import Alphabet
from reviser.data.examples import JobConfig
from reviser.errors import ConfigError
from reviser.training.recipes import Recipe, find_recipe, small
from reviser.training.settings import OptimizerConfig, RunConfig, TrainConfig


@dataclass(frozen=True)
class GuardConfig:
    """Which texts rank below all others, whatever the judge says; lengths in tokens that were written."""

    least: int = 8
    most: int = 1 << 20
    ends: bool = False
    """Whether a text must have been ended by its writer, not by ppo.max_actions."""
    gram: int = 3
    repeats: float = 0.2
    """The largest share of n-grams of `gram` tokens that stood in the text before."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise ConfigError(f"ppo.guard.least={self.least} must be from 0 to ppo.guard.most={self.most}")
        if self.gram < 1:
            raise ConfigError(f"ppo.guard.gram={self.gram} must be at least 1")
        if not 0 <= self.repeats <= 1:
            raise ConfigError(f"ppo.guard.repeats={self.repeats} is not a share between 0 and 1")


@dataclass(frozen=True)
class PpoConfig:
    """How a model learns from what a judge makes of its own texts. A step of such a run is a round: texts are
    written, train.rows at once, and ranked, and the model is updated `epochs` times `parts` on them."""

    judge: str = ""
    """likelihood:MODEL, critic:MODEL, http:MODEL@URL or the name of a registered judge."""
    guard: GuardConfig = field(default_factory=GuardConfig)
    prompts: int = 64
    """Prompts a round, cut from documents as data.jobs says."""
    candidates: int = 8
    """Texts a prompt, which the judge ranks."""
    max_actions: int = 128
    epochs: int = 2
    parts: int = 4
    """Parts into which a round's texts are divided; in each epoch every part is an update."""
    advantage: Literal["value", "group"] = "value"
    """Against what a reward is measured: a value head, or the other texts of the prompt."""
    clip: float = 0.2
    discount: float = 1.0
    trace: float = 0.95
    """Lambda of generalised advantage estimation."""
    value_lr: float = 1e-3
    """Learning rate of the value head."""
    entropy_weight: float = 0.001
    kl_weight: float = 0.05
    type_weight: float = 0.0
    """How much it costs to choose types of actions (INSERT, moves, STOP, ...) unlike the starting model."""
    action_penalty: float = 0.0
    """What each action costs, in rewards."""
    oracle: float = 0.3
    """The share of a text's own trajectory that rollouts begin with at first."""
    oracle_rounds: int = 20
    """Rounds over which that share falls to 0."""

    def __post_init__(self) -> None:
        for name in ("prompts", "max_actions", "epochs", "parts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be at least 1")
        if self.candidates < 2:
            raise ConfigError(f"ppo.candidates={self.candidates} must be at least 2, or there is nothing to rank")
        if self.parts > self.num_texts:
            raise ConfigError(f"ppo.parts={self.parts} is more than the {self.num_texts} texts of a round")
        for name in ("entropy_weight", "kl_weight", "type_weight", "action_penalty", "oracle_rounds"):
            if getattr(self, name) < 0:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be 0 or more")
        for name in ("clip", "value_lr"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be above 0")
        for name in ("discount", "trace", "oracle"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"ppo.{name}={getattr(self, name)} must be from 0 to 1")

    @property
    def num_texts(self) -> int:
        """Texts of a round."""
        return self.prompts * self.candidates

    def oracle_share(self, step: int) -> float:
        """The share of oracle actions in a round, from 0."""
        return self.oracle * max(1 - step / self.oracle_rounds, 0.0) if self.oracle_rounds else 0.0


@dataclass(frozen=True)
class PpoRunConfig(RunConfig):
    """The config of a run that learns from a judge; its model is that of train.init."""

    ppo: PpoConfig = field(default_factory=PpoConfig)

    has_given_model: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.family != "reviser":
            raise ConfigError(f"ppo is for models that edit, not for family={self.family}")
        if self.dagger.rounds:
            raise ConfigError(f"ppo and dagger.rounds={self.dagger.rounds} do not go together; set it to 0")
        if self.train.find_mistakes:
            raise ConfigError(f"ppo does not read train.find_mistakes={self.train.find_mistakes}; set it to 0")
        if not self.train.masked:
            raise ConfigError("ppo takes train.masked=true: rollouts choose among valid actions alone")

    @property
    def step_positions(self) -> int:
        """At most: texts may end before they have used all of their actions."""
        longest = min(self.data.jobs.longest + self.ppo.max_actions, self.model.context)
        return self.ppo.num_texts * self.ppo.epochs * longest

    @property
    def trainer(self) -> str:
        return "reviser.own_states.ppo_trainer:PpoTrainer"


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
    sections = {each.name: getattr(config, each.name) for each in fields(RunConfig)}
    # Rows of rollouts are now longer, now shorter, and would be compiled again and again.
    return PpoRunConfig(**sections | {"train": replace(config.train, compile=False)})
