"""Texts that end a text: where it is cut, what of it may be sent while it grows, and when no more of it is needed.

>>> stops = Stops(("abc", "b"))
>>> stops.cut("xabc"), stops.settled("xa"), stops.settled("xab"), stops.settled("xabd")
(('x', 'abc'), 'x', 'x', 'xa')
>>> [stops.are_decided(text) for text in ("xa", "xab", "xabd", "xabc")]
[False, False, True, True]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reviser.serving.failures import RequestError
from reviser.serving.running_engine import Told

HALF = "\ufffd"
"""What is read of a character whose other bytes are missing."""
MOST = 16
Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Stops:
    """Any of these ends a text before it."""

    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, stop: str | Sequence[str] | None) -> Stops:
        """Those of a request."""
        stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
        if len(stops) > MOST or not all(stops):
            raise RequestError(400, f"stop must be up to {MOST} texts, none of them empty", "stop")
        return cls(stops)

    def __bool__(self) -> bool:
        return bool(self.texts)

    def cut(self, text: str) -> tuple[str, str | None]:
        """The text before the first stop, and which that was."""
        found = [(place, stop) for stop in self.texts if (place := text.find(stop)) >= 0]
        if not found:
            return text, None
        place, stop = min(found)
        return text[:place], stop

    def settled(self, text: str) -> str:
        """As much of a text that goes on as will stay: no half character, and nothing that may begin a stop."""
        text = text.rstrip(HALF)
        return text[: min(len(self.cut(text)[0]), self._find_begun(text))]

    def are_decided(self, text: str) -> bool:
        """Whether a text that goes on will be cut where it would be cut now."""
        text = text.rstrip(HALF)
        before, stop = self.cut(text)
        return stop is not None and self._find_begun(text) >= len(before)

    def _find_begun(self, text: str) -> int:
        """Where the end of a text may be the beginning of a stop; its size where nowhere."""
        longest = max(map(len, self.texts), default=1) - 1
        places = range(max(len(text) - longest, 0), len(text))
        return next((place for place in places if self._may_begin(text[place:])), len(text))

    def _may_begin(self, end: str) -> bool:
        return any(stop.startswith(end) for stop in self.texts)

    @property
    def num_bytes(self) -> int:
        return max((len(stop.encode()) for stop in self.texts), default=0)


class StopSeeker:
    """Follows texts that only grow at their ends, and says of each when it is decided."""

    def __init__(self, stops: Stops, decode: Decode, num_text: int) -> None:
        self._stops, self._decode, self._num_text = stops, decode, num_text
        # A token is a byte at least. So a stop and what has come since it may have begun are within these.
        self._window = 2 * stops.num_bytes + 8
        self._tokens: dict[int, list[int]] = {}

    def __call__(self, number: int, told: Told) -> bool:
        """Whether the text of a request needs no more actions than these."""
        if told.first == 0:
            self._tokens[number] = []
        tokens = self._tokens[number]
        tokens += (action for action in told.actions if action < self._num_text)
        # The whole text is read only where its end looks right.
        is_near = self._stops.cut(self._decode(tokens[-self._window - len(told.actions) :]))[1] is not None
        return is_near and self._stops.are_decided(self._decode(tokens))
