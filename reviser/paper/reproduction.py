"""The paper's comparison, step by step: a scale and where things lie in, the jobs that make it out.

    data      text to token ids                            prompts     held-out documents, unless a file is given
    train:X   five models of one size                      generate:X  continuations; infill:X gaps
    likelihood:X gaps:X                                    what needs a model, measured of each by itself
    evalppl mauve arena trajectories                       what was written, measured of all together
    flops     seconds    report                            what writing costs; all of it beside the paper's tables

Each step has a command that anybody could type, so it can run on another machine and its files be brought back. The
five have equal parameters, to 1%, and equally many trained positions; all write at temperature 0.9 and top-k 50.

>>> [step.name for step in plan(Setup(SCALES["small"], Path("out")))][:3]
['data', 'prompts', 'train:ar']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reviser.actions import Alphabet
from reviser.config import override
from reviser.data.shards import HEADER
from reviser.diffusion.denoiser_folder import family_of
from reviser.errors import ConfigError
from reviser.evaluation.metrics.likelihood import trained_order
from reviser.evaluation.plan import Step, cuts_text
from reviser.evaluation.specs import SystemSpec
from reviser.evaluation.suites import (
    Arena,
    Continuation,
    EvalPpl,
    Gaps,
    Infill,
    Likelihood,
    Mauve,
    Suite,
    Trajectories,
)
from reviser.model.folder import CONFIG, FORMAT
from reviser.paper import jobs
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


def plan(setup: Setup) -> list[Step]:
    """All steps in their order; what every model and all prompts make needless is left out."""
    trained = [_train(setup, system) for system in setup.scale.systems]
    steps = [*_prepare(setup), *trained, *_write(setup), *_score(setup)]
    costs = [_own(setup, name, _continuations(setup)) for name in ("flops", "seconds")]
    measured = (step.out for step in (*steps, *costs) if step.out.parent == setup.result("").parent)
    return [*steps, *costs, _own(setup, "report", list(measured))]


def _prepare(setup: Setup) -> Iterator[Step]:
    scale, folder = setup.scale, setup.data_folder
    has_all = all((setup.model(system) / CONFIG).is_file() for system in setup.scale.systems)
    if not (has_all and setup.prompts):
        job: jobs.Prepare | jobs.Given | jobs.Own = jobs.Own(setup, "data")
        if folder != setup.out / "data":
            job = jobs.Given(folder)
        elif setup.data:
            job = jobs.Prepare(setup.data, folder, scale.tokenizer)
        yield Step("data", job, tuple(map(Path, setup.data)), folder / HEADER)
    if not setup.prompts:
        yield Step("prompts", jobs.Own(setup, "prompts"), (folder / HEADER,), setup.prompts_file)


def _train(setup: Setup, system: str) -> Step:
    recipe, *changes = setup.scale.training(system)
    job = jobs.Training(recipe, tuple(changes), setup.data_folder, setup.run(system), setup.device)
    return Step(f"train:{system}", job, (setup.data_folder / HEADER,), setup.model(system) / CONFIG)


def _write(setup: Setup) -> Iterator[Step]:
    """Continuations of all systems, then gaps; diffusion models fill those in the paper's number of steps alone."""
    scale, file = setup.scale, setup.prompts_file
    shared: dict[str, Any] = {
        "texts": (str(file),), "n": setup.num_prompts, "seeds": scale.seeds, "ruler": scale.ruler,
        "device": setup.device,
    }  # fmt: skip
    lengths = {"prefix": scale.prefix, "total": scale.total, "cut": setup.is_cut or not setup.prompts}
    around: dict[str, Any] = {"context": scale.context, "longest": scale.longest_gap}
    for kind, suite, more, chosen in (
        ("generate", Continuation, lengths, writers(setup)),
        ("infill", Infill, around, _filling(setup)),
    ):
        for name, spec in chosen.items():
            made, out = setup.written(suite.name, name), setup.result(f"{suite.name}_{name}")
            job = suite(**shared, **more, system=(spec.text,), generations=str(made))
            inputs = (file, Path(spec.model) / CONFIG) if spec.is_folder else (file,)
            yield Step(f"{kind}:{name}", job, inputs, out)


