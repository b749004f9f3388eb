"""The hub that models are pushed to and pulled from: an address and a token in, its client and clear errors out.

>>> Hub("https://hub.example.org", token="hf_secret")
Hub(endpoint='https://hub.example.org')
>>> Hub("http://example.org")
Traceback (most recent call last):
reviser.errors.HubError: endpoint http://example.org must begin with https://; plain http is for this machine alone
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reviser.errors import HubError, MissingPackageError, ReviserError
from reviser.model.folder import CARD, CONFIG, TOKENIZER, WEIGHTS, quiet_hub
from reviser.packages import HUB

FILES = (CONFIG, TOKENIZER, CARD, WEIGHTS)
"""All that is ever sent or fetched; weights last, for what is wrong with the others shows sooner."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HINT = "give a token with --token-file FILE or in HF_TOKEN"


@dataclass(frozen=True)
class Hub:
    """Where the hub is, and who asks; without a token it is HF_TOKEN's, or that of `hf auth login`."""

    endpoint: str | None = None
    """None is https://huggingface.co, or what HF_ENDPOINT says."""
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.endpoint is None:
            return
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise HubError(f"endpoint {self.endpoint} is no address; give one like https://huggingface.co")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise HubError(f"endpoint {self.endpoint} must begin with https://; plain http is for this machine alone")
        object.__setattr__(self, "endpoint", self.endpoint.rstrip("/"))

    def connect(self) -> Any:
        """The hub's own client."""
        client = import_client()
        return client.HfApi(endpoint=self.endpoint, token=self.token, library_name="reviser")

    @property
    def has_token(self) -> bool:
        return (self.token or import_client().get_token()) is not None


def import_client() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPackageError("huggingface_hub", "the hub", HUB) from error
    return huggingface_hub


def read_token(file: str | os.PathLike[str] | None) -> str | None:
    """The token that a file holds."""
    if file is None:
        return None
    try:
        token = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise HubError(f"cannot read the token file {file}: {reason}; give a file that holds a token alone") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise HubError(f"the token file {file} must hold one word of ASCII; write the hub's token into it, alone")
    return token


def check_name(name: str) -> str:
    """The name of a model at the hub."""
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name, re.ASCII):
        raise HubError(f"{name} names no model of the hub; give owner/model, of letters, digits, -, _ and .")
    return name


@contextmanager
def explaining(hub: Hub, doing: str, name: str, revision: str | None = None) -> Iterator[None]:
    """Turn what the hub's client raises into one line; errors of the disk stay what they are."""
    try:
        with quiet_hub(), _quiet_bars():
            yield
    except ReviserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and not hasattr(error, "response"):
            raise
        text = _explain(error, doing, name, revision)
        raise HubError(text.replace(hub.token, "...") if hub.token else text) from error


@contextmanager
def _quiet_bars() -> Iterator[None]:
    """Only a terminal shows the client's progress bars."""
    utils = import_client().utils
    if sys.stderr.isatty() or utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


def _explain(error: BaseException, doing: str, name: str, revision: str | None) -> str:
    from huggingface_hub import errors

    # The client wraps what happened in advice for its own users.
    while error.__cause__ is not None and not hasattr(error, "response"):
        error = error.__cause__
    if isinstance(error, errors.OfflineModeIsEnabled):
        return f"cannot {doing} {name}: HF_HUB_OFFLINE forbids the network; unset it"
    if isinstance(error, errors.GatedRepoError):
        return f"cannot {doing} {name}: its owner must let you in first; ask on its page, then {HINT}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision}; give a branch, a tag or a commit that it has"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"no model {name} at the hub, or it is private; check the name, or {HINT} that may read it"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"cannot {doing} {name}: the hub refuses ({_tell(error, status)}); {HINT} that may do this"
    return f"cannot {doing} {name}: {_tell(error, status)}; check the endpoint and the network, and run it again"


def _tell(error: BaseException, status: int | None) -> str:
    """What the hub says, or else the first line of what its client does."""
    text = str(error) if status is None else getattr(error, "server_message", None) or ""
    said = next(filter(None, map(str.strip, text.splitlines())), "").rstrip(".;")
    return said or type(error).__name__ if status is None else f"HTTP {status}{said and f', {said}'}"
