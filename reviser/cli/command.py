"""How every command's parser is made: a description, examples as they stand, and `--json` where it prints results."""

from __future__ import annotations

import argparse


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
