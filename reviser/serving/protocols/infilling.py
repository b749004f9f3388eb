"""llama.cpp's protocol: POST /infill, which editors use to complete at the cursor."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field, StrictBool, StrictInt, StrictStr
from starlette.responses import JSONResponse, Response

from reviser.decoding.requests import Event
from reviser.decoding.writer import Text
from reviser.serving.event_stream import EventStream
from reviser.serving.failures import RequestError, explain_in_stream
from reviser.serving.protocols.stops import Stops
from reviser.serving.protocols.writing_job import SamplingBody, Tail, WritingJob, gap_limit
from reviser.serving.service import Service

PATH = "/infill"
IGNORED = ("input_extra", "samplers", "n_indent", "cache_prompt", "id_slot", "t_max_prompt_ms", "t_max_predict_ms",
           "response_fields", "n_keep", "n_probs")  # fmt: skip
"""What editors send and a small model has no use for; the answer names those that were given."""


class InfillBody(SamplingBody):
    """The text before the cursor and behind it."""

    input_prefix: StrictStr = ""
    input_suffix: StrictStr = ""
    prompt: StrictStr = Field("", description="More of the text before the cursor.")
    n_predict: StrictInt | None = Field(None, description="Tokens at most; -1 for as many as fit (default 64).")
    stop: StrictStr | list[StrictStr] | None = None
    stream: StrictBool = False
    input_extra: list[Any] | None = Field(None, description="Ignored, and named in the answer.")
    samplers: Any = None
    n_indent: Any = None
    cache_prompt: Any = None
    id_slot: Any = None
    t_max_prompt_ms: Any = None
    t_max_predict_ms: Any = None
    response_fields: Any = None
    n_keep: Any = None
    n_probs: Any = None

    def job(self) -> WritingJob:
        if self.n_predict is not None and self.n_predict != -1 and self.n_predict < 1:
            raise RequestError(400, f"n_predict={self.n_predict} must be -1 or at least 1", "n_predict")
        suffix = self.input_suffix or None
        return WritingJob(
            prompts=[self.input_prefix + self.prompt],
            suffix=suffix,
            sampling=self.sampling(),
            # llama.cpp's clients write -1 for any seed.
            seed=0 if self.seed is None or self.seed < 0 else self.seed,
            max_tokens=None if self.n_predict == -1 else gap_limit(self.n_predict, suffix),
            max_actions=self.max_actions,
            stops=Stops.of(self.stop),
        )

    @property
    def ignored(self) -> list[str]:
        return [name for name in IGNORED if getattr(self, name)]


class Infilling:
    """The answer to one request, whole or in parts."""

    def __init__(self, service: Service, body: InfillBody) -> None:
        self.service, self.body = service, body
        self.job = body.job().with_usual_tries(service.writer, service.config)
        self.job.check(service.config)

    async def whole(self, client: Request) -> dict[str, Any]:
        [[text]] = await self.service.answer(client, self.job.write)
        return self._describe(text, self.job.stops.cut(text.new)[0])

    def parts(self) -> AsyncIterator[dict[str, str]]:
        job, writer = self.job, self.service.writer
        tail = Tail(job, job.draft(writer, job.prompts[0]), writer)
        if job.is_append_only(writer):
            return self._send(self.service.stream(job.follow), tail)
        return self._send(self.service.stream(lambda served, _: job.write(served)), tail)

    async def _send(
        self, items: AsyncIterator[Event | list[list[Text]]], tail: Tail
    ) -> AsyncIterator[dict[str, str]]:
        try:
            async for item in items:
                if isinstance(item, Event):
                    if more := tail.take(item):
                        yield _event({"index": 0, "content": more, "stop": False})
                    continue
                [[text]] = item
                if rest := tail.rest(self.job.stops.cut(text.new)[0]):
                    yield _event({"index": 0, "content": rest, "stop": False})
                yield _event(self._describe(text, ""))
        except Exception as error:
            yield _event(explain_in_stream(PATH, error))

    def _describe(self, text: Text, content: str) -> dict[str, Any]:
        _, stop = self.job.stops.cut(text.new)
        kind = "word" if stop is not None else "eos" if text.has_stopped else "limit"
        return {
            "index": 0,
            "content": content,
            "stop": True,
            "stop_type": kind,
            "stopping_word": stop or "",
            "model": self.service.writer.name,
            "tokens_predicted": text.num_tokens,
            "tokens_evaluated": len(text.draft.tokens),
            "truncated": False,
            "has_new_line": "\n" in text.new,
            "ignored": self.body.ignored,
        }


def _event(fields: dict[str, Any]) -> dict[str, str]:
    return {"data": json.dumps(fields, ensure_ascii=False)}


def make_infill_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["llama.cpp"])

    @routes.post(PATH, summary="Fill the gap at the cursor")
    async def infill(body: InfillBody, client: Request) -> Response:
        infilling = Infilling(service, body)
        if body.stream:
            return EventStream(infilling.parts())
        return JSONResponse(await infilling.whole(client))

    return routes
