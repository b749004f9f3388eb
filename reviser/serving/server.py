"""The process: a socket, uvicorn, and an end that lets requests finish.

On SIGINT or SIGTERM the server takes no more work and says so in /health; requests have `grace_s` to finish, and
those that do not are told. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from reviser.decoding.writer import Writer
from reviser.errors import ConfigError
from reviser.serving.app import make_app
from reviser.serving.connections import KEEP_ALIVE_S, make_protocol
from reviser.serving.serve_config import ServeConfig
from reviser.serving.service import Service

LOG = logging.getLogger("reviser.serving")
LAST_WORDS_S = 2.0
"""How long answers may take that only say that the server stops."""


class DrainingServer(uvicorn.Server):
    """uvicorn's, which finishes before it stops listening."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._drain: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        LOG.info("ready: %s at %s", self._service.writer.name, " ".join(map(_url, sockets or ())))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._service.is_draining or self._loop is None:
            self.should_exit = self.force_exit = True
            return
        self._service.is_draining = True
        self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        self._drain = asyncio.create_task(self.drain())

    async def drain(self) -> None:
        """Wait for requests, end those that take too long, and let the server stop."""
        service = self._service
        LOG.info("stopping: %d requests may go on for %g s", service.num_admitted, service.config.grace_s)
        if not await _wait(lambda: service.num_admitted == 0, service.config.grace_s):
            LOG.info("%d requests are told that they are not finished", service.num_admitted)
            service.cancel_all()
            await _wait(lambda: service.num_admitted == 0, LAST_WORDS_S)
        self.should_exit = True


async def _wait(is_done: Callable[[], bool], limit_s: float) -> bool:
    """Whether it came true in time."""
    try:
        async with asyncio.timeout(limit_s):
            while not is_done():
                await asyncio.sleep(0.02)
    except TimeoutError:
        return False
    return True


def listen(config: ServeConfig) -> socket.socket:
    """The socket, before anything slow is done."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        opened = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"cannot listen on {config.host}:{config.port}: {said}; choose another --host or --port"
        ) from None
    # Connections inherit it. asyncio sets it only for sockets that name their protocol, which these do not; without
    # it an answer's body waits for the client to acknowledge its head, 40 ms on Linux.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def serve(writer: Writer, config: ServeConfig, opened: socket.socket) -> None:
    """Answer requests until a signal comes."""
    _log_to_stderr()
    if not config.is_loopback:
        who = "everyone who has the token" if config.token else "EVERYONE, for there is no --token,"
        LOG.warning("warning: --host %s lets %s reach this server from other machines", config.host, who)
    try:
        make_server(Service(writer, config)).run(sockets=[opened])
    finally:
        opened.close()


def make_server(service: Service) -> DrainingServer:
    settings = uvicorn.Config(
        make_app(service),
        http=make_protocol(service.config),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(LAST_WORDS_S),
        lifespan="on",
        ws="none",
    )
    return DrainingServer(settings, service)


def _url(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.handlers, LOG.propagate = [handler], False
    LOG.setLevel(logging.INFO)
    errors = logging.getLogger("uvicorn.error")
    errors.handlers, errors.propagate = [handler], False
    errors.setLevel(logging.ERROR)
