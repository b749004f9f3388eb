"""All endpoints as one ASGI application.

The page at / is static/index.html; other files of static/ are under /static.
"""

from __future__ import annotations

import html
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from reviser import __version__
from reviser.errors import ReviserError
from reviser.serving.failures import RequestError, shape_error
from reviser.serving.guard import Guard
from reviser.serving.protocols.abilities import make_job_routes
from reviser.serving.protocols.completions import make_openai_routes
from reviser.serving.protocols.edit_requests import make_edit_routes
from reviser.serving.protocols.filling_requests import make_filling_routes
from reviser.serving.protocols.infilling import make_infill_routes
from reviser.serving.protocols.languagetool import make_languagetool_routes
from reviser.serving.protocols.replays import make_replay_routes
from reviser.serving.protocols.watching import make_trajectory_routes
from reviser.serving.service import ClientGoneError, Service
from reviser.viewer.replay_page import policy_hashes

STATIC = Path(__file__).parent / "static"
LOG = logging.getLogger("reviser.serving")
ROUTES = (
    make_openai_routes,
    make_infill_routes,
    make_languagetool_routes,
    make_trajectory_routes,
    make_job_routes,
    make_edit_routes,
    make_filling_routes,
    make_replay_routes,
)


def make_app(service: Service) -> ASGIApp:
    """The application; it starts the service and closes it."""

    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(title="reviser", version=__version__, docs_url=None, redoc_url=None, lifespan=live)
    for make in ROUTES:
        app.include_router(make(service))
    _add_health(app, service)
    _add_pages(app)
    _add_errors(app)
    inner: ASGIApp = app
    if service.config.cors:
        inner = CORSMiddleware(
            app, allow_origins=service.config.cors, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    return Guard(inner, service)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["state"], summary="Whether the server takes requests: 200, or 503 while it stops")
    @app.get("/health/ready", tags=["state"], summary="The same")
    async def ready() -> Response:
        state = {"status": service.status, "model": service.writer.name, "requests": service.num_admitted}
        return JSONResponse(state, 503 if service.is_draining else 200)

    @app.get("/health/live", tags=["state"], summary="Whether the server runs at all: always 200")
    async def alive() -> dict[str, str]:
        return {"status": service.status}

    @app.get("/metrics", tags=["state"], summary="Counters for Prometheus")
    async def metrics() -> Response:
        return Response(service.meters.render(), media_type=CONTENT_TYPE_LATEST)


def _add_pages(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(render_docs(app.openapi()))

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    headers = {
        "Content-Security-Policy": page_policy(),
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html", headers=headers)


def page_policy() -> str:
    """Nothing but this server, and no script or style but its files. Replays that the page opens are under its
    policy too, so their script and style are named."""
    hashes = policy_hashes()
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {hashes['script']}",
            f"style-src 'self' {hashes['style']}",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(client: Request, error: RequestValidationError) -> Response:
        return shape_error(client.url.path, explain_validation(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def refused(client: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            said = RequestError(404, f"nothing is at {client.url.path}; see /docs")
        elif error.status_code == 405:
            said = RequestError(405, f"{client.method} is not possible at {client.url.path}; see /docs")
        else:
            said = RequestError(error.status_code, str(error.detail))
        return shape_error(client.url.path, said)

    @app.exception_handler(ReviserError)
    async def wrong(client: Request, error: ReviserError) -> Response:
        return shape_error(client.url.path, RequestError.of(error))

    @app.exception_handler(ClientGoneError)
    async def gone(client: Request, _: ClientGoneError) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def broken(client: Request, error: Exception) -> Response:
        return shape_error(client.url.path, RequestError.of(error))


def explain_validation(error: Any) -> RequestError:
    """The first thing that is wrong with a body, in one line."""
    places = [str(each) for each in error["loc"] if each != "body"]
    name = next((each for each in places if not each.isdecimal()), None)
    if error["type"] == "json_invalid":
        return RequestError(400, "the body is not JSON")
    if error["type"] == "extra_forbidden":
        message = f"{places[-1]} is not supported; leave it out, or see /docs for what is"
        return RequestError(400, message, places[-1], "unsupported_parameter")
    said = str(error["msg"]).removeprefix("Value error, ")
    if name is None:
        return RequestError(400, "the body must be a JSON object; send it as application/json")
    return RequestError(400, f"{name}: {said[0].lower()}{said[1:]}", name)


def render_docs(schema: dict[str, Any]) -> str:
    """The OpenAPI description as a page that needs nothing from elsewhere."""
    parts = []
    models = schema.get("components", {}).get("schemas", {})
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2>{method.upper()} {html.escape(path)}</h2><p>{html.escape(about['summary'])}</p>")
            parts += _render_fields(about.get("requestBody", {}).get("content", {}), models)
    template = (STATIC / "docs.html").read_text("utf-8")
    return template.replace("{{title}}", html.escape(f"reviser {__version__}")).replace("{{body}}", "\n".join(parts))


def _render_fields(content: dict[str, Any], models: dict[str, Any]) -> list[str]:
    rows = []
    for kind, about in content.items():
        given = about["schema"]
        model = models[given["$ref"].rpartition("/")[2]] if "$ref" in given else given
        cells = [
            f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(_type_of(field))}</td>"
            f"<td>{html.escape(str(field.get('default', '')))}</td>"
            f"<td>{html.escape(field.get('description', ''))}</td></tr>"
            for name, field in model["properties"].items()
        ]
        head = "<tr><th>field</th><th>type</th><th>default</th><th></th></tr>"
        rows.append(f"<p>{html.escape(kind)}</p><table>{head}{''.join(cells)}</table>")
    return rows


def _type_of(field: dict[str, Any]) -> str:
    kinds = [each.get("type", "object") for each in field.get("anyOf", [field])]
    return " or ".join(kind for kind in kinds if kind != "null")
