"""A reproduction's scale, and where its things lie: a name and a folder in, paths, settings and systems out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from reviser.actions import Alphabet
from reviser.config import override
from reviser.data.shards import HEADER
from reviser.diffusion.denoiser_folder import family_of
from reviser.errors import ConfigError
from reviser.evaluation.metrics.likelihood import trained_order
from reviser.evaluation.specs import SystemSpec
from reviser.model.folder import FORMAT
from reviser.training.recipes import find_recipe
from reviser.training.settings import RunConfig

SYSTEMS = ("ar", "paper", "ours", "mdlm", "sedd")
"""What is trained: left to right, the paper's Reviser, ours, MDLM and SEDD."""
DENOISERS = ("mdlm", "sedd")
MORE_STEPS = (512, 1024)
"""Of a diffusion model, besides the paper's 128."""
NEEDS_EVALUATOR = ("evalppl", "mauve", "arena", "gaps")


@dataclass(frozen=True)
class Scale:
    """A size of everything: what is trained, and how much is written."""

    name: str
    recipes: Mapping[str, tuple[str, ...]]
    """For each system its recipe, and what is changed of it as name=value."""
    tokenizer: str = "gpt2"
    ruler: str = "gpt2"
    prefix: int = 35
    total: int = 180
    context: int = 48
    """Of a gap, on either side."""
    longest_gap: int = 96
    num_prompts: int = 1000
    seeds: tuple[int, ...] = (123, 124, 125)
    samples: int = 8
    """Trajectories, or noise levels, a text in the likelihood's bound."""
    num_timed: int = 20
    """Continuations that are timed, one at a time."""
    positions: int | None = None
    """That each is trained on; None: as many as its recipe says."""
    changes: tuple[str, ...] = ()
    """Of every system's recipe, as name=value."""

    @property
    def systems(self) -> tuple[str, ...]:
        return tuple(self.recipes)

    def without(self, systems: Sequence[str]) -> Scale:
        """The same with fewer systems."""
        return replace(self, recipes={name: each for name, each in self.recipes.items() if name not in systems})

    def training(self, system: str) -> tuple[str, ...]:
        """A system's recipe, and all that is changed of it."""
        recipe, *own = self.recipes[system]
        changes = (*own, *self.changes)
        if self.positions is None:
            return (recipe, *changes)
        config = override(find_recipe(recipe)(Alphabet(257, 256)), changes)
        train, steps = config.train, max(round(self.positions / (config.train.rows * config.data.row)), 1)
        # A shorter training warms up for as large a part of it at most, and writes its last checkpoint at its end.
        fitted = {"train.steps": steps, "optimizer.warmup": min(config.optimizer.warmup, steps // 20)}
        fitted |= {f"train.{name}": min(getattr(train, name), steps) for name in ("save_every", "eval_every")}
        given = {change.partition("=")[0] for change in self.changes}
        return (recipe, *changes, *(f"{name}={value}" for name, value in fitted.items() if name not in given))

    def settings(self, system: str, alphabet: Alphabet) -> RunConfig:
        """The whole config of a system's training."""
        recipe, *changes = self.training(system)
        return override(find_recipe(recipe)(alphabet), changes)


def _named(scale: str) -> dict[str, tuple[str, ...]]:
    return {system: (f"{system}_{scale}",) for system in SYSTEMS}


def _debug() -> dict[str, tuple[str, ...]]:
    """Recipe debug, trained quickly, with gaps to fill; a wider MLP for the window, a narrower SEDD."""
    shared = ["train.steps=60", "train.save_every=30", "model.context=224", "model.max_length=224"]
    gaps = ["data.jobs.infill=0.25", "data.jobs.gap=2,16", "data.jobs.suffix=4,16"]
    blind = ["model.canvas.kind=none", "model.ff_width=448"]
    narrow = ["model.canvas.kind=none", "model.width=64", "model.num_heads=2", "model.ff_width=224"]
    changes = {
        "ar": ["data.order=left-to-right"],
        "paper": [*gaps, "data.order=random-walk", *blind],
        "ours": gaps,
        "mdlm": [*gaps, "family=mdlm", *blind],
        "sedd": [*gaps, "family=sedd", *narrow],
    }
    return {system: ("debug", *shared, *own) for system, own in changes.items()}


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "debug", _debug(), "bytes", "bytes", prefix=16, total=64, context=12, longest_gap=24, num_prompts=16,
            seeds=(123,), samples=2, num_timed=2,
        ),
        Scale("small", _named("small") | {"ours": ("small",)}, "default", num_prompts=200),
        Scale("100m", _named("100m")),
        Scale("300m", _named("300m")),
    )
}  # fmt: skip


