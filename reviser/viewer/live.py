"""A canvas in the terminal while a model edits it: new text lights up and fades, a bar is the cursor.

    The old lighthouse▏ stood dark until morning.
      12  MOVE -3           p 0.41   3 tokens, 4 moves, 310 actions/s

Lines wrap at the terminal's width; of a canvas that is higher than the screen the part around the cursor is shown.
Protected text is dim. Without colours it stands in braces, and the text of the last action in brackets. Right after a
JUMP a broken bar shows where the cursor came from.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.style import Style
from rich.text import Text

from reviser.actions import Alphabet
from reviser.canvas import Canvas, replay
from reviser.decoding.presets import SCAN
from reviser.decoding.requests import Event, edit_budget
from reviser.orders.record import Draft
from reviser.proofreading.rereading import scan_for
from reviser.tokenizer import Tokenizer
from reviser.viewer.terminal import (
    BAR,
    CURSOR,
    LEFT,
    OLD_BAR,
    PLAIN_BAR,
    PROTECTED,
    brace,
    fit,
    name_action,
    style_of,
    visible,
)

if TYPE_CHECKING:
    from reviser.decoding.presets import Sampling
    from reviser.decoding.requests import Decoded
    from reviser.decoding.writer import Text as Written
    from reviser.decoding.writer import Writer
    from reviser.proofreading.choices import Proofreading

FADE = ("black on bright_green", "bold bright_green", "bright_green", "green", "green", "green")
"""How text looks that came 0, 1, 2, ... actions ago; what is older looks like any text."""
FRAMES_PER_S = 60
"""No more frames than that are drawn, however quick the model is."""
NAME, WIDE = 22, 78
"""Cells for the name of an action, and those that hold all there is to say about it."""
GIVEN = -1
"""When text came that stood on the canvas before the first action."""
_BAR_STYLE = Style.parse(CURSOR) + Style(meta={"bar": True})


def live_console() -> Console | None:
    """Standard output where it is a terminal that can be drawn on; with NO_COLOR it gets no colours."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    is_plain = bool(os.environ.get("NO_COLOR"))
    return Console(
        file=sys.stdout,
        force_terminal=True,
        color_system=None if is_plain else "auto",
        no_color=is_plain,
        highlight=False,
    )


