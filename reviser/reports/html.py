"""Sections as one HTML page that needs nothing else: its style and plots are in it, and no script."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reviser.reports.markup import Markup, element, escape
from reviser.reports.plots import draw
from reviser.reports.tables import NOTHING, Section, Table

TITLE = "Results"
STYLE = Markup("""
:root { color-scheme: light dark;
  --ink: #1c2024; --soft: #5c6570; --paper: #ffffff; --line: #dfe3e8; --fill: #3b76b5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #9aa4af; --paper: #16191d; --line: #343a41; --fill: #6fa3d8; }
}
body { margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); }
a { color: var(--fill); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; overflow-wrap: normal; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td { min-width: 3rem; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.short { white-space: nowrap; }
figure { margin: 1.2rem 0; max-width: 34rem; }
figcaption { color: var(--soft); font-size: 0.9rem; margin-bottom: 0.4rem; }
svg { display: block; width: 100%; height: auto; overflow: visible; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); }
svg .value { fill: var(--soft); }
svg .bar { fill: var(--fill); }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
svg .axis { stroke: var(--soft); }
svg .grid { stroke: var(--line); }
svg .mark { stroke: var(--soft); stroke-dasharray: 4 3; }
ul.notes { padding-left: 1.2rem; font-size: 0.9rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem;
  font-size: 0.85rem; color: var(--soft); }
dd { margin: 0; }
@media (max-width: 40rem) { dl { display: block; } dd { margin-bottom: 0.4rem; } }
""")
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?( (±|sd|to|million|\().*)?")
SHORT = 40
"""Cells of at most so many characters stay on one line."""


def write_html(sections: Sequence[Section]) -> str:
    """The whole page."""
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", TITLE),
        element("style", STYLE),
    )
    links = (element("li", element("a", _heading(each), href=f"#{_anchor(each)}")) for each in sections)
    body = element(
        "body", element("h1", TITLE), element("nav", element("ul", *links)), *map(_write_section, sections)
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _heading(section: Section) -> str:
    title = section.tables[0].title
    return title if title == section.name else f"{title}: {section.name}"


def _anchor(section: Section) -> str:
    return re.sub(r"[^\w.-]", "-", section.name)


def _write_section(section: Section) -> Markup:
    parts: list[Markup] = [element("h2", _heading(section))]
    for number, table in enumerate(section.tables):
        parts += [element("h3", table.title)] * (number > 0)
        parts += _write_table(table)
    about = {"result": section.source, **section.about}
    lines = (each for key, text in about.items() for each in (element("dt", key), element("dd", _say(key, text))))
    return element("section", *parts, element("dl", *lines), id=_anchor(section))


def _say(key: str, text: str) -> Markup:
    return element("code", text) if key == "command" else escape(text)


def _write_table(table: Table) -> list[Markup]:
    numbers = [all(map(_is_number, column)) for column in zip(*table.rows, strict=True)]
    head = map(_write_head, table.columns, numbers)
    lines = (element("tr", *map(_write_cell, row, numbers)) for row in table.rows)
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *lines))
    parts = [element("div", whole, class_="scroll", tabindex=0)]
    if table.notes:
        parts.append(element("ul", *(element("li", note) for note in table.notes), class_="notes"))
    return [*parts, draw(table.plot)] if table.plot is not None else parts


def _write_head(text: str, is_number: bool) -> Markup:
    return element("th", text, class_="number" if is_number else None)


def _write_cell(text: str, is_number: bool) -> Markup:
    kinds = ["number"] * is_number + ["short"] * (len(text) <= SHORT)
    return element("td", text, class_=" ".join(kinds) or None)


def _is_number(cell: str) -> bool:
    return cell == NOTHING or NUMBER.fullmatch(cell) is not None
