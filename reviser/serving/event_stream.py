"""Server-sent events as an answer: one for each item, and a sign of life where none comes for a while.

>>> encode_event({"event": "done", "data": "{}"}), encode_event({"data": "[DONE]"})
(b'event: done\\ndata: {}\\n\\n', b'data: [DONE]\\n\\n')

A stream has an event for every action of every text, so little is done for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PING_S = 15.0
"""After so long without an event, proxies and clients are told that the stream goes on."""
PING = b": ping\n\n"


def encode_event(event: Mapping[str, str]) -> bytes:
    """An event of one line of data, perhaps with a name."""
    name = f"event: {event['event']}\n" if "event" in event else ""
    return f"{name}data: {event['data']}\n\n".encode()


class EventStream(Response):
    """An answer that is sent as it is made, until it ends or its client has gone."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[Mapping[str, str]]) -> None:
        self._events = events
        self.status_code, self.background = 200, None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._is_quiet = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending, pinging = asyncio.create_task(self._send(send)), asyncio.create_task(self._ping(send))
        gone = asyncio.create_task(_wait_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, pinging, gone):
                task.cancel()
            await asyncio.gather(sending, pinging, gone, return_exceptions=True)
            if isinstance(self._events, AsyncGenerator):
                await self._events.aclose()
        if not sending.cancelled():
            sending.result()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        async for event in self._events:
            self._is_quiet = False
            await send({"type": "http.response.body", "body": encode_event(event), "more_body": True})

    async def _ping(self, send: Send) -> None:
        while True:
            self._is_quiet = True
            await asyncio.sleep(PING_S)
            if self._is_quiet:
                await send({"type": "http.response.body", "body": PING, "more_body": True})


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
