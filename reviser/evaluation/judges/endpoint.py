"""A chat endpoint that speaks OpenAI's protocol: messages in, a reply out, whatever happens on the way.

    200                              the reply
    408, 425, 429, 5xx, no answer,   tried again after 1, 2, 4 ... s or when Retry-After says; in the end
    time-out, a malformed answer     UnansweredError
    400, 413, 422 ...                RefusedError: this request is wrong, another may be right
    3xx, 401, 403, 404, 405          ConfigError: every request will fail in the same way

A request ends within its time-out whatever the server does (exchange.py). The key goes into one header and nowhere
else: redirects are not followed, and the key is removed from whatever a server says (redaction.py).
"""

from __future__ import annotations

import email.utils
import json
import math
import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from reviser.errors import ConfigError
from reviser.evaluation.judges.exchange import Answer, NoAnswerError, Poster, import_httpx
from reviser.evaluation.judges.redaction import hide_key, quote

TRANSIENT = (408, 425, 429)
LONGEST_WAIT_S = 120.0
"""An endpoint that asks for a longer pause is given up."""
LONGEST_BACKOFF_S = 60.0
Message = dict[str, str]


class UnansweredError(Exception):
    """Every attempt failed; the text says how the last one did."""


class RefusedError(Exception):
    """The endpoint will not answer this request; the text says why."""


class _TransientError(Exception):
    """Worth another attempt."""

    def __init__(self, reason: str, wait_s: float = 0.0, is_down: bool = False) -> None:
        super().__init__(reason)
        self.wait_s, self.is_down = wait_s, is_down


