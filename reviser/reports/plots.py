"""Plots as shapes of an SVG picture: bars with whiskers, and points with whiskers both ways. Colours are the page's.

ours                 27.1 ± 0.4      a label and a number, and the bar below them,
███████████├─┤                       so that long names fit on a phone
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from reviser.reports.tables import LARGEST, Bar, Bars, Point, Scatter

WIDTH = 420.0
ROW, BAR, THICK, CAP = 40.0, 19.0, 14.0, 4.0
"""Of a bar: its line's height, where it begins below the label, its own height, half that of a whisker's end."""
LEFT, TOP, BOTTOM, HEIGHT = 52.0, 14.0, 42.0, 280.0
"""Room around a scatter's field, and its height."""
LABEL = 14.0
"""The least distance of two points' labels."""
PAD = 0.12


@dataclass(frozen=True)
class SvgShape:
    """An SVG element: its tag, its attributes, the text in it, and what a pointer over it shows."""

    tag: str
    attributes: dict[str, float | str]
    text: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture for the page to draw."""

    title: str
    height: float
    shapes: tuple[SvgShape, ...]
    width: float = WIDTH


def draw(plot: Bars | Scatter) -> Figure:
    """The plot as a figure; what is no number is left out."""
    return _draw_bars(plot) if isinstance(plot, Bars) else _draw_scatter(plot)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> SvgShape:
    return SvgShape("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def _text(text: str, x: float, y: float, **more: str) -> SvgShape:
    return SvgShape(
        "text", {"x": x, "y": y} | {key.rstrip("_").replace("_", "-"): value for key, value in more.items()}, text
    )


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from low to high, laid on pixels from begin to end."""

    low: float
    high: float
    begin: float
    end: float

    def place(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)


def _is_drawn(value: float | None) -> TypeGuard[float]:
    """Whether it is a number, and none that would leave no room for others."""
    return value is not None and abs(value) < LARGEST


def _ends(bars: Iterable[Bar]) -> list[float]:
    """All values and whisker ends that are drawn."""
    return [value for each in bars for value in (each.value, each.low, each.high) if _is_drawn(value)]


def _draw_bars(plot: Bars) -> Figure:
    ends = _ends(plot.bars)
    low, high = min([0.0, *ends]), plot.most or max([0.0, *ends])
    axis = Axis(low, high if high > low else low + 1.0, 0.0, WIDTH - 2)
    height = ROW * len(plot.bars)
    shapes = [shape for number, each in enumerate(plot.bars) for shape in _draw_bar(each, axis, ROW * number)]
    if plot.mark is not None:
        x, tops = axis.place(plot.mark), (ROW * number + BAR for number in range(len(plot.bars)))
        shapes += [_line(x, top - 2, x, top + THICK + 2, "mark") for top in tops]
    return Figure(plot.title, height, tuple(shapes))


def _draw_bar(bar: Bar, axis: Axis, top: float) -> list[SvgShape]:
    y = top + BAR
    shapes = [
        _text(bar.label, 0.0, top + 13.0),
        _text(bar.text, WIDTH, top + 13.0, class_="value", text_anchor="end"),
    ]
    if _is_drawn(bar.value):
        begin, end = sorted((axis.place(0.0), axis.place(bar.value)))
        place: dict[str, float | str] = {"x": begin, "y": y, "width": end - begin, "height": THICK, "class": "bar"}
        shapes.append(SvgShape("rect", place, title=f"{bar.label}: {bar.text}"))
        shapes += _whisker_across(bar, axis, y + THICK / 2)
    return shapes


def _range(bar: Bar) -> tuple[float, float] | None:
    return (bar.low, bar.high) if _is_drawn(bar.low) and _is_drawn(bar.high) else None


def _whisker_across(bar: Bar, axis: Axis, y: float) -> list[SvgShape]:
    if (found := _range(bar)) is None:
        return []
    low, high = map(axis.place, found)
    ends = [_line(x, y - CAP, x, y + CAP, "whisker") for x in (low, high)]
    return [_line(low, y, high, y, "whisker"), *ends]