def find_scale(name: str) -> Scale:
    if name not in SCALES:
        raise ConfigError(f"no scale {name!r}; scales are {', '.join(SCALES)}")
    return SCALES[name]


@dataclass(frozen=True)
class Setup:
    """A scale, the folder that everything goes to, and what is there already."""

    scale: Scale
    out: Path
    data: tuple[str, ...] = ()
    """A data folder, or files to make one of; of scale debug nothing."""
    prompts: str | None = None
    """Documents for prompts that no system was trained on; None: the held-out ones."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Systems that were trained elsewhere, and their model folders."""
    others: Mapping[str, SystemSpec] = field(default_factory=dict)
    """More systems to compare with, by name."""
    evaluator: str = "smollm2"
    judge: str = "likelihood"
    """likelihood, by the evaluator; or critic:MODEL, which is asked."""
    device: str = "auto"
    n: int | None = None
    is_cut: bool = False
    """Whether longer documents of `prompts` are cut; held-out ones always are."""

    @property
    def words(self) -> tuple[str, ...]:
        """What makes `reviser reproduce` do this again."""
        words = ["reproduce", "--scale", self.scale.name, "--out", str(self.out)]
        words += ["--data", *self.data] if self.data else []
        left_out = [system for system in SCALES[self.scale.name].systems if system not in self.scale.systems]
        words += ["--without", ",".join(left_out)] if left_out else []
        words += ["--positions", str(self.scale.positions)] if self.scale.positions else []
        words += [word for change in self.scale.changes for word in ("--set", change)]
        words += ["--prompts", self.prompts] if self.prompts else []
        words += ["--models", _pairs(self.models)] if self.models else []
        words += [word for spec in self.others.values() for word in ("--system", spec.text)]
        words += ["--evaluator", self.evaluator, "--judge", self.judge, "--device", self.device]
        words += ["--n", str(self.n)] if self.n else []
        return (*words, "--cut") if self.is_cut else tuple(words)

    @property
    def num_prompts(self) -> int:
        return self.n or self.scale.num_prompts

    @property
    def data_folder(self) -> Path:
        """The folder that is given, or the one that step data makes."""
        is_folder = len(self.data) == 1 and (Path(self.data[0]) / HEADER).is_file()
        return Path(self.data[0]) if is_folder else self.out / "data"

    @property
    def prompts_file(self) -> Path:
        return Path(self.prompts) if self.prompts else self.out / "prompts.jsonl"

    def run(self, system: str) -> Path:
        return self.out / "runs" / system

    @property
    def folders(self) -> list[str]:
        """Every system that is, or will be, a model folder: the scale's and what was added to them."""
        return [*self.scale.systems, *(name for name, spec in self.others.items() if spec.is_folder)]

    @property
    def editing(self) -> list[str]:
        """Those of them that write by editing."""
        return [
            name
            for name in self.folders
            if (name not in DENOISERS if name in SYSTEMS else family_of(self.model(name)) == FORMAT)
        ]

    def model(self, system: str) -> Path:
        if system in self.others:
            return Path(self.others[system].model)
        return Path(self.models[system]) if system in self.models else self.run(system) / "model"

    def order(self, system: str) -> str:
        """What a system was, or will be, trained with."""
        if system in self.others:
            # A diffusion model's is not read.
            return trained_order(self.model(system)) if system in self.editing else "left-to-right"
        if system in self.models and system not in DENOISERS:
            with suppress(ConfigError):
                return trained_order(self.models[system])
        return self.scale.settings(system, Alphabet(257, 256)).data.order

    def written(self, kind: str, name: str) -> Path:
        return self.out / kind / f"{name}.jsonl"

    def result(self, name: str) -> Path:
        return self.out / "results" / f"{name}.json"


def _pairs(models: Mapping[str, str]) -> str:
    return ",".join(f"{name}={model}" for name, model in models.items())


def writers(setup: Setup) -> dict[str, SystemSpec]:
    """Every system that writes continuations, by name."""
    found = {system: SystemSpec(system, str(setup.model(system))) for system in setup.scale.systems}
    for system in (system for system in DENOISERS if system in found):
        for steps in MORE_STEPS:
            name = f"{system}-{steps}"
            found[name] = SystemSpec(name, str(setup.model(system)), (f"steps={steps}",))
    return found | dict(setup.others)
