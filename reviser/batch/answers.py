"""What a model made of something, as fields of JSON: the same words in every command and file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reviser.proofreading.changes import to_records

if TYPE_CHECKING:
    from reviser.decoding.writer import Text
    from reviser.proofreading.proofread import Edited


def describe_text(text: Text, has_gaps: bool) -> dict[str, Any]:
    """A text that was continued, or whose gaps were filled."""
    return {
        "text": text.text,
        "new": text.new,
        **({"fillings": list(text.fillings), "fit": text.fit} if has_gaps else {}),
        "log_probability": text.log_probability,
        "has_stopped": text.has_stopped,
        "ended_by": text.ended_by,
        "num_actions": text.num_actions,
        "num_tokens": text.num_tokens,
    }


def describe_edited(edited: Edited, format: str) -> dict[str, Any]:
    """A text that was proofread."""
    return {"format": format, "text": edited.text, "edits": to_records(edited)}


def describe_score(scores: Sequence[float], num_bytes: int) -> dict[str, Any]:
    """How probable a text is, written from left to right, without its end.

    >>> describe_score([-1.0, -3.0], num_bytes=4)["nats_per_token"]
    2.0
    """
    total = math.fsum(scores)
    return {
        "log_probability": total,
        "num_tokens": len(scores),
        "num_bytes": num_bytes,
        "nats_per_token": -total / len(scores),
        "bits_per_byte": -total / math.log(2) / num_bytes,
    }
