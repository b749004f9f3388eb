"""Our own protocol: POST /v1/trajectories sends every action as it is chosen, as server-sent events.

event: draft     what is on the canvas before the first action
event: action    one action, its probability and the alternatives
event: done      the text, and the trajectory as a trajectory file keeps it
event: error     what ended it instead
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from pydantic import Field, StrictBool, StrictInt, StrictStr
from starlette.responses import Response

from reviser.canvas import Canvas, Rules
from reviser.decoding.gap_filling import GapLimits
from reviser.decoding.presets import SCAN, Sampling
from reviser.decoding.requests import Event, check_room
from reviser.decoding.writer import Text, Writer
from reviser.orders.record import Draft, Trajectory, to_record
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.proofread import check_can_edit
from reviser.proofreading.rereading import scan_for
from reviser.proofreading.spans.formats import find_protected
from reviser.proofreading.windows import make_draft
from reviser.serving.event_stream import EventStream
from reviser.serving.failures import RequestError, explain_in_stream
from reviser.serving.protocols.clipping import clip_parts
from reviser.serving.protocols.writing_job import SamplingBody, check_given, gap_limit
from reviser.serving.served_writer import ServedWriter, TellEvent
from reviser.serving.service import Service
from reviser.tokenizer import Tokenizer

PATH = "/v1/trajectories"


class TrajectoryBody(SamplingBody):
    """One of: a prompt to continue; a prefix and a suffix with a gap between them; a text to edit, perhaps between a
    prefix and a suffix that stay."""

    prompt: StrictStr | None = None
    prefix: StrictStr | None = None
    suffix: StrictStr | None = None
    text: StrictStr | None = Field(None, description="A text to edit, short enough for the model's canvas.")
    words: list[StrictStr] | None = Field(
        None, description="For a text to edit: words that stay, and so do line ends and addresses."
    )
    max_tokens: StrictInt | None = Field(None, description="Default: none for a continuation, 128 for a gap.")
    number: StrictInt = Field(0, ge=0, description="Which of the texts of this seed.")
    canvas: StrictBool = Field(
        False, description="Whether each action comes with the text after it and the cursor's place there."
    )
    clip: StrictBool = Field(False, description="Whether a text that is too long is cut at its far ends, or refused.")

    def around(self, writer: Writer) -> tuple[str, str]:
        """What stays before and behind that which is written or edited, as much of it as is read."""
        given = [name for name in ("prompt", "prefix", "suffix", "text") if getattr(self, name) is not None]
        if not given or ("prompt" in given and given != ["prompt"]):
            raise RequestError(400, "give one of: prompt; prefix and suffix; text")
        before, behind = (self.prompt or self.prefix or "", self.suffix or "")
        if not self.clip:
            return before, behind
        parts = clip_parts([before, self.text or "", behind], writer.tokenizer, writer.config)
        return parts[0], parts[-1]

    def draft(self, writer: Writer, around: tuple[str, str]) -> Draft:
        if self.text is not None:
            return self._edit(writer, self.text, *around)
        if self.prompt is not None:
            return writer.continuation(around[0], self.max_tokens)
        return writer.gaps(around, GapLimits(gap_limit(self.max_tokens, "gap")))

    def _edit(self, writer: Writer, text: str, left: str, right: str) -> Draft:
        config = writer.config
        check_can_edit(config, writer.name)
        rules = Rules(config.alphabet, frozenset(config.operators), max_length=config.max_length)
        protected = [] if self.words is None else find_protected(text, "text", self.words)
        draft = make_draft(left, text, right, protected, writer.tokenizer, rules)
        if draft is None:
            raise RequestError(400, "all of the text is protected; leave some of it open", "text")
        return draft

    def chosen_sampling(self) -> Sampling:
        if self.text is None:
            return self.sampling()
        return self.sampling(replace(SCAN, scan=scan_for(Proofreading(reread=False))))


class ActionNames:
    """Actions as JSON, each spelled once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._alphabet = tokenizer, tokenizer.alphabet
        self._known: dict[int, str] = {}

    def spell(self, action: int, score: float) -> str:
        """The fields of an action and its probability, without braces."""
        name = self._known.get(action)
        if name is None:
            name = self._known[action] = _dump(self._describe(action))[1:-1]
        return f'{name}, "probability": {math.exp(score)!r}, "log_probability": {score!r}'

    def _describe(self, action: int) -> dict[str, Any]:
        if self._alphabet.is_insert(action):
            return {"id": action, "action": "INSERT", "piece": self._tokenizer.decode([action])}
        return {"id": action, "action": self._alphabet.name(action)}


