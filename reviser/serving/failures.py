"""What goes wrong, as each protocol says it: OpenAI's error object, llama.cpp's, LanguageTool's line of text.

>>> error = RequestError(400, "n=0 must be at least 1", param="n")
>>> shape_error("/v2/check", error).body
b'Error: n=0 must be at least 1'
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from reviser.errors import ReviserError

LOG = logging.getLogger("reviser.serving")
RETRY_AFTER_S = 1
"""What a client that is turned away is told to wait."""
KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's `type` for a status; `server_error` from 500 on."""


class RequestError(ReviserError):
    """A request that is answered with an error, and with which."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers or {}

    @classmethod
    def busy(cls, message: str, status: int = 429) -> RequestError:
        return cls(status, message, headers={"Retry-After": str(RETRY_AFTER_S)})

    @classmethod
    def of(cls, error: Exception) -> RequestError:
        """Any error as one; what a user did not cause says nothing of the inside."""
        if isinstance(error, RequestError):
            return error
        if isinstance(error, ReviserError):
            return cls(400, str(error))
        return cls(500, "the server made a mistake; its log says which")


def explain_in_stream(path: str, error: Exception) -> dict[str, Any]:
    """The JSON object of whatever ended a stream; what nobody foresaw is logged."""
    if not isinstance(error, ReviserError):
        LOG.error("%s failed", path, exc_info=error)
    return describe_error(path, RequestError.of(error))


def describe_error(path: str, error: RequestError) -> dict[str, Any]:
    """The JSON object of an error, also for use inside a stream."""
    kind = KINDS.get(error.status, "server_error" if error.status >= 500 else KINDS[400])
    if path.startswith("/infill"):
        return {"error": {"code": error.status, "message": error.message, "type": kind}}
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def shape_error(path: str, error: RequestError) -> Response:
    """The answer to a request for `path`."""
    if path.startswith("/v2"):
        return PlainTextResponse(f"Error: {error.message}", error.status, headers=error.headers)
    return JSONResponse(describe_error(path, error), error.status, headers=error.headers)
