"""`reviser eval all`: every suite for some systems, one after the other, and a report of them."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reviser.cli.command import add_command
from reviser.cli.options import DEVICE, add_system, check_positive
from reviser.errors import ConfigError, ReviserError

if TYPE_CHECKING:
    from argparse import ArgumentParser


ORDER = "the order of a system (default: what it was trained with); repeatable"
MIN_TEXTS = 100
"""MAUVE's least number of texts a seed; importing its module would import torch."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the suite, the files and folders it reads, and the result it leaves."""

    words: tuple[str, ...]
    inputs: tuple[Path, ...]
    out: Path

    @property
    def is_written(self) -> bool:
        """Whether others read what it writes."""
        return self.words[1] in ("continuation", "infill")


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "all",
        "every suite one after the other, and a report",
        "  reviser eval all c4.jsonl --system ours=runs/mine/model --system ar=runs/ar/model --folder results/mine\n"
        "  reviser eval all c4.jsonl --quick --system ours=runs/mine/model --order ours=runs:jump=0.05,start=end "
        "--folder results/quick",
        description="Continuations, evalPPL, MAUVE, arena (by likelihood), trajectories, likelihood, infilling, gaps "
        "and FLOPs into one folder, then a report. What the same commands left in the folder is not done again.",
    )
    parser.add_argument("texts", metavar="TEXTS", help="documents that no system was trained on (jsonl, txt, ...)")
    add_system(parser)
    parser.add_argument("--folder", required=True, metavar="FOLDER", help="where everything goes")
    parser.add_argument("--order", action="append", default=[], metavar="NAME=ORDER", help=ORDER)
    parser.add_argument("--evaluator", default="smollm2", help="scores texts and judges the arena (default smollm2)")
    parser.add_argument("--quick", action="store_true", help="few prompts: minutes on a CPU, wide errors")
    parser.add_argument("--n", type=int, help="prompts at most (default 300, quick 20)")
    parser.add_argument("--ruler", default="gpt2", help="the tokenizer that counts lengths (default gpt2)")
    parser.add_argument("--prefix", type=int, default=35, help="tokens given for a continuation (default 35)")
    parser.add_argument("--total", type=int, default=180, help="tokens in all (default 180)")
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.set_defaults(run=run_all)


def run_all(args: argparse.Namespace) -> int:
    from reviser.cli import main
    from reviser.evaluation.records import format_command, run_as

    folder = Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for step in plan(args, folder):
        if is_done(step):
            print(f"there: {step.out}", file=sys.stderr)
            continue
        print(format_command(step.words), file=sys.stderr)
        # Tables of the steps are results of their own only where no single document was asked for.
        with redirect_stdout(sys.stderr) if args.json else nullcontext(), run_as(step.words):
            code = main(list(step.words))
        if code != 0:
            failed.append(step.words[1])
        if code != 0 and step.is_written:
            break
    results = sorted(str(file) for file in folder.glob("*.json"))
    if results:
        main(["report", *results, "--html", str(folder / "report.html"), "--markdown", str(folder / "report.md")])
        print(f"report: {folder / 'report.html'}", file=sys.stderr)
    if args.json:
        print(json.dumps({"folder": str(folder), "results": results, "failed": failed}))
    return 1 if failed else 0


def is_done(step: Step) -> bool:
    """Whether the step's result is there, by the same command and no older than what it was made from."""
    from reviser.evaluation.records import format_command

    if not step.out.exists():
        return False
    try:
        command = json.loads(step.out.read_text("utf-8"))["command"]
    except (OSError, ValueError, KeyError, TypeError):
        command = None
    is_same, is_new = command == format_command(step.words), age(step.out) >= max(map(age, step.inputs), default=0.0)
    if not (is_same and is_new):
        print(
            f"made again: {step.out}, {'older than its input' if is_same else f'left by {command}'}", file=sys.stderr
        )
    return is_same and is_new


