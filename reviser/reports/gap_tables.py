"""Tables of filled gaps: what each system's fillings are worth, all together and by kind of gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reviser.reports.results import Document
from reviser.reports.tables import NOTHING, Bars, Cell, Row, Table, bar, get, percent, show_any, tabulate


def _share(measure: Mapping[str, Any]) -> str:
    return percent(measure["value"], measure["error"])


def _beside_first(key: str) -> Cell:
    """What a row has more than the first system's."""

    def cell(row: Row) -> str:
        found = (row.get("more_than_first") or {}).get(key)
        return NOTHING if found is None else show_any(found)

    return cell


SYSTEM: dict[str, Cell] = {"system": get("system")}
GAP_MEASURES: dict[str, Cell] = {
    "true middle, bits/byte": get("middle_bits_per_byte"),
    "more than the first's": _beside_first("middle_bits_per_byte"),
    "with its end": get("ended_middle_bits_per_byte"),
    "with its end, more than the first's": _beside_first("ended_middle_bits_per_byte"),
    "suffix, bits/byte": get("suffix_bits_per_byte"),
    "more than after nothing": get("suffix_more_than_nothing"),
    "suffix more than the first's": _beside_first("suffix_bits_per_byte"),
    "exact, 1 to 3 words": get("exact_match", _share),
    "half to twice as long": get("within_half_and_twice", _share),
    "length over the original's": get("length_quantiles", lambda parts: show_quantiles(parts)),
}
"""What is measured of filled gaps; results of version 0.1 have suffixes and fewer quantiles alone."""


def gaps(document: Document) -> list[Table]:
    """The suffix is drawn: whether a text leads on to it tells a filled gap from a continued prefix."""
    rows = document["rows"]
    count = {"texts": get("texts"), "empty": get("empty")}
    key = "suffix_bits_per_byte"
    bars = tuple(bar(row["system"], row[key]["value"], row[key]["error"]) for row in rows if row.get(key))
    plot = Bars("bits per byte of the suffix", bars)
    tables = [tabulate("How well gaps were filled", rows, SYSTEM | GAP_MEASURES | count, _gap_notes(rows), plot)]
    split = [{"kind": kind, "system": row["system"], **part} for kind, row, part in _gap_parts(rows)]
    if split:
        columns = {"gaps": get("kind")} | SYSTEM | GAP_MEASURES | {"texts": count["texts"]}
        tables.append(tabulate("The same by kind of gap", split, columns))
    return tables


def describe_middle(about: Mapping[str, Any]) -> str:
    """What a system was given, and what the number of its true middle is.

    >>> describe_middle({"sees_suffix": False, "is_exact": True, "has_end": False})
    'the prefix alone, for it cannot see the suffix: exact'
    """
    given = "both sides" if about["sees_suffix"] else "the prefix alone, for it cannot see the suffix"
    how = "exact" if about["is_exact"] else f"a bound, K = {about['samples']}"
    return f"{given}: {how}{', always with its end' if about['has_end'] else ''}"


def show_quantiles(parts: Mapping[str, float]) -> str:
    """
    >>> show_quantiles({"10%": 0.25, "50%": 1.0})
    '10% 0.25, 50% 1.00'
    """
    return ", ".join(f"{name} {value:.2f}" for name, value in parts.items())


def _gap_parts(rows: Sequence[Row]) -> list[tuple[str, Row, Row]]:
    """Kind, row and what the row says of that kind, kinds one after the other."""
    kinds = dict.fromkeys(kind for row in rows for kind in row.get("by_kind", {}))
    return [(kind, row, row["by_kind"][kind]) for kind in kinds for row in rows if kind in row.get("by_kind", {})]


def _gap_notes(rows: Sequence[Row]) -> list[str]:
    """How the true middle was measured, for each system that has one."""
    notes = []
    for row in rows:
        if (about := row.get("middle")) is None:
            continue
        left = f"; {about['left_out']} gaps left out, longer than canvases of {about['longest']} tokens"
        notes.append(
            f"{row['system']}: the true middle given {describe_middle(about)}{left * bool(about['left_out'])}"
        )
    return notes
