"""What a server may be told: where it listens, who may ask, and how much. Nothing heavy is loaded.

>>> ServeConfig().is_loopback, ServeConfig(host="0.0.0.0").is_loopback
(True, False)
"""

from __future__ import annotations

import ipaddress
import math
import os
from dataclasses import dataclass

from reviser.errors import ConfigError

TOKEN_VARIABLE = "REVISER_TOKEN"
"""The environment variable that holds the bearer token where --token does not."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """All settings of a server but the model's."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    """What clients must send as `Authorization: Bearer ...`; None lets everyone in."""
    allow_hosts: tuple[str, ...] = ()
    """Names in the Host header that are accepted beside the loopback's and `host`."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may read answers."""
    rows: int = 16
    """Texts that are decoded at once with one way of sampling."""
    concurrency: int = 32
    """Requests that are worked on at once."""
    queue: int = 64
    """Requests that may wait behind those."""
    max_body_bytes: int = 1 << 20
    max_characters: int = 100_000
    """In one text."""
    max_texts: int = 64
    """That one request may ask for: prompts times n times best_of."""
    timeout_s: float = 120.0
    """From the end of a request's body to the end of its answer."""
    grace_s: float = 20.0
    """How long requests may go on once the server is told to stop."""
    max_connections: int = 512
    """Open at once; more are told so and closed."""
    head_timeout_s: float = 10.0
    """For the line and the headers of a request, from its first byte or from the opening of the connection."""
    body_timeout_s: float = 30.0
    """For the whole body behind them."""
    send_timeout_s: float = 30.0
    """For a client to take 16 KiB of its answer, or the rest of it."""
    log_text: bool = False
    """Whether requests are logged with their text."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port {self.port} must be between 0 and 65535; 0 takes any that is free")
        for name in ("rows", "concurrency", "max_body_bytes", "max_characters", "max_texts", "max_connections"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.queue < 0:
            raise ConfigError(f"queue={self.queue} must be 0 or more")
        for name in ("timeout_s", "head_timeout_s", "body_timeout_s", "send_timeout_s", "grace_s"):
            value, can_be_0 = getattr(self, name), name == "grace_s"
            if not math.isfinite(value) or value < 0 or (value == 0 and not can_be_0):
                raise ConfigError(f"{name}={value} must be finite and {'0 or more' if can_be_0 else 'above 0'}")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError("the token must be printable ASCII and not empty; make one with: openssl rand -hex 32")
        for origin in self.cors:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise ConfigError(f"cors origin {origin!r} must be * or begin with http:// or https://")

    @property
    def is_loopback(self) -> bool:
        """Whether nobody outside of this machine can reach it."""
        return self.host in LOOPBACK_NAMES or _is_loopback_address(self.host)

    @property
    def hosts(self) -> frozenset[str]:
        """The names that a Host header may hold."""
        named = (*LOOPBACK_NAMES, *self.allow_hosts)
        is_any = self.host in ("0.0.0.0", "::", "")
        return frozenset(name.lower().strip("[]") for name in (named if is_any else (*named, self.host)))


def read_token(given: str | None) -> str | None:
    """The token of the command line, or else of the environment."""
    return given if given is not None else os.environ.get(TOKEN_VARIABLE) or None


def _is_loopback_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