class Timed:
    """Events, and how long the model took for them: what is done between them does not count."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events, self.seconds, self.count = events, 0.0, 0

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        begin = time.perf_counter()
        event = next(self._events)
        self.seconds += time.perf_counter() - begin
        self.count += 1
        return event

    @property
    def rate(self) -> float:
        """Actions a second."""
        return self.count / self.seconds if self.seconds else 0.0


def follow(births: tuple[int, ...], before: Canvas, after: Canvas, step: int) -> tuple[int, ...]:
    """When each token came, after one more action; every action changes text left of where it leaves the cursor.

    >>> follow((GIVEN, GIVEN), Canvas((7, 8), 1), Canvas((7, 7, 8), 2), step=0)
    (-1, 0, -1)
    """
    if before.tokens == after.tokens:
        return births
    tail = len(after.tokens) - after.cursor
    old, new = before.tokens[: len(before.tokens) - tail], after.tokens[: after.cursor]
    differing = (index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    kept = next(differing, min(len(old), len(new)))
    return births[:kept] + (step,) * (len(new) - kept) + births[len(births) - tail :]


def draw(
    canvas: Canvas, pieces: Sequence[str], ages: Sequence[int | None], is_plain: bool, old_cursor: int | None = None
) -> Text:
    """The canvas with its cursor; an age of None is text that was given, `old_cursor` where a JUMP came from."""
    shown = Text()
    for index in range(len(pieces) + 1):
        if index == canvas.cursor:
            shown.append(PLAIN_BAR if is_plain else BAR, _BAR_STYLE)
        elif index == old_cursor:
            shown.append(OLD_BAR, LEFT)
        if index == len(pieces):
            break
        piece, age = printable(pieces[index]), ages[index]
        if age is not None and age < len(FADE):
            shown.append(f"[{piece}]" if is_plain and age == 0 else piece, FADE[age])
        else:
            shown.append(brace(piece, canvas, index) if is_plain else piece, style_of(canvas, index, old_cursor))
    return shown


def draw_final(canvas: Canvas, tokenizer: Tokenizer) -> Text:
    """The text alone, what was protected dim."""
    shown = Text()
    for is_fixed, group in groupby(enumerate(tokenizer.pieces(canvas.tokens)), lambda each: canvas.is_fixed(each[0])):
        shown.append(printable("".join(piece for _, piece in group)), PROTECTED if is_fixed else "")
    return shown


def printable(piece: str) -> str:
    """A piece of text that cannot speak to the terminal; its lines stay lines."""
    return "\n".join(visible(line) for line in piece.replace("\t", "    ").split("\n"))


def wrap(console: Console, shown: Text, width: int) -> tuple[list[Text], int]:
    """Lines of at most `width` cells, and which of them has the cursor."""
    lines = list(shown.wrap(console, width, overflow="fold"))
    has_bar = [any(isinstance(span.style, Style) and span.style.meta for span in line.spans) for line in lines]
    return lines, has_bar.index(True)


@dataclass
class Frames:
    """What is shown of one job: the canvas, when its tokens came, how far it is scrolled."""

    start: Draft
    tokenizer: Tokenizer
    console: Console
    top: int = 0
    num_moves: int = 0
    old_cursor: int | None = None
    canvas: Canvas = field(init=False)
    births: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.canvas = self.start.canvas
        self.births = (GIVEN,) * len(self.canvas.tokens)

    @property
    def alphabet(self) -> Alphabet:
        return self.start.rules.alphabet

    def take(self, event: Event) -> None:
        """Go on to the canvas after an action."""
        self.births = follow(self.births, self.canvas, event.canvas, event.step)
        has_jumped = self.alphabet.is_jump(event.action)
        self.num_moves += has_jumped or self.alphabet.is_move(event.action)
        self.old_cursor = self.canvas.cursor if has_jumped else None
        self.canvas = event.canvas

    def frame(self, event: Event | None = None, rate: float = 0.0) -> Text:
        """The lines that fit on the screen, then a line about the last action."""
        width, height = self.console.size
        now = GIVEN if event is None else event.step
        ages = [None if birth == GIVEN else now - birth for birth in self.births]
        pieces = self.tokenizer.pieces(self.canvas.tokens)
        shown = draw(self.canvas, pieces, ages, self.console.no_color, self.old_cursor)
        lines, cursor = wrap(self.console, shown, width)
        status = self._status(event, rate, width)
        # One line is for the cursor that a terminal leaves below what was written.
        room = max(height - len(status) - 1, 1)
        self.top = min(max(self.top, cursor - room + 1), cursor, max(len(lines) - room, 0))
        return Text("\n").join([*lines[self.top : self.top + room], *status])

    def _status(self, event: Event | None, rate: float, width: int) -> list[Text]:
        """About the last action and about all; a line each where one does not hold both."""
        parts = ["reading the prompt"]
        if event is not None:
            name = fit(name_action(event.action, self.tokenizer, self.canvas), NAME)
            num_tokens = len(self.canvas.tokens) - self.start.prefix - self.start.suffix
            parts = [
                f"{event.step + 1:>4}  {name}  p {math.exp(event.log_probability):.2f}",
                f"{num_tokens} tokens, {self.num_moves} moves, {rate:.0f} actions/s",
            ]
        lines = [Text(part, PROTECTED) for part in (["   ".join(parts)] if width >= WIDE else parts)]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines


def watch(
    events: Timed, start: Draft, tokenizer: Tokenizer, console: Console, pace: float
) -> Generator[Event, None, None]:
    """The events as they come, each drawn; at most `pace` a second, 0 is as they come.

    Nothing stays on the screen, whether it ends or is left before: what was written is the caller's to show.
    """
    frames = Frames(start, tokenizer, console)
    with Live(
        frames.frame(),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as live:
        due = drawn = time.perf_counter()
        for event in events:
            # First, so that an interrupted drawing does not lose it.
            yield event
            frames.take(event)
            now = time.perf_counter()
            if now - drawn >= 1 / FRAMES_PER_S:
                live.update(frames.frame(event, events.rate), refresh=True)
                drawn = now
            if pace > 0:
                # A model that was slow is not made up for.
                due = max(due + 1 / pace, now)
                time.sleep(max(due - time.perf_counter(), 0.0))


def propose_live(
    writer: Writer,
    sampling: Sampling,
    console: Console,
    pace: float,
    seed: int = 0,
    max_actions: int | None = None,
) -> Callable[[Sequence[Draft]], list[Decoded]]:
    """What `Writer.propose` gives, with every action drawn, one draft after another."""

    def propose(drafts: Sequence[Draft]) -> list[Decoded]:
        made = []
        for draft in drafts:
            most = max_actions or edit_budget(draft)
            events = Timed(writer.stream(draft, max_actions=most, seed=seed, sampling=sampling))
            with closing(watch(events, draft, writer.tokenizer, console, pace)) as shown:
                made.append(writer.collect(draft, list(shown), most).decoded)
        return made

    return propose


def revise_live(writer: Writer, text: Written, how: Proofreading, console: Console, pace: float) -> Written:
    """A text after its model has gone over it: what scans is drawn while it does, what reads when it has decided."""
    if how.by == "reading":
        [revised] = writer.revise([text], how)
        _watch_revision(revised, text.decoded.canvas, writer.tokenizer, console, pace)
        return revised
    sampling = replace(SCAN, scan=scan_for(how))
    propose = propose_live(writer, sampling, console, pace, max_actions=how.max_actions)
    return writer.revise([text], how, propose)[0]


def _watch_revision(revised: Written, drafted: Canvas, tokenizer: Tokenizer, console: Console, pace: float) -> None:
    """The changes of a draft, action by action."""
    rules, revision = revised.draft.rules, revised.revision
    if revision is None or not revision.actions:
        return
    start, canvas, events = Draft.edit(drafted.tokens, rules), replace(drafted, is_stopped=False), list[Event]()
    for step, (action, score) in enumerate(zip(revision.actions, revision.log_probabilities, strict=True)):
        canvas = replay(canvas, [action], rules)
        events.append(Event(step, action, score, (), canvas))
    with closing(watch(Timed(iter(events)), start, tokenizer, console, pace)) as shown:
        for _ in shown:
            pass
