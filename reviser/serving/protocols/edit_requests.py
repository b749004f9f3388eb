"""Our own protocol for editors: POST /v1/edits, what a model would correct, and other ways to correct a place.

Places count characters (code points), or UTF-16 units as JavaScript and Java do, as the client says.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field, StrictBool, StrictInt, StrictStr
from starlette.responses import JSONResponse, Response

from reviser.proofreading.choices import FORMATS, MIN_PROBABILITY
from reviser.proofreading.proofread import Edited, check_can_edit
from reviser.serving.failures import RequestError
from reviser.serving.protocols.annotated import Utf16
from reviser.serving.protocols.edit_rules import rule_of
from reviser.serving.protocols.writing_job import Body, Number, check_given
from reviser.serving.service import Service

MAX_WORDS = 1000


class PlacedBody(Body):
    """A text, and how places in it are counted."""

    text: StrictStr
    units: Literal["characters", "utf-16"] = Field("characters", description="What places count.")

    def places(self) -> Places:
        return Places(self.text, self.units == "utf-16")


class EditBody(PlacedBody):
    """A text to proofread, of any length."""

    format: StrictStr = Field("text", description=f"One of {', '.join(FORMATS)}.")
    words: list[StrictStr] = Field([], max_length=MAX_WORDS, description="Words that stay as they are.")
    min_probability: Number = Field(MIN_PROBABILITY, ge=0, le=1)
    reread: StrictBool = Field(True, description="Whether the model reads the text again with each edit.")
    spelling: StrictBool = Field(True, description="Whether words that are in no list are looked at; needs reread.")
    within: tuple[StrictInt, StrictInt] | None = Field(
        None, description="Only from here to there is proofread; what is around it is read with it."
    )


class WaysBody(PlacedBody):
    """A stretch of a text to correct in other ways."""

    start: StrictInt
    end: StrictInt
    n: StrictInt = Field(4, ge=1, le=12, description="Ways at most.")


class Places:
    """Places of a text as a client counts them."""

    def __init__(self, text: str, is_utf16: bool) -> None:
        self._size, self._units = len(text), Utf16(text) if is_utf16 else None

    def tell(self, place: int) -> int:
        """A place that counts characters, as the client counts."""
        return place if self._units is None else self._units.count(place)

    def read(self, name: str, place: int) -> int:
        """The same the other way; half of a character is refused."""
        size = self.tell(self._size)
        if not 0 <= place <= size:
            raise RequestError(400, f"{name}={place} is not in the text, which ends at {size}", name)
        found = place
        if self._units is not None:
            found = bisect_right(range(self._size + 1), place, key=self._units.count) - 1
        if self.tell(found) != place:
            raise RequestError(400, f"{name}={place} is inside of a character; give a place between two", name)
        return found


def describe_edits(edited: Edited, places: Places) -> list[dict[str, Any]]:
    return [
        {
            "start": places.tell(edit.start),
            "end": places.tell(edit.end),
            "before": edit.before,
            "after": edit.after,
            "probability": edit.probability,
            "rule": rule_of(edit).id,
            "message": rule_of(edit).description,
        }
        for edit in edited.edits
    ]


def make_edit_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["reviser"])

    def check(text: str) -> None:
        try:
            check_can_edit(service.writer.config, service.writer.name)
        except Exception as error:
            raise RequestError(501, str(error)) from None
        check_given(service.config, text=text)

    @routes.post("/v1/edits", summary="What a model would correct in a text")
    async def edit(body: EditBody, client: Request) -> Response:
        check(body.text)
        for word in body.words:
            check_given(service.config, words=word)
        places = body.places()
        within = body.within and (places.read("within", body.within[0]), places.read("within", body.within[1]))
        edited = Edited(body.text, ())
        if body.text.strip():
            edited = await service.answer(
                client,
                lambda writer: writer.edit(
                    body.text,
                    format=body.format,
                    min_probability=body.min_probability,
                    words=body.words,
                    reread=body.reread,
                    spelling=body.spelling,
                    within=within,
                ),
            )
        answer = {"model": service.writer.name, "text": edited.text, "edits": describe_edits(edited, places)}
        return JSONResponse(answer)

    @routes.post("/v1/edits/ways", summary="Other ways to correct a place")
    async def find_ways(body: WaysBody, client: Request) -> Response:
        check(body.text)
        places = body.places()
        start, end = places.read("start", body.start), places.read("end", body.end)
        found = await service.answer(client, lambda writer: writer.find_ways(body.text, start, end))
        ways = [{"after": edit.after, "probability": edit.probability} for edit in found[: body.n]]
        return JSONResponse({"model": service.writer.name, "ways": ways})

    return routes
