"""Results to a report: JSON documents in, sections of tables out, and one line for each file that is none.

    results/*.json -> Section(tables, how they came about) -> Markdown, one HTML page, tables of README.md

A document says what it is by its field `kind`; see RENDERERS, and kinds.py for what each makes of its rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reviser.errors import DataError
from reviser.reports import kinds, speeds
from reviser.reports.kinds import Document
from reviser.reports.tables import Section, Table

RENDERERS: dict[str, Callable[[Document], list[Table]]] = {
    "likelihood": kinds.likelihood,
    "frontier": kinds.frontier,
    "evalppl": kinds.evalppl,
    "mauve": kinds.mauve,
    "arena": kinds.arena,
    "generations": kinds.generations,
    "gaps": kinds.gaps,
    "trajectories": kinds.trajectories,
    "flops": kinds.flops,
    "orders": speeds.orders,
    "train_speed": speeds.train_speed,
    "decode": speeds.decode,
    "trajectory_speed": speeds.trajectory_speed,
}
"""By kind, in the order in which a report shows them; other kinds come last, as one table of their rows."""
SHORT: dict[str, Callable[[Document], Table]] = {"orders": speeds.short_orders}
"""What stands in README.md for a kind whose first table has too many rows for it."""


@dataclass(frozen=True, slots=True)
class Report:
    """Sections, the table that each result's name stands for in a README, and complaints about the rest."""

    sections: tuple[Section, ...]
    short: dict[str, Table]
    complaints: tuple[str, ...]


def read_report(paths: Iterable[str | os.PathLike[str]]) -> Report:
    """The report of all files, and of all .json files of folders; a file that is no result is complained about."""
    sections: list[Section] = []
    short: dict[str, Table] = {}
    complaints: list[str] = []
    for path in _find(paths, complaints):
        try:
            document = read_result(path)
            section, table = render(path, document)
            if section.name in short:
                raise DataError(f"{path}: there is another result called {section.name}; rename one of them")
        except DataError as error:
            complaints.append(str(error))
        else:
            sections.append(section)
            short[section.name] = table
            short |= {f"{section.name}:{i}": each for i, each in enumerate(section.tables, 1)}
    kinds = list(RENDERERS)
    sections.sort(key=lambda each: (kinds.index(each.kind) if each.kind in kinds else len(kinds), each.source))
    return Report(tuple(sections), short, tuple(complaints))


def _find(paths: Iterable[str | os.PathLike[str]], complaints: list[str]) -> list[Path]:
    """Files in the order given, each once; those of a folder by name."""
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        # A reproduction's folder holds its results beside models and data.
        folder = path / "results" if (path / "results").is_dir() else path
        inside = sorted(folder.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            complaints.append(f"{path}: the folder holds no .json file; write results there with --out")
        for each in inside:
            found.setdefault(each.resolve(), each)
    return list(found.values())


def read_result(path: Path) -> Document:
    """A result's document, with its kind."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: no JSON ({error})") from None
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        raise DataError(
            f"{path}: no result: it has no field `kind`; "
            "results are what `reviser eval` and `reviser bench` write with --out"
        )
    return document


def render(path: Path, document: Document) -> tuple[Section, Table]:
    """A document's section, and its table for a README."""
    kind, rows = document["kind"], document.get("rows", [])
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise DataError(f"{path}: no result of kind {kind}: its rows are no list of objects; measure it again")
    try:
        tables = RENDERERS.get(kind, kinds.generic)(document)
        if not all(table.columns for table in tables or [Table("", (), ())]):
            raise DataError(f"{path}: a result of kind {kind} without rows; measure it again")
        section = Section(path.stem, str(path), kind, tuple(tables), kinds.about(document))
        return section, SHORT[kind](document) if kind in SHORT else tables[0]
    except KeyError as error:
        raise DataError(f"{path}: a result of kind {kind} needs the field {error}; measure it again") from None
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise DataError(f"{path}: no result of kind {kind} ({error}); measure it again") from None