@dataclass
class Endpoint:
    """One endpoint and model; `ask` may be called from many threads."""

    url: str
    """With or without the path /chat/completions."""
    model: str
    key: str = field(default="", repr=False)
    timeout_s: float = 60.0
    """For one request, from connecting to the last byte."""
    retries: int = 6
    wait_s: float = 1.0
    """Before the second attempt; doubled before each further one."""
    reply_tokens: int = 512
    body: dict[str, Any] = field(default_factory=dict)
    """More fields of the request; None removes one."""

    def __post_init__(self) -> None:
        self._check_numbers()
        if not _fits_header(self.key):
            raise ConfigError("the key contains characters that a header cannot hold; set it again")
        try:
            json.dumps(self.body)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"--body cannot be written as JSON ({error}); give plain values") from None
        self.url = _complete(self.url)
        self._poster = Poster(self.url)
        self._resume_at = 0.0
        self.has_answered = False
        self.closing = threading.Event()
        """When set, nothing is tried again."""

    def _check_numbers(self) -> None:
        if not 0 < self.timeout_s < math.inf:
            raise ConfigError(f"--timeout {self.timeout_s:g} must be a finite number of seconds above 0")
        if self.retries < 0:
            raise ConfigError(f"--retries {self.retries} must be at least 0")
        if self.reply_tokens < 1:
            raise ConfigError(f"--reply-tokens {self.reply_tokens} must be at least 1")

    def ask(self, messages: list[Message]) -> str:
        """The text of the reply, which may be empty."""
        for attempt in range(self.retries + 1):
            try:
                self.closing.wait(max(0.0, self._resume_at - time.monotonic()))
                reply = self._post(messages)
                self.has_answered = True
                return reply
            except _TransientError as error:
                reason, wait_s = str(error), max(error.wait_s, self._backoff_s(attempt))
                # Nothing ever answered there: more likely a wrong address than a bad moment.
                is_spent = attempt == self.retries or (error.is_down and not self.has_answered and attempt > 0)
                if is_spent or wait_s > LONGEST_WAIT_S or self.closing.wait(wait_s):
                    break
        raise UnansweredError(f"{reason}, after {attempt + 1} of {self.retries + 1} tries")

    def _backoff_s(self, attempt: int) -> float:
        # The jitter keeps threads that failed together from coming back together.
        return min(LONGEST_BACKOFF_S, self.wait_s * 2.0 ** min(attempt, 100)) * random.uniform(0.75, 1.25)

    def _post(self, messages: list[Message]) -> str:
        try:
            answer = self._poster.post(*self._make_request(messages), self.timeout_s)
        except NoAnswerError as error:
            raise _TransientError(quote(str(error), self.key), is_down=error.is_down) from None
        if not answer.is_success:
            raise self._explain(answer)
        try:
            content = json.loads(answer.body)["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise _TransientError("an answer that is not a chat completion") from None
        if content is not None and not isinstance(content, str):
            raise _TransientError("a reply that is not text")
        return hide_key(content or "", self.key)

    def _make_request(self, messages: list[Message]) -> tuple[bytes, dict[str, str]]:
        body = {
            "model": self.model, "messages": messages, "temperature": 0, "max_tokens": self.reply_tokens
        } | self.body  # fmt: skip
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        return json.dumps({name: value for name, value in body.items() if value is not None}).encode(), headers

    def _explain(self, answer: Answer) -> Exception:
        """The error that an answer other than success stands for."""
        said, code = f"{answer.code} {self._read_error(answer)}", answer.code
        if code in TRANSIENT or code >= 500 or code < 200:
            wait_s = _retry_after_s(answer.retry_after)
            if code == 429:
                # The limit is everyone's, so every thread waits.
                self._resume_at = max(self._resume_at, time.monotonic() + min(wait_s, LONGEST_WAIT_S))
            return _TransientError(said, wait_s)
        if code < 400:
            return ConfigError(f"{self.url} redirects elsewhere: {said}; give --url the final address")
        if code in (401, 403):
            return ConfigError(f"{self.url} rejects the key: {said}; correct the variable that --key-env names")
        if code in (404, 405):
            return ConfigError(f"{self.url} has no model {self.model}: {said}; check --url and --model")
        return RefusedError(said)

    def _read_error(self, answer: Answer) -> str:
        """What the server says about its error, on one short line."""
        text = answer.body.decode("utf-8", errors="replace")
        with suppress(ValueError, LookupError, TypeError, RecursionError):
            text = str(json.loads(text)["error"]["message"] or "")
        return quote(text, self.key, is_cut=not answer.is_whole) or quote(answer.reason, self.key)


def _complete(url: str) -> str:
    """The address of chat completions; an address that cannot be one is refused."""
    httpx = import_httpx()
    authority = url.partition("//")[2].replace("\\", "/").partition("/")[0]
    if "@" in authority or "?" in url or "#" in url:
        raise ConfigError(
            "--url must not contain a user name, key, query or fragment, because it is written to files; "
            "pass the key through --key-env"
        )
    try:
        parts = httpx.URL(url)
        is_address = (
            parts.scheme in ("http", "https")
            and bool(parts.host)
            and (parts.port is None or 0 < parts.port < 65536)
            and url.isprintable()
            and " " not in url
        )
    except (httpx.InvalidURL, ValueError):
        is_address = False
    if not is_address:
        raise ConfigError(f"--url {url!r} is not an http(s) address; give one such as http://localhost:8000/v1")
    url = url.rstrip("/")
    return url if url.endswith("/chat/completions") else f"{url}/chat/completions"


def _retry_after_s(value: str | None) -> float:
    """The header's seconds or date as seconds from now; 0 if there is none or it makes no sense."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, OSError):
        return 0.0


def read_key(variable: str | None, default: str = "OPENAI_API_KEY") -> str:
    """The key that an environment variable holds; if none is named, the default one's or an empty key."""
    key = os.environ.get(variable or default, "").strip()
    if variable is not None and not key:
        raise ConfigError(f"--key-env {variable}: that environment variable is missing or empty; set it")
    if not _fits_header(key):
        raise ConfigError(
            f"the key in {variable or default} contains characters that a header cannot hold; set it again"
        )
    return key


def _fits_header(key: str) -> bool:
    """Otherwise the HTTP library's error would print the header."""
    return key.isascii() and key.isprintable() and key == key.strip()
