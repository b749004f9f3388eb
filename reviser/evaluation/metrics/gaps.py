"""How well systems fill gaps: what a separate causal model thinks of the text with the gap filled.

    prefix | text | suffix      gap     bits per byte of the text after the prefix
                                suffix  bits per byte of the suffix after both: does the text lead there?
                                whole   both together, after the prefix

Two rows stand beside the systems: the reference, a ceiling, and nothing at all in the gap. A left-to-right model that
never saw the suffix writes plausible gaps that lead elsewhere: that is what `suffix` shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from reviser.errors import ConfigError, DataError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import quotient, sum_up
from reviser.evaluation.metrics.evalppl import Advance, Score, bit_parts, bits_per_byte, score
from reviser.evaluation.texts import by_system, prompts_of

NOTHING = "(nothing)"
VIEWS = ("whole", "suffix", "gap")
QUANTILES = (("10%", 0.1), ("50%", 0.5), ("90%", 0.9))


def lay_out_gaps(generations: Sequence[Generation]) -> dict[str, list[Generation]]:
    """Each system's generations with a suffix, the references and empty gaps among them."""
    if any(not each.suffix for each in generations):
        raise DataError("some generations have no suffix; gaps are scored on what `reviser eval infill` wrote")
    systems = by_system(generations)
    empty = [replace(each, system=NOTHING, text="", seed=0, record=None) for each in prompts_of(generations).values()]
    return systems | {NOTHING: empty}


def view(generation: Generation, name: str) -> Generation:
    """A generation whose text is what is to be scored, with all before it as its prefix."""
    if name == "whole":
        return replace(generation, text=generation.text + generation.suffix, suffix="")
    if name == "suffix":
        return replace(generation, prefix=generation.prefix + generation.text, text=generation.suffix, suffix="")
    return replace(generation, suffix="")


def measure_gaps(
    evaluator: Evaluator, generations: Sequence[Generation], batch: int = 8, advance: Advance = lambda _: None
) -> list[dict[str, Any]]:
    """A row a system."""
    if evaluator.kind != "causal":
        raise ConfigError(f"evaluator {evaluator.name} is {evaluator.kind}; gaps are scored by a causal one")
    rows = []
    for name, own in lay_out_gaps(generations).items():
        scores = {each: score(evaluator, [view(one, each) for one in own], batch, advance=advance) for each in VIEWS}
        rows.append(_row(name, own, scores))
    return rows


def _row(name: str, own: Sequence[Generation], scores: dict[str, list[Score]]) -> dict[str, Any]:
    row: dict[str, Any] = {"system": name, "texts": len(own), "empty": sum(not each.text for each in own)}
    row["by_prompt"] = {}
    for key, values in scores.items():
        pairs = [pair for pair in zip(own, values, strict=True) if pair[1].num_tokens]
        found = bits_per_byte(pairs) if pairs else None
        row[f"{key}_bits_per_byte"] = asdict(found) if found else None
        row["by_prompt"][f"{key}_bits_per_byte"] = sum_up(*bit_parts(pairs))
    ids = [each.prompt_id for each in own]
    longer = quotient(ids, [float(len(each.text)) for each in own], [float(len(each.reference)) for each in own])
    row["length_over_reference"] = asdict(longer) if longer else None
    return row | {"length_quantiles": length_quantiles(own)}


def length_quantiles(own: Sequence[Generation]) -> dict[str, float] | None:
    """How long gaps are beside the originals': all together they may be right, and hardly one of them.

    >>> texts = [Generation("a", str(i), 0, "", "x" * i, "", "xxxx", True, 1, 1) for i in (0, 2, 4, 6, 8)]
    >>> length_quantiles(texts)
    {'10%': 0.2, '50%': 1.0, '90%': 1.8}
    """
    ratios = [len(each.text) / len(each.reference) for each in own if each.reference]
    if not ratios:
        return None
    found = np.quantile(ratios, [part for _, part in QUANTILES])
    return {name: round(float(value), 6) for (name, _), value in zip(QUANTILES, found, strict=True)}
