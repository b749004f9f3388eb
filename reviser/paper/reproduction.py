"""The paper's comparison, step by step: a setup in, the jobs that make it out.

    data      text to token ids                            prompts     held-out documents, unless a file is given
    train:X   five models of one size                      generate:X  continuations; infill:X gaps
    likelihood:X gaps:X                                    what needs a model, measured of each by itself
    evalppl mauve arena trajectories                       what was written, measured of all together
    flops     seconds    report                            what writing costs; all of it beside the paper's tables

Each step has a command that anybody could type, so it can run on another machine and its files be brought back. The
five have equal parameters, to 1%, and equally many trained positions; all write at temperature 0.9 and top-k 50.

>>> from reviser.paper.setup import SCALES
>>> [step.name for step in plan(Setup(SCALES["small"], Path("out")))][:3]
['data', 'prompts', 'train:ar']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reviser.data.shards import HEADER
from reviser.errors import ConfigError
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
from reviser.model.folder import CONFIG
from reviser.paper.jobs import Given, Prepare, Training
from reviser.paper.making import Own
from reviser.paper.setup import Setup, writers


def plan(setup: Setup) -> list[Step]:
    """All steps in their order; what every model and all prompts make needless is left out."""
    trained = [_train(setup, system) for system in setup.scale.systems]
    steps = [*_prepare(setup), *trained, *_write(setup), *_score(setup)]
    costs = [_own(setup, name, _continuations(setup)) for name in ("flops", "seconds")]
    told = (*steps, *costs)
    measured = tuple(step.out for step in told if step.out.parent == setup.result("").parent)
    return [*told, Step("report", Own(setup, "report", told), measured, setup.result("report"))]


def _prepare(setup: Setup) -> Iterator[Step]:
    scale, folder = setup.scale, setup.data_folder
    has_all = all((setup.model(system) / CONFIG).is_file() for system in setup.scale.systems)
    if not (has_all and setup.prompts):
        job: Prepare | Given | Own = Own(setup, "data")
        if folder != setup.out / "data":
            job = Given(folder)
        elif setup.data:
            job = Prepare(setup.data, folder, scale.tokenizer)
        yield Step("data", job, tuple(map(Path, setup.data)), folder / HEADER)
    if not setup.prompts:
        yield Step("prompts", Own(setup, "prompts"), (folder / HEADER,), setup.prompts_file)


def _train(setup: Setup, system: str) -> Step:
    recipe, *changes = setup.scale.training(system)
    job = Training(recipe, tuple(changes), setup.data_folder, setup.run(system), setup.device)
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
    return Step(name, Own(setup, name), tuple(inputs), setup.result(name))


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
