"""`reviser reproduce`: the paper's comparison from text to report, each step a command that is done once."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.options import DEVICE, PROMPTS, check_positive
from reviser.errors import CheckpointError, ConfigError, DataError, MissingPackageError, ReviserError

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Sequence

    from reviser.paper.reproduction import Setup, Step

DOCUMENTS_A_PROMPT = 20
"""Held-out documents kept for each prompt wanted: many are too short."""
STOPPED = 130


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "reproduce",
        "the paper's tables from text to report: train, write, score, compare",
        "  reviser reproduce --scale debug\n"
        "  reviser reproduce --scale 100m --plan --gpu a100\n"
        "  reviser reproduce --scale small --data data/web --prompts c4.jsonl --out results/small --resume",
        description="Train what the paper compares (left to right, its Reviser, ours, MDLM, SEDD; equal parameters "
        "and trained positions), have all write, score it, and report it beside the paper's tables. Each step is a "
        "command, printed before it runs; one that is done is not done again.",
    )
    parser.add_argument("--scale", required=True, metavar="SCALE", help="debug (minutes on a CPU), small, 100m, 300m")
    parser.add_argument("--out", metavar="FOLDER", help="where everything goes (default reproduction/SCALE)")
    parser.add_argument(
        "--data", nargs="+", default=[], metavar="FOLDER|FILE", help="a data folder, or text files; debug needs none"
    )
    parser.add_argument(
        "--prompts", metavar="FILE", help="documents to cut prompts from (default: the held-out ones)"
    )
    parser.add_argument(
        "--cut", action="store_true", help="also take the beginnings of longer documents of --prompts"
    )
    parser.add_argument(
        "--only", metavar="STEP,...", help="these steps alone; train is all of train:ar, train:paper ..."
    )
    parser.add_argument("--resume", action="store_true", help="go on with trainings that were stopped")
    parser.add_argument(
        "--models", metavar="NAME=FOLDER,...", help="models trained elsewhere: ar, paper, ours, mdlm, sedd"
    )
    parser.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="NAME=MODEL",
        help="another system to compare with: a model folder, hf:MODEL or published:MODEL; repeatable",
    )
    parser.add_argument("--evaluator", default="smollm2", help="scores texts (default smollm2)")
    parser.add_argument(
        "--judge", default="likelihood", help="of the arena: likelihood, by the evaluator (default), or critic:MODEL"
    )
    parser.add_argument("--n", type=int, help=f"{PROMPTS.partition(' (')[0]} (default 16, 200, 1000 and 1000)")
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--plan", action="store_true", help="print the steps with their costs, and stop")
    parser.add_argument("--gpu", default="h200", help="for --plan: h200, h100, a100, l40s, rtx4090 (default h200)")
    parser.set_defaults(run=run_reproduce)


def run_reproduce(args: argparse.Namespace) -> int:
    from reviser.cli.reproduce_plan import show_plan
    from reviser.paper.reproduction import pick, plan
    from reviser.training.distributed import join_team

    setup = read_setup(args)
    steps = pick(plan(setup), args.only)
    if args.plan:
        return show_plan(args, setup, steps)
    join_team(setup.device)
    try:
        setup.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {setup.out}: cannot be made ({error.strerror}); give another folder") from None
    told: dict[str, str] = {}
    # What the commands print is on the way; the report and the list of steps are what came of it.
    with redirect_stdout(sys.stderr):
        code = run_steps(setup, steps, args.resume, told, args.only)
    report = setup.out / "report.html"
    if args.json:
        print(json.dumps({"out": str(setup.out), "steps": told, "report": str(report) if report.is_file() else None}))
    elif told.get("report") == "done":
        print(f"report: {report}")
    return code


def read_setup(args: argparse.Namespace) -> Setup:
    """What is asked for, checked as far as it can be before anything runs."""
    from reviser.paper.reproduction import SYSTEMS, Setup, find_scale

    check_positive(args, "n")
    scale = find_scale(args.scale)
    for option, paths in (("--data", args.data), ("--prompts", [args.prompts] if args.prompts else [])):
        for path in paths:
            if not Path(path).exists():
                raise ConfigError(f"{option} {path}: no such file or folder")
    models = _pairs("--models", "ar=FOLDER", [part for part in (args.models or "").split(",") if part])
    for name in models:
        if name not in SYSTEMS:
            raise ConfigError(f"--models {name}=...: no such system; systems are {', '.join(SYSTEMS)}")
    others = _pairs("--system", "gpt2=hf:gpt2", args.system)
    for name, model in others.items():
        _check_other(name, model)
    if args.judge != "likelihood" and not args.judge.startswith("critic:"):
        raise ConfigError(f"--judge {args.judge} must be likelihood or critic:MODEL")
    out = Path(args.out or f"reproduction/{scale.name}")
    return Setup(
        scale, out, tuple(args.data), args.prompts, models, others, args.evaluator, args.judge, args.device, args.n,
        args.cut,
    )  # fmt: skip


def _pairs(option: str, example: str, given: Sequence[str]) -> dict[str, str]:
    """Names and models, each name once."""
    pairs: dict[str, str] = {}
    for text in given:
        name, is_given, value = text.partition("=")
        if not (name and is_given and value):
            raise ConfigError(f"{option} {text} is no pair of a name and a model; write {example}")
        if name in pairs:
            raise ConfigError(f"{option} names {name} twice, {pairs[name]} and {value}; give one another name")
        pairs[name] = value
    return pairs


def _check_other(name: str, model: str) -> None:
    """Whether a system may be called so, and be measured."""
    from reviser.diffusion.denoiser_folder import family_of
    from reviser.evaluation.metrics.likelihood import trained_order
    from reviser.model.folder import FORMAT
    from reviser.paper.reproduction import SYSTEMS, folder_of, is_folder

    if name.partition("-")[0] in SYSTEMS or not re.fullmatch(r"\w[\w.-]*", name):
        raise ConfigError(
            f"--system {name}={model}: no name for it; a name has letters, digits, '.', '_' and '-', and must "
            f"not be one of the systems {', '.join(SYSTEMS)}, alone or before a '-'; give another"
        )
    if not is_folder(model):
        return
    folder = folder_of(model)
    if not folder.is_dir():
        raise ConfigError(f"--system {name}={model}: no such folder; a model of the hub is hf:MODEL")
    if family_of(folder) == FORMAT:
        try:
            trained_order(folder)
        except ConfigError:
            raise ConfigError(
                f"--system {name}={model} does not say what order it was trained with, so its bound cannot be "
                "measured; give a folder that `reviser train` wrote"
            ) from None


def run_steps(
    setup: Setup, steps: Sequence[Step], is_resuming: bool, told: dict[str, str], only: str | None = None
) -> int:
    """Do what is not done, up to the first failure; `told` says what became of each step."""
    for step in steps:
        try:
            _check_ahead(setup, step, steps)
            code = run_step(setup, step, is_resuming, told)
        except ReviserError as error:
            print(f"error: {error}", file=sys.stderr)
            code = 2
        except KeyboardInterrupt:
            code = STOPPED
        if code:
            told[step.name] = "stopped" if code == STOPPED else "failed"
            print(f"step {step.name} {told[step.name]}; {_go_on(setup, code, only)}", file=sys.stderr)
            return code
    return 0


def _check_ahead(setup: Setup, step: Step, steps: Sequence[Step]) -> None:
    """Nothing is trained for hours to find then that what scores the texts is not installed."""
    from reviser.paper.reproduction import NEEDS_EVALUATOR

    is_long = step.kind == "train" and setup.scale.name != "debug" and not is_there(setup, step)
    if is_long and any(each.kind in NEEDS_EVALUATOR for each in steps):
        _require_evaluator(setup)


def _require_evaluator(setup: Setup) -> None:
    from reviser.evaluation.evaluators import PACKAGES, require

    require("transformers")
    if setup.evaluator in PACKAGES:
        PACKAGES[setup.evaluator].find()


def _go_on(setup: Setup, code: int, only: str | None) -> str:
    from reviser.evaluation.records import format_command

    words = [*setup.words, *(["--only", only] if only else []), "--resume"]
    return f"{'' if code == STOPPED else 'mend that and '}go on with: {format_command(words)}"


def run_step(setup: Setup, step: Step, is_resuming: bool, told: dict[str, str]) -> int:
    """One step, unless what it leaves is there or cannot be had; its exit code."""
    from reviser.cli import main
    from reviser.evaluation.records import format_command, run_as

    if is_there(setup, step):
        told[step.name] = "there"
        print(f"there: step {step.name}, {step.out}", file=sys.stderr)
        return 0
    if lacking := _lacking(setup, step):
        told[step.name] = f"skipped: {lacking}"
        print(f"skipped: step {step.name}: {lacking}", file=sys.stderr)
        return 0
    words = resumed(setup, step, is_resuming) if step.kind == "train" else step.words
    _check_inputs(setup, step)
    print(f"step {step.name}: {format_command(words)}", file=sys.stderr)
    with run_as(words):
        code = 0
        if step.is_own:
            OWN[step.name](setup)
        else:
            code = main(list(words))
    if not code:
        told[step.name] = "done"
    return code


def is_there(setup: Setup, step: Step) -> bool:
    """Whether a step need not be done: its model is trained, or its result is by the same command and new enough."""
    from reviser.cli import eval_all
    from reviser.data.shards import read_json

    if step.kind == "train":
        return is_trained(setup, step.system)
    if step.name == "data":
        return step.out.is_file() and bool(read_json(step.out.parent).get("complete"))
    if step.name == "prompts":
        return step.out.is_file()
    # A report costs nothing, and reads whatever is there.
    return step.name != "report" and eval_all.is_done(eval_all.Step(step.words, step.inputs, step.out))


def is_trained(setup: Setup, system: str) -> bool:
    """Whether a system's model is there; one that was trained otherwise than the scale says is refused."""
    from reviser.data.shards import read_header
    from reviser.diffusion.denoiser_folder import family_of
    from reviser.model.folder import CONFIG, FORMAT, FORMATS, find, read_config
    from reviser.paper.reproduction import DENOISERS

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
        raise CheckpointError(f"{folder} has not the shape of scale {setup.scale.name}; {remedy}")
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
            raise CheckpointError(f"{folder} was trained by other settings than scale {setup.scale.name}'s; {remedy}")


