"""GET /v1/jobs: what the loaded model can do, why it cannot do the rest, and what it is good and bad at.

>>> find_section("Trained.\\n\\n## What it is good and bad at\\n\\nGood at: prose\\nof any kind.\\n\\n## More")
'Good at: prose of any kind.'
"""

from __future__ import annotations

import re
from typing import Any

from fastapi import APIRouter

from reviser.config import parse_jobs
from reviser.decoding.writer import Writer
from reviser.proofreading.proofread import CHANGES
from reviser.serving.service import Service

SECTION = re.compile(r"^## [^\n]*good and bad[^\n]*\n+(.*?)(?=^## |\Z)", re.M | re.S | re.I)
SMALL = 500
"""Millions of parameters below which a model should be trusted with no facts."""


def find_section(notes: str) -> str:
    """What a model card says that the model is good and bad at, its first paragraph on one line; empty if nothing."""
    found = SECTION.search(notes)
    return " ".join(found[1].strip().split("\n\n")[0].split()) if found else ""


def describe_jobs(writer: Writer) -> dict[str, dict[str, Any]]:
    """Each job of the page: whether the model can do it and, where it cannot, why."""
    operators, trained = set(writer.config.operators), parse_jobs(writer.jobs)

    def learned(name: str) -> bool:
        # Where it is not known what a model was trained on, it may try.
        return not trained or trained.get(name, (0.0,))[0] > 0

    no_editing = ""
    if not operators & set(CHANGES):
        no_editing = f"{writer.name} cannot delete or replace words, so it cannot change a text that is there."
    elif not learned("edit"):
        no_editing = f"{writer.name} was not trained on corrections, so it would not find mistakes."
    no_filling = "" if learned("infill") else f"{writer.name} was not trained to fill gaps."
    in_turn = "" if writer.has_gaps else "Several gaps are filled one after the other, each without knowing the rest."
    return {
        "proofread": {"can": not no_editing, "why": no_editing},
        "fill": {"can": not no_filling, "why": no_filling, "note": in_turn},
        "continue": {"can": True, "why": ""},
        "revise": {"can": not no_editing, "why": no_editing},
    }


def describe_limits(writer: Writer) -> list[str]:
    """What holds for the model whatever its card says."""
    millions = round(sum(each.numel() for each in writer.model.parameters()) / 1e6)
    said = [f"It has {millions:,} million parameters and knows English only as well as its training text."]
    if millions < SMALL:
        said = [
            f"It is small ({millions:,} million parameters): it makes up names, years and facts. Check each of them.",
            "It was made for English prose. Other languages, code and sums go wrong.",
        ]
    return [*said, "It has had no training to be helpful or harmless: it may write what is false or offends."]


def make_job_routes(service: Service) -> APIRouter:
    routes, writer, config = APIRouter(tags=["reviser"]), service.writer, service.config

    @routes.get("/v1/jobs", summary="What the model can do, and what it is good and bad at")
    async def list_jobs() -> dict[str, Any]:
        return {
            "model": writer.name,
            "jobs": describe_jobs(writer),
            "card": find_section(writer.notes),
            "limits": describe_limits(writer),
            "is_warm": service.scheduler.num_actions > 0,
            "max_characters": config.max_characters,
            "max_tokens": min(writer.config.max_length, writer.config.context),
        }

    return routes
