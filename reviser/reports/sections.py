"""Results to a report: JSON documents in, sections of tables out, and one line for each file that is none.

    results/*.json -> Section(tables, how they came about) -> Markdown, HTML, the terminal, tables of README.md

A document says what it is by its field `kind`. RENDERERS has a function for each kind that makes tables of its rows;
this is the one place that knows headings, rounding and wording.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from reviser import files
from reviser.errors import ConfigError, DataError
from reviser.reports import gap_tables, kinds, paper_tables, proofreading, redraft_tables, reliability, speeds
from reviser.reports.results import Document, read_result
from reviser.reports.tables import Section, Table

RENDERERS: dict[str, Callable[[Document], list[Table]]] = {
    "reproduction": paper_tables.reproduction,
    "likelihood": kinds.likelihood,
    "frontier": kinds.frontier,
    "evalppl": kinds.evalppl,
    "metrics": kinds.metrics,
    "mauve": kinds.mauve,
    "arena": kinds.arena,
    "generations": kinds.generations,
    "gaps": gap_tables.gaps,
    "trajectories": kinds.trajectories,
    "flops": kinds.flops,
    "edits": proofreading.edits,
    "revision": redraft_tables.revision,
    "training": paper_tables.training,
    "orders": speeds.orders,
    "train_speed": speeds.train_speed,
    "decode": speeds.decode,
    "trajectory_speed": speeds.trajectory_speed,
    "serve_load": speeds.serve_load,
    "check_time": speeds.check_time,
    "faults": reliability.faults,
}
"""By kind, in the order in which a report shows them; other kinds come last, as one table of their rows."""
SHORT: dict[str, Callable[[Document], Table]] = {
    "edits": proofreading.short_edits,
    "orders": speeds.short_orders,
    "reproduction": paper_tables.short_reproduction,
}
"""What stands in README.md for a kind whose first table is too large for it."""


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
            section, table = render(path, read_result(path))
            if section.name in short:
                raise DataError(f"{path}: there is another result called {section.name}; rename one of them")
        except DataError as error:
            complaints.append(str(error))
        else:
            sections.append(section)
            short[section.name] = table
            short |= {f"{section.name}:{i}": each for i, each in enumerate(section.tables, 1)}
    known = list(RENDERERS)
    sections.sort(key=lambda each: (known.index(each.kind) if each.kind in known else len(known), each.source))
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


def tables_of(document: Document) -> list[Table]:
    """A document's tables; KeyError, TypeError and the like where it is not what its kind says."""
    return RENDERERS.get(document["kind"], kinds.generic)(document)


def render(path: Path, document: Document) -> tuple[Section, Table]:
    """A document's section, and its table for a README."""
    kind = document["kind"]
    try:
        tables = tables_of(document)
        if not all(table.columns for table in tables or [Table("", (), ())]):
            raise DataError(f"{path}: a result of kind {kind} without rows; measure it again")
        section = Section(path.stem, str(path), kind, tuple(tables), kinds.about(document))
        return section, SHORT[kind](document) if kind in SHORT else tables[0]
    except KeyError as error:
        raise DataError(f"{path}: a result of kind {kind} needs the field {error}; measure it again") from None
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise DataError(f"{path}: not a result of kind {kind} ({error}); measure it again") from None


def write_report(
    paths: Iterable[str | os.PathLike[str]],
    html: str | os.PathLike[str] | None = None,
    markdown: str | os.PathLike[str] | None = None,
) -> Report:
    """Read results and write them as a page, as Markdown, or both."""
    from reviser.reports.html import write_html
    from reviser.reports.markdown import write_markdown

    report = read_report(paths)
    for path, write in ((html, write_html), (markdown, write_markdown)):
        if path is not None and report.sections:
            write_file(path, write(report.sections))
    return report


def write_file(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of a report, whole or not at all."""
    try:
        files.write_text(path, text, errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); give another file") from None
