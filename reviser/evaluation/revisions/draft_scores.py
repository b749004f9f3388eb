"""What evaluators make of drafts and of what they are compared with, text by text.

evalPPL is that of evalppl.py. A text is preferred to its draft if it costs the evaluator fewer bits per byte; a text
that is the draft again ties. Both are paired: prompt by prompt with the draft's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import difference, quotient
from reviser.evaluation.metrics.corrections import tell
from reviser.evaluation.metrics.evalppl import Score, score, summarise
from reviser.evaluation.metrics.win_rates import Share
from reviser.evaluation.texts import lay_out

KEPT = ("perplexity", "bits_per_byte", "perplexity_over_seeds", "empty")
DIVERSITY = ("distinct_1", "distinct_2", "pooled_distinct_2", "repeated_4", "words", "stopped")


def score_drafts(
    evaluator: Evaluator,
    generations: Sequence[Generation],
    draft: str,
    batch: int = 8,
    advance: Callable[[int], None] = lambda _: None,
) -> dict[str, dict[str, Any]]:
    """The numbers of each system, by name: evalPPL, nats beside the draft's, and how often it is preferred to it."""
    texts = lay_out(generations)
    scores = score(evaluator, texts, batch, advance=advance)
    by_key = {each.key: (each, one) for each, one in zip(texts, scores, strict=True)}
    rows = {row["system"]: row for row in summarise(generations, scores)}
    first = rows[draft]["by_prompt"]["nats_per_token"]
    found = {}
    for name, row in rows.items():
        own = [pair for pair in by_key.values() if pair[0].system == name]
        more = difference(row["by_prompt"]["nats_per_token"], first) if name != draft else None
        preferred = [] if name == draft else _compare(own, by_key, draft)
        found[name] = {key: row[key] for key in KEPT} | {
            "nats_more": tell(more),
            "preferred": _share(preferred),
            "preferred_changed": _share([each for each in preferred if each[2]]),
        }
    return found


Verdict = tuple[str, float, bool]
"""A prompt, points against its draft, and whether the text is another than the draft."""


def _compare(
    own: Sequence[tuple[Generation, Score]],
    by_key: dict[tuple[str, str, int], tuple[Generation, Score]],
    draft: str,
) -> list[Verdict]:
    verdicts = []
    for text, mine in own:
        if (draft, text.prompt_id, text.seed) not in by_key:
            continue
        other, its = by_key[draft, text.prompt_id, text.seed]
        if text.text == other.text or not (mine.num_bytes and its.num_bytes):
            points = 0.5 if bool(mine.num_bytes) == bool(its.num_bytes) else float(bool(mine.num_bytes))
        else:
            points = 0.5 if mine.bits_per_byte == its.bits_per_byte else float(mine.bits_per_byte < its.bits_per_byte)
        verdicts.append((text.prompt_id, points, text.text != other.text))
    return verdicts


def _share(verdicts: Sequence[Verdict]) -> dict[str, Any] | None:
    prompts: dict[str, list[float]] = {}
    for prompt, points, _ in verdicts:
        prompts.setdefault(prompt, []).append(points)
    share = Share.over(prompts)
    return None if share is None else asdict(share)


def count_changes(generations: Sequence[Generation], name: str, draft: str) -> dict[str, Any]:
    """Actions a text, and the share of texts that are not their draft."""
    drafts = {(each.prompt_id, each.seed): each.text for each in generations if each.system == draft}
    own = [each for each in generations if each.system == name]
    prompts = [each.prompt_id for each in own]
    changed = [float(each.text != drafts[each.prompt_id, each.seed]) for each in own]
    return {
        "texts": len(own),
        "actions": tell(quotient(prompts, [float(each.num_actions) for each in own])),
        "changed": tell(quotient(prompts, changed)) if name != draft else None,
    }
