"""`reviser reproduce`: the paper's comparison from text to report, each step a command that is done once."""

from __future__ import annotations

import argparse
import json
import re
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.shared.command import add_command, check_positive
from reviser.errors import ConfigError
from reviser.evaluation.suites.writing import DEVICE

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

    from reviser.actions import Alphabet
    from reviser.evaluation.plan import Step
    from reviser.evaluation.specs import SystemSpec
    from reviser.paper.setup import Scale, Setup


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "reproduce",
        "the paper's tables from text to report: train, write, score, compare",
        "  reviser reproduce --scale debug\n"
        "  reviser reproduce --scale 100m --plan --gpu a100\n"
        "  reviser reproduce --scale 100m --without mdlm,sedd --positions 1000000000 --data text.jsonl\n"
        "  reviser reproduce --scale small --data data/web --prompts c4.jsonl --out results/small --resume",
        description="Train what the paper compares (left to right, its Reviser, ours, MDLM, SEDD; equal parameters "
        "and trained positions), have them write, score the texts, and report the results beside the paper's tables. "
        "Each step is printed as the equivalent command before it runs; a finished step is not repeated.",
    )
    parser.add_argument("--scale", required=True, metavar="SCALE", help="debug (minutes on a CPU), small, 100m, 300m")
    parser.add_argument("--out", metavar="FOLDER", help="where everything goes (default: reproduction/SCALE)")
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
        "--only", metavar="STEP,...", help="only these steps; train is all of train:ar, train:paper ..."
    )
    parser.add_argument("--resume", action="store_true", help="resume interrupted trainings")
    parser.add_argument(
        "--models", metavar="NAME=FOLDER,...", help="models trained elsewhere: ar, paper, ours, mdlm, sedd"
    )
    parser.add_argument(
        "--system",
        action="append",
        default=[],
        metavar="NAME=MODEL",
        help="another system to compare with: shipped, a model folder, hf:MODEL or published:MODEL; repeatable",
    )
    parser.add_argument(
        "--without", default="", metavar="SYSTEM,...", help="systems to leave out: paper, ours, mdlm, sedd"
    )
    parser.add_argument(
        "--positions", type=int, metavar="N", help="train each system on about N positions (default: its recipe's)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of every training; repeatable"
    )
    parser.add_argument("--evaluator", default="smollm2", help="model that scores texts (default: smollm2)")
    parser.add_argument(
        "--judge",
        default="likelihood",
        help="judge of the arena: likelihood, by the evaluator (default), or critic:MODEL",
    )
    parser.add_argument("--n", type=int, help="maximum number of prompts (default: 16, 200, 1000 and 1000)")
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--plan", action="store_true", help="print the steps with their costs, and stop")
    parser.add_argument("--gpu", default="h200", help="for --plan: h200, h100, a100, l40s, rtx4090 (default: h200)")
    parser.set_defaults(run=run_reproduce)


def run_reproduce(args: argparse.Namespace) -> int:
    from reviser.cli.evaluate import Console
    from reviser.paper.reproduction import pick, plan
    from reviser.paper.running import run_steps
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
    outcomes: dict[str, str] = {}
    # What steps print is progress; the report and the list of steps are what came of it.
    with redirect_stdout(sys.stderr):
        code = run_steps(setup, steps, args.resume, outcomes, args.only, Console())
    report = setup.out / "report.html"
    if args.json:
        path = str(report) if report.is_file() else None
        print(json.dumps({"out": str(setup.out), "steps": outcomes, "report": path}))
    elif outcomes.get("report") == "done":
        print(f"report: {report}")
    return code


def read_setup(args: argparse.Namespace) -> Setup:
    """What is asked for, checked as far as it can be before anything runs."""
    from reviser.evaluation.specs import parse_systems
    from reviser.paper.setup import Setup

    check_positive(args, "n")
    check_positive(args, "positions")
    scale = _read_scale(args)
    for option, paths in (("--data", args.data), ("--prompts", [args.prompts] if args.prompts else [])):
        for path in paths:
            if not Path(path).exists():
                raise ConfigError(f"{option} {path}: no such file or folder")
    given = [part for part in (args.models or "").split(",") if part]
    models = {spec.name: spec.model for spec in parse_systems(given, "--models")}
    for name in models:
        if name not in scale.systems:
            raise ConfigError(f"--models {name}=...: no such system; systems are {', '.join(scale.systems)}")
    others = {spec.name: spec for spec in parse_systems(args.system)}
    for spec in others.values():
        _check_other(spec)
    if args.judge != "likelihood" and not args.judge.startswith("critic:"):
        raise ConfigError(f"--judge {args.judge} must be likelihood or critic:MODEL")
    out = Path(args.out or f"reproduction/{scale.name}")
    return Setup(
        scale, out, tuple(args.data), args.prompts, models, others, args.evaluator, args.judge, args.device, args.n,
        args.cut,
    )  # fmt: skip


