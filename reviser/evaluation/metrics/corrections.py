"""How well texts were corrected, by edits of words: precision, recall, F0.5, exact matches, and false edits.

An edit is a run of words of the source and what takes its place; those of a hypothesis are compared with those of a
reference. Both are found by difflib, so an edit counts only if it is the very same change at the very same place.

>>> sorted(find_edits("He go to a school".split(), "He goes to school .".split()))
[(1, 2, ('goes',)), (3, 4, ()), (5, 5, ('.',))]
>>> count_edits("He go to a school".split(), "He goes to a school".split(), ["He goes to school .".split()])
EditCounts(right=1, false=0, missed=2)

F0.5 weighs precision twice as much as recall: a proofreader who is often wrong is turned off. Of several references
each sentence takes the one that gives it the highest F0.5, then the most right, the fewest false, the fewest missed
edits. A sentence with nothing to correct in which nothing was corrected counts as F0.5 = 1 in that choice. Over all
texts edits are summed. Where no edit was made there is no precision, where none was wanted no recall, and where
neither, no F0.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, NamedTuple

from reviser.evaluation.correction.words import count_words, split_words
from reviser.evaluation.measures import Estimate, Measure, quotient
from reviser.evaluation.metrics.gleu import gleu

Words = Sequence[str]
WordEdit = tuple[int, int, tuple[str, ...]]
"""Which words of the source, from and to, and what takes their place."""
PER = 1000
"""False edits are counted per so many words."""
COMPARED = ("gleu", "f_half", "precision", "recall")


class EditCounts(NamedTuple):
    """Edits that are also the reference's, that are not, and that only the reference has."""

    right: int = 0
    false: int = 0
    missed: int = 0

    @property
    def precision(self) -> float | None:
        return self.right / (self.right + self.false) if self.right + self.false else None

    @property
    def recall(self) -> float | None:
        return self.right / (self.right + self.missed) if self.right + self.missed else None

    @property
    def f_half(self) -> float | None:
        below = 1.25 * self.right + self.false + 0.25 * self.missed
        return 1.25 * self.right / below if below else None


def find_edits(source: Words, target: Words) -> frozenset[WordEdit]:
    """The edits that make the target of the source."""
    codes = SequenceMatcher(None, source, target, autojunk=False).get_opcodes()
    return frozenset((i, j, tuple(target[a:b])) for kind, i, j, a, b in codes if kind != "equal")


def count_edits(source: Words, hypothesis: Words, references: Sequence[Words]) -> EditCounts:
    """One sentence's edits beside those of its best reference."""
    made = find_edits(source, hypothesis)
    choices = []
    for reference in references:
        wanted = find_edits(source, reference)
        right = len(made & wanted)
        choices.append(EditCounts(right, len(made) - right, len(wanted) - right))
    return max(choices, key=_rank)


def _rank(counts: EditCounts) -> tuple[float, int, int, int]:
    f_half = counts.f_half
    return 1.0 if f_half is None else f_half, counts.right, -counts.false, -counts.missed


class Corrected:
    """What one system made of texts whose corrections are known."""

    def __init__(
        self,
        sources: Sequence[Words],
        hypotheses: Sequence[Words],
        references: Sequence[Sequence[Words]],
        seed: int = 0,
    ) -> None:
        self.sources, self.hypotheses, self.references, self.seed = sources, hypotheses, references, seed
        triples = zip(sources, hypotheses, references, strict=True)
        self.counts = [count_edits(*triple) for triple in triples]

    def estimate(self, name: str) -> Estimate:
        """`precision`, `recall` or `f_half` of all edits together, or `gleu`."""
        if name == "gleu":
            return self._gleu
        total = EditCounts(*map(sum, zip(*self.counts, strict=True)))
        parts = [EditCounts(*(a - b for a, b in zip(total, each, strict=True))) for each in self.counts]
        return Estimate(getattr(total, name), [getattr(each, name) for each in parts])

    @cached_property
    def _gleu(self) -> Estimate:
        return gleu(self.sources, self.hypotheses, self.references, seed=self.seed)

    def row(self, first: Corrected | None = None) -> dict[str, Any]:
        """The numbers of a result, and those that are more than another system's on the same texts."""
        matches = [
            float(any(list(hypothesis) == list(each) for each in own))
            for hypothesis, own in zip(self.hypotheses, self.references, strict=True)
        ]
        row = {name: tell(self.estimate(name).measure()) for name in COMPARED} | {"exact": tell(Measure.of(matches))}
        if first is not None:
            more = {name: self.estimate(name).minus(first.estimate(name)) for name in ("gleu", "f_half")}
            row |= {f"{name}_more": tell(each.measure()) for name, each in more.items()}
        right, false, missed = map(sum, zip(*self.counts, strict=True))
        return row | {"texts": len(self.counts), "right": right, "false": false, "missed": missed}

    def only(self, places: Sequence[int]) -> Corrected:
        """Of some of the texts."""
        sources, hypotheses = ([each[place] for place in places] for each in (self.sources, self.hypotheses))
        return Corrected(sources, hypotheses, [self.references[place] for place in places], self.seed)


def tell(measure: Measure | None) -> dict[str, Any] | None:
    """As a result holds it."""
    return None if measure is None else asdict(measure)


def measure_clean(texts: Sequence[str], corrected: Sequence[str]) -> dict[str, Any]:
    """What was changed in texts that are right already: edits and words per 1,000 words, and the share left alone.

    >>> row = measure_clean(["All is well.", "So is this."], ["All is well.", "So be this."])
    >>> row["left_alone"]["value"], round(row["false_per_1000_words"]["value"], 1), row["words"]
    (0.5, 166.7, 6)
    """
    sides = [(split_words(text), split_words(new)) for text, new in zip(texts, corrected, strict=True)]
    found = [find_edits(*pair) for pair in sides]
    edits = [float(len(each)) for each in found]
    words = [count_words(words) for words, _ in sides]
    # An insertion of a whole paragraph is one edit, but not a small one.
    sizes = [float(sum(max(end - start, len(new)) for start, end, new in each)) for each in found]
    names = [str(place) for place in range(len(texts))]
    alone = [float(text == new) for text, new in zip(texts, corrected, strict=True)]
    return {
        "false_per_1000_words": tell(quotient(names, edits, [each / PER for each in words])),
        "changed_per_1000_words": tell(quotient(names, sizes, [each / PER for each in words])),
        "left_alone": tell(Measure.of(alone)),
        "texts": len(texts),
        "words": sum(words),
        "false": round(sum(edits)),
    }
