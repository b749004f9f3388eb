"""Texts of which one span is the model's own, so that each part of revising can be measured alone.

A gap of a document is filled by the model, sampled as users sample; the document's own words are the truth. Revising
has three parts, and each is replaced by the truth in turn:

    row              finds the span    writes it anew      stops
    filled           nobody            nobody              at once
    revised          the model         the model           the model, by its threshold
    span given       the truth         the model           the model, whatever it proposes there
    span refilled    the truth         the model, afresh   -
    words given      the model         the truth           the model, by its threshold
    stopping given   the model         the model           keeps what an evaluator finds better
    original         the truth         the truth           the truth

What is found is told apart from chance: the span's share of the text's characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from reviser.decoding.presets import SCAN
from reviser.decoding.writer import Writer
from reviser.evaluation.correction.words import split_words
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.generations import Generation, Prompt
from reviser.evaluation.measures import Measure
from reviser.evaluation.metrics.corrections import Corrected, measure_clean, tell
from reviser.evaluation.metrics.evalppl import bits_per_byte, score
from reviser.evaluation.systems import ReviserSystem
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.edits import Edit, apply_edits
from reviser.proofreading.proofread import Span
from reviser.proofreading.rereading import scan_for

LEVELS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""How probable a change must be for a model to propose it, from strict to lax."""
FILLED, REVISED, GIVEN, REFILLED = "filled", "revised", "span given", "span refilled"
WORDED, STOPPED, ORIGINAL = "words given", "stopping given", "original"


@dataclass(frozen=True, slots=True)
class KnownSpan:
    """A text with a span by the model, and the same text as it was."""

    prompt: Prompt
    filling: str

    @property
    def text(self) -> str:
        return self.prompt.prefix + self.filling + self.prompt.suffix

    @property
    def original(self) -> str:
        return self.prompt.prefix + self.prompt.reference + self.prompt.suffix

    @property
    def span(self) -> Span:
        return len(self.prompt.prefix), len(self.prompt.prefix) + len(self.filling)

    @property
    def around(self) -> list[Span]:
        """All but the span."""
        return [(0, self.span[0]), (self.span[1], len(self.text))]

    def has(self, edit: Edit) -> bool:
        """Whether an edit changes something of the span."""
        return edit.start < self.span[1] and edit.end > self.span[0]

    def restore(self, edits: Sequence[Edit]) -> str:
        """The text after some edits, with the original words in the span if one of them changes it."""
        others = [edit for edit in edits if not self.has(edit)]
        if len(others) == len(edits):
            return apply_edits(self.text, edits)
        start, end = self.span
        mended = Edit(start, end, self.filling, self.prompt.reference, 1.0)
        return apply_edits(self.text, sorted([*others, mended], key=lambda edit: edit.start))


@dataclass(frozen=True, slots=True)
class Tried:
    """What a model made of texts with known spans."""

    texts: list[KnownSpan]
    proposed: list[tuple[Edit, ...]]
    """In one pass, at the first level at which there is something to propose."""
    rows: dict[str, list[str]]
    """The texts that each row ends with."""
    kept: list[tuple[Edit, ...]]
    """Those of `revised`."""
    left: list[str]
    """What became of the originals."""


def fill_known(system: ReviserSystem, prompts: Sequence[Prompt], seed: int) -> list[KnownSpan]:
    """Gaps as the system fills them; those that it leaves empty or fills as they were are left out."""
    made = system.generate(prompts, seed)
    known = [KnownSpan(prompt, each.text) for prompt, each in zip(prompts, made, strict=True)]
    return [each for each in known if each.filling.strip() and each.filling != each.prompt.reference]


def try_known(writer: Writer, texts: Sequence[KnownSpan], how: Proofreading, seed: int = 0) -> Tried:
    """Every row but that which needs an evaluator."""
    open_how = replace(how, min_probability=0.0, passes=1)
    drafted, closed = [each.text for each in texts], [each.around for each in texts]
    proposed = _press(writer, drafted, open_how)
    kept = _revise(writer, drafted, how)
    inside = _press(writer, drafted, open_how, closed)
    originals = [each.original for each in texts]
    left = _revise(writer, originals, how)
    rows = {
        FILLED: drafted,
        REVISED: [apply_edits(text, edits) for text, edits in zip(drafted, kept, strict=True)],
        GIVEN: [apply_edits(text, edits) for text, edits in zip(drafted, inside, strict=True)],
        REFILLED: [_refill(writer, each, seed) for each in texts],
        WORDED: [each.restore(edits) for each, edits in zip(texts, kept, strict=True)],
        ORIGINAL: originals,
    }
    again = [apply_edits(text, edits) for text, edits in zip(originals, left, strict=True)]
    return Tried(list(texts), proposed, rows, kept, again)


