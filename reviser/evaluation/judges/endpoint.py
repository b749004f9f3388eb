"""A chat endpoint that speaks OpenAI's protocol: messages in, a reply out, whatever happens on the way.

    200                              the reply
    408, 425, 429, 5xx, no answer,   tried again after 1, 2, 4 ... s or when Retry-After says, at last UnansweredError
    time-out, a malformed answer
    400, 413, 422 ...                RefusedError: this request is wrong, another may be right
    3xx, 401, 403, 404, 405          ConfigError: every request will end so

The key goes into one header and nowhere else: redirects are not followed, and it is taken out of what a server says.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from reviser.errors import ConfigError

PASSING = (408, 425, 429)
LONGEST_WAIT_S = 120.0
"""An endpoint that asks for a longer pause is given up."""
LONGEST_REPLY = 10_000_000
HIDDEN = "[key]"
Message = dict[str, str]


class UnansweredError(Exception):
    """All tries are spent; the text says what the last one met."""


class RefusedError(Exception):
    """The endpoint will not answer this request; the text says why."""


class _PassingError(Exception):
    """Worth another try."""

    def __init__(self, reason: str, wait_s: float = 0.0, is_down: bool = False) -> None:
        super().__init__(reason)
        self.wait_s, self.is_down = wait_s, is_down


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Not followed: the key would go along to wherever it leads."""


@dataclass
class Endpoint:
    """One endpoint and model; `ask` may be called from many threads."""

    url: str
    """With or without the path /chat/completions."""
    model: str
    key: str = field(default="", repr=False)
    timeout_s: float = 60.0
    retries: int = 6
    wait_s: float = 1.0
    """Before the second try; doubled before each one more."""
    reply_tokens: int = 512
    body: dict[str, Any] = field(default_factory=dict)
    """More fields of the request; None takes one away."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url {self.url} is no http(s) address; give one such as http://localhost:8000/v1")
        if parts.username is not None or parts.query or parts.fragment:
            raise ConfigError(
                "--url may hold no name, key or query, for it is written to files; give the key through --key-env"
            )
        self.url = self.url.rstrip("/")
        if not self.url.endswith("/chat/completions"):
            self.url += "/chat/completions"
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._resume_at = 0.0
        self.has_answered = False
        self.closing = threading.Event()
        """When set, nothing is tried again."""

    def ask(self, messages: list[Message]) -> str:
        """The reply's text, perhaps empty."""
        for attempt in range(self.retries + 1):
            try:
                self.closing.wait(max(0.0, self._resume_at - time.monotonic()))
                reply = self._post(messages)
                self.has_answered = True
                return reply
            except _PassingError as error:
                reason, wait_s = str(error), max(error.wait_s, self._backoff_s(attempt))
                # Nothing ever answered there: more likely a wrong address than a bad moment.
                is_spent = attempt == self.retries or (error.is_down and not self.has_answered and attempt > 0)
                if is_spent or wait_s > LONGEST_WAIT_S or self.closing.wait(wait_s):
                    break
        raise UnansweredError(f"{reason}, after {attempt + 1} of {self.retries + 1} tries")

    def _backoff_s(self, attempt: int) -> float:
        # Threads that failed together do not come back together.
        return min(60.0, self.wait_s * 2.0**attempt) * random.uniform(0.75, 1.25)

    def _post(self, messages: list[Message]) -> str:
        try:
            data = self._send(messages)
        except urllib.error.HTTPError as error:
            raise self._explain(error) from None
        except TimeoutError:
            raise _PassingError(f"no answer within {self.timeout_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise self._explain_silence(error) from None
        try:
            content = json.loads(data)["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError):
            raise _PassingError("an answer that is no chat completion") from None
        if content is not None and not isinstance(content, str):
            raise _PassingError("an answer that is no text")
        return self.hide(content or "")

    def _send(self, messages: list[Message]) -> bytes:
        body = {
            "model": self.model, "messages": messages, "temperature": 0, "max_tokens": self.reply_tokens
        } | self.body  # fmt: skip
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        sent = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
        deadline = time.monotonic() + self.timeout_s
        request = urllib.request.Request(self.url, sent, headers)
        with self._opener.open(request, timeout=self.timeout_s) as answer:
            pieces: list[bytes] = []
            # The socket's time-out is for one read; a server that drips would never meet it.
            while piece := answer.read1(65536):
                pieces.append(piece)
                if time.monotonic() > deadline or sum(map(len, pieces)) > LONGEST_REPLY:
                    raise TimeoutError
        return b"".join(pieces)

    def _explain(self, error: urllib.error.HTTPError) -> Exception:
        with error:
            said, code = self._said(error), error.code
            wait_s = _retry_after_s(error.headers.get("Retry-After"))
        if code in PASSING or code >= 500:
            if code == 429:
                # The limit is everyone's, so every thread waits.
                self._resume_at = max(self._resume_at, time.monotonic() + min(wait_s, LONGEST_WAIT_S))
            return _PassingError(f"{code} {said}", wait_s)
        if code in (401, 403):
            return ConfigError(f"{self.url} does not take the key: {code} {said}; set it where --key-env says")
        if code < 400:
            return ConfigError(f"{self.url} sends elsewhere: {code} {said}; give --url the address itself")
        if code in (404, 405):
            return ConfigError(f"{self.url} has no model {self.model}: {code} {said}; see --url and --model")
        return RefusedError(f"{code} {said}")

    def _said(self, error: urllib.error.HTTPError) -> str:
        """What the server says of its error, on one short line."""
        try:
            text = error.read(2000).decode("utf-8", errors="replace")
            text = json.loads(text)["error"]["message"]
        except (OSError, http.client.HTTPException):
            text = ""
        except (ValueError, LookupError, TypeError):
            pass
        return self.hide(" ".join(str(text or error.reason).split()))[:200]

    def _explain_silence(self, error: Exception) -> _PassingError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            return _PassingError(f"no answer within {self.timeout_s:g} s")
        is_down = isinstance(error, urllib.error.URLError)
        said = self.hide(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)
        return _PassingError(f"no connection ({said})" if is_down else f"a broken answer ({said})", is_down=is_down)

    def hide(self, text: str) -> str:
        return text.replace(self.key, HIDDEN) if self.key else text


def _retry_after_s(value: str | None) -> float:
    """The header's seconds or date as seconds from now; 0 where there is none."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def read_key(variable: str | None, default: str = "OPENAI_API_KEY") -> str:
    """The key that an environment variable holds; without a name, the default's or none at all."""
    key = os.environ.get(variable or default, "").strip()
    if variable is not None and not key:
        raise ConfigError(f"--key-env {variable}: there is no such environment variable, or it is empty; set it")
    # Otherwise an error of http.client would print the header.
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key in {variable or default} holds characters that no header can; set it again")
    return key
