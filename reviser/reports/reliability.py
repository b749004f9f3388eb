"""The table of `make torture`: how often faults were made, and what came of them."""

from __future__ import annotations

from reviser.reports.results import Document
from reviser.reports.tables import Table, get, tabulate


def faults(document: Document) -> list[Table]:
    """A line for each trial."""
    columns = {
        "area": get("area"),
        "trial": get("trial"),
        "of": get("what"),
        "tried": lambda row: f"{row['tried']:,}",
        "told in one line": lambda row: f"{row['named']:,}",
        "failed": lambda row: f"{row['failed']:,}",
        "in full": lambda row: f"{row['full']:,}",
    }
    return [tabulate("Faults in numbers", document["rows"], columns)]
