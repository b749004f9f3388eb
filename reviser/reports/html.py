"""Sections as one HTML page that needs nothing else: its style and plots are in it, and no script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from reviser.reports.plots import draw
from reviser.reports.tables import Section, numeric_columns

SHORT = 40
"""Cells of at most this many characters stay on one line."""
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What an HTML page may not hold, not even escaped."""


def write_html(sections: Sequence[Section]) -> str:
    """The whole page."""
    page = _environment().get_template("report.html").render(title="Results", sections=sections)
    return UNPRINTABLE.sub("\ufffd", page)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reviser.reports"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    environment.filters |= {"heading": _heading, "anchor": _anchor, "numeric": numeric_columns, "draw": draw}
    environment.filters["number"] = _shorten
    environment.globals["short"] = SHORT
    return environment


def _heading(section: Section) -> str:
    title = section.tables[0].title
    return title if title == section.name else f"{title}: {section.name}"


def _anchor(section: Section) -> str:
    return re.sub(r"[^\w.-]", "-", section.name)


def _shorten(value: object) -> object:
    """A coordinate with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
