"""Our own protocol for gaps: POST /v1/fillings, several ways to fill any number of gaps, the best first."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field, StrictBool, StrictInt, StrictStr
from starlette.responses import JSONResponse, Response

from reviser.decoding.gap_filling import GapLimits, split_gaps
from reviser.decoding.presets import LONGEST_GAP
from reviser.decoding.writer import NUM_ALTERNATIVES, Text
from reviser.orders.record import to_record
from reviser.serving.failures import RequestError
from reviser.serving.protocols.clipping import clip_parts
from reviser.serving.protocols.writing_job import SamplingBody, check_given, usual_tries
from reviser.serving.service import Service

MAX_GAPS = 32


class FillingBody(SamplingBody):
    """A text with ___ where its gaps are, or the parts around them."""

    text: StrictStr | None = None
    parts: list[StrictStr] | None = Field(None, description="What stands before each gap and behind the last.")
    n: StrictInt = Field(5, ge=1, description="How many different ways, best first; there may be fewer.")
    best_of: StrictInt | None = Field(None, ge=1, description="Each way is the best of so many (default 4).")
    max_tokens: StrictInt = Field(LONGEST_GAP, description="In all gaps together, times their number.")
    min_length: StrictInt = Field(0, description="In each gap, in tokens.")
    max_length: StrictInt | None = Field(None, description="In each gap, in tokens.")
    clip: StrictBool = Field(True, description="Whether a text that is too long is cut at its far ends, or refused.")

    def given_parts(self) -> list[str]:
        if (self.text is None) == (self.parts is None):
            raise RequestError(400, "give either a text with ___ in it, or parts")
        parts = split_gaps(self.text) if self.text is not None else self.parts or []
        if not 2 <= len(parts) <= MAX_GAPS + 1:
            raise RequestError(400, f"{len(parts) - 1} gaps; give 1 to {MAX_GAPS}", "parts")
        return parts


def describe_filling(text: Text) -> dict[str, Any]:
    return {
        "gaps": list(text.fillings),
        "fit": text.fit,
        "log_probability": text.log_probability,
        "ended_by": text.ended_by,
        "num_actions": text.num_actions,
        "trajectory": to_record(text.trajectory, text=text.text),
        "log_probabilities": list(text.decoded.log_probabilities),
        "alternatives": [list(map(list, ranked)) for ranked in text.decoded.alternatives],
    }


def make_filling_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["reviser"])

    @routes.post("/v1/fillings", summary="Several ways to fill gaps, the best first")
    async def fill(body: FillingBody, client: Request) -> Response:
        parts, writer = body.given_parts(), service.writer
        for part in parts:
            check_given(service.config, parts=part)
        sampling, most = body.sampling(), service.config.max_texts
        best_of = body.best_of or usual_tries(parts[-1], sampling, body.n, service.config)
        count = body.n * best_of
        if count > most:
            allowed = f"at most {most} are allowed; ask for fewer, or raise --max-texts"
            raise RequestError(400, f"n times best_of is {count}, and {allowed}", "n")
        limits = GapLimits(body.max_tokens, body.min_length, body.max_length)
        if body.clip:
            parts = clip_parts(parts, writer.tokenizer, writer.config)
        asked = limits, body.n, best_of, body.max_actions, body.seed or 0, sampling, NUM_ALTERNATIVES
        texts = await service.answer(client, lambda writer: writer.fill(parts, *asked))
        return JSONResponse({"model": writer.name, "fillings": [describe_filling(text) for text in texts]})

    return routes
