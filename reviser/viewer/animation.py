"""Trajectories as one SVG that moves by itself: no script, no font or file from elsewhere, CSS animation alone.

In go examples, out comes a picture for a README, where it is shown as an image: a frame for each draft and for each
action after it, with the text as it stands, the cursor, what the action took away or put there, its name, its
probability and how far it all is. After the last frame it rests and begins anew. Where motion is unwanted, or where
nothing moves, the last frame is shown. The same examples give the same bytes.

    <g class="f">        a frame
      <g class="t">      its text, in stretches of one style each; those of class "d" are no longer there

>>> from reviser.actions import Alphabet
>>> from reviser.canvas import Rules
>>> from reviser.orders.record import Draft, Trajectory
>>> from reviser.tokenizer import load
>>> draft = Draft.continuation([72], Rules(Alphabet(num_text=257, pad=256)))
>>> svg = animation([Example(Trajectory(draft, (105, 260), (True, True)))], load("bytes"), "Hi")
>>> svg.count('<g class="f"'), svg.count('class="n"')
(3, 2)
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Template
from xml.sax.saxutils import escape

from reviser.canvas import Canvas
from reviser.errors import ConfigError, DataError
from reviser.files import write_text
from reviser.proofreading.edits import first_changed
from reviser.tokenizer import Tokenizer
from reviser.viewer.replay_page import STATIC, Example, check_example
from reviser.viewer.terminal import fit, name_action
from reviser.viewer.text_lines import Glyph, find_place, join_styles, make_cells, printed, wrap

MAX_ACTIONS = 300
COLUMNS, MAX_LINES = 41, 8
WIDTH, MARGIN = 496, 26
"""Narrow, so that a phone need not make it much smaller."""
ADVANCE = 10.8
"""Of a column, in pixels; every stretch of text is fitted to its columns, whatever the reader's font."""
TOP, LINE = 80, 30
"""Where the first line of text stands, and from line to line."""
REST_S, LONGEST_S, SHORTEST_S, WHOLE_S = 4.0, 1.0, 0.2, 18.0
"""The rest after the last frame; the most and the least that a frame takes; what all take where that allows it."""
MAX_NAME, MAX_TITLE, MAX_TEXT = 24, 200, 1000
KEPT, WRITTEN, GIVEN, NEW, STRUCK, GONE = "", "w", "g", "n", "p", "d"
"""Styles: text of the draft, text written since, protected text, what is new, what REPLACE takes, what has gone."""
MARKED = (NEW, STRUCK, GONE)


@dataclass(frozen=True, slots=True)
class Frame:
    """A moment: what is said of it, and the text as cells, with the cursor and the place it came from."""

    name: str
    probability: float | None
    done: int
    cells: tuple[Glyph, ...]
    cursor: int | None = None
    """In characters of the text; `old_cursor` likewise, where a move came from elsewhere."""
    old_cursor: int | None = None


@dataclass(frozen=True, slots=True)
class LastFrame:
    """What to end with, where that is not the last example's text: a name, and parts of which some are new."""

    name: str
    parts: tuple[tuple[str, bool], ...]


def animation(examples: Sequence[Example], tokenizer: Tokenizer, title: str, ending: LastFrame | None = None) -> str:
    """The whole picture; the examples follow each other. A draft is named by its example's title."""
    if not examples:
        raise ConfigError("an animation needs at least one example")
    for number, example in enumerate(examples):
        check_example(example, tokenizer, number)
    count = sum(len(example.trajectory.actions) for example in examples)
    if count > MAX_ACTIONS:
        raise ConfigError(
            f"an animation shows at most {MAX_ACTIONS} actions, and these are {count}; show fewer or shorter texts, "
            "or write a page with --html"
        )
    frames, done = list[Frame](), 0
    for example in examples:
        frames += _frames(example, tokenizer, done)
        done += len(example.trajectory.actions)
    first, last = examples[0].trajectory.draft.tokens, tokenizer.decode(examples[-1].trajectory.final.tokens)
    if ending is not None:
        parts = [(text, WRITTEN if is_new else KEPT) for text, is_new in ending.parts]
        frames.append(Frame(ending.name, None, count, tuple(make_cells(parts))))
        last = "".join(text for text, _ in parts)
    return _draw(frames, count, title, (tokenizer.decode(first), last))


