"""The paper's comparison, step by step: a scale and where things lie in, the commands that make it out.

    data      text to token ids                            prompts     held-out documents, unless a file is given
    train:X   five models of one size                      generate:X  continuations; infill:X gaps
    likelihood evalppl mauve arena gaps trajectories       what was written, measured
    flops     seconds    report                            what writing costs; all of it beside the paper's tables

A step is a command that anybody could type, so it can be run on another machine and its files be brought back. The
five have equal parameters, to 1%, and equally many trained positions; all write at temperature 0.9 and top-k 50.

>>> [step.name for step in plan(Setup(SCALES["small"], Path("out")))][:3]
['data', 'prompts', 'train:ar']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from reviser.actions import Alphabet
from reviser.config import override
from reviser.data.shards import HEADER
from reviser.diffusion.denoiser_folder import family_of
from reviser.diffusion.published import PREFIX
from reviser.errors import ConfigError
from reviser.evaluation.metrics.likelihood import trained_order
from reviser.model.folder import CONFIG, FORMAT
from reviser.training.recipes import find_recipe
from reviser.training.settings import RunConfig

SYSTEMS = {
    "ar": "left to right",
    "paper": "the paper's Reviser",
    "ours": "our Reviser",
    "mdlm": "MDLM",
    "sedd": "SEDD",
}
"""What is trained, by the name it has in steps and results."""
DENOISERS = ("mdlm", "sedd")
MORE_STEPS = (512, 1024)
"""Of a diffusion model, besides the paper's 128."""
NEEDS_EVALUATOR = ("evalppl", "mauve", "arena", "gaps")


@dataclass(frozen=True)
class Scale:
    """A size of everything: what is trained, and how much is written."""

    name: str
    recipes: Mapping[str, tuple[str, ...]]
    """For each system what stands behind `reviser train`."""
    tokenizer: str = "gpt2"
    ruler: str = "gpt2"
    prefix: int = 35
    total: int = 180
    context: int = 48
    """Of a gap, on either side."""
    gap: tuple[int, int] = (8, 48)
    num_prompts: int = 1000
    seeds: tuple[int, ...] = (123, 124, 125)
    samples: int = 8
    """Trajectories, or noise levels, a text in the likelihood's bound."""
    num_timed: int = 20
    """Continuations that are timed, one at a time."""

    def settings(self, system: str, alphabet: Alphabet) -> RunConfig:
        """The whole config of a system's training."""
        recipe, *words = self.recipes[system]
        return override(find_recipe(recipe)(alphabet), [word for word in words if word != "--set"])


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
    return {
        system: ("debug", *(word for change in (*shared, *own) for word in ("--set", change)))
        for system, own in changes.items()
    }


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "debug", _debug(), "bytes", "bytes", prefix=16, total=64, context=12, gap=(4, 12), num_prompts=16,
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
    others: Mapping[str, str] = field(default_factory=dict)
    """More systems to compare with, by name: a model folder, hf:MODEL or published:MODEL."""
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
        words += ["--prompts", self.prompts] if self.prompts else []
        words += ["--models", _pairs(self.models)] if self.models else []
        words += [word for name, model in self.others.items() for word in ("--system", f"{name}={model}")]
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
        """Every system that is, or will be, a model folder: the five and what was added to them."""
        return [*SYSTEMS, *(name for name, spec in self.others.items() if is_folder(spec))]

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
            return folder_of(self.others[system])
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


@dataclass(frozen=True, slots=True)
class Step:
    """A command with its name, what it reads and what it leaves."""

    name: str
    words: tuple[str, ...]
    inputs: tuple[Path, ...]
    out: Path

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]

    @property
    def system(self) -> str:
        return self.name.partition(":")[2]

    @property
    def is_own(self) -> bool:
        """Whether `reviser reproduce` does it by itself, for want of another command."""
        return self.words[0] == "reproduce"


def writers(setup: Setup) -> dict[str, str]:
    """Every system that writes continuations, by name, as `--system` takes it."""
    found = {system: str(setup.model(system)) for system in SYSTEMS}
    for system in DENOISERS:
        found |= {f"{system}-{steps}": f"{setup.model(system)},steps={steps}" for steps in MORE_STEPS}
    return found | dict(setup.others)


def folder_of(spec: str) -> Path:
    """
    >>> str(folder_of("runs/mdlm/model,steps=512"))
    'runs/mdlm/model'
    """
    return Path(spec.partition(",")[0])


def is_folder(spec: str) -> bool:
    """Whether a system is a model folder of our own kind, of which all can be measured."""
    return not spec.startswith(("hf:", PREFIX))


def plan(setup: Setup) -> list[Step]:
    """All steps in their order; what every model and all prompts make needless is left out."""
    trained = [_train(setup, system) for system in SYSTEMS]
    steps = [*_prepare(setup), *trained, *_write(setup), *_score(setup)]
    costs = [_own(setup, name, _continuations(setup)) for name in ("flops", "seconds")]
    measured = (step.out for step in (*steps, *costs) if step.out.parent == setup.result("").parent)
    return [*steps, *costs, _own(setup, "report", list(measured))]


