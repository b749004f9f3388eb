"""How far long work is: a bar on a terminal, lines in a log; on stderr, since stdout is for results."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import rich.progress

LINE_EVERY_S = 10.0


class ProgressBar(Protocol):
    def show(self, done: float, total: float | None, text: str) -> None: ...


class _Lines:
    """One line every ten seconds, for a log."""

    def __init__(self, title: str) -> None:
        self._title, self._shown_at = title, time.monotonic()

    def show(self, done: float, total: float | None, text: str) -> None:
        if time.monotonic() - self._shown_at >= LINE_EVERY_S:
            share = f"{100 * done / total:.0f}%, " if total else ""
            sys.stderr.write(f"{self._title}: {share}{text}\n")
            sys.stderr.flush()
            self._shown_at = time.monotonic()


class _Rich:
    """A bar that is redrawn in place."""

    def __init__(self, progress: rich.progress.Progress) -> None:
        self._progress, self._task = progress, progress.add_task("", total=None)

    def show(self, done: float, total: float | None, text: str) -> None:
        self._progress.update(self._task, completed=done, total=total, description=text)


@contextmanager
def show_progress(title: str) -> Iterator[ProgressBar]:
    """A bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines(title)
        return
    from rich import progress
    from rich.console import Console

    text = (progress.TextColumn(title), progress.TextColumn("{task.description}"))
    columns = (text[0], progress.BarColumn(), progress.TaskProgressColumn(), progress.TimeRemainingColumn(), text[1])
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield _Rich(shown)


@contextmanager
def count_up(title: str, total: int, things: str = "texts") -> Iterator[Callable[[int], None]]:
    """`show_progress` for work whose parts are counted: told how many more are done."""
    done = 0
    with show_progress(title) as bar:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.show(done, total, f"{done:,} of {total:,} {things}")

        yield advance
