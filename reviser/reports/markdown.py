"""Sections as Markdown, and tables between a document's markers.

>>> print(write_table(Table("Speed", ("threads", "a|b"), (("1", "0.5*runs"),))))
| threads | a\\|b |
|---|---|
| 1 | 0.5\\*runs |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reviser.errors import DataError
from reviser.reports.tables import Section, Table

BEGIN = re.compile(r"<!-- table: (\S+)((?: (?:rows|columns) \d+(?:,\d+)*)*) -->")
END = "<!-- end of table -->"
SPECIAL = re.compile(r"[\\`*\[\]<>|&~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""Not an underscore inside a word, which Markdown leaves alone."""


def write_markdown(sections: Iterable[Section]) -> str:
    """The whole report."""
    return "\n\n".join(["# Results", *(_write_section(section) for section in sections)]) + "\n"


def _write_section(section: Section) -> str:
    parts = [f"## {escape(section.source)}"]
    for table in section.tables:
        parts += [f"### {escape(table.title)}", write_table(table), *map(escape, table.notes)]
    if section.about:
        parts.append("\n".join(f"- {escape(key)}: {_say(key, text)}" for key, text in section.about.items()))
    return "\n\n".join(parts)


def _say(key: str, text: str) -> str:
    return _code(text) if key == "command" else escape(text)


def _code(text: str) -> str:
    """A code span, fenced by more backticks than stand in it."""
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def escape(text: str) -> str:
    """Text that reads as it stands."""
    return SPECIAL.sub(lambda match: "\\" + match[0], " ".join(text.split()))


def write_table(table: Table) -> str:
    lines = [table.columns, *table.rows]
    head, *body = (f"| {' | '.join(map(escape, cells))} |" for cells in lines)
    return "\n".join([head, "|" + "---|" * len(table.columns), *body])


@dataclass(frozen=True, slots=True)
class FilledDocument:
    """A document with its tables regenerated, and the names of those that changed."""

    text: str
    changed: tuple[str, ...]


def fill(text: str, tables: Mapping[str, Table], name: str) -> FilledDocument:
    """Put the tables where `<!-- table: NAME -->` and `<!-- end of table -->` stand on lines of their own.

    NAME:2 is the second table of a result, and NAME the one that says most; `NAME rows 1,3 columns 1,2` is a part of
    it.
    """
    lines, kept, changed = text.split("\n"), list[str](), list[str]()
    at = 0
    while at < len(lines):
        kept.append(lines[at])
        begin = BEGIN.fullmatch(lines[at].strip())
        at += 1
        if begin:
            where = f"{name}, line {at}"
            if begin[1] not in tables:
                raise DataError(f"{where}: {_unknown(begin[1], tables)}")
            end = _find_end(lines, at, where)
            made = write_table(_select(tables[begin[1]], begin[2].split(), where)).split("\n")
            if made != lines[at:end]:
                changed.append(begin[1])
            kept += made
            at = end
    return FilledDocument("\n".join(kept), tuple(changed))


def _select(table: Table, words: list[str], where: str) -> Table:
    """Some rows and columns of a table, by their numbers from 1, in the order given."""
    for what, numbers in zip(words[::2], words[1::2], strict=True):
        wanted = [int(number) for number in numbers.split(",")]
        count = len(table.rows if what == "rows" else table.columns)
        if not all(1 <= number <= count for number in wanted):
            raise DataError(f"{where}: {what} {numbers} of a table with {count}; name some of 1 to {count}")
        if what == "rows":
            table = replace(table, rows=tuple(table.rows[number - 1] for number in wanted))
        else:
            columns, *rows = (tuple(each[number - 1] for number in wanted) for each in (table.columns, *table.rows))
            table = replace(table, columns=columns, rows=tuple(rows))
    return table


def _unknown(wanted: str, tables: Mapping[str, Table]) -> str:
    result, _, number = wanted.partition(":")
    if number and result in tables:
        count = sum(name.startswith(f"{result}:") for name in tables)
        return f"result {result} has no table {number}; it has {count}"
    known = ", ".join(name for name in tables if ":" not in name) or "none"
    return f"no result is called {wanted}; there are {known}"


def _find_end(lines: list[str], at: int, where: str) -> int:
    for number, line in enumerate(lines[at:], at):
        if BEGIN.fullmatch(line.strip()):
            break
        if line.strip() == END:
            return number
    raise DataError(f"{where}: the table has no end; put {END} after its last row")
