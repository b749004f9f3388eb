"""A connection that nobody can hold for ever: time limits around a request, and a limit on how many are open.

    opened      the first request's head must come within `head_timeout_s`, and each later one that far behind its
                first byte; between requests `KEEP_ALIVE_S` may pass
    asked       the body is awaited by guard.py; what comes of it behind the answer is thrown away, for `LINGER_S`
    answered    of what waits to be sent, the client takes `LEAST_BYTES` or all of it in every `send_timeout_s`

Beyond `max_connections`, `SPARE` more are told so and closed, and any further ones are closed without a word. uvicorn
itself limits none of these but the time between requests.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from reviser.serving.serve_config import ServeConfig

KEEP_ALIVE_S = 15
LINGER_S = 2.0
"""How long a client may go on sending a body that has been answered already; closed at once, it would miss the
answer."""
LEAST_BYTES = 16 << 10
SPARE = 32
"""Connections beyond the limit that hear why they are closed."""
IS_SURPLUS = "is_surplus"
"""In the state of a request whose connection is one too many."""
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    """uvicorn's, with these limits."""

    limits = ServeConfig()
    _timer: asyncio.TimerHandle | None = None
    """Ends the wait for a head, or for the rest of a body."""
    _sending: asyncio.TimerHandle | None = None
    _num_unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        num_open = len(self.connections)
        super().connection_made(transport)
        # asyncio does this only for sockets whose protocol number is not 0. Without, each small part of an answer
        # waits up to 40 ms for the client to confirm the one before.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if num_open >= self.limits.max_connections + SPARE:
            transport.abort()
        elif num_open >= self.limits.max_connections:
            self.app_state = {**self.app_state, IS_SURPLUS: True}
        self._set_timer(self.limits.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._stop_watching()
        super().connection_lost(exc)
        # uvicorn leaves it where the connection broke, and with it all that it refers to.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        was_behind = self._is_behind
        super().data_received(data)
        if self._is_behind:
            return
        if self.conn.their_state is not h11.IDLE:
            self._set_timer(None)
        elif was_behind or (self._timer is None and self.timeout_keep_alive_task is None):
            self._set_timer(self.limits.head_timeout_s)
        if self.transport.is_closing():
            self._watch_sending()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_behind:
            self._set_timer(LINGER_S)
        self._watch_sending()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    @property
    def _is_behind(self) -> bool:
        """Whether a body is still coming that has been answered."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._end_wait)

    def _end_wait(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self.transport.write(TOO_LATE)
        self.transport.close()
        self._watch_sending()

    def _watch_sending(self) -> None:
        """Look in a while whether the client has read, as long as something waits for it."""
        if self._sending is None and (size := self.transport.get_write_buffer_size()):
            self._num_unsent = size
            self._sending = self.loop.call_later(self.limits.send_timeout_s, self._check_sending)

    def _stop_watching(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._sending = None

    def _check_sending(self) -> None:
        self._sending = None
        if self.transport.get_write_buffer_size() > max(self._num_unsent - LEAST_BYTES, 0):
            self.transport.abort()
        else:
            self._watch_sending()


def make_protocol(limits: ServeConfig) -> type[H11Protocol]:
    """The protocol of a server with these limits."""
    fields: dict[str, Any] = {"limits": limits}
    return type("LimitedProtocol", (TimedProtocol,), fields)
