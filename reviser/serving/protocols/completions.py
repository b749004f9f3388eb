"""OpenAI's protocol: POST /v1/completions and GET /v1/models."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field, StrictBool, StrictInt, StrictStr, field_validator
from starlette.responses import JSONResponse, Response

from reviser.canvas import apply_unchecked
from reviser.decoding.requests import Event
from reviser.decoding.writer import NUM_ALTERNATIVES, Text, Writer
from reviser.proofreading.edits import first_changed
from reviser.serving.event_stream import EventStream
from reviser.serving.failures import RequestError, explain_in_stream
from reviser.serving.protocols.stops import Stops
from reviser.serving.protocols.writing_job import (
    Body,
    Number,
    SamplingBody,
    Tail,
    WritingJob,
    check_neutral,
    gap_limit,
    iterate,
)
from reviser.serving.service import Service

PATH = "/v1/completions"


class StreamOptions(Body):
    include_usage: StrictBool = False


class CompletionBody(SamplingBody):
    """A text to continue or, with a suffix, a gap to fill."""

    model: StrictStr | None = None
    prompt: StrictStr | list[StrictStr] = ""
    suffix: StrictStr | None = Field(None, description="What follows the gap that is filled.")
    n: StrictInt = 1
    best_of: StrictInt | None = Field(None, description="Default: 4 for a gap, 1 for a continuation.")
    max_tokens: StrictInt | None = Field(None, description="Default: none for a continuation, 128 for a gap.")
    stop: StrictStr | list[StrictStr] | None = None
    logprobs: StrictInt | None = Field(None, ge=0, le=NUM_ALTERNATIVES)
    echo: StrictBool = False
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    user: StrictStr | None = Field(None, description="Accepted and not used.")
    frequency_penalty: Number | None = Field(None, description="Refused unless 0.")
    presence_penalty: Number | None = Field(None, description="Refused unless 0.")
    logit_bias: dict[str, float] | None = Field(None, description="Refused unless empty.")

    @field_validator("prompt", mode="before")
    @classmethod
    def _refuse_tokens(cls, given: Any) -> Any:
        if isinstance(given, list) and any(isinstance(each, int | list) for each in given):
            raise ValueError("token ids are not supported; give a text or a list of texts")
        return given

    def job(self, name: str) -> WritingJob:
        if self.model is not None and self.model != name:
            message = f"no model {self.model!r} here; this server has {name!r}"
            raise RequestError(404, message, "model", "model_not_found")
        check_neutral(self, frequency_penalty=0, presence_penalty=0, logit_bias={})
        if self.stream and (self.best_of or 1) > 1:
            raise RequestError(400, "best_of and stream do not go together; drop one", "best_of")
        return WritingJob(
            prompts=[self.prompt] if isinstance(self.prompt, str) else self.prompt,
            suffix=self.suffix,
            sampling=self.sampling(),
            seed=self.seed or 0,
            n=self.n,
            best_of=1 if self.best_of is None else self.best_of,
            max_tokens=gap_limit(self.max_tokens, self.suffix),
            max_actions=self.max_actions,
            stops=Stops.of(self.stop),
            has_alternatives=bool(self.logprobs),
        )


class Completion:
    """The answer to one request, whole or in parts."""

    def __init__(self, service: Service, body: CompletionBody) -> None:
        self.service, self.body = service, body
        job = body.job(service.writer.name)
        self.job = job.with_usual_tries(service.writer, service.config) if body.best_of is None else job
        self.job.check(service.config)
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": service.writer.name,
        }

    async def whole(self, client: Request) -> dict[str, Any]:
        groups = await self.service.answer(client, self.job.write)
        choices = [self._choice(index, text) for index, text in iterate(groups, self.job.n)]
        return {**self._head, "choices": choices, "usage": count_usage(groups)}

    def parts(self) -> AsyncIterator[dict[str, str]]:
        """The events of a stream; a request that is turned away is so now."""
        job, writer = self.job, self.service.writer
        if not job.is_append_only(writer):
            return self._send(self.service.stream(lambda served, _: job.write(served)), None)
        tail = Tail(job, job.draft(writer, job.prompts[0]), writer)
        return self._send(self.service.stream(job.follow), tail)

    async def _send(
        self, items: AsyncIterator[Event | list[list[Text]]], tail: Tail | None
    ) -> AsyncIterator[dict[str, str]]:
        if tail is not None and self.body.echo:
            yield self._part(0, self.job.prompts[0])
        try:
            async for item in items:
                if isinstance(item, Event):
                    more = tail.take(item) if tail is not None else ""
                    if more:
                        yield self._part(0, more)
                    continue
                for index, text in iterate(item, self.job.n):
                    choice = self._choice(index, text, tail)
                    yield self._event({"choices": [choice]})
                options = self.body.stream_options
                if options is not None and options.include_usage:
                    yield self._event({"choices": [], "usage": count_usage(item)})
                yield {"data": "[DONE]"}
        except Exception as error:
            yield {"data": json.dumps(explain_in_stream(PATH, error))}

    def _part(self, index: int, text: str) -> dict[str, str]:
        return self._event({"choices": [{"index": index, "text": text, "logprobs": None, "finish_reason": None}]})

    def _event(self, fields: dict[str, Any]) -> dict[str, str]:
        return {"data": json.dumps({**self._head, **fields}, ensure_ascii=False)}

    def _choice(self, index: int, text: Text, tail: Tail | None = None) -> dict[str, Any]:
        new, stop = self.job.stops.cut(text.new)
        is_ended = stop is not None or text.has_stopped
        prompt = self.job.prompts[index // self.job.n] if self.body.echo and tail is None else ""
        return {
            "index": index,
            "text": prompt + (new if tail is None else tail.rest(new)),
            "logprobs": self._logprobs(text, len(prompt), len(new)),
            "finish_reason": "stop" if is_ended else "length",
        }

    def _logprobs(self, text: Text, begin: int, size: int) -> dict[str, Any] | None:
        """OpenAI's arrays for the new tokens: the log-probability of the action that put each there."""
        most = self.body.logprobs
        if most is None:
            return None
        writer = self.service.writer
        tokens, origins = list_new(text)
        pieces = writer.tokenizer.pieces(tokens)
        found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        place = 0
        for piece, step in zip(pieces, origins, strict=True):
            if place >= size and place > 0:
                break
            found["tokens"].append(piece)
            found["token_logprobs"].append(None if step is None else text.decoded.log_probabilities[step])
            found["top_logprobs"].append(_list_best(text, step, most, writer) if most else None)
            found["text_offset"].append(begin + place)
            place += len(piece)
        return found