def _prepare(setup: Setup) -> Iterator[Step]:
    scale, folder = setup.scale, setup.data_folder
    has_all = all((setup.model(system) / CONFIG).is_file() for system in SYSTEMS)
    if not (has_all and setup.prompts):
        made = ("data", "prepare", *setup.data, str(folder), "--tokenizer", scale.tokenizer)
        words = made if setup.data else (*setup.words, "--only", "data")
        if folder != setup.out / "data":
            words = ("data", "info", str(folder))
        yield Step("data", words, tuple(map(Path, setup.data)), folder / HEADER)
    if not setup.prompts:
        yield Step("prompts", (*setup.words, "--only", "prompts"), (folder / HEADER,), setup.prompts_file)


def _train(setup: Setup, system: str) -> Step:
    words = ("train", *setup.scale.recipes[system], "--data", str(setup.data_folder), "--out", str(setup.run(system)))
    inputs = (setup.data_folder / HEADER,)
    return Step(f"train:{system}", (*words, "--device", setup.device), inputs, setup.model(system) / CONFIG)


def _write(setup: Setup) -> Iterator[Step]:
    """Continuations of all systems, then gaps; diffusion models fill those in the paper's number of steps alone."""
    scale, file = setup.scale, setup.prompts_file
    seeds = ",".join(map(str, scale.seeds))
    shared = ["--n", str(setup.num_prompts), "--seeds", seeds, "--ruler", scale.ruler]
    shared += ["--temperature", "0.9", "--top-k", "50", "--device", setup.device]
    lengths = ["--prefix", str(scale.prefix), "--total", str(scale.total)]
    lengths += ["--cut"] if setup.is_cut or not setup.prompts else []
    around = ["--context", str(scale.context), "--gap", f"{scale.gap[0]},{scale.gap[1]}"]
    systems = writers(setup)
    filling = {name: spec for name, spec in systems.items() if ",steps=" not in spec}
    for kind, suite, words, chosen in (
        ("generate", "continuation", lengths, systems),
        ("infill", "infill", around, filling),
    ):
        for name, spec in chosen.items():
            made, out = setup.written(suite, name), setup.result(f"{suite}_{name}")
            command = ["eval", suite, str(file), *words, *shared, "--system", f"{name}={spec}"]
            inputs = (file, folder_of(spec) / CONFIG) if is_folder(spec) else (file,)
            yield Step(f"{kind}:{name}", (*command, "--generations", str(made), "--out", str(out)), inputs, out)


def _score(setup: Setup) -> Iterator[Step]:
    made, device, first = _continuations(setup), ["--device", setup.device], ["--n", str(setup.num_prompts)]
    gaps = [setup.written("infill", name) for name, spec in writers(setup).items() if ",steps=" not in spec]
    by = ["--evaluator", setup.evaluator, *first, *device]
    yield _bound(setup)
    yield _suite(setup, "evalppl", made, by)
    yield _suite(setup, "mauve", made, ["--features", f"mean:{setup.evaluator}", *first, *device])
    judge, _, model = setup.judge.partition(":")
    asked = ["--judge", judge, "--model", model or setup.evaluator, "--empty", "lose", *first, *device]
    # A file of judgments belongs to one judge.
    judgments = setup.out / f"judgments_{re.sub(r'[^A-Za-z0-9]+', '-', f'{judge} {model or setup.evaluator}')}.jsonl"
    yield _suite(setup, "arena", made, [*asked, "--judgments", str(judgments)])
    yield _suite(setup, "gaps", gaps, by)
    orders = [word for system in setup.editing for word in ("--order", f"{system}={setup.order(system)}")]
    edited = [setup.written("continuation", system) for system in setup.editing]
    yield _suite(setup, "trajectories", edited, [*first, *orders])


def _suite(setup: Setup, name: str, files: Sequence[Path], words: Sequence[str]) -> Step:
    """A suite that reads what was written."""
    out = setup.result(name)
    return Step(name, ("eval", name, *map(str, files), *words, "--out", str(out)), tuple(files), out)


def _bound(setup: Setup) -> Step:
    scale, out, file = setup.scale, setup.result("likelihood"), setup.prompts_file
    words = [word for system in setup.folders for word in ("--system", f"{system}={setup.model(system)}")]
    words += ["--texts", str(file), "--n", str(setup.num_prompts), "--ruler", scale.ruler]
    words += ["--prefix", str(scale.prefix), "--length", str(scale.total - scale.prefix)]
    if setup.models or setup.others:
        # They may not say their order.
        words += [word for system in setup.folders for word in ("--order", setup.order(system))]
    words += ["--samples", str(scale.samples), "--device", setup.device, "--out", str(out)]
    models = (setup.model(system) / CONFIG for system in setup.folders)
    return Step("likelihood", ("eval", "likelihood", *words), (file, *models), out)


def _own(setup: Setup, name: str, inputs: Sequence[Path]) -> Step:
    return Step(name, (*setup.words, "--only", name), tuple(inputs), setup.result(name))


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
