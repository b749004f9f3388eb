"""Tables in the terminal: columns side by side, numbers to the right, notes below.

>>> import io
>>> out = io.StringIO()
>>> write_table(Table("Speed", ("system", "actions/s"), (("ours", "310"), ("bare", "1,024"))), out)
>>> print(out.getvalue())
Speed
system  actions/s
ours          310
bare        1,024
<BLANKLINE>
"""

from __future__ import annotations

import re
import unicodedata
from typing import IO

from reviser.reports.results import Document
from reviser.reports.sections import tables_of
from reviser.reports.tables import Table, numeric_columns

GAP = "  "
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def print_tables(document: Document, out: IO[str]) -> None:
    """A result's tables, one below the other."""
    for number, table in enumerate(tables_of(document)):
        if number:
            out.write("\n")
        write_table(table, out)
    if who := measured_by(document):
        out.write(f"\nmeasured by {_visible(who)}\n")


def measured_by(document: Document) -> str:
    """Whose opinion the numbers are: the judge, or the evaluator and the sha256 of its weights; or nobody."""
    if judge := document.get("config", {}).get("judge"):
        return f"judge {judge}"
    evaluator = document.get("evaluator") or {}
    parts = [str(evaluator[key]) for key in ("name", "kind") if evaluator.get(key)]
    return ", ".join([" ".join(parts), *(f"sha256 {h}" for h in [evaluator.get("sha256")] if h)]) if parts else ""


def write_table(table: Table, out: IO[str]) -> None:
    lines = [tuple(map(_visible, line)) for line in (table.columns, *table.rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    numbers = numeric_columns(table.rows)
    out.write(f"{_visible(table.title)}\n")
    for line in lines:
        cells = zip(line, widths, numbers, strict=True)
        out.write(GAP.join(_pad(cell, width, is_right) for cell, width, is_right in cells).rstrip() + "\n")
    for note in table.notes:
        out.write(f"{_visible(note)}\n")


def _pad(cell: str, width: int, is_right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if is_right else cell + space


def _width(text: str) -> int:
    """Columns that a terminal takes for it."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def _visible(text: str) -> str:
    """Text that cannot speak to the terminal."""
    return CONTROL.sub(lambda found: f"<{ord(found[0]):02X}>", text)