def _read_scale(args: argparse.Namespace) -> Scale:
    """The scale, with fewer systems or trained differently where that is asked for."""
    from reviser.actions import Alphabet
    from reviser.paper.setup import find_scale

    scale = find_scale(args.scale)
    left_out = [name for name in args.without.split(",") if name]
    for name in left_out:
        if name == "ar" or name not in scale.systems:
            allowed = ", ".join(system for system in scale.systems if system != "ar")
            raise ConfigError(f"--without {name}: systems that can be left out are {allowed}")
    scale = replace(scale.without(left_out), positions=args.positions, changes=tuple(args.set))
    for system in scale.systems:
        scale.settings(system, Alphabet(257, 256))
    return scale


def _check_other(spec: SystemSpec) -> None:
    """Whether a system may have its name, and can be measured."""
    from reviser.diffusion.denoiser_folder import family_of
    from reviser.evaluation.metrics.likelihood import trained_order
    from reviser.model.folder import FORMAT
    from reviser.paper.setup import SYSTEMS

    if spec.name.partition("-")[0] in SYSTEMS or not re.fullmatch(r"\w[\w.-]*", spec.name):
        raise ConfigError(
            f"--system {spec.text}: this name cannot be used; a name has letters, digits, '.', '_' and '-', and is "
            f"not one of the systems {', '.join(SYSTEMS)}, alone or before a '-'; give another"
        )
    if not spec.is_folder or spec.model == "shipped":
        return
    if not Path(spec.model).is_dir():
        raise ConfigError(f"--system {spec.text}: no such folder; a model of the hub is hf:MODEL")
    if family_of(spec.model) == FORMAT:
        try:
            trained_order(spec.model)
        except ConfigError:
            raise ConfigError(
                f"--system {spec.text} does not say what order it was trained with, so its bound cannot be "
                "measured; give a folder that `reviser train` wrote"
            ) from None


def show_plan(args: argparse.Namespace, setup: Setup, steps: Sequence[Step]) -> int:
    """Print all steps with what they cost; nothing is made."""
    from reviser.paper.costs import cost_of
    from reviser.paper.running import is_there

    peak, alphabet, rows = _peak(args.gpu), _alphabet(setup), list[dict[str, Any]]()
    for step in steps:
        cost = cost_of(setup, step, alphabet)
        rows.append(
            {"step": step.name, "is_there": is_there(setup, step), "flops": cost.flops, "hours": cost.hours(peak),
             "disk_bytes": cost.disk, "command": step.command}
        )  # fmt: skip
    if args.json:
        print(json.dumps({"scale": setup.scale.name, "gpu": args.gpu, "peak_flops": peak, "steps": rows}))
    else:
        print("\n".join(_format_plan(args.gpu, rows)))
    return 0


def _peak(gpu: str) -> float:
    from reviser.training.progress import PEAK_FLOPS

    known = {name.lower().replace(" ", ""): peak for name, peak in PEAK_FLOPS.items()}
    if gpu.lower() not in known:
        raise ConfigError(f"no GPU {gpu!r}; those whose peak is known are {', '.join(known)}")
    return known[gpu.lower()]


def _alphabet(setup: Setup) -> Alphabet:
    """Of the data that is there, or of the tokenizer that it will be made with, GPT-2's installed or not."""
    from reviser.actions import Alphabet
    from reviser.tokenizer import load

    if setup.data_folder.is_dir():
        return load(setup.data_folder).alphabet
    return Alphabet(50257, 50256) if setup.scale.tokenizer == "gpt2" else load(setup.scale.tokenizer).alphabet


def _format_plan(gpu: str, rows: list[dict[str, Any]]) -> list[str]:
    left = [row for row in rows if not row["is_there"]]
    total = {key: sum(row[key] or 0 for row in left) for key in ("flops", "hours", "disk_bytes")}
    lines = [f"{'step':<20}{'FLOPs':>10}{f'h ({gpu})':>12}{'disk, MB':>12}"]
    for row in [*rows, {"step": "left to do", "is_there": False, **total}]:
        cells = ["?" if row["flops"] is None else f"{row['flops']:.2e}" if row["flops"] else "-"]
        cells += ["?" if row["hours"] is None else f"{row['hours']:,.3f}" if row["hours"] else "-"]
        cells += [f"{row['disk_bytes'] / 1e6:,.1f}"]
        note = "  already there" if row["is_there"] else ""
        lines.append(f"{row['step']:<20}{cells[0]:>10}{cells[1]:>12}{cells[2]:>12}{note}")
        if "command" in row:
            lines.append(f"    {row['command']}")
    return lines
