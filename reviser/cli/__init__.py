"""The command line: `reviser COMMAND ...`. Subcommands import what they need when they run."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from typing import NoReturn

from reviser import __version__
from reviser.errors import ReviserError

COMMANDS = ("trajectory", "data", "train", "models", "write", "evaluate", "reproduce", "report", "bench")
"""Modules beside this one, in the order of the flow; each registers its commands with `add`."""


class Parser(argparse.ArgumentParser):
    """One whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def build_parser() -> Parser:
    parser = Parser(
        prog="reviser",
        description="Language models that write by editing: make and look at trajectories, prepare data, train, "
        "generate, evaluate.",
        epilog="examples:\n  reviser generate 'The old lighthouse' --live\n"
        "  reviser trajectory make 'Hello there.' --order runs | reviser trajectory show -",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"reviser {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"reviser.cli.{name}").add(commands)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command; 0 done, 1 a check failed, 2 the user must change something."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parser = build_parser()
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.exit(2, f"error: no such option here: {' '.join(unknown)}; see {args.prog} --help\n")
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except ReviserError as error:
        if args.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
