"""`reviser bench`: how fast the parts are, on this machine."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("bench", help="measure speed on this machine")
    kinds = parser.add_subparsers(title="benchmarks", required=True, metavar="WHAT")
    _add_trajectories(kinds)


def _add_trajectories(kinds: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "trajectories",
        help="drawing, log q, replay and cursor windows",
        description="Draw trajectories with log q, replay them with a cursor window of 4+4 tokens and compare "
        "the final canvas with the target; actions per second for each order.",
        epilog="examples:\n  reviser bench trajectories\n  reviser bench trajectories --threads 2 --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--n", type=int, default=145, help="tokens per target (default 145)")
    parser.add_argument("--threads", type=int, default=1, help="threads that draw at once (default 1)")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per order (default 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.set_defaults(run=run_trajectories)


def run_trajectories(args: argparse.Namespace) -> int:
    from reviser.trajectory.speed import measure

    result = measure(num_tokens=args.n, threads=args.threads, seconds=args.seconds)
    if args.json:
        print(json.dumps(result))
        return 0
    print(f"{'order':<15}{'actions/s':>14}{'actions/token':>16}   ({args.threads} thread(s), n={args.n})")
    for name, row in result["orders"].items():
        print(f"{name:<15}{row['actions_per_s']:>14,.0f}{row['actions_per_token']:>16.3f}")
    return 0
