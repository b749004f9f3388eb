"""`reviser eval frontier`: how much systems revise, and what that costs beside a left-to-right one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reviser.cli.command import add_command
from reviser.cli.options import PROMPTS, add_out, print_result

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add(suites: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        suites,
        "frontier",
        "evalPPL over a left-to-right system's, against the share of insertions not at the end",
        "  reviser eval frontier ar.jsonl jumps.jsonl --against ar --evalppl evalppl.json\n"
        "  reviser eval frontier *.jsonl --against ar --evalppl evalppl.json --likelihood bounds.json --out "
        "results/frontier.json",
        description="Put side by side how systems edited and how probable what they wrote is, each beside a "
        "left-to-right system. The results of `reviser eval evalppl` and `likelihood` are read, not measured anew; "
        "systems are told by their names.",
    )
    parser.add_argument("generations", nargs="+", metavar="GENERATIONS", help="files that `reviser eval` wrote")
    parser.add_argument("--against", required=True, metavar="SYSTEM", help="the left-to-right system")
    parser.add_argument("--evalppl", required=True, metavar="FILE", help="a result of `reviser eval evalppl`")
    parser.add_argument("--likelihood", metavar="FILE", help="a result of `reviser eval likelihood`")
    parser.add_argument("--n", type=int, help=PROMPTS)
    add_out(parser)
    parser.set_defaults(run=run_frontier)


def run_frontier(args: argparse.Namespace) -> int:
    from reviser.evaluation.metrics.frontier import frontier
    from reviser.evaluation.records import hash_files, make_result
    from reviser.evaluation.texts import read_texts
    from reviser.reports.sections import read_result

    files = [args.evalppl, *([args.likelihood] if args.likelihood else [])]
    read = [_rows(read_result(Path(file)), file, kind) for file, kind in zip(files, KINDS, strict=False)]
    generations = read_texts(args.generations, args.n)
    rows = frontier(generations, args.against, *read)
    edited = {row["system"] for row in rows}
    if others := sorted({each.system for each in generations} - edited):
        print(f"left out, for they do not edit: {', '.join(others)}", file=sys.stderr)
    config = {"against": args.against, "generations": hash_files(args.generations), "results": hash_files(files)}
    return print_result(args, make_result("frontier", rows, config | {"n": args.n}), lambda: _table(rows))


KINDS = ("evalppl", "likelihood")


def _rows(document: Any, file: str, kind: str) -> list[dict[str, Any]]:
    from reviser.errors import DataError

    if document["kind"] != kind:
        raise DataError(f"{file} is a result of kind {document['kind']}; give one of `reviser eval {kind}`")
    return list(document["rows"])


def _table(rows: list[dict[str, Any]]) -> str:
    from reviser.reports.kinds import frontier

    [table] = frontier({"kind": "frontier", "rows": rows})
    lines = [table.columns, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
