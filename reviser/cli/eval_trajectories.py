"""`reviser eval trajectories`: how systems edited, beside what their order alone would give."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.options import PROMPTS, add_out, print_result

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.orders.policies import Order


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "trajectories",
        "how systems edited: the paper's ten rows, beside the order's null statistics",
        "  reviser eval trajectories ours.jsonl --order random-walk\n"
        "  reviser eval trajectories both.jsonl --order ours=runs:jump=0.05,start=end --order ar=left-to-right "
        "--plot paths.png --json",
        description="The ten rows of the paper's table for every system that edits, beside those of trajectories "
        "that its order draws at the same lengths with no model at all.",
    )
    parser.add_argument("generations", nargs="+", metavar="GENERATIONS", help="files that `reviser eval` wrote")
    parser.add_argument("--n", type=int, help=PROMPTS)
    parser.add_argument(
        "--order",
        action="append",
        default=[],
        metavar="[NAME=]ORDER",
        help="what the models, or the system NAME, were trained with; its statistics stand beside theirs; repeatable",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order's draws (default 0)")
    parser.add_argument("--plot", metavar="FILE", help="cursor paths, insertion order and move lengths as a picture")
    add_out(parser)
    parser.set_defaults(run=run_trajectories)


def run_trajectories(args: argparse.Namespace) -> int:
    from reviser.evaluation.metrics.editing import describe, plot, trajectories_of
    from reviser.evaluation.records import hash_files, make_result
    from reviser.evaluation.texts import read_texts

    generations = read_texts(args.generations, args.n)
    editing = {each.system for each in generations if each.record is not None}
    systems = [name for name in dict.fromkeys(each.system for each in generations) if name in editing]
    if not systems:
        trajectories_of(generations, generations[0].system)
    orders = _orders(args.order, list(dict.fromkeys(each.system for each in generations)))
    rows = [describe(generations, name, orders.get(name), args.seed) for name in systems]
    config = {"generations": hash_files(args.generations), "n": args.n, "order": args.order}
    if args.plot:
        plot({name: trajectories_of(generations, name) for name in systems}, args.plot)
    return print_result(args, make_result("trajectories", rows, config, seed=args.seed), lambda: _told(rows))


def _orders(given: list[str], systems: list[str]) -> dict[str, Order]:
    """The order of each system: its own, or the one without a name."""
    from reviser.errors import ConfigError
    from reviser.orders.registry import parse_order

    named = {name: text for name, _, text in (each.partition("=") for each in given) if name in systems}
    others = [each for each in given if each.partition("=")[0] not in systems]
    if len(others) > 1:
        raise ConfigError(
            f"--order {others[1]}: there is one for all already, {others[0]}; name a system: {', '.join(systems)}"
        )
    shared = dict.fromkeys(systems, others[0]) if others else {}
    return {name: parse_order(text) for name, text in (shared | named).items()}


def _told(rows: list[dict[str, Any]]) -> str:
    from reviser.orders.statistics import format_table

    columns = {}
    for row in rows:
        columns[row["system"]] = row["statistics"]
        if row["null"] is not None:
            title = f"{row['order']} alone"
            columns[f"{title} ({row['system']})" if title in columns else title] = row["null"]
    lines = [format_table(columns).rstrip("\n")]
    for row in rows:
        longer = row["length_ratio"]
        lengths = "" if longer is None else f", {longer:.2f} times as long as the references"
        lines.append(f"{row['system']}: {row['stopped_share']:.1%} stopped by themselves{lengths}")
    return "\n".join(lines)
