"""`reviser eval all`: every suite for some systems, one after the other, and a report of them."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reviser.cli.leaf import add_leaf
from reviser.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the suite, and the file it leaves."""

    words: tuple[str, ...]
    out: Path


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_leaf(
        suites,
        "all",
        "every suite one after the other, and a report",
        "  reviser eval all c4.jsonl --system ours=runs/mine/model --system ar=runs/ar/model --folder results/mine\n"
        "  reviser eval all c4.jsonl --quick --system ours=runs/mine/model --order ours=runs:jump=0.05,start=end "
        "--folder results/quick",
        description="Continuations, evalPPL, MAUVE, arena (by likelihood), trajectories, likelihood, infilling, gaps "
        "and FLOPs into one folder, then a report. What a folder holds already is not done again.",
    )
    parser.add_argument("texts", metavar="TEXTS", help="documents that no system was trained on (jsonl, txt, ...)")
    parser.add_argument("--system", action="append", required=True, metavar="NAME=MODEL", help="repeatable")
    parser.add_argument("--folder", required=True, metavar="FOLDER", help="where everything goes")
    parser.add_argument("--order", action="append", default=[], metavar="NAME=ORDER", help="the order of a system")
    parser.add_argument("--evaluator", default="smollm2", help="scores texts and judges the arena (default smollm2)")
    parser.add_argument("--quick", action="store_true", help="few prompts: minutes on a CPU, wide errors")
    parser.add_argument("--n", type=int, help="prompts (default 300, quick 20)")
    parser.add_argument("--ruler", default="gpt2", help="the tokenizer that counts lengths (default gpt2)")
    parser.add_argument("--prefix", type=int, default=35, help="tokens given for a continuation (default 35)")
    parser.add_argument("--total", type=int, default=180, help="tokens in all (default 180)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default auto)")
    parser.set_defaults(run=run_all)


def run_all(args: argparse.Namespace) -> int:
    from reviser.cli import main

    folder = Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for step in plan(args, folder):
        if step.out.exists() and step.out.suffix == ".json":
            print(f"there: {step.out}", file=sys.stderr)
            continue
        print(f"reviser {' '.join(step.words)}", file=sys.stderr)
        # Tables of the steps are results of their own only where no single document was asked for.
        with redirect_stdout(sys.stderr) if args.json else nullcontext():
            code = main(list(step.words))
        if code != 0:
            failed.append(step.words[1])
    results = sorted(str(file) for file in folder.glob("*.json"))
    if results:
        main(["report", *results, "--html", str(folder / "report.html"), "--markdown", str(folder / "report.md")])
        print(f"report: {folder / 'report.html'}", file=sys.stderr)
    if args.json:
        print(json.dumps({"folder": str(folder), "results": results, "failed": failed}))
    return 1 if failed else 0


def plan(args: argparse.Namespace, folder: Path) -> list[Step]:
    """The commands in their order; what a suite cannot do with these systems is left out."""
    n = args.n if args.n is not None else 20 if args.quick else 300
    if n < 1:
        raise ConfigError(f"--n {n} must be at least 1")
    systems = [word for spec in args.system for word in ("--system", spec)]
    seeds = ["--seeds", "123" if args.quick else "123,124,125"]
    made, gaps = str(folder / "continuation.jsonl"), str(folder / "infill.jsonl")
    write = [*systems, "--n", str(n), *seeds, "--ruler", args.ruler, "--device", args.device]
    lengths = ["--prefix", str(args.prefix), "--total", str(args.total)]
    judge = ["--evaluator", args.evaluator, "--device", args.device]

    def step(*words: str, out: str) -> Step:
        return Step(("eval", *words), folder / out)

    def kept(*words: str, out: str) -> Step:
        return step(*words, "--out", str(folder / out), out=out)

    steps = [
        step("continuation", args.texts, "--cut", *lengths, *write, "--generations", made, out="continuation.jsonl"),
        kept("evalppl", made, *judge, out="evalppl.json"),
    ]
    if n * len(seeds[1].split(",")) >= 100:
        steps.append(kept("mauve", made, "--device", args.device, out="mauve.json"))
    if len(args.system) > 1:
        kind = ["--judge", "likelihood", "--model", args.evaluator, "--empty", "lose", "--device", args.device]
        kept_at = str(folder / "judgments.jsonl")
        steps.append(kept("arena", made, "--judgments", kept_at, *kind, out="arena.json"))
    orders = dict(_split(each, "--order") for each in args.order)
    ours = [spec for spec in args.system if ":" not in spec.partition("=")[2][:3]]
    for spec in ours:
        name = spec.partition("=")[0]
        chosen = ["--order", orders[name]] if name in orders else []
        out = f"likelihood_{name}.json"
        texts = ["--texts", args.texts, "--n", str(n), "--ruler", args.ruler, "--device", args.device, *chosen]
        texts += ["--prefix", str(args.prefix), "--length", str(args.total - args.prefix)]
        steps.append(kept("likelihood", "--system", spec, *texts, out=out))
    if ours:
        first = orders.get(ours[0].partition("=")[0])
        beside = ["--order", first] if first else []
        steps.append(kept("trajectories", made, *beside, out="trajectories.json"))
    return [
        *steps,
        step("infill", args.texts, *write, "--generations", gaps, out="infill.jsonl"),
        kept("gaps", gaps, *judge, out="gaps.json"),
        kept("flops", out="flops.json"),
    ]


def _split(text: str, option: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not (name and is_given and value):
        raise ConfigError(f"{option} {text} is no NAME=ORDER; write ours=runs:jump=0.05,start=end")
    return name, value
