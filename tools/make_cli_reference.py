"""docs/cli.md, made from the parsers themselves: `python tools/make_cli_reference.py > docs/cli.md`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from reviser.cli import build_parser


def render() -> str:
    """The whole reference as Markdown."""
    parts = ["# Command reference\n\nMade by `make docs` from the commands' own help.\n"]
    for path, parser in _leaves(build_parser(), ("reviser",)):
        parts.append(f"## {' '.join(path)}\n\n{parser.description}\n")
        rows = [
            f"| `{_escape(_name(action))}` | {_escape(action.help or '')} |"
            for action in parser._actions
            if action.dest != "help"
        ]
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]) + "\n")
        examples = (parser.epilog or "").partition("\n")[2]
        parts.append(f"```\n{examples}\n```\n")
    return "\n".join(parts)


def _leaves(
    parser: argparse.ArgumentParser, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield path, parser
    for group in groups:
        for name, child in group.choices.items():
            yield from _leaves(child, (*path, name))


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest).upper()
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest}".upper()
    names = (
        action.option_strings if isinstance(action, argparse.BooleanOptionalAction) else action.option_strings[-1:]
    )
    return f"{', '.join(names)}{value}"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("%%", "%")


if __name__ == "__main__":
    sys.stdout.write(render())
