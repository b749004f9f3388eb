"""What every request passes first: its Host, its token and the size of its body. And what is logged of it.

The Host header is checked because a page of another site can let its own name lead to this machine (DNS rebinding):
the browser then talks to this server, and only the name gives that away. A query is never logged, for it may hold
text.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reviser.serving.connections import IS_SURPLUS
from reviser.serving.failures import RequestError, shape_error
from reviser.serving.service import Service

LOG = logging.getLogger("reviser.serving")
OPEN = ("/health", "/docs", "/openapi.json", "/static")
"""Paths that need no token, and those below them; so does / itself."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service, self._config = app, service, service.config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status, path = time.perf_counter(), 499, scope["path"]

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._pass(scope, receive, note)
        finally:
            seconds = time.perf_counter() - begin
            self._service.meters.count(path, status, seconds)
            LOG.info("%s %s %d %.3f s", scope["method"], path, status, seconds)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._check_host(headers.get("host", ""))
            self._check_token(scope, headers.get("authorization", ""))
            body = await self._read(headers, receive)
            self._check_room(scope)
        except RequestError as error:
            await shape_error(scope["path"], error)(scope, receive, send)
            return
        if self._config.log_text and body:
            LOG.info("%s %s %s", scope["method"], scope["path"], body.decode("utf-8", "replace"))
        is_given = False

        async def give() -> Message:
            nonlocal is_given
            if is_given:
                return await receive()
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, give, send)

    def _check_host(self, given: str) -> None:
        try:
            name = urlsplit(f"//{given}").hostname or ""
        except ValueError:
            name = ""
        if name.lower() not in self._config.hosts:
            raise RequestError(421, f"the Host header says {given[:100]!r}; start the server with --allow-host NAME")

    def _check_token(self, scope: Scope, given: str) -> None:
        path, token = scope["path"], self._config.token
        is_open = path == "/" or any(path == each or path.startswith(f"{each}/") for each in OPEN)
        # A browser asks without a token whether it may ask with one.
        if token is None or is_open or scope["method"] == "OPTIONS":
            return
        scheme, _, sent = given.partition(" ")
        is_right = hmac.compare_digest(sent.strip().encode("latin-1"), token.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise RequestError(
                401,
                "this server needs a token; send it as Authorization: Bearer TOKEN",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _check_room(self, scope: Scope) -> None:
        """Refuse whoever comes on a connection too many, but let the state of the server be seen."""
        if scope.get("state", {}).get(IS_SURPLUS) and not scope["path"].startswith("/health"):
            most = self._config.max_connections
            error = RequestError.busy(f"all {most} connections are open; try again later", 503)
            error.headers["Connection"] = "close"
            raise error

    async def _read(self, headers: dict[str, str], receive: Receive) -> bytes:
        """The whole body, which is small; refused as soon as it is known to be too large."""
        most, parts, size = self._config.max_body_bytes, list[bytes](), 0
        limit = self._config.body_timeout_s
        too_large = RequestError(413, f"the body is larger than {most} bytes; send less, or raise --max-body-bytes")
        if headers.get("content-length", "").isdecimal() and int(headers["content-length"]) > most:
            raise too_large
        try:
            async with asyncio.timeout(limit):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestError(400, "the client went away")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise RequestError(408, f"the body did not come within {limit:g} s; send it faster") from None