def write_animation(
    path: str | os.PathLike[str],
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    title: str,
    ending: LastFrame | None = None,
) -> None:
    """Write the picture, whole or not at all."""
    text = animation(examples, tokenizer, title, ending)
    try:
        write_text(path, text)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; give another file") from None


def _frames(example: Example, tokenizer: Tokenizer, done: int) -> Iterator[Frame]:
    """The draft, then the canvas after each action."""
    trajectory = example.trajectory
    alphabet, scores = tokenizer.alphabet, example.log_probabilities or ()
    states = trajectory.states()
    before = next(states)
    styles = tuple(GIVEN if before.is_fixed(place) else KEPT for place in range(len(before.tokens)))
    pieces = tokenizer.pieces(before.tokens)
    yield _frame(example.title or "draft", None, done, pieces, styles, before)
    for step, (action, after) in enumerate(zip(trajectory.actions, states, strict=True)):
        first = first_changed(before, action, alphabet)
        removed = "" if first is None else "".join(pieces[first : before.cursor])
        if first is not None:
            styles = (*styles[:first], *(WRITTEN,) * (after.cursor - first), *styles[before.cursor :])
        old = None if first is not None or before.cursor == after.cursor else _offset(pieces, before.cursor)
        pieces = tokenizer.pieces(after.tokens)
        probability = math.exp(scores[step]) if step < len(scores) else None
        name = name_action(action, tokenizer, before)
        shown = _mark(styles, first, after)
        yield _frame(name, probability, done + step + 1, pieces, shown, after, first, removed, old)
        before = after


def _mark(styles: tuple[str, ...], first: int | None, after: Canvas) -> tuple[str, ...]:
    """The styles with those of the last action's own tokens."""
    if after.is_replacing:
        return (*styles[: after.cursor - 1], STRUCK, *styles[after.cursor :])
    if first is None:
        return styles
    return (*styles[:first], *(NEW,) * (after.cursor - first), *styles[after.cursor :])


def _frame(
    name: str,
    probability: float | None,
    done: int,
    pieces: Sequence[str],
    styles: Sequence[str],
    canvas: Canvas,
    first: int | None = None,
    removed: str = "",
    old_cursor: int | None = None,
) -> Frame:
    cells = make_cells(zip(pieces, styles, strict=True))
    if first is not None and removed:
        end = _offset(pieces, first)
        at = next((index for index, cell in enumerate(cells) if cell.end > end), len(cells))
        gone = (Glyph(cell.text, GONE, cell.width, end) for cell in make_cells([(removed, GONE)]))
        cells[at:at] = gone
    return Frame(name, probability, done, tuple(cells), _offset(pieces, canvas.cursor), old_cursor)


def _offset(pieces: Sequence[str], boundary: int) -> int:
    """A boundary between tokens in characters."""
    return sum(map(len, pieces[:boundary]))


def _draw(frames: Sequence[Frame], count: int, title: str, ends: tuple[str, str]) -> str:
    """All frames on top of each other, and the style that shows them in turn."""
    wrapped = [wrap(frame.cells, COLUMNS) for frame in frames]
    num_lines = min(max(map(len, wrapped)), MAX_LINES)
    height = TOP + num_lines * LINE + 26
    top, drawn = 0, list[str]()
    for number, (frame, lines) in enumerate(zip(frames, wrapped, strict=True)):
        row = 0 if frame.cursor is None else find_place(lines, frame.cursor)[0]
        top = min(max(top, row - num_lines + 1), row, max(len(lines) - num_lines, 0))
        content = _draw_frame(frame, lines, range(top, min(top + num_lines, len(lines))), count, height)
        is_last = number == len(frames) - 1
        when = ' id="last"' if is_last else f' style="animation-delay:{number * _frame_s(frames):.5g}s"'
        drawn.append(f'<g class="f"{when}>{content}</g>')
    about = "{} action{}. Before: {} After: {}".format(count, "" if count == 1 else "s", *map(_shorten, ends))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-labelledby="title about" xml:space="preserve">'
        f'<title id="title">{escape(printed(title)[:MAX_TITLE])}</title><desc id="about">{escape(about)}</desc>'
        f"<style>{_style(frames)}</style>"
        f'<rect class="back" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
        f'<rect class="bar" x="{MARGIN}" y="{height - 22}" width="{WIDTH - 2 * MARGIN}" height="4" rx="2"/>'
        f"{''.join(drawn)}</svg>\n"
    )


