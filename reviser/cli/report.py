"""`reviser report`: results to Markdown, to one HTML page, and into README.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reviser.cli.shared.command import add_command
from reviser.errors import ConfigError, DataError, make_visible

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from reviser.reports.tables import Table


def add(commands: argparse._SubParsersAction[ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "report",
        "results as tables with errors and plots",
        "  reviser report --html build/report.html\n  reviser report --readme README.md --check",
        description="Turn result documents into Markdown, one HTML page with plots, or the tables between a README's "
        "markers. Without a file to write, Markdown is printed. If a file is not a result, it is named on "
        "standard error, the others are reported, and the exit code is 1.",
        has_json=False,
    )
    parser.add_argument(
        "results", nargs="*", default=["results"], metavar="RESULTS", help="files or folders (default results)"
    )
    parser.add_argument("--markdown", metavar="FILE", help="write all tables there as Markdown")
    parser.add_argument("--html", metavar="FILE", help="write all tables and plots there as one page")
    parser.add_argument(
        "--readme",
        metavar="FILE",
        help="regenerate the tables after its markers <!-- table: NAME --> (NAME:2: a result's second table)",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing to the README; exit with code 1 if it differs"
    )
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    from reviser.reports.html import write_html
    from reviser.reports.markdown import write_markdown
    from reviser.reports.sections import read_report, write_file

    if args.check and args.readme is None:
        raise ConfigError("--check needs --readme, the file to check")
    report = read_report(args.results)
    for complaint in report.complaints:
        print(make_visible(" ".join(complaint.splitlines())), file=sys.stderr)
    if not report.sections:
        return 1
    if args.markdown is not None:
        write_file(args.markdown, write_markdown(report.sections))
    if args.html is not None:
        write_file(args.html, write_html(report.sections))
    is_same = args.readme is None or _fill(args.readme, report.short, args.check)
    if args.markdown is args.html is args.readme is None:
        print("\n".join(map(make_visible, write_markdown(report.sections).split("\n"))), end="")
    return 0 if is_same and not report.complaints else 1


def _fill(readme: str, tables: dict[str, Table], has_check: bool) -> bool:
    """Regenerate a README's tables; whether a check passes."""
    from reviser.reports.markdown import fill
    from reviser.reports.sections import write_file

    try:
        text = Path(readme).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{readme}: cannot be read ({error}); give a Markdown file") from None
    filled = fill(text, tables, readme)
    if not has_check:
        if filled.changed:
            write_file(readme, filled.text)
        return True
    for name in filled.changed:
        print(f"{readme}: table {name} is not what the results say; run: reviser report --readme {readme}")
    return not filled.changed
