"""How well systems fill gaps, by numbers that no filling can flatter.

    prefix | middle | suffix    middle   bits per byte of the true middle, to the system itself (middles.py)
                                suffix   bits per byte of the suffix after the filling, to a separate causal model
                                exact    share of gaps of one to three words that a greedy filling guesses
                                lengths  characters of a filling over those of the original

Bits are over the same bytes for all systems, so writing more or blander text gains nothing. Two rows stand beside the
systems: the reference, and nothing at all in the gap. A filling after which the suffix costs more than after nothing
leads elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from reviser.errors import ConfigError, DataError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.gap_kinds import GAP_KINDS, SHORT_GAP, count_gap_words
from reviser.evaluation.generations import Generation, Prompt
from reviser.evaluation.measures import Sums, difference, quotient, sum_up
from reviser.evaluation.metrics.evalppl import Advance, bit_parts, score
from reviser.evaluation.middles import Middles
from reviser.evaluation.texts import REFERENCE, by_system, prompts_of

NOTHING = "(nothing)"
MIDDLE, ENDED = "middle_bits_per_byte", "ended_middle_bits_per_byte"
SUFFIX, EXACT, WITHIN = "suffix_bits_per_byte", "exact_match", "within_half_and_twice"
QUANTILES = (("10%", 0.1), ("25%", 0.25), ("50%", 0.5), ("75%", 0.75), ("90%", 0.9))
Numbers = Mapping[str, Sums]
"""Of a system: each measure's sums by prompt, of which it is the quotient."""


def lay_out_gaps(generations: Sequence[Generation]) -> dict[str, list[Generation]]:
    """Each system's generations with a suffix, the references and empty gaps among them."""
    if any(not each.suffix for each in generations):
        raise DataError("some generations have no suffix; gaps are scored on what `reviser eval infill` wrote")
    systems = by_system(generations)
    empty = [replace(each, system=NOTHING, text="", seed=0, record=None) for each in prompts_of(generations).values()]
    return systems | {NOTHING: empty}


def gap_prompts(generations: Sequence[Generation]) -> list[Prompt]:
    """The gaps that were filled."""
    return [
        Prompt(each.prompt_id, each.prefix, each.reference, each.suffix, each.kind)
        for each in prompts_of(generations).values()
    ]


def is_short(gap: Prompt | Generation) -> bool:
    """Whether a gap is of one to three words, so that it can be guessed."""
    return 1 <= count_gap_words(gap.reference) <= SHORT_GAP


def after_filling(generation: Generation) -> Generation:
    """The suffix as the text to be scored, with all before it as its prefix."""
    return replace(generation, prefix=generation.prefix + generation.text, text=generation.suffix, suffix="")


def measure_gaps(
    evaluator: Evaluator,
    generations: Sequence[Generation],
    batch: int = 8,
    advance: Advance = lambda _: None,
    middles: Mapping[str, Middles] | None = None,
    greedy: Mapping[str, Sequence[Generation]] | None = None,
) -> list[dict[str, Any]]:
    """A row a system; `middles` and `greedy` hold what systems say of the true middles and what they guess."""
    if evaluator.kind != "causal":
        raise ConfigError(f"evaluator {evaluator.name} is {evaluator.kind}; gaps are scored by a causal one")
    middles, greedy, systems = middles or {}, greedy or {}, lay_out_gaps(generations)
    kinds = {each.prompt_id: each.kind for each in generations}
    numbers: dict[str, dict[str, Sums]] = {}
    for name, own in systems.items():
        scores = score(evaluator, [after_filling(each) for each in own], batch, advance=advance)
        scored = [pair for pair in zip(own, scores, strict=True) if pair[1].num_tokens]
        numbers[name] = {SUFFIX: sum_up(*bit_parts(scored)), WITHIN: _within(own)}
        if name in middles:
            numbers[name] |= {MIDDLE: _listed(middles[name].bits), ENDED: _listed(middles[name].ended)}
        if name in greedy:
            numbers[name][EXACT] = exact_matches(greedy[name])
    first = next((name for name in systems if name not in (REFERENCE, NOTHING)), None)
    rows = []
    for name, own in systems.items():
        base = numbers[first] if first is not None and first != name else {}
        row = {"system": name, "texts": len(own), "empty": sum(not each.text for each in own)}
        row |= _measures(numbers[name], base, numbers[NOTHING], own)
        if name in middles:
            row["middle"] = middles[name].about
        if name in greedy:
            row["greedy"] = {each.prompt_id: each.text for each in greedy[name]}
        row["by_kind"] = _by_kind(kinds, numbers[name], base, numbers[NOTHING], own)
        rows.append(row | {"by_prompt": numbers[name]})
    return rows


