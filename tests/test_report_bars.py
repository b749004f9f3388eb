"""Bars and cells of a report's page."""

from __future__ import annotations

from pathlib import Path

from reviser.reports.html import write_html
from reviser.reports.results import make_result
from reviser.reports.sections import render
from reviser.reports.tables import Bars

WORDS = ("eval", "something")


def test_bars_of_one_system_are_told_apart_and_long_cells_may_wrap() -> None:
    row = {"system": "ours", "nats_per_token": 3.6, "error": 0.1, "perplexity": 37.0, "bits_per_byte": 1.4, "n": 9}
    order = "0.5*left-to-right+0.5*runs:jump=0.02,start=end"
    rows = [
        row | {"order": order, "K": 1, "is_exact": False},
        row | {"order": order, "K": 8, "is_exact": False},
        row | {"order": "left-to-right", "K": 1, "is_exact": True},
    ]
    section, _ = render(Path("bounds.json"), make_result("likelihood", rows, {}, WORDS))
    plot = section.tables[0].plot
    assert isinstance(plot, Bars)
    assert [each.label for each in plot.bars] == ["ours, K = 1", "ours, K = 8", "ours, exact"]
    page = write_html([section])
    assert f'<td class="long">{order}</td>' in page
    assert '<td class="short">left-to-right</td>' in page