def age(path: Path) -> float:
    """When a file, or the newest file of a folder, was written; 0 where there is none."""
    files = [path, *path.iterdir()] if path.is_dir() else [path] if path.exists() else []
    return max((file.stat().st_mtime for file in files), default=0.0)


def plan(args: argparse.Namespace, folder: Path) -> list[Step]:
    """The commands in their order; what a suite cannot do with these systems is left out."""
    check_positive(args, "n")
    n = args.n if args.n is not None else 20 if args.quick else 300
    orders = dict(_split(each, "--order") for each in args.order)
    systems = [word for spec in args.system for word in ("--system", spec)]
    write = [*systems, "--n", str(n), "--seeds", "123" if args.quick else "123,124,125", "--ruler", args.ruler]
    write += ["--device", args.device]
    read = [Path(args.texts), *(_model(spec) for spec in args.system)]
    made, gaps = folder / "continuation.jsonl", folder / "infill.jsonl"
    judge = ["--evaluator", args.evaluator, "--device", args.device]

    def step(suite: str, *words: str, inputs: list[Path], out: str = "") -> Step:
        file = folder / f"{out or suite}.json"
        return Step(("eval", suite, *words, "--out", str(file)), tuple(inputs), file)

    lengths = ["--prefix", str(args.prefix), "--total", str(args.total)]
    steps = [
        step("continuation", args.texts, "--cut", *lengths, *write, "--generations", str(made), inputs=read),
        step("evalppl", str(made), *judge, inputs=[made]),
    ]
    if n >= MIN_TEXTS:
        steps.append(step("mauve", str(made), "--device", args.device, inputs=[made]))
    if len(args.system) > 1:
        words = ["--judge", "likelihood", "--model", args.evaluator, "--empty", "lose", "--device", args.device]
        words += ["--judgments", str(folder / "judgments.jsonl")]
        steps.append(step("arena", str(made), *words, inputs=[made]))
    ours = {spec.partition("=")[0]: spec for spec in args.system if not spec.partition("=")[2].startswith("hf:")}
    known = {name: orders.get(name) or _trained_order(_model(spec)) for name, spec in ours.items()}
    words = ["--texts", args.texts, "--n", str(n), "--ruler", args.ruler, "--device", args.device]
    words += ["--prefix", str(args.prefix), "--length", str(args.total - args.prefix)]
    if together := [name for name in ours if known[name]]:
        each = [word for name in together for word in ("--system", ours[name], "--order", known[name] or "")]
        steps.append(step("likelihood", *each, *words, inputs=read))
    # A diffusion model needs no order; another that does not say its own fails by itself, and is told what to give.
    for name in (name for name in ours if name not in together):
        steps.append(step("likelihood", "--system", ours[name], *words, inputs=read, out=f"likelihood_{name}"))
    if together:
        beside = [word for name in together for word in ("--order", f"{name}={known[name]}")]
        steps.append(step("trajectories", str(made), *beside, inputs=[made]))
    return [
        *steps,
        step("infill", args.texts, *write, "--generations", str(gaps), inputs=read),
        step("gaps", str(gaps), *judge, inputs=[gaps]),
        step("flops", inputs=[]),
    ]


def _model(spec: str) -> Path:
    return Path(spec.partition("=")[2].removeprefix("hf:").partition(",steps=")[0])


def _trained_order(model: Path) -> str | None:
    """The order a model says it was trained with, where it does; a diffusion model has none."""
    from reviser.diffusion.denoiser import FAMILIES
    from reviser.diffusion.denoiser_folder import family_of
    from reviser.evaluation.metrics.likelihood import trained_order

    try:
        return None if family_of(model) in FAMILIES else trained_order(model)
    except ReviserError:
        return None


def _split(text: str, option: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not (name and is_given and value):
        raise ConfigError(f"{option} {text} is no NAME=ORDER; write ours=runs:jump=0.05,start=end")
    return name, value