def _press(
    writer: Writer, texts: Sequence[str], how: Proofreading, closed: Sequence[Sequence[Span]] = ()
) -> list[tuple[Edit, ...]]:
    """What a model would change first: one that scans is asked at one level after another, until it proposes
    something; one that reads proposes the best filling of every place."""
    found: list[tuple[Edit, ...]] = [()] * len(texts)
    for level in LEVELS if how.by == "scan" else LEVELS[:1]:
        left = [place for place, edits in enumerate(found) if not edits]
        spans = [closed[place] for place in left] if closed else ()
        for place, edits in zip(left, _revise(writer, [texts[i] for i in left], how, spans, level), strict=True):
            found[place] = edits
    return found


def _revise(
    writer: Writer,
    texts: Sequence[str],
    how: Proofreading,
    closed: Sequence[Sequence[Span]] = (),
    level: float | None = None,
) -> list[tuple[Edit, ...]]:
    scan = replace(SCAN, scan=level or scan_for(how))
    propose = partial(writer.propose, sampling=scan, max_actions=how.max_actions)
    return [each.edits for each in writer.editor(how, propose)(texts, closed=closed)]


def _refill(writer: Writer, known: KnownSpan, seed: int, best_of: int = 4) -> str:
    """The span filled again, the best of a few by how well what follows fits."""
    [text] = writer.infill(known.prompt.prefix, known.prompt.suffix, best_of=best_of, seed=seed)
    return text.text


def keep_better(evaluator: Evaluator, tried: Tried, batch: int = 8) -> list[str]:
    """Of the proposed edits, those with which an evaluator finds a text more probable, each tried alone."""
    single = [(place, edit) for place, edits in enumerate(tried.proposed) for edit in edits]
    texts = [each.text for each in tried.texts]
    tries = [*texts, *(apply_edits(texts[place], [edit]) for place, edit in single)]
    bits = [each.bits_per_byte if each.num_bytes else 0.0 for each in _score(evaluator, tries, batch)]
    better: list[list[Edit]] = [[] for _ in texts]
    for (place, edit), after in zip(single, bits[len(texts) :], strict=True):
        if after < bits[place]:
            better[place].append(edit)
    return [apply_edits(text, edits) for text, edits in zip(texts, better, strict=True)]


def _score(evaluator: Evaluator, texts: Sequence[str], batch: int) -> list[Any]:
    return score(evaluator, [_generation("", number, text) for number, text in enumerate(texts)], batch)


def _generation(system: str, number: int, text: str) -> Generation:
    return Generation(system, str(number), 0, "", text, "", "", True, 0, 0)


def measure_known(tried: Tried, evaluators: Sequence[Evaluator], batch: int = 8) -> list[dict[str, Any]]:
    """A row for each way of revising: word edits beside the truth, and bits per byte of the whole text."""
    rows = dict(tried.rows)
    if evaluators and any(tried.proposed):
        rows[STOPPED] = keep_better(evaluators[0], tried, batch)
        rows[ORIGINAL] = rows.pop(ORIGINAL)
    sources = [split_words(each.text) for each in tried.texts]
    truths = [[split_words(each.original)] for each in tried.texts]
    told = []
    for name, texts in rows.items():
        found = Corrected(sources, [split_words(text) for text in texts], truths)
        row: dict[str, Any] = {"part": "spans", "system": name, "texts": len(texts)}
        row |= {key: tell(found.estimate(key).measure()) for key in ("precision", "recall", "f_half")}
        changed = [float(text != each.text) for text, each in zip(texts, tried.texts, strict=True)]
        row["changed"] = tell(Measure.of(changed))
        row["evaluators"] = {each.name: {"bits_per_byte": _bits(each, name, texts, batch)} for each in evaluators}
        told.append(row)
    return told


def _bits(evaluator: Evaluator, name: str, texts: Sequence[str], batch: int) -> dict[str, Any] | None:
    made = [_generation(name, number, text) for number, text in enumerate(texts)]
    scored = score(evaluator, made, batch)
    pairs = [pair for pair in zip(made, scored, strict=True) if pair[1].num_tokens]
    found = bits_per_byte(pairs)
    return None if found is None else asdict(found)


def measure_parts(tried: Tried) -> dict[str, Any]:
    """Finding and stopping as shares of texts, with what chance would find."""
    texts, proposed, kept = tried.texts, tried.proposed, tried.kept
    both = list(zip(texts, proposed, kept, strict=True))
    # The most probable proposal of each text that has one.
    tops = [(known, max(own, key=lambda edit: edit.probability)) for known, own, _ in both if own]
    chances = [len(known.filling) / len(known.text) for known, _ in tops]
    clean = measure_clean([each.original for each in texts], tried.left)
    return {
        "texts": len(texts),
        "proposed": tell(Measure.of([float(bool(own)) for _, own, _ in both])),
        "span_proposed": tell(Measure.of([float(any(map(known.has, own))) for known, own, _ in both])),
        "span_found": tell(Measure.of([float(any(map(known.has, own))) for known, _, own in both])),
        "first_in_span": tell(Measure.of([float(known.has(top)) for known, top in tops])) if tops else None,
        "chance": tell(Measure.of(chances)) if chances else None,
        "edits_elsewhere": tell(Measure.of([float(sum(not known.has(e) for e in own)) for known, _, own in both])),
        "originals_left_alone": clean["left_alone"],
        "false_per_1000_words": clean["false_per_1000_words"],
    }