def _filling(setup: Setup) -> dict[str, SystemSpec]:
    return {name: spec for name, spec in writers(setup).items() if spec.steps is None}


def _score(setup: Setup) -> Iterator[Step]:
    scale, made = setup.scale, _continuations(setup)
    shared: dict[str, Any] = {"n": setup.num_prompts, "device": setup.device}
    texts = tuple(map(str, made))
    yield from (_bound(setup, system) for system in setup.folders)
    yield _suite(setup, EvalPpl(generations=texts, evaluator=setup.evaluator, **shared), made)
    yield _suite(setup, Mauve(generations=texts, features=f"mean:{setup.evaluator}", **shared), made)
    judge, _, model = setup.judge.partition(":")
    # A file of judgments belongs to one judge.
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{judge} {model or setup.evaluator}")
    arena = Arena(
        generations=texts, judge=judge, model=model or setup.evaluator, empty="lose", **shared,
        judgments=str(setup.out / f"judgments_{name}.jsonl"),
    )  # fmt: skip
    yield _suite(setup, arena, made)
    for name, spec in _filling(setup).items():
        file = setup.written("infill", name)
        filled = Gaps(
            generations=(str(file),), evaluator=setup.evaluator, system=(spec.text,), samples=scale.samples, **shared
        )
        yield Step(f"gaps:{name}", filled, (file,), setup.result(f"gaps_{name}"))
    orders = tuple(f"{system}={setup.order(system)}" for system in setup.editing)
    edited = [setup.written("continuation", system) for system in setup.editing]
    cutting = tuple(f"{system}={setup.model(system)}" for system in setup.editing if cuts_text(setup.order(system)))
    statistics = Trajectories(generations=tuple(map(str, edited)), n=setup.num_prompts, order=orders, system=cutting)
    yield _suite(setup, statistics, edited)


def _suite(setup: Setup, suite: Suite, files: Sequence[Path]) -> Step:
    """A suite that reads what was written."""
    return Step(suite.name, suite, tuple(files), setup.result(suite.name))


def _bound(setup: Setup, system: str) -> Step:
    """Of each system by itself, so that it can be measured where its weights are; the texts are the same for all."""
    scale, file, model = setup.scale, setup.prompts_file, setup.model(system)
    # Models from elsewhere may not say their order.
    orders = (f"{system}={setup.order(system)}",) if system in {**setup.models, **setup.others} else ()
    suite = Likelihood(
        texts=(str(file),), system=(f"{system}={model}",), order=orders, n=setup.num_prompts, ruler=scale.ruler,
        prefix=scale.prefix, length=scale.total - scale.prefix, samples=scale.samples, device=setup.device,
    )  # fmt: skip
    return Step(f"likelihood:{system}", suite, (file, model / CONFIG), setup.result(f"likelihood_{system}"))


def _own(setup: Setup, name: str, inputs: Sequence[Path]) -> Step:
    return Step(name, jobs.Own(setup, name), tuple(inputs), setup.result(name))


def _continuations(setup: Setup) -> list[Path]:
    return [setup.written("continuation", name) for name in writers(setup)]


def pick(steps: Sequence[Step], only: str | None) -> list[Step]:
    """Those whose names are in a list, or stand before a colon; all where there is none."""
    if only is None:
        return list(steps)
    wanted = only.split(",")
    for name in wanted:
        if not any(name in (step.name, step.kind) for step in steps):
            raise ConfigError(f"no step {name!r}; steps are {', '.join(step.name for step in steps)}")
    return [step for step in steps if step.name in wanted or step.kind in wanted]
