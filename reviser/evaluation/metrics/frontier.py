"""What revision costs: how far from the end systems insert, and how much less probable that makes what they write.

    at the end          evalPPL over that of a left-to-right model        1.0, by definition
    everywhere          evalPPL over that of a left-to-right model        the fewer wasted, the nearer to 1

Probabilities of texts are an evaluator's (`reviser eval evalppl`); bounds are the models' own (`reviser eval
likelihood`). A ratio of evalPPLs has the error of the prompts' own ratios where results hold what each prompt gave;
else, and for bounds, a ratio has that of both to first order, as if they were independent.

>>> ratio({"value": 30.0, "error": 3.0, "n": 9}, {"value": 20.0, "error": None, "n": 9})
{'value': 1.5, 'error': None, 'n': 9}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reviser.errors import DataError
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import difference
from reviser.evaluation.metrics.editing import measure

Row = Mapping[str, Any]


def frontier(
    generations: Sequence[Generation], against: str, evalppl: Sequence[Row], likelihood: Sequence[Row] = ()
) -> list[dict[str, Any]]:
    """A row for every system that edits, `against` first; what was not measured is None."""
    texts, bounds = ({row["system"]: row for row in rows} for rows in (evalppl, likelihood))
    editing = dict.fromkeys(each.system for each in generations if each.record is not None)
    for names, what in ((editing, "generations"), (texts, "evalPPL")):
        if against not in names:
            raise DataError(f"there are no {what} of system {against}; there are {', '.join(names) or 'none'}")
    systems = [against, *(name for name in editing if name != against)]
    for name in systems:
        _check_texts(name, generations, texts.get(name, {}))
    return [_row(name, against, measure(generations, name), texts, bounds) for name in systems]


def _check_texts(name: str, generations: Sequence[Generation], row: Row) -> None:
    """Prompts of continuations and gaps are called the same, so the texts' own size tells them apart."""
    own = [len(each.text.encode()) for each in generations if each.system == name]
    if row.get("texts") == len(own) and row.get("bytes") != sum(own):
        raise DataError(
            f"the evalPPL of system {name} is that of other texts ({row.get('bytes')} bytes; the generations have "
            f"{sum(own)}); score these with `reviser eval evalppl`"
        )


def _row(name: str, against: str, edits: Row, texts: Mapping[str, Row], bounds: Mapping[str, Row]) -> dict[str, Any]:
    own, other = texts.get(name, {}), texts[against]
    row = {
        "system": name,
        "not_at_end": edits["non_end_append_fraction"],
        "revised": edits["revised_fraction"],
        "turn_fraction": edits["turn_fraction"],
        "actions_per_token": edits["actions_per_token"],
        "actions_per_byte": edits["actions_per_byte"],
        "operations_per_byte": edits["operations_per_byte"],
        "perplexity": own.get("perplexity"),
        "perplexity_ratio": perplexity_ratio(own, None if name == against else other),
        "distinct_2": own.get("distinct_2"),
        "words": own.get("words"),
    }
    bound, base = _bound(bounds.get(name)), _bound(bounds.get(against))
    shown = None if name == against or base is None else base
    return row | {"bound": bound, "bound_ratio": ratio(bound, shown) if base else None}


def _bound(row: Row | None) -> dict[str, Any] | None:
    """Perplexity a token, with its error to first order."""
    if row is None:
        return None
    return {"value": row["perplexity"], "error": row["perplexity"] * row["error"], "n": row["n"]}


def perplexity_ratio(own: Row, other: Row | None) -> dict[str, Any] | None:
    """Of two rows of `reviser eval evalppl`; over itself (None) it is 1."""
    if other is not None and "by_prompt" in own and "by_prompt" in other:
        found = difference(*(row["by_prompt"]["nats_per_token"] for row in (own, other)))
        if found is None:
            return None
        value = math.exp(found.value)
        return {"value": value, "error": None if found.error is None else value * found.error, "n": found.n}
    if other is not None and other["perplexity"] is None:
        return None
    return ratio(own.get("perplexity"), other and other["perplexity"])


def ratio(top: Row | None, bottom: Row | None) -> dict[str, Any] | None:
    """One measure over another; over itself (None) it is 1 without an error."""
    if top is None:
        return None
    if bottom is None:
        return {"value": 1.0, "error": None, "n": top["n"]}
    value = top["value"] / bottom["value"]
    if top["error"] is None or bottom["error"] is None:
        return {"value": value, "error": None, "n": top["n"]}
    relative = math.hypot(top["error"] / top["value"], bottom["error"] / bottom["value"])
    return {"value": value, "error": value * relative, "n": top["n"]}
