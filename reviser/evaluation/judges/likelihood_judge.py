"""A judge that does not read: the text that a causal model finds more likely wins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from reviser.errors import ConfigError
from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.judgments import Judgment
from reviser.evaluation.judges.pairs import Pair

if TYPE_CHECKING:
    from reviser.evaluation.evaluator import Evaluator


class TextScorer(Protocol):
    name: str
    sha256: str

    def bits_per_byte(self, prefix: str, text: str) -> float:
        """The mean number of bits that a byte of the text costs after the prefix."""
        ...


class EvaluatorScorer:
    """The evaluator of evalPPL as a scorer."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.name, self.sha256 = evaluator, evaluator.name, evaluator.sha256

    def bits_per_byte(self, prefix: str, text: str) -> float:
        from reviser.evaluation.metrics.evalppl import score

        [found] = score(self.evaluator, [Generation("judged", "judged", 0, prefix, text, "", "", True, 0, 0)])
        return found.bits_per_byte if found.num_bytes else math.inf


class LikelihoodJudge:
    """The text with fewer bits per byte wins; texts at most `margin` apart tie.

    Of a text written into a gap it is the suffix that is scored, after prefix and text: the same bytes for both, so
    that long or bland text gains nothing. The order shown does not matter.
    """

    def __init__(self, scorer: TextScorer, margin: float = 0.0) -> None:
        if not 0 <= margin < math.inf:
            raise ConfigError(f"--margin {margin} must be a finite number of bits per byte, at least 0")
        self.scorer, self.margin = scorer, margin
        self.sha256: str | None = scorer.sha256
        self.name = f"likelihood {scorer.name} {scorer.sha256[:8]}, margin {margin:g}"

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        known: dict[tuple[str, str], float] = {}
        for pair in pairs:
            first, second = self._bits(pair.first, known), self._bits(pair.second, known)
            is_tie = first == second or abs(first - second) <= self.margin
            verdict = "tie" if is_tie else "first" if first < second else "second"
            yield Judgment.of(pair, verdict, f"{first:.6f} and {second:.6f} bits per byte", self.name)

    def _bits(self, generation: Generation, known: dict[tuple[str, str], float]) -> float:
        """Score a text once, though it meets those of all other systems."""
        spot = generation.prefix, generation.text
        if generation.suffix:
            spot = generation.prefix + generation.text, generation.suffix
        if spot not in known:
            known[spot] = self.scorer.bits_per_byte(*spot)
        return known[spot]