def resumed(setup: Setup, step: Step, is_resuming: bool) -> tuple[str, ...]:
    """The command that begins a training, or goes on with it where it was begun."""
    from reviser.training.runs import Run

    run = Run(setup.run(step.system))
    if not (run.folder / "config.json").is_file():
        return step.words
    if not is_resuming:
        raise CheckpointError(f"{run.folder} was begun and is not done; go on with it by --resume, or remove it")
    _check_run(setup, step.system, "give another --out, or remove it")
    if run.steps():
        data = ("--data", str(setup.data_folder))
        return ("train", "--resume", str(run.folder), *data, "--device", setup.device)
    with run.owned():
        # It was stopped before its first checkpoint: nothing is lost.
        shutil.rmtree(run.folder)
    return step.words


def _lacking(setup: Setup, step: Step) -> str:
    """Why a step is left out: too few prompts or, in scale debug, which must run anywhere, no evaluator."""
    from reviser.evaluation.evaluators import require
    from reviser.evaluation.metrics.mauve import MIN_TEXTS
    from reviser.paper.reproduction import NEEDS_EVALUATOR

    if step.name == "mauve" and (count := _num_written(setup)) < MIN_TEXTS:
        more = f"--n {MIN_TEXTS}" if count == setup.num_prompts else "more documents"
        return f"MAUVE needs at least {MIN_TEXTS} prompts, and there are {count}; give {more}"
    if setup.scale.name != "debug" or step.kind not in NEEDS_EVALUATOR:
        return ""
    try:
        if step.name == "mauve":
            require("mauve")
        _require_evaluator(setup)
    except MissingPackageError as error:
        return str(error)
    return ""


