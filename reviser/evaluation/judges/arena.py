"""Pairwise comparison: a judge sees a prompt and two systems' texts for it, and names the better one.

    generations -> pairs -> judge -> judgments, one JSON object a line -> scores (metrics/win_rates.py)
                   pairs.py          judgments.py

Every judgment is written as soon as it is made, and a pair that has one is never asked about again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from reviser.evaluation.judges.judgments import (
    FAILED,
    POINTS,
    UNANSWERED,
    VERDICTS,
    Judgment,
    JudgmentFile,
    open_judgments,
    read_judgments,
)
from reviser.evaluation.judges.pairs import Key, Pair, make_pairs, refuse_empty

__all__ = [
    "Key", "Pair", "make_pairs", "refuse_empty",
    "POINTS", "FAILED", "UNANSWERED", "VERDICTS", "Judgment", "JudgmentFile", "open_judgments",
    "read_judgments",
    "EMPTY", "Judge", "decide_empty", "hold",
]  # fmt: skip

EMPTY = "an empty text"
"""Stands for the reply if no judge was asked."""


class Judge(Protocol):
    name: str
    """What a verdict depends on besides the texts; judgments of two names do not mix."""
    sha256: str | None
    """Of its weights, if they are on this machine."""

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        """Yield one judgment a pair, in any order, each as soon as it is made; take pairs only as needed."""
        ...


def decide_empty(pairs: Iterable[Pair], judge: str) -> Iterator[Judgment]:
    """Decide the pairs with an empty text without a judge: it loses, and two of them tie."""
    for pair in pairs:
        has_first, has_second = bool(pair.first.text.strip()), bool(pair.second.text.strip())
        if not (has_first and has_second):
            verdict = "first" if has_first else "second" if has_second else "tie"
            yield Judgment.of(pair, verdict, EMPTY, judge)


def _ignore(*args: Any) -> None:
    pass


def hold(
    judge: Judge,
    pairs: Iterable[Pair],
    file: JudgmentFile,
    show: Callable[[int], None] = _ignore,
    tell_stop: Callable[[], None] = _ignore,
    *,
    handle_signals: bool = True,
) -> bool:
    """Judge the pairs and append every judgment to the file; True if all pairs were judged.

    With `handle_signals` the first Ctrl-C calls `tell_stop`, waits for the judgments under way and returns False;
    the second interrupts at once. Without it no signal handler is installed and Ctrl-C interrupts at once. Either
    way the file keeps what was judged.
    """
    with _listening(tell_stop) if handle_signals else _not_listening() as is_stopped:
        asked = _until(is_stopped, pairs)
        for number, judgment in enumerate(judge.judge(asked), 1):
            file.add(judgment)
            show(number)
        return not is_stopped()


def _until(is_stopped: Callable[[], bool], pairs: Iterable[Pair]) -> Iterator[Pair]:
    for pair in pairs:
        if is_stopped():
            return
        yield pair


@contextmanager
def _not_listening() -> Iterator[Callable[[], bool]]:
    yield lambda: False


@contextmanager
def _listening(tell_stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C stop the handing out of pairs; the second has its usual effect."""
    signals: list[int] = []

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, before)
        tell_stop()

    try:
        # None: a handler that was not set from Python and cannot be put back.
        before = signal.signal(signal.SIGINT, note) or signal.default_int_handler
    except ValueError:
        yield lambda: False  # not the main thread: the caller listens
        return
    try:
        yield lambda: bool(signals)
    finally:
        signal.signal(signal.SIGINT, before)