def _whisker_along(bar: Bar, axis: Axis, x: float) -> list[SvgShape]:
    if (found := _range(bar)) is None:
        return []
    low, high = map(axis.place, found)
    ends = [_line(x - CAP, y, x + CAP, y, "whisker") for y in (low, high)]
    return [_line(x, low, x, high, "whisker"), *ends]


def _draw_scatter(plot: Scatter) -> Figure:
    points = [each for each in plot.points if _is_drawn(each.x.value) and _is_drawn(each.y.value)]
    across = _padded(_ends(each.x for each in points), LEFT, WIDTH - 8)
    along = _padded(_ends(each.y for each in points), HEIGHT - BOTTOM, TOP)
    shapes = _frame(plot, across, along)
    shapes += _labels(points, across, along)
    for point in points:
        x, y = across.place(point.x.value), along.place(point.y.value)
        title = f"{point.label}: {plot.x_title} {point.x.text}, {plot.y_title} {point.y.text}"
        shapes += [*_whisker_across(point.x, across, y), *_whisker_along(point.y, along, x)]
        shapes.append(SvgShape("circle", {"cx": x, "cy": y, "r": 4.5, "class": "bar"}, title=title))
    return Figure(plot.title, HEIGHT, tuple(shapes))


def _labels(points: Sequence[Point], across: Axis, along: Axis) -> list[SvgShape]:
    """The points' names, towards the middle."""
    shapes = []
    for point, y in zip(points, _spread_out([along.place(each.y.value) for each in points]), strict=True):
        x = across.place(point.x.value)
        anchor, shift = ("end", -9.0) if x > (LEFT + WIDTH) / 2 else ("start", 9.0)
        shapes.append(_line(x, along.place(point.y.value), x + shift, y - 5, "grid"))
        shapes.append(_text(point.label, x + shift, y - 5, text_anchor=anchor))
    return shapes


def _padded(values: Sequence[float], begin: float, end: float) -> Axis:
    """An axis with room on both sides; it need not begin at zero, for points have no length."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = max(PAD * (high - low), 1e-3 * max(abs(low), abs(high)), 1e-9)
    return Axis(low - room, high + room, begin, end)


def _frame(plot: Scatter, across: Axis, along: Axis) -> list[SvgShape]:
    floor = HEIGHT - BOTTOM
    shapes = [_line(LEFT, floor, WIDTH, floor, "axis"), _line(LEFT, TOP, LEFT, floor, "axis")]
    for value in _ticks(across):
        x = across.place(value)
        shapes.append(_text(f"{value:,.10g}", x, floor + 16, text_anchor="middle", class_="value"))
    for value in _ticks(along):
        y = along.place(value)
        shapes.append(_line(LEFT, y, WIDTH, y, "grid"))
        shapes.append(_text(f"{value:,.10g}", LEFT - 6, y + 4, text_anchor="end", class_="value"))
    shapes.append(_text(plot.x_title, WIDTH, HEIGHT - 6, text_anchor="end"))
    shapes.append(_text(plot.y_title, 0.0, TOP - 3))
    return shapes


def _ticks(axis: Axis) -> list[float]:
    """Round values, two to six of them: steps of 1, 2 or 5 times a power of ten.

    >>> _ticks(Axis(0.13, 0.92, 0, 1))
    [0.2, 0.4, 0.6, 0.8]
    """
    raw = (axis.high - axis.low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= raw)
    first = math.ceil(axis.low / step)
    count = math.floor(axis.high / step) - first + 1
    return [float(f"{(first + number) * step:.12g}") for number in range(count)]


def _spread_out(places: Sequence[float]) -> list[float]:
    """The places, moved up (towards 0) where two labels would cover each other.

    >>> _spread_out([50.0, 10.0, 52.0])
    [38.0, 10.0, 52.0]
    """
    moved = list(places)
    last = math.inf
    for index in sorted(range(len(places)), key=places.__getitem__, reverse=True):
        last = moved[index] = min(places[index], last - LABEL)
    return moved