def list_new(text: Text) -> tuple[list[int], list[int | None]]:
    """The tokens of `Text.new`, and the number of the action that put each there (None: it was given)."""
    draft, canvas = text.draft, text.draft.canvas
    alphabet = draft.rules.alphabet
    origins: list[int | None] = [None] * len(draft.tokens)
    for step, action in enumerate(text.decoded.actions):
        before, canvas = canvas, apply_unchecked(canvas, action, alphabet)
        first = first_changed(before, action, alphabet)
        if first is not None:
            num_new = len(canvas.tokens) - (len(before.tokens) - before.cursor) - first
            origins = [*origins[:first], *[step] * num_new, *origins[before.cursor :]]
    new = slice(draft.prefix, len(canvas.tokens) - draft.suffix)
    return list(canvas.tokens[new]), origins[new]


def _list_best(text: Text, step: int | None, most: int, writer: Writer) -> dict[str, float]:
    """The most probable tokens at that step; actions that insert nothing are left out."""
    if step is None:
        return {}
    alphabet = text.draft.rules.alphabet
    ranked = [each for each in text.decoded.alternatives[step] if alphabet.is_insert(each[0])]
    return {writer.tokenizer.decode([action]): score for action, score in ranked[:most]}


def count_usage(groups: Sequence[Sequence[Text]]) -> dict[str, int]:
    given = sum(len(texts[0].draft.tokens) for texts in groups if texts)
    written = sum(text.num_tokens for texts in groups for text in texts)
    return {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written}


def make_openai_routes(service: Service) -> APIRouter:
    routes, created = APIRouter(tags=["OpenAI"]), int(time.time())

    @routes.post(PATH, summary="Continue a text, or fill the gap before a suffix")
    async def complete(body: CompletionBody, client: Request) -> Response:
        completion = Completion(service, body)
        if body.stream:
            return EventStream(completion.parts())
        return JSONResponse(await completion.whole(client))

    @routes.get("/v1/models", summary="The model of this server")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [describe()]}

    @routes.get("/v1/models/{name:path}", summary="The same, by its name")
    async def show_model(name: str) -> dict[str, Any]:
        if name != service.writer.name:
            message = f"no model {name!r} here; this server has {service.writer.name!r}"
            raise RequestError(404, message, "model", "model_not_found")
        return describe()

    def describe() -> dict[str, Any]:
        return {"id": service.writer.name, "object": "model", "created": created, "owned_by": "reviser"}

    return routes