def _listed(bits: Mapping[str, tuple[float, float]]) -> Sums:
    return {prompt: list(pair) for prompt, pair in bits.items()}


def _by_kind(
    kinds: Mapping[str, str], numbers: Numbers, base: Numbers, empty: Numbers, own: Sequence[Generation]
) -> dict[str, Any]:
    """The same measures over the gaps of each kind; nothing where kinds are not known."""
    found = {}
    for kind in [each for each in GAP_KINDS if each in kinds.values()]:
        mine, first, none = (_only(each, kinds, kind) for each in (numbers, base, empty))
        texts = [each for each in own if each.kind == kind]
        found[kind] = {"texts": len(texts)} | _measures(mine, first, none, texts)
    return found


def _only(numbers: Numbers, kinds: Mapping[str, str], kind: str) -> Numbers:
    """What the gaps of one kind give."""
    return {key: {id: pair for id, pair in sums.items() if kinds[id] == kind} for key, sums in numbers.items()}


def _measures(numbers: Numbers, base: Numbers, empty: Numbers, own: Sequence[Generation]) -> dict[str, Any]:
    """Each measure with its error, and how far it is from the first system's and from an empty gap's."""
    row: dict[str, Any] = {}
    for key in (MIDDLE, ENDED, SUFFIX, EXACT, WITHIN):
        row[key] = _measure(numbers.get(key, {}))
    row["length_quantiles"] = length_quantiles(own)
    row["more_than_first"] = {
        key: asdict(found)
        for key, sums in numbers.items()
        if key in base and (found := difference(sums, base[key])) is not None
    }
    more = difference(numbers[SUFFIX], empty[SUFFIX])
    return row | {"suffix_more_than_nothing": asdict(more) if more else None}


def _measure(sums: Sums) -> dict[str, Any] | None:
    if not sums:
        return None
    tops, bottoms = zip(*sums.values(), strict=True)
    found = quotient(list(sums), tops, bottoms)
    return asdict(found) if found else None


def exact_matches(greedy: Sequence[Generation]) -> Sums:
    """Of each short gap, whether it was guessed; space around a filling does not count."""
    short = [each for each in greedy if is_short(each)]
    hits = [float(each.text.strip() == each.reference.strip()) for each in short]
    return sum_up([each.prompt_id for each in short], hits, [1.0] * len(short))


def _within(own: Sequence[Generation]) -> Sums:
    """Of each prompt, how many fillings are at least half and at most twice as long as the original."""
    known = [each for each in own if each.reference]
    hits = [float(len(each.reference) <= 2 * len(each.text) <= 4 * len(each.reference)) for each in known]
    return sum_up([each.prompt_id for each in known], hits, [1.0] * len(known))


def length_quantiles(own: Sequence[Generation]) -> dict[str, float] | None:
    """How long gaps are beside the originals'; 50% is the median.

    >>> texts = [Generation("a", str(i), 0, "", "x" * i, "", "xxxx", True, 1, 1) for i in (0, 2, 4, 6, 8)]
    >>> length_quantiles(texts)
    {'10%': 0.2, '25%': 0.5, '50%': 1.0, '75%': 1.5, '90%': 1.8}
    """
    ratios = [len(each.text) / len(each.reference) for each in own if each.reference]
    if not ratios:
        return None
    found = np.quantile(ratios, [part for _, part in QUANTILES])
    return {name: round(float(value), 6) for (name, _), value in zip(QUANTILES, found, strict=True)}
