"""What commands have in common: how a parser is made, shared options, and how a result is printed and kept."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from reviser.errors import ConfigError


def looks_like_file(text: str) -> bool:
    """Whether someone who wrote this as a text meant the file of that name: one word with a text file's ending."""
    return text.endswith((".txt", ".md")) and not any(map(str.isspace, text))


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    examples: str,
    description: str | None = None,
    has_json: bool = True,
) -> argparse.ArgumentParser:
    """A command that runs; `text` is its line in the list of commands, and its description where none is given."""
    parser = commands.add_parser(
        name,
        help=text,
        description=description or f"{text[0].upper()}{text[1:]}.",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(prog=parser.prog)
    if has_json:
        parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return parser


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FILE", help="also write the result there, as JSON")


def format_json(value: Any) -> str:
    """One line of JSON that a terminal can show: what is not printable is escaped, and means the same.

    >>> format_json({"café": "a\\u202eb"})
    '{"café": "a\\\\u202eb"}'
    """
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def print_result(args: argparse.Namespace, result: dict[str, Any]) -> int:
    """Print first: where the file cannot be written, what took long is not lost."""
    from reviser.files import stamp
    from reviser.reports.results import write_result
    from reviser.reports.text import print_tables

    if args.json:
        print(format_json(stamp(result)))
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
