"""A report's plots: what is drawn stands where its numbers say, and inside the picture."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.reports.plots import LEFT, WIDTH, Figure, draw
from reviser.reports.tables import Bar, Bars, Point, Scatter, bar

TEXTS = st.text(max_size=12)


def attributes(figure: Figure, name: str) -> list[dict[str, Any]]:
    return [shape.attributes for shape in figure.shapes if shape.tag == name]


def test_bars_begin_at_zero_and_whiskers_stand_where_the_errors_end() -> None:
    svg = draw(Bars("t", (bar("a", 50.0, 10.0), bar("b", 100.0))))
    one, two = attributes(svg, "rect")
    assert (one["x"], two["width"]) == (0, WIDTH - 2)
    assert 2 * float(one["width"]) == float(two["width"])
    whiskers = [each for each in attributes(svg, "line") if each["class"] == "whisker"]
    assert [float(whiskers[0][end]) for end in ("x1", "x2")] == pytest.approx([0.4 * (WIDTH - 2), 0.6 * (WIDTH - 2)])


def test_points_stand_where_their_values_are() -> None:
    points = tuple(Point(name, bar("x", x), bar("y", y)) for name, x, y in (("a", 0, 0), ("b", 1, 5), ("c", 2, 10)))
    circles = attributes(draw(Scatter("t", "x", "y", points)), "circle")
    xs, ys = ([float(each[key]) for each in circles] for key in ("cx", "cy"))
    assert xs[1] == pytest.approx((xs[0] + xs[2]) / 2, abs=0.02)
    assert ys[1] == pytest.approx((ys[0] + ys[2]) / 2, abs=0.02)
    assert LEFT < xs[0] < xs[2] < WIDTH
    assert ys[0] > ys[2]


ANY_BAR = st.builds(Bar, TEXTS, st.floats(), TEXTS, st.none() | st.floats(), st.none() | st.floats())


@given(st.lists(ANY_BAR, max_size=4), st.lists(st.builds(Point, TEXTS, ANY_BAR, ANY_BAR), max_size=4))
def test_any_numbers_can_be_drawn_inside_the_picture(bars: list[Bar], points: list[Point]) -> None:
    for plot in (Bars("t", tuple(bars), mark=0.5), Scatter("t", "x", "y", tuple(points))):
        svg = draw(plot)
        for name in ("rect", "circle", "line"):
            for each in attributes(svg, name):
                places = [float(each[key]) for key in ("x", "cx", "x1", "x2", "width") if key in each]
                assert all(-10 <= place <= WIDTH + 10 for place in places)