def _num_written(setup: Setup) -> int:
    """Prompts that texts continue: as many as are asked for, or as the documents gave."""
    from reviser.evaluation.records import read_generations

    written = setup.written("continuation", "ar")
    found = {each.prompt_id for each in read_generations(written)} if written.is_file() else range(setup.num_prompts)
    return min(len(found), setup.num_prompts)


def _check_inputs(setup: Setup, step: Step) -> None:
    """Say which step makes what is missing."""
    from reviser.paper.reproduction import plan

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


def _make_data(setup: Setup) -> None:
    """Scale debug trains on this package's own source text, as it was at first."""
    from reviser.training.own_source import prepare_own_source

    prepare_own_source(setup.out / "own-source" / "data").rename(setup.data_folder)


def _make_prompts(setup: Setup) -> None:
    """Held-out documents as JSON lines, as many as prompts may need."""
    from reviser.data.shards import Shards
    from reviser.evaluation.records import write_text

    shards = Shards.open(setup.data_folder, "heldout")
    count = min(len(shards), DOCUMENTS_A_PROMPT * setup.num_prompts)
    texts = (shards.tokenizer.decode(shards[i].tolist()) for i in range(count))
    write_text(setup.prompts_file, "".join(json.dumps({"text": text}) + "\n" for text in texts))


