"""POST /v1/replays: trajectories as the page that replays them (viewer/replay_page.py), which needs nothing else."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field, StrictFloat, StrictInt, StrictStr
from starlette.responses import HTMLResponse, Response

from reviser.orders.record import from_record
from reviser.serving.failures import RequestError
from reviser.serving.protocols.writing_job import Body
from reviser.serving.service import Service
from reviser.viewer.replay_page import Example, page

MAX_ACTIONS = 10_000
"""In all runs of a page; replaying more would keep others waiting."""
Score = StrictFloat | StrictInt


class ReplayedRun(Body):
    """A trajectory as events or fillings brought it, and how probable its actions were."""

    trajectory: dict[str, Any]
    title: StrictStr = ""
    log_probabilities: list[Score] | None = None
    alternatives: list[list[tuple[StrictInt, Score]]] | None = Field(
        None, description="Of each action, the best with their log-probabilities."
    )


class ReplayBody(Body):
    title: StrictStr = "A text being written"
    runs: list[ReplayedRun] = Field(min_length=1)


def make_example(run: ReplayedRun) -> Example:
    scores = None if run.log_probabilities is None else tuple(map(float, run.log_probabilities))
    ranked = None
    if run.alternatives is not None:
        ranked = tuple(tuple((action, float(score)) for action, score in each) for each in run.alternatives)
    return Example(from_record(run.trajectory), run.title, scores, ranked)


def count_actions(run: ReplayedRun) -> int:
    fields = [run.trajectory.get(name) for name in ("draft_actions", "seed_actions", "actions")]
    return sum(len(each) for each in fields if isinstance(each, list))


def make_replay_routes(service: Service) -> APIRouter:
    routes = APIRouter(tags=["reviser"])

    # Not async: it runs in a thread of its own and keeps nobody waiting.
    @routes.post("/v1/replays", summary="Trajectories as a page that replays them")
    def replay(body: ReplayBody) -> Response:
        count = sum(map(count_actions, body.runs))
        if count > MAX_ACTIONS:
            raise RequestError(
                413, f"{count} actions; a page holds at most {MAX_ACTIONS}, so send fewer runs", "runs"
            )
        return HTMLResponse(page(list(map(make_example, body.runs)), service.writer.tokenizer, body.title))

    return routes
