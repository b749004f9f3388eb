"""One HTTP request with one deadline: it ends within its time-out, whatever the server does.

A socket's time-out starts again with every byte, so a server that drips status lines, headers, interim responses or
an error page would hold a request forever. Here a single deadline spans connecting, sending and reading. Redirects
are not followed, and a body is read up to a limit.

    post() -> Answer           a status arrived; the body of an error may be cut off by the deadline
           -> NoAnswerError    no status, or not all of a successful answer
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from reviser.errors import ConfigError, MissingPackageError

if TYPE_CHECKING:
    import httpcore
    import httpx

LONGEST_REPLY = 10_000_000
LONGEST_ERROR = 65_536
"""Bytes read of a successful answer and of an error page."""


class NoAnswerError(Exception):
    """The exchange failed; the text says how, and may quote the server."""

    def __init__(self, reason: str, is_down: bool = False) -> None:
        super().__init__(reason)
        self.is_down = is_down
        """Whether not even a connection was made."""


@dataclass
class Answer:
    """What arrived of a response."""

    code: int = 0
    reason: str = ""
    retry_after: str | None = None
    body: bytearray = field(default_factory=bytearray)
    is_whole: bool = False
    """Whether the body ended by itself."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.code < 300


def import_httpx() -> ModuleType:
    try:
        import httpx
    except ImportError:
        raise MissingPackageError("httpx", "a judge over HTTP", "pip install 'reviser[eval]'") from None
    return httpx


class Poster:
    """Sends POST requests to one address, each over a connection of its own; any thread may call `post`."""

    def __init__(self, url: str) -> None:
        httpx = import_httpx()
        self.url = url
        # Made once, for it takes a while; unlike httpx's own it trusts the system's certificates.
        self._ssl = ssl.create_default_context()
        try:
            self._open()
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise ConfigError(
                f"the environment names a proxy that cannot be used ({str(error).rstrip('.')}); "
                "correct or unset HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
            ) from None

    def _open(self) -> httpx.AsyncClient:
        client: httpx.AsyncClient = import_httpx().AsyncClient(verify=self._ssl, timeout=None, follow_redirects=False)
        return client

    def post(self, content: bytes, headers: dict[str, str], timeout_s: float) -> Answer:
        """Send a request and wait for what comes back, at most `timeout_s` seconds."""
        httpx, answer = import_httpx(), Answer()
        try:
            asyncio.run_coroutine_threadsafe(self._exchange(answer, content, headers, timeout_s), _loop()).result()
        except TimeoutError:
            failure = NoAnswerError(f"no answer within {timeout_s:g} s")
        # ValueError: a host name that cannot be encoded for the resolver.
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            is_down = not isinstance(error, httpx.HTTPError) or isinstance(
                error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError
            )
            said = f"no connection ({_cause(error)})" if is_down else f"a broken answer ({_cause(error)})"
            failure = NoAnswerError(said, is_down)
        else:
            if answer.is_success and not answer.is_whole:
                raise NoAnswerError(f"an answer of more than {LONGEST_REPLY:,} bytes")
            return answer
        if answer.code and not answer.is_success:
            return answer
        raise failure

    async def _exchange(self, answer: Answer, content: bytes, headers: dict[str, str], timeout_s: float) -> None:
        streams: list[httpcore.AsyncNetworkStream] = []

        async def note(event: str, info: dict[str, Any]) -> None:
            if event == "connection.connect_tcp.complete":
                streams.append(info["return_value"])

        # Without `identity` a small compressed body could grow beyond every limit.
        headers = {**headers, "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._open() as client,
                client.stream(
                    "POST", self.url, content=content, headers=headers, extensions={"trace": note}
                ) as response,
            ):
                await _read(response, answer)
        finally:
            # httpcore leaves a connection open that is cancelled during the TLS handshake.
            for stream in streams:
                await stream.aclose()


async def _read(response: httpx.Response, answer: Answer) -> None:
    answer.code, answer.reason = response.status_code, response.reason_phrase
    answer.retry_after = response.headers.get("Retry-After")
    limit = LONGEST_REPLY if answer.is_success else LONGEST_ERROR
    async for piece in response.aiter_raw():
        answer.body += piece
        if len(answer.body) > limit:
            del answer.body[limit:]
            return
    answer.is_whole = True


_starting = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process id: a forked process has the loop but not its thread."""


def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all requests, in its own thread, so that callers may run a loop too, or be interrupted."""
    with _starting:
        if os.getpid() not in _loops:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="reviser-http", daemon=True).start()
        return _loops[os.getpid()]


def _cause(error: BaseException) -> str:
    """The system's own words if there are any: httpx says `All connection attempts failed` for most errors."""
    step: BaseException | None = error
    while step is not None:
        if isinstance(step, BaseExceptionGroup):
            step = step.exceptions[0]
        if isinstance(step, OSError) and step.strerror:
            # asyncio replaces the words; the numbers of the resolver and of SSL are not the system's.
            is_system = not isinstance(step, socket.gaierror | ssl.SSLError)
            return os.strerror(step.errno) if is_system and step.errno else step.strerror
        step = step.__cause__ or step.__context__
    return str(error).rstrip(".") or type(error).__name__
