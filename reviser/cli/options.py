"""What commands that measure have in common: shared options, and how a result is printed and kept."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from reviser.errors import ConfigError


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FILE", help="also write the result there, as JSON")


def print_result(args: argparse.Namespace, result: dict[str, Any]) -> int:
    """Print first: where the file cannot be written, what took long is not lost."""
    from reviser.reports.results import write_result
    from reviser.reports.text import print_tables

    if args.json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        print_tables(result, sys.stdout)
    if args.out:
        write_result(result, args.out)
    return 0


def check_positive(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {value} must be at least 1")