def _make_flops(setup: Setup) -> None:
    from reviser.evaluation.records import make_result, write_result
    from reviser.paper.writing_costs import flops_rows

    config = {"prefix": setup.scale.prefix, "total": setup.scale.total, "ruler": setup.scale.ruler}
    unit = "1e9 multiply-accumulates a continuation; operations are twice as many"
    write_result(make_result("continuation_flops", flops_rows(setup), config, unit=unit), setup.result("flops"))


def _make_seconds(setup: Setup) -> None:
    from reviser.evaluation.records import make_result, write_result
    from reviser.paper.writing_costs import seconds_rows

    rows = seconds_rows(setup, lambda name: print(f"  timing {name}", file=sys.stderr))
    config = {"texts": setup.scale.num_timed, "at_once": 1, "seed": setup.scale.seeds[0]}
    write_result(make_result("continuation_seconds", rows, config), setup.result("seconds"))


def _make_report(setup: Setup) -> None:
    """The tables beside the paper's; apart from them everything that was measured."""
    from reviser.cli import main
    from reviser.evaluation.records import make_result, write_result
    from reviser.paper.comparison import gather
    from reviser.paper.reproduction import plan

    scale, out = setup.scale, setup.result("reproduction")
    commands = [_describe(setup, step) for step in plan(setup)]
    config = {
        "scale": scale.name, "prompts": _num_written(setup), "seeds": list(scale.seeds), "temperature": 0.9,
        "top_k": 50, **_made_by(setup),
    }  # fmt: skip
    if not (rows := gather(setup)):
        raise DataError(f"nothing is measured yet in {setup.out}; run the steps before the report first")
    write_result(make_result("reproduction", rows, config, commands=commands), out)
    measured = [step.out for step in plan(setup) if step.out.parent == out.parent and step.out.is_file()]
    for name, files in (("report", [out]), ("measurements", measured)):
        page, text = (str(setup.out / f"{name}.{ending}") for ending in ("html", "md"))
        if files and main(["report", *map(str, files), "--html", page, "--markdown", text]):
            raise DataError(f"some of the results in {out.parent} cannot be reported")


def _made_by(setup: Setup) -> dict[str, str]:
    """Who scored and who judged what is there, whatever was asked for now; who would, where nothing is."""
    texts, arena = (json.loads(file.read_text("utf-8")) if file.is_file() else {} for file in
                    map(setup.result, ("evalppl", "arena")))  # fmt: skip
    evaluator = texts.get("evaluator", {}).get("name", setup.evaluator)
    return {"evaluator": evaluator, "judge": arena.get("config", {}).get("judge", setup.judge)}


def _describe(setup: Setup, step: Step) -> dict[str, Any]:
    """A step and the command that really left its result, on which machine; a result may come from elsewhere."""
    from reviser.evaluation.records import format_command
    from reviser.model.folder import FORMATS, find, read_config

    has_result = step.out.parent == setup.result("").parent and step.out.is_file() and step.name != "report"
    found = json.loads(step.out.read_text("utf-8")) if has_result else {}
    command = found.get("command", format_command(step.words))
    if step.kind == "train" and step.system in setup.models:
        trained = read_config(find(setup.model(step.system)), FORMATS).trained
        command = f"{setup.model(step.system)}: " + (f"reviser train {trained.recipe}" if trained else "not said")
    is_found = step.out.is_file() or step.name == "report"
    return {
        "step": step.name,
        "is there": is_found,
        "why not": None if is_found else _lacking(setup, step) or None,
        "on": found.get("hardware", ""),
        "command": command,
    }


OWN: dict[str, Callable[[Setup], None]] = {
    "data": _make_data,
    "prompts": _make_prompts,
    "flops": _make_flops,
    "seconds": _make_seconds,
    "report": _make_report,
}
"""Steps without a command of their own."""
