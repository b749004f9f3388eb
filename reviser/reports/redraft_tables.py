"""Tables of drafts that a model has revised: what the same actions buy, and the parts of revising."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reviser.reports.results import Document
from reviser.reports.tables import NOTHING, Cell, Row, Table, get, percent, show_any, tabulate

PARTS = {
    "texts": "texts with a span by the model",
    "proposed": "texts in which it proposes a change",
    "span_proposed": "texts in which it proposes one in the span",
    "first_in_span": "of those with a proposal, the most probable is in the span",
    "chance": "by chance it would be, in",
    "span_found": "texts in which one in the span is above the threshold",
    "edits_elsewhere": "changes above the threshold elsewhere, a text",
    "originals_left_alone": "originals left alone",
    "false_per_1000_words": "changes per 1,000 words of originals",
}
SHARES = ("proposed", "span_proposed", "first_in_span", "chance", "span_found", "originals_left_alone")


def revision(document: Document) -> list[Table]:
    """Drafts, then texts with known spans, then the parts as shares."""
    rows = document["rows"]
    drafts, spans = ([row for row in rows if row["part"] == part] for part in ("drafts", "spans"))
    tables = [tabulate("Drafts and what became of them", drafts, _draft_columns(drafts))] if drafts else []
    if spans:
        tables.append(tabulate("Texts with one span by the model", spans, _span_columns(spans)))
    if parts := document.get("parts"):
        lines = [{"what": PARTS[key], "number": _show_part(key, parts[key])} for key in PARTS if parts.get(key)]
        columns: dict[str, Cell] = {"what": get("what"), "number": get("number")}
        tables.append(tabulate("Finding, writing, stopping", lines, columns))
    return tables


def _show_part(key: str, value: Any) -> str:
    return percent(value["value"], value["error"]) if key in SHARES else show_any(value)


def _draft_columns(rows: Sequence[Row]) -> dict[str, Cell]:
    columns: dict[str, Cell] = {"system": _name}
    for name in _evaluators(rows):
        columns |= {
            f"evalPPL, {name}": _of(name, "perplexity"),
            f"nats/token more than the draft, {name}": _of(name, "nats_more"),
            f"preferred to the draft, {name}": _of(name, "preferred", _show_share),
            f"of those that changed, {name}": _of(name, "preferred_changed", _show_share),
        }
    return columns | {
        "distinct-2": get("distinct_2"),
        "distinct-2 of all texts": get("pooled_distinct_2"),
        "MAUVE": get("mauve"),
        "words": get("words"),
        "changed": get("changed", _show_percent),
        "actions a text": get("actions"),
        "texts": get("texts"),
    }


def _span_columns(rows: Sequence[Row]) -> dict[str, Cell]:
    columns: dict[str, Cell] = {
        "row": get("system"),
        "changed": get("changed", _show_percent),
        "F0.5": get("f_half"),
        "precision": get("precision"),
        "recall": get("recall"),
    }
    columns |= {f"bits/byte, {name}": _of(name, "bits_per_byte") for name in _evaluators(rows)}
    return columns | {"texts": get("texts")}


def _name(row: Row) -> str:
    return f"{row['system']} (nearest in distinct-2)" if row.get("is_nearest") else str(row["system"])


def _evaluators(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.get("evaluators") or {}))


def _of(name: str, key: str, cell: Any = show_any) -> Cell:
    """A number that one evaluator gave."""

    def show(row: Row) -> str:
        found = (row.get("evaluators") or {}).get(name, {}).get(key)
        return NOTHING if found is None else str(cell(found))

    return show


def _show_percent(share: Mapping[str, Any]) -> str:
    return percent(share["value"], share["error"])


def _show_share(share: Mapping[str, Any]) -> str:
    return f"{percent(share['value'])} ({percent(share['low'])} to {percent(share['high'])})"