class Watching:
    """The events of one request."""

    def __init__(self, service: Service, body: TrajectoryBody, names: ActionNames) -> None:
        self.service, self.body, self.sampling = service, body, body.chosen_sampling()
        texts = {name: getattr(body, name) or "" for name in ("prompt", "prefix", "suffix", "text")}
        check_given(service.config, **texts)
        self.around = body.around(service.writer)
        self.draft = body.draft(service.writer, self.around)
        check_room(self.draft, service.writer.config, body.max_actions)
        self._tokenizer, self._names = service.writer.tokenizer, names

    def events(self) -> AsyncIterator[dict[str, str]]:
        return self._send(self.service.stream(self._work))

    def _work(self, writer: ServedWriter, tell: TellEvent) -> Text:
        body = self.body
        return writer.follow(self.draft, tell, body.max_actions, body.seed or 0, self.sampling, body.number)

    async def _send(self, items: AsyncIterator[Event | Text]) -> AsyncIterator[dict[str, str]]:
        yield _event("draft", self._describe_draft())
        try:
            async for item in items:
                if isinstance(item, Event):
                    yield {"event": "action", "data": self._describe_action(item)}
                else:
                    yield _event("done", self._describe_end(item))
        except Exception as error:
            yield _event("error", explain_in_stream(PATH, error))

    def _describe_draft(self) -> dict[str, Any]:
        draft = self.draft
        return {
            "model": self.service.writer.name,
            "text": self._tokenizer.decode(draft.tokens),
            "tokens": list(draft.tokens),
            "pieces": self._tokenizer.pieces(draft.tokens),
            "cursor": draft.cursor,
            "marks": list(draft.marks),
            "around": [_count_units(part) for part in self.around],
            **(self._place(draft.canvas) if self.body.canvas else {}),
            "trajectory": to_record(Trajectory(draft, (), ())),
        }

    def _place(self, canvas: Canvas) -> dict[str, Any]:
        """Where the cursor stands in the text, in UTF-16 units."""
        return {"at": _count_units(self._tokenizer.decode(canvas.tokens[: canvas.cursor]))}

    def _describe_action(self, event: Event) -> str:
        """The JSON of an action. There is one for every action of every stream, so it is put together from parts."""
        spell, more = self._names.spell, ""
        alternatives = ", ".join(f"{{{spell(*each)}}}" for each in event.alternatives)
        if self.body.canvas:
            fields = {"text": self._tokenizer.decode(event.canvas.tokens), **self._place(event.canvas)}
            more = f", {_dump(fields)[1:-1]}"
        return (
            f'{{"step": {event.step}, {spell(event.action, event.log_probability)}, '
            f'"cursor": {event.canvas.cursor}, "alternatives": [{alternatives}]{more}}}'
        )

    def _describe_end(self, text: Text) -> dict[str, Any]:
        return {
            "text": text.text,
            "new": text.new,
            "ended_by": text.ended_by,
            "num_actions": text.num_actions,
            "num_tokens": text.num_tokens,
            "log_probability": text.log_probability,
            "trajectory": to_record(text.trajectory, text=text.text),
        }


def _count_units(text: str) -> int:
    """UTF-16 units, in which JavaScript counts."""
    return len(text.encode("utf-16-le", "replace")) // 2


def _event(kind: str, fields: dict[str, Any]) -> dict[str, str]:
    return {"event": kind, "data": _dump(fields)}


def _dump(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False)


def make_trajectory_routes(service: Service) -> APIRouter:
    routes, names = APIRouter(tags=["reviser"]), ActionNames(service.writer.tokenizer)

    @routes.post(PATH, summary="Watch a model write or edit, action by action")
    async def watch(body: TrajectoryBody) -> Response:
        return EventStream(Watching(service, body, names).events())

    return routes
