"""Running a reproduction: what is done is not repeated, what was stopped is resumed, the first failure ends it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from reviser.errors import CheckpointError, ConfigError, DataError, ReviserError
from reviser.evaluation.plan import Job, Step
from reviser.evaluation.suites import SILENT, Listener
from reviser.paper.jobs import Training
from reviser.paper.needs import missing_reason, require_evaluator
from reviser.paper.reproduction import plan
from reviser.paper.setup import DENOISERS, NEEDS_EVALUATOR, Setup
from reviser.reports.results import format_command

STOPPED = 130


def run_steps(
    setup: Setup,
    steps: Sequence[Step],
    is_resuming: bool,
    outcomes: dict[str, str],
    only: str | None = None,
    listener: Listener = SILENT,
) -> int:
    """Do what is not done, up to the first failure; an exit code. `outcomes` says what became of each step."""
    for step in steps:
        code = 0
        try:
            _check_ahead(setup, step, steps)
            run_step(setup, step, is_resuming, outcomes, listener)
        except ReviserError as error:
            listener.note(f"error: {error}")
            code = 2
        except KeyboardInterrupt:
            code = STOPPED
        if code:
            outcomes[step.name] = "stopped" if code == STOPPED else "failed"
            listener.note(f"step {step.name} {outcomes[step.name]}; {_how_to_resume(setup, code, only)}")
            return code
    return 0


def _check_ahead(setup: Setup, step: Step, steps: Sequence[Step]) -> None:
    """Nothing is trained for hours only to find that what scores the texts is not installed."""
    is_long = step.kind == "train" and setup.scale.name != "debug" and not is_there(setup, step)
    if is_long and any(each.kind in NEEDS_EVALUATOR for each in steps):
        require_evaluator(setup)


def _how_to_resume(setup: Setup, code: int, only: str | None) -> str:
    words = [*setup.words, *(["--only", only] if only else []), "--resume"]
    return f"{'' if code == STOPPED else 'fix that and '}resume with: {format_command(words)}"


def run_step(
    setup: Setup, step: Step, is_resuming: bool, outcomes: dict[str, str], listener: Listener = SILENT
) -> None:
    """One step, unless what it leaves is there or cannot be had."""
    if is_there(setup, step, listener):
        outcomes[step.name] = "there"
        listener.note(f"already there: step {step.name}, {step.out}")
        return
    if reason := missing_reason(setup, step):
        outcomes[step.name] = f"skipped: {reason}"
        listener.note(f"skipped: step {step.name}: {reason}")
        return
    job: Job = resumed(setup, step, is_resuming) if isinstance(step.job, Training) else step.job
    _check_inputs(setup, step)
    listener.note(f"step {step.name}: {format_command(job.words)}")
    Step(step.name, job, step.inputs, step.out).run(listener)
    outcomes[step.name] = "done"


def is_there(setup: Setup, step: Step, listener: Listener = SILENT) -> bool:
    """Whether a step need not be done: its model is trained, or its result is by the same command and new enough."""
    from reviser.data.shards import read_json

    if step.kind == "train":
        return is_trained(setup, step.system)
    if step.name == "data":
        return step.out.is_file() and bool(read_json(step.out.parent).get("complete"))
    if step.name == "prompts":
        return step.out.is_file()
    # A report costs nothing, and reads whatever is there.
    return step.name != "report" and step.is_done(listener)


def is_trained(setup: Setup, system: str) -> bool:
    """Whether a system's model is there; one that was trained differently from the scale is refused."""
    from reviser.data.shards import read_header
    from reviser.diffusion.denoiser_folder import family_of
    from reviser.model.folder import CONFIG, FORMAT, FORMATS, find, read_config

    folder = setup.model(system)
    if system not in setup.models and not (folder / CONFIG).is_file():
        return False
    family, wanted = family_of(folder), system if system in DENOISERS else FORMAT
    if family != wanted:
        raise CheckpointError(f"{folder} holds a model of the family {family}, but system {system} is {wanted}")
    if system in setup.models:
        return True
    found = read_config(find(folder), FORMATS)
    remedy = f"give another --out, or use it as it is: --models {system}={folder}"
    if found.model != setup.scale.settings(system, found.model.alphabet).model:
        raise CheckpointError(f"{folder} does not have the shape of scale {setup.scale.name}; {remedy}")
    _check_run(setup, system, remedy)
    header = setup.data_folder / "data.json"
    if header.is_file() and found.trained and found.trained.data_sha256 != read_header(header.parent).sha256:
        raise CheckpointError(f"{folder} was trained on other data than {header.parent}; {remedy}")
    return True


def _check_run(setup: Setup, system: str, remedy: str) -> None:
    """A run folder whose settings are not the scale's is refused; a model folder may come without one."""
    from reviser.training.runs import Run

    folder = setup.run(system)
    if (folder / "config.json").is_file():
        _, settings, _ = Run.open(folder)
        if settings != setup.scale.settings(system, settings.model.alphabet):
            raise CheckpointError(
                f"{folder} was trained with other settings than those of scale {setup.scale.name}; {remedy}"
            )


def resumed(setup: Setup, step: Step, is_resuming: bool) -> Training:
    """The job that begins a training, or resumes it where it was begun."""
    from reviser.training.runs import Run

    assert isinstance(step.job, Training)
    run = Run(setup.run(step.system))
    if not (run.folder / "config.json").is_file():
        return step.job
    if not is_resuming:
        raise CheckpointError(f"{run.folder} was started but is not finished; resume it with --resume, or remove it")
    _check_run(setup, step.system, "give another --out, or remove it")
    if run.steps():
        return step.job.resumed()
    with run.owned():
        # It was stopped before its first checkpoint: nothing is lost.
        shutil.rmtree(run.folder)
    return step.job


def _check_inputs(setup: Setup, step: Step) -> None:
    """Say which step makes what is missing."""
    if step.name == "data" and not setup.data and setup.scale.name != "debug":
        raise ConfigError(
            f"scale {setup.scale.name} needs text to train on; give --data, a data folder or text files"
        )
    if step.name == "report":
        return
    makers = {path: each.name for each in plan(setup) for path in (each.out, *_made(setup, each))}
    for path in step.inputs:
        if not path.exists():
            raise DataError(f"step {step.name} needs {path}; run the step that makes it, {makers.get(path, 'data')}")


def _made(setup: Setup, step: Step) -> list[Path]:
    """Texts that a step leaves beside its result."""
    suites = {"generate": "continuation", "infill": "infill"}
    return [setup.written(suites[step.kind], step.system)] if step.kind in suites else []
