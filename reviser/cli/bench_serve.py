"""`reviser bench serve` and `reviser bench check`: a server under load, and how long a paragraph takes."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from reviser.cli.shared.command import add_command, add_out, check_positive, print_result
from reviser.cli.write import add_model, without_collector
from reviser.errors import ConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.decoding.writer import Writer

HEAD_TIMEOUT_S = 2
"""Of the server that is put under load, so that a client which sends half a head does not idle for long."""


def add_serve(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "serve",
        "a server under load, good clients and bad, beside the bare engine",
        "  reviser bench serve --seconds 30\n  reviser bench serve --out results/serve_load.json",
        description="Start a server on a free port of this machine and put it under load: so many clients at a time "
        "that ask for texts, read slowly, go away, close half of a connection, or send broken JSON, wrong types and "
        "bodies that are too large. Every text is compared with what the model writes without a server. Then the "
        "same prompts are written by the server and by the bare engine, in turn. The exit code is 1 if a request was "
        "lost, a text was wrong or something was left behind.",
    )
    add_model(parser)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long the load lasts (default 300)")
    parser.add_argument("--streams", type=int, default=64, help="clients at a time (default 64)")
    parser.add_argument("--rows", type=int, default=16, help="texts that are decoded at once (default 16)")
    parser.add_argument("--seeds", type=int, default=4, help="different seeds for each prompt (default 4)")
    parser.add_argument("--seed", type=int, default=0, help="decides what the clients do (default 0)")
    parser.add_argument("--no-throughput", action="store_true", help="leave out the comparison with the bare engine")
    add_out(parser)
    parser.set_defaults(run=run_serve_load)


def run_serve_load(args: argparse.Namespace) -> int:
    check_positive(args, "streams", "rows", "seeds")
    if not 0 < args.seconds <= 86400:
        raise ConfigError(f"--seconds {args.seconds:g} must be above 0 and at most 86400")
    from reviser.bench.load_clients import Crowd
    from reviser.bench.load_run import measure_load, measure_throughput
    from reviser.bench.served_process import ServedProcess
    from reviser.reports.results import make_result

    writer = _load(args)
    limits = {"rows": args.rows, "concurrency": args.streams, "head_timeout_s": HEAD_TIMEOUT_S}
    with ServedProcess(_serve_words(args, limits)) as server:
        crowd = Crowd(server.port, args.seeds, "delete" in writer.config.operators)
        found = measure_load(crowd, server.pid, writer, args.streams, args.seconds, args.seed, _report)
        if not args.no_throughput:
            found["throughput"] = measure_throughput(crowd, writer, args.streams, args.rows, _report)
        if "Traceback" in server.log:
            found["problems"].append("a traceback is in the server's log")
        if code := server.stop():
            found["problems"].append(f"the server ended with exit code {code}")
    rows, about = found.pop("rows"), {"model": writer.name, "device": args.device, "streams": args.streams}
    config = about | limits | {"seconds": args.seconds, "seeds": args.seeds, "seed": args.seed}
    print_result(args, make_result("serve_load", rows, config, sys.argv[1:], **found))
    return 1 if found["problems"] else 0


def _load(args: argparse.Namespace) -> Writer:
    from reviser.decoding.arguments import check_device
    from reviser.decoding.writer import Writer

    check_device(args.device, "--device")
    with without_collector():
        return Writer.from_pretrained(args.model, args.device, weights=args.weights)


def _serve_words(args: argparse.Namespace, limits: dict[str, Any]) -> list[str]:
    words = ["--device", args.device, "--weights", args.weights, *(["--model", args.model] if args.model else [])]
    for name, value in limits.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def _report(text: str) -> None:
    print(text, file=sys.stderr)


def add_check(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        kinds,
        "check",
        "the time to proofread a paragraph over HTTP, beside Harper",
        "  reviser bench check\n  reviser bench check --harper ~/harper --out results/check_time.json",
        description="Start a server on a free port and time POST /v2/check for paragraphs, a sentence, a word and "
        "nothing, each after a warm-up, with all processes on one CPU. With --harper, the same texts go to Harper "
        "in a process of its own, over a pipe.",
    )
    add_model(parser)
    parser.add_argument("--repeats", type=int, default=5, help="times that each text is checked (default 5)")
    parser.add_argument("--harper", metavar="FOLDER", help="where npm install --prefix FOLDER harper.js was run")
    parser.add_argument("--all-cpus", action="store_true", help="use all CPUs, not one")
    add_out(parser)
    parser.set_defaults(run=run_check_time)


def run_check_time(args: argparse.Namespace) -> int:
    check_positive(args, "repeats")
    num_cpus = None if args.all_cpus else _take_one_cpu()
    from reviser.bench.check_time import measure_checks
    from reviser.bench.served_process import ServedProcess
    from reviser.evaluation.correction.peers import Harper
    from reviser.reports.results import make_result

    harper = Harper(folder=args.harper) if args.harper else None
    try:
        with ServedProcess(_serve_words(args, {})) as server:
            peer = None if harper is None else (lambda text: harper.correct([text]))
            rows = measure_checks(server.port, args.repeats, peer)
    finally:
        if harper is not None:
            harper.close()
    config = {"model": args.model or "shipped", "repeats": args.repeats, "cpus": num_cpus or os.cpu_count()}
    about = {"harper": harper.version} if harper else {}
    return print_result(args, make_result("check_time", rows, config | about, sys.argv[1:]))


def _take_one_cpu() -> int:
    """This process and all that it starts on one CPU, where the system can do that."""
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    return 1