def _shorten(text: str) -> str:
    shown = printed(text)
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 1]}…"


def _frame_s(frames: Sequence[Frame]) -> float:
    """How long a frame is shown, in hundredths of a second so that delays add up."""
    return round(min(max(WHOLE_S / len(frames), SHORTEST_S), LONGEST_S), 2)


def _style(frames: Sequence[Frame]) -> str:
    each = _frame_s(frames)
    whole = each * len(frames) + REST_S
    # A share of the time in percent; all frames but the last share one animation, each with its own delay.
    turn, last = (100 * seconds / whole for seconds in (each, each * (len(frames) - 1)))
    text = Template((STATIC / "animation.css").read_text("utf-8"))
    return " ".join(text.substitute(whole=f"{whole:.5g}", turn=f"{turn:.6g}", last=f"{last:.6g}").split())


def _draw_frame(frame: Frame, lines: Sequence[Sequence[Glyph]], shown: range, count: int, height: int) -> str:
    """One frame: its heading, its text, its cursors, its progress."""
    marks, texts = list[str](), list[str]()
    for row, number in enumerate(shown):
        for text, style, column, columns in join_styles(lines[number]):
            if style in MARKED:
                marks.append(_box(style, column, row, columns * ADVANCE))
            texts.append(_text(text, style, column, row, columns))
    hidden = [(row, shown[row]) for row, end in ((0, 0), (-1, len(lines) - 1)) if shown[row] != end]
    more = "".join(f'<text class="m" x="8" y="{TOP + LINE * (row % len(shown))}">⋮</text>' for row, _ in hidden)
    for kind, place in (("o", frame.old_cursor), ("c", frame.cursor)):
        if place is not None:
            line, column = find_place(lines, place)
            marks += [_box(kind, column, line - shown[0], 2)] if line in shown else []
    share = (WIDTH - 2 * MARGIN) * frame.done / max(count, 1)
    return (
        f'<text class="a" x="{MARGIN}" y="38">{escape(printed(fit(frame.name, MAX_NAME).rstrip()))}</text>'
        f'<text class="q" x="{WIDTH - MARGIN}" y="38">{_tell(frame, count)}</text>'
        f'{"".join(marks)}<g class="t">{"".join(texts)}</g>{more}'
        f'<rect class="done" x="{MARGIN}" y="{height - 22}" width="{share:.5g}" height="4" rx="2"/>'
    )


def _tell(frame: Frame, count: int) -> str:
    """How probable the action was, and its number among all."""
    probability = "" if frame.probability is None else f"p {frame.probability:.3f}   "
    return f"{probability}{frame.done}/{count}"


def _box(kind: str, column: int, row: int, width: float) -> str:
    """A rectangle behind a stretch of text, or a cursor."""
    x, y = MARGIN + ADVANCE * column, TOP + LINE * row - 19
    return f'<rect class="{kind}" x="{x - (kind in "oc"):.5g}" y="{y}" width="{width:.5g}" height="26"/>'


def _text(text: str, style: str, column: int, row: int, columns: int) -> str:
    """A stretch of text, as wide as its columns in any font; letters are spaced, other scripts scaled."""
    kind = f' class="{style}"' if style else ""
    scale = "" if text.isascii() else ' lengthAdjust="spacingAndGlyphs"'
    x, y, width = MARGIN + ADVANCE * column, TOP + LINE * row, ADVANCE * columns
    return f'<text{kind} x="{x:.5g}" y="{y}" textLength="{width:.5g}"{scale}>{escape(text)}</text>'
