"""`reviser eval trajectories`: how systems edited, beside what their order alone would give."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from reviser.cli.leaf import add_leaf

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_leaf(
        suites,
        "trajectories",
        "how systems edited: the paper's ten rows, beside the order's null statistics",
        "  reviser eval trajectories ours.jsonl --order random-walk\n"
        "  reviser eval trajectories ours.jsonl --order runs:jump=0.05,start=end --plot paths.png --json",
    )
    parser.add_argument("generations", metavar="GENERATIONS", help="a file that `reviser eval continuation` wrote")
    parser.add_argument("--order", help="the order the models were trained with; its statistics stand beside theirs")
    parser.add_argument("--seed", type=int, default=0, help="of the order's draws (default 0)")
    parser.add_argument("--plot", metavar="FILE", help="cursor paths, insertion order and move lengths as a picture")
    parser.add_argument("--out", metavar="FILE", help="write the result document there too")
    parser.set_defaults(run=run_trajectories)


def run_trajectories(args: argparse.Namespace) -> int:
    from reviser.evaluation.records import make_result, read_generations, write_result
    from reviser.evaluation.trajectories import describe, plot, trajectories_of
    from reviser.trajectory.names import parse_order
    from reviser.trajectory.statistics import format_table

    generations = read_generations(args.generations)
    order = parse_order(args.order) if args.order else None
    editing = {each.system for each in generations if each.record is not None}
    systems = [name for name in dict.fromkeys(each.system for each in generations) if name in editing]
    if not systems:
        trajectories_of(generations, generations[0].system if generations else "(none)")
    rows = [describe(generations, name, order, args.seed) for name in systems]
    result = make_result("trajectories", rows, {"order": args.order, "generations": args.generations}, seed=args.seed)
    if args.plot:
        plot([each for name in systems for each in trajectories_of(generations, name)], args.plot)
    if args.out:
        write_result(result, args.out)
    if args.json:
        print(json.dumps(result))
        return 0
    columns = {}
    for row in rows:
        columns[row["system"]] = row["statistics"]
        if row["null"] is not None:
            columns[f"{args.order} alone"] = row["null"]
    print(format_table(columns), end="")
    for row in rows:
        stopped, longer = row["stopped_share"], row["length_ratio"]
        print(f"{row['system']}: {stopped:.1%} stopped by themselves, {longer:.2f} times as long as the references")
    return 0
