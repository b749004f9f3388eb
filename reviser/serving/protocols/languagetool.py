"""LanguageTool's protocol: /v2/check and /v2/languages, with a model that edits behind them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from reviser import __version__
from reviser.errors import DataError
from reviser.proofreading.proofread import Edited, check_can_edit
from reviser.serving.failures import RequestError
from reviser.serving.protocols.annotated import AnnotatedText
from reviser.serving.protocols.edit_rules import RuleChoice, known_rules, make_matches
from reviser.serving.protocols.writing_job import check_given
from reviser.serving.service import Service

LANGUAGES = {
    "en": "English",
    "en-US": "English (US)",
    "en-GB": "English (GB)",
    "en-AU": "English (Australian)",
    "en-CA": "English (Canadian)",
    "en-NZ": "English (New Zealand)",
    "en-ZA": "English (South African)",
}
CHOICES = ("enabledRules", "enabledCategories", "disabledRules", "disabledCategories")
USED = {"text", "data", "language", "enabledOnly", *CHOICES}
MAX_FIELDS = 64


async def read_fields(client: Request) -> dict[str, str]:
    """The fields of a form, or of a query where there is none."""
    kind = client.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await client.body()
    if body and kind != "application/x-www-form-urlencoded":
        raise RequestError(415, f"the body is {kind or 'of no type'}; send application/x-www-form-urlencoded")
    given = body or client.scope["query_string"]
    try:
        pairs = parse_qsl(
            given.decode("ascii" if not body else "utf-8"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except UnicodeDecodeError:
        raise RequestError(400, "the form is not UTF-8; encode it so") from None
    except ValueError:
        raise RequestError(400, f"the form has more than {MAX_FIELDS} fields; send fewer") from None
    return dict(pairs)


def read_text(fields: dict[str, str]) -> AnnotatedText:
    """The text of a check, in either of its forms."""
    if ("text" in fields) == ("data" in fields):
        raise RequestError(400, "give either text or data")
    if "text" in fields:
        return AnnotatedText.of(fields["text"])
    try:
        data = json.loads(fields["data"])
    except (ValueError, RecursionError):
        raise RequestError(400, "data is not JSON") from None
    if not isinstance(data, dict):
        raise RequestError(400, "data must be an object with a list named annotation")
    if isinstance(data.get("text"), str) and "annotation" not in data:
        return AnnotatedText.of(data["text"])
    try:
        return AnnotatedText.parse(data.get("annotation"))
    except DataError as error:
        raise RequestError(400, str(error)) from None


def read_choice(fields: dict[str, str]) -> RuleChoice:
    """Which rules count; unknown ones are no error, for clients name LanguageTool's own."""
    named = {name: frozenset(filter(None, fields.get(name, "").split(","))) for name in CHOICES}
    is_only = fields.get("enabledOnly", "false").lower() in ("true", "yes")
    enabled = named["enabledRules"] | named["enabledCategories"]
    if is_only and not enabled:
        raise RequestError(400, "enabledOnly needs enabledRules or enabledCategories")
    return RuleChoice(enabled, named["disabledRules"] | named["disabledCategories"], is_only)


def read_language(fields: dict[str, str]) -> str:
    code = fields.get("language", "")
    if code in (*LANGUAGES, "auto"):
        return code
    raise RequestError(400, f"language is {code[:40]!r}; languages are {', '.join(LANGUAGES)} and auto")


def list_notes(fields: dict[str, str], choice: RuleChoice) -> list[str]:
    """What of a request did nothing."""
    notes = [f"{name} is ignored" for name in fields if name not in USED]
    if fields.get("level") == "picky":
        notes[notes.index("level is ignored")] = "level=picky is ignored: the model has one level"
    unknown = sorted((choice.enabled | choice.disabled) - set(known_rules()))
    return [*notes, *([f"no such rules here: {', '.join(unknown)}"] if unknown else [])]


def describe_check(annotated: AnnotatedText, edited: Edited, fields: dict[str, str]) -> dict[str, Any]:
    code, choice = read_language(fields), read_choice(fields)
    name = LANGUAGES.get(code, LANGUAGES["en-US"])
    code = "en-US" if code == "auto" else code
    return {
        "software": {"name": "reviser", "version": __version__, "buildDate": "", "apiVersion": 1, "premium": False,
                     "status": ""},
        "warnings": {"incompleteResults": False},
        "notes": list_notes(fields, choice),
        "language": {"name": name, "code": code, "detectedLanguage": {"name": name, "code": code, "confidence": 0.0}},
        "matches": make_matches(annotated, edited, choice),
    }  # fmt: skip


def make_languagetool_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["LanguageTool"])
    fields = {
        "text": "The text to check.",
        "data": "Instead of text: JSON with a list named annotation, of text and markup.",
        "language": f"One of {', '.join(LANGUAGES)}, or auto.",
        "enabledRules, enabledCategories": "With enabledOnly, the only ones that count.",
        "disabledRules, disabledCategories": "Those that do not count.",
        "enabledOnly": "true or false.",
    }
    described = {
        "requestBody": {
            "content": {
                "application/x-www-form-urlencoded": {
                    "schema": {
                        "type": "object",
                        "title": "CheckForm",
                        "properties": {
                            name: {"type": "string", "description": text} for name, text in fields.items()
                        },
                        "required": ["language"],
                    }
                }
            }
        }
    }

    @routes.get("/v2/check", summary="The same with its fields in the query")
    @routes.post("/v2/check", summary="What a model would correct in a text", openapi_extra=described)
    async def check(client: Request) -> Response:
        try:
            check_can_edit(service.writer.config, service.writer.name)
        except Exception as error:
            raise RequestError(501, str(error)) from None
        given = await read_fields(client)
        annotated = read_text(given)
        check_given(service.config, text=annotated.plain)
        read_language(given)
        read_choice(given)
        edited = Edited(annotated.plain, ())
        if annotated.plain.strip():
            edited = await service.answer(client, lambda writer: writer.edit(annotated.plain))
        return JSONResponse(describe_check(annotated, edited, given))

    @routes.get("/v2/languages", summary="What can be checked")
    async def languages() -> list[dict[str, str]]:
        return [{"name": name, "code": "en", "longCode": code} for code, name in LANGUAGES.items()]

    return routes
