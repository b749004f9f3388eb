"""As little HTTP as a measurement needs, with the connection in hand: to read slowly, to go away, to send nonsense.

>>> make_request("GET", "/health").split(b"\\r\\n")[0]
b'GET /health HTTP/1.1'
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

READ = 1 << 16


def make_request(method: str, path: str, body: bytes = b"", **headers: object) -> bytes:
    """The bytes of a request on a connection that is used once."""
    given = {"Host": "localhost", "Connection": "close", **headers}
    if method == "POST":
        given = {"Content-Type": "application/json", "Content-Length": len(body)} | given
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def post_json(path: str, fields: dict[str, Any]) -> bytes:
    return make_request("POST", path, json.dumps(fields).encode())


def post_form(path: str, fields: dict[str, str]) -> bytes:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    return make_request("POST", path, urlencode(fields).encode(), **kind)


class Exchange:
    """One connection: what is sent, and the answer as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.status = 0
        self._left: int | None = None
        """Bytes of the body that are to come; None for one in chunks."""
        self.is_whole = False

    @classmethod
    async def open(cls, port: int, room: int | None = None) -> Exchange:
        """A connection to this machine; `room` is how much waits here unread before the server must wait."""
        raw = socket.socket()
        raw.setblocking(False)
        if room:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        try:
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
            return cls(*await asyncio.open_connection(sock=raw, limit=room or READ))
        except BaseException:
            raw.close()
            raise

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def ask(self, data: bytes) -> int:
        """Send a request and read the head of its answer; its status."""
        await self.send(data)
        return await self.read_head()

    async def read_head(self) -> int:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        self._left = None if "chunked" in headers.get("transfer-encoding", "") else int(headers["content-length"])
        return self.status

    async def parts(self, size: int = READ, pause_s: float = 0.0) -> AsyncIterator[bytes]:
        """The body, as it comes; `is_whole` once it is. With a pause, a little at a time."""
        while not self.is_whole:
            size_left = await self._next_size() if self._left is None else self._left
            if size_left == 0:
                self.is_whole = True
                return
            while size_left:
                part = await self._reader.read(min(size, size_left))
                if not part:
                    raise ConnectionResetError("the answer broke off")
                size_left -= len(part)
                yield part
                if pause_s:
                    await asyncio.sleep(pause_s)
            if self._left is None:
                await self._reader.readexactly(2)
            else:
                self._left = 0

    async def _next_size(self) -> int:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        if size == 0:
            await self._reader.readexactly(2)
        return size

    async def read(self) -> bytes:
        return b"".join([part async for part in self.parts()])

    async def read_to_end(self) -> bytes:
        """Whatever comes until the server closes."""
        return await self._reader.read()

    def end_sending(self) -> None:
        """Close one side: nothing more will be sent."""
        self._writer.write_eof()

    def close(self, is_rude: bool = False) -> None:
        """Go away; rudely, so that the server's next bytes meet nobody."""
        if is_rude:
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        else:
            self._writer.close()
