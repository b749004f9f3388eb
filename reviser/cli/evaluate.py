"""`reviser eval`: measure systems, each suite a command of its own."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from reviser.cli.shared.command import add_command, add_out, print_result
from reviser.cli.shared.fields import add_fields, from_args
from reviser.evaluation.plan import EvalAll
from reviser.evaluation.suites import SUITES, Listener, Suite
from reviser.viewer.progress_bar import count_up

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable


class Console(Listener):
    """Notes and progress on standard error."""

    def note(self, line: str) -> None:
        print(line, file=sys.stderr)

    def count(self, title: str, total: int, things: str = "texts") -> AbstractContextManager[Callable[[int], None]]:
        return count_up(title, total, things)


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = commands.add_parser("eval", help="measure what systems write, what it costs and how probable text is")
    suites = parser.add_subparsers(title="suites", required=True, metavar="SUITE")
    for kind in SUITES:
        suite = add_command(suites, kind.name, kind.summary, kind.examples, description=kind.description)
        add_fields(suite, kind)
        add_out(suite)
        suite.set_defaults(run=run_suite, kind_of_suite=kind)
    everything = add_command(suites, "all", EvalAll.summary, EvalAll.examples, description=EvalAll.description)
    add_fields(everything, EvalAll)
    everything.set_defaults(run=run_all)


def run_suite(args: argparse.Namespace) -> int:
    from reviser.evaluation.suites import Arena

    kind: type[Suite] = args.kind_of_suite
    suite = from_args(kind, args)
    if isinstance(suite, Arena):
        return print_result(args, suite.run(Console(), handle_signals=True))
    return print_result(args, suite.run(Console()))


def run_all(args: argparse.Namespace) -> int:
    from reviser.evaluation.plan import run_everything
    from reviser.reports.text import print_tables

    chosen = from_args(EvalAll, args)
    show = None if args.json else lambda document: print_tables(document, sys.stdout)
    done = run_everything(chosen, Console(), show)
    if args.json:
        print(json.dumps(done))
    return 1 if done["failed"] else 0
