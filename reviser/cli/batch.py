"""`reviser batch`: a job for every line of a file, here or on a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from reviser.batch.batch_config import BLOCK_LINES, BatchConfig, Job, ModelSpec, default_config
from reviser.cli.edit import add_choices, read_choices
from reviser.cli.shared.command import add_command, check_positive, format_json
from reviser.cli.shared.written import model_name
from reviser.cli.write import add_gap_limits, add_limits, add_model, add_sampling, read_sampling, without_collector
from reviser.errors import ConfigError
from reviser.viewer.progress_bar import show_progress

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.batch.batch_run import BatchProgress, BatchResult

TEXTS = {
    "generate": (
        "continue the prompt of every line",
        "Reads the field prompt of every line. Writes line, id where the line has one, seed, and texts, whose fields "
        "are those of `reviser generate --json`.",
    ),
    "infill": (
        "fill the gaps of every line",
        "Reads the fields prefix and suffix of every line, or its field text with ___ where the gaps are. Writes "
        "line, id where the line has one, seed, and texts, whose fields are those of `reviser infill --json`.",
    ),
    "edit": (
        "proofread the text of every line",
        "Reads the field text of every line, and format where it is not that of --format. Writes line, id where the "
        "line has one, seed, format, text and edits, whose fields are those of `reviser edit --json`.",
    ),
    "score": (
        "say how probable the text of every line is",
        "Reads the field text of every line. Writes line, id where the line has one, log_probability (in nats, of "
        "the text written from left to right, without its end), num_tokens, num_bytes, nats_per_token and "
        "bits_per_byte.",
    ),
}  # fmt: skip
ABOUT = (
    "\nIN is a file of JSON lines (also .gz .xz .zst) or a .parquet file, OUT a .jsonl or .parquet file; both may be "
    "URLs that fsspec opens. Lines that fail go to OUT's name with .failures.jsonl, and the exit code is 1. A "
    "command that was stopped resumes when it is given again. The same seed gives the same output, however many "
    "processes there are."
)


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("batch", help="do a job for every line of a file, here or on a cluster")
    jobs = parser.add_subparsers(title="jobs", required=True, metavar="JOB")
    adders: dict[Job, Callable[[ArgumentParser], None]] = {
        "generate": _add_generate, "infill": _add_infill, "edit": _add_edit, "score": lambda _: None,
    }  # fmt: skip
    for job, adder in adders.items():
        short, long = TEXTS[job]
        here, there = "in.jsonl out.jsonl", "s3://mine/in.parquet out.parquet --ray auto"
        examples = f"  reviser batch {job} {here}\n  reviser batch {job} {there}"
        made = add_command(jobs, job, short, examples, description=f"{short.capitalize()}. {long}{ABOUT}")
        made.add_argument("source", metavar="IN", help="a file of JSON lines or a Parquet file, or its URL")
        made.add_argument("out", metavar="OUT", help="the file to make or resume: .jsonl or .parquet, or its URL")
        adder(made)
        add_model(made)
        _add_running(made)
        made.set_defaults(run=run_batch_command, job=job)


def _add_generate(parser: ArgumentParser) -> None:
    add_limits(parser)
    add_sampling(parser)


def _add_infill(parser: ArgumentParser) -> None:
    usual = default_config("infill")
    add_limits(parser, usual.max_tokens, usual.best_of)
    add_gap_limits(parser)
    add_sampling(parser)


def _add_edit(parser: ArgumentParser) -> None:
    add_choices(parser)
    parser.add_argument("--seed", type=int, default=0, help="random seed, for sampling (default 0)")
    add_sampling(parser, "scan")


def _add_running(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("running")
    rows = ModelSpec().rows
    group.add_argument("--rows", type=int, default=rows, help=f"texts that are decoded at once (default {rows})")
    group.add_argument(
        "--block", type=int, default=BLOCK_LINES, metavar="LINES",
        help=f"lines that are kept together: a killed command repeats at most a few blocks (default {BLOCK_LINES})",
    )  # fmt: skip
    group.add_argument(
        "--ray", metavar="ADDRESS",
        help="run on a Ray cluster: local (started here), auto (the one of this machine) or HOST:PORT",
    )  # fmt: skip
    group.add_argument("--actors", type=int, help="with --ray, processes with a model (default: all that fit)")
    group.add_argument(
        "--cores", type=int, help="with --ray, cores of each process (default 1); on a GPU each also has one GPU"
    )


def run_batch_command(args: argparse.Namespace) -> int:
    config, spec = _read_config(args), ModelSpec(args.model, args.device, args.weights, args.rows)
    for name in ("actors", "cores"):
        if getattr(args, name) is not None and args.ray is None:
            raise ConfigError(f"--{name} is for a cluster; give its address with --ray, or drop --{name}")
    check_positive(args, "actors", "cores")
    _check_model(args)
    with without_collector():
        from reviser.batch.batch_run import run_batch
        from reviser.cluster import Actors

    gpus = int(args.device.startswith("cuda"))
    actors = Actors(args.actors or 0, args.cores or 1, gpus) if args.ray is not None else None
    try:
        with show_progress(f"batch {args.job}") as bar:

            def tell(progress: BatchProgress) -> None:
                bar.show(progress.share, 1.0, _describe(progress))

            result = run_batch(config, args.source, args.out, spec, ray=args.ray, actors=actors, report=tell)
    except KeyboardInterrupt:
        print("stopped; run the same command again to resume", file=sys.stderr)
        return 130
    print(format_json({"job": args.job, **asdict(result)}) if args.json else _summarise(result))
    return int(result.num_failed > 0)


def _read_config(args: argparse.Namespace) -> BatchConfig:
    if args.job == "score":
        return BatchConfig("score", block_lines=args.block)
    if args.job == "edit":
        how, sampling = read_choices(args)
        return BatchConfig("edit", args.seed, sampling=sampling, proofreading=how, block_lines=args.block)
    gaps = {"min_length": args.min_length, "max_length": args.max_length} if args.job == "infill" else {}
    return BatchConfig(
        args.job, args.seed, args.n, args.best_of, args.max_actions, args.max_tokens, sampling=read_sampling(args),
        block_lines=args.block, **gaps,
    )  # fmt: skip


def _check_model(args: argparse.Namespace) -> None:
    """Refuse what can be refused before a model is loaded."""
    from reviser.decoding.arguments import check_device
    from reviser.model.folder import find, read_config
    from reviser.proofreading.proofread import check_can_edit

    described = read_config(find(args.model))
    if args.job == "edit":
        check_can_edit(described.model, model_name(args))
    if args.ray is None:
        check_device(args.device, "--device")


def _describe(progress: BatchProgress) -> str:
    left = "" if progress.left_s is None else f", {format_time(progress.left_s)} left"
    failed = f", {progress.num_failed:,} failed" if progress.num_failed else ""
    return f"{progress.num_lines:,} lines{failed}, {progress.lines_per_s:.1f} lines/s{left}"


def format_time(seconds: float) -> str:
    """
    >>> [format_time(each) for each in (7, 100, 5000, 200000)]
    ['7 s', '2 min', '1.4 h', '2.3 days']
    """
    for size, name in ((86400, "days"), (3600, "h")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _summarise(result: BatchResult) -> str:
    done = f"{result.out}: {result.num_lines - result.num_failed:,} lines"
    return f"{done}; {result.num_failed:,} failed, see {result.failures}" if result.num_failed else done
