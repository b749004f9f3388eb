"""Tables of corrections: for each set of texts how well they were corrected, by kind of mistake where that is known,
and what was changed in clean ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from reviser.reports.results import Document
from reviser.reports.tables import NOTHING, Bars, Cell, Row, Table, bar, get, percent, show, show_any, tabulate

RIGHT: dict[str, Cell] = {
    "F0.5": get("f_half"),
    "precision": get("precision"),
    "recall": get("recall"),
    "as a reference": get("exact", lambda share: percent(share["value"], share["error"])),
}
COSTS: dict[str, Cell] = {
    "actions a text": get("actions", lambda each: show(each["value"])),
    "ms a text": get("seconds", lambda each: show_any(_scale(each, 1000))),
    "ms in a batch": get("seconds_together", lambda each: show(1000 * each)),
    "unfinished": get("unfinished", lambda count: show(count or None)),
    "texts": get("texts"),
}


def edits(document: Document) -> list[Table]:
    """A table for each set of texts that people corrected, its kinds behind it; one for all clean texts."""
    rows = document["rows"]
    notes = [f"left out: {reason}" for reason in (document.get("left_out") or {}).values()]
    tables = []
    for data, group in groupby([row for row in rows if not row["is_clean"]], key=lambda row: row["data"]):
        own = list(group)
        tables.append(_corrections(data, own, notes))
        if own[0].get("by_kind"):
            tables.append(tabulate(f"By kind of mistake: {data}", list(_kinds(own)), _kind_columns()))
    clean = [row for row in rows if row["is_clean"]]
    return [*tables, _clean(clean, notes)] if clean else tables


def short_edits(document: Document) -> Table:
    """A row for each system: GLEU of the first set, F0.5 of all, false edits, and actions in the first set."""
    by_set: dict[str, dict[str, Row]] = {}
    for row in document["rows"]:
        by_set.setdefault(row["data"], {})[row["system"]] = row
    given = [name for name, rows in by_set.items() if not next(iter(rows.values()))["is_clean"]]
    columns: dict[str, Cell] = {"system": get("system")}
    columns |= {f"GLEU, {name}": _of(by_set[name], get("gleu", _hundred)) for name in given[:1]}
    columns |= {f"F0.5, {name}": _of(by_set[name], get("f_half")) for name in given}
    for name in by_set:
        if name not in given:
            columns[f"false edits per 1,000 words, {name}"] = _of(by_set[name], get("false_per_1000_words"))
    first = next(iter(by_set.values()))
    columns["actions a text"] = _of(first, COSTS["actions a text"])
    return tabulate("Corrections and false edits", [{"system": system} for system in first], columns)


def _of(rows: Mapping[str, Row], cell: Cell) -> Cell:
    """A cell of a system's row in another set."""
    return lambda row: cell(rows[row["system"]]) if row["system"] in rows else NOTHING


def _corrections(data: str, rows: list[Row], notes: list[str]) -> Table:
    columns: dict[str, Cell] = {
        "system": get("system"),
        "GLEU": get("gleu", _hundred),
        **RIGHT,
        "GLEU more than the first's": get("gleu_more", _hundred),
        "F0.5 more": get("f_half_more"),
        "wrong edits": get("wrong_edits"),
        "undone": get("undone_edits"),
        **COSTS,
    }
    bars = tuple(bar(row["system"], row["f_half"]["value"], row["f_half"]["error"]) for row in rows if row["f_half"])
    return tabulate(f"Corrections: {data}", rows, columns, notes, Bars("F0.5 of word edits", bars, most=1.0))


def _kinds(rows: list[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for kind, own in row["by_kind"].items():
            yield {"system": row["system"], "kind": kind, **own}


def _kind_columns() -> dict[str, Cell]:
    return {"system": get("system"), "kind": get("kind"), **RIGHT, "texts": get("texts")}


def _clean(rows: list[Row], notes: list[str]) -> Table:
    columns: dict[str, Cell] = {
        "texts of": get("data"),
        "system": get("system"),
        "false edits per 1,000 words": get("false_per_1000_words"),
        "words changed": get("changed_per_1000_words"),
        "left alone": get("left_alone", lambda share: percent(share["value"], share["error"])),
        "words": get("words"),
        **COSTS,
    }
    return tabulate("Clean text", rows, columns, notes)


def _scale(measure: Row, by: float) -> Mapping[str, Any]:
    error = measure["error"]
    return {**measure, "value": by * measure["value"], "error": None if error is None else by * error}


def _hundred(measure: Row) -> str:
    """GLEU as people write it.

    >>> _hundred({"value": 0.3827, "error": 0.0105, "n": 754})
    '38.3 ± 1.1'
    """
    return show_any(_scale(measure, 100))
