"""Results of version 1 to version 2: headings that were keys become stable keys; no value changes.

    python tools/convert_results.py results/*.json

Each file is rewritten in place once its values, sorted, are found equal before and after; files of version 2 are left
alone.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from reviser.orders.statistics import ROWS
from reviser.reports.paper_tables import RUN, SYSTEMS, TABLES, TRAINING
from reviser.reports.results import FORMAT, VERSION, write_result

NAMES = {text: name for name, text in SYSTEMS.items()}
STATISTICS = {title: key for title, key, _ in ROWS}
RENAMED = {
    "In short": "Summary",
    "Infilling, bits per byte by the evaluator (not in the paper)": "Infilling (not in the paper); suffixes by",
}
"""Titles that version 1 had."""
GONE = {
    "gap and suffix, bits/byte": "whole_bits_per_byte",
    "suffix alone": "suffix_bits_per_byte",
    "gap's length over the original's": "length_over_reference",
    "gap and suffix, bits/byte more than an empty gap": "whole_bits_per_byte_more",
    "suffix alone, more than after an empty gap": "suffix_bits_per_byte_more",
    "suffix": "suffix_bits_per_byte",
    "gap": "gap_bits_per_byte",
    "both": "whole_bits_per_byte",
    "length over the reference": "length_over_reference",
}
"""Headings that are no longer shown."""


def convert(document: dict[str, Any]) -> dict[str, Any]:
    """The document under stable keys."""
    if document.get("format") == FORMAT:
        return document
    first = {"format": FORMAT, "version": VERSION, "kind": document["kind"], "rows": document.get("rows", [])}
    rest = {key: value for key, value in document.items() if key not in ("kind", "rows", "version")}
    if "version" in document:
        rest["reviser"] = document["version"]
    if document["kind"] == "reproduction":
        return _convert_reproduction(first, rest)
    if document["kind"] == "training":
        keys = {text: key for key, text in TRAINING.items()}
        first["rows"] = [{keys[name]: value for name, value in row.items()} for row in first["rows"]]
    if document["kind"] == "decode" and "batches" in rest:
        first["rows"] = rest.pop("batches")
        if "batches_512" in rest:
            rest["rows_512"] = rest.pop("batches_512")
    return first | rest


def _convert_reproduction(first: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    by: dict[str, str] = {}
    first["rows"] = [_convert_row(row, by) for row in first["rows"]]
    keys = {text: key for key, text in RUN.items()}
    rest["commands"] = [{keys[name]: value for name, value in each.items()} for each in rest["commands"]]
    return first | {"measured_by": by} | rest


def _convert_row(row: dict[str, Any], by: dict[str, str]) -> dict[str, Any]:
    table = RENAMED.get(row["table"], row["table"])
    key = next(key for key, (title, _) in TABLES.items() if table.startswith(title.partition("{")[0].rstrip()))
    title, columns = TABLES[key]
    if "{" in title:
        name = title.partition("{")[2].rstrip("}")
        by[name] = table.removeprefix(title.partition("{")[0])
    headings = GONE | {text.partition("{")[0]: name for name, text in columns.items()}
    found: dict[str, Any] = {"table": key}
    for heading, value in row.items():
        if heading in ("system", "against"):
            found["system"] = _name(value)
        elif heading == "":
            found |= {"statistic": STATISTICS[value.removesuffix(", %")], "systems": {}}
        elif key == "trajectories" and heading.endswith(", here"):
            found["systems"][_name(heading.removesuffix(", here"))] = value
        elif heading == "is":
            found["is_exact"] = value == "exact"
        elif heading != "table":
            stem = next(
                text for text in headings if heading == text or (text.endswith(" ") and heading.startswith(text))
            )
            if heading != stem:
                by["evaluator"] = heading.removeprefix(stem)
            found[headings[stem]] = value
    return found


def _name(label: str) -> str:
    """The name of a system that a label was made from."""
    first, _, steps = label.partition(", ")
    count = steps.removesuffix(" steps")
    return NAMES.get(first, first) + (f"-{count}" if steps.endswith(" steps") and count != "128" else "")


def numbers(value: Any) -> Counter[str]:
    """Every number of a document, however it is keyed."""
    if isinstance(value, dict):
        return sum((numbers(part) for part in value.values()), Counter())
    if isinstance(value, list):
        return sum((numbers(part) for part in value), Counter())
    return Counter([repr(value)]) if isinstance(value, int | float) and not isinstance(value, bool) else Counter()


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        old = json.loads(path.read_text("utf-8"))
        new = convert(old)
        if new == old:
            continue
        before, after = numbers(old), numbers({key: value for key, value in new.items() if key != "version"})
        if before != after:
            raise SystemExit(f"{path}: values would change: {before - after} {after - before}")
        write_result(new, path)
        print(f"{path}: {sum(before.values())} numbers, all as before")


if __name__ == "__main__":
    main()
