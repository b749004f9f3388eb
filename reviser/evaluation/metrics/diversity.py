"""Repetition and diversity: numbers that say when a low perplexity was bought by saying the same again.

A text is its lower-cased words: runs of letters, digits and underscores, apostrophes inside included; punctuation is
left out. No model's tokenizer is asked, so systems compare.

>>> words("Don't stop -- DON’T stop!")
["don't", 'stop', "don't", 'stop']
>>> distinct(words("the cat and the cat"), 1), longest_repeat(words("the cat and the cat"))
(0.6, 2)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import Measure, quotient
from reviser.evaluation.texts import REFERENCE, by_seed

WORD = re.compile(r"\w+(?:'\w+)*")
SIZES = (1, 2, 3)
REPEAT_SIZE = 4
Words = Sequence[str]
COLUMNS = {
    "distinct_1": "distinct-1",
    "distinct_2": "distinct-2",
    "distinct_3": "distinct-3",
    "pooled_distinct_1": "distinct-1 of all texts",
    "pooled_distinct_2": "distinct-2 of all texts",
    "pooled_distinct_3": "distinct-3 of all texts",
    "entropy_bits": "entropy, bits",
    "longest_repeat": "longest repeat, words",
    "repeated_4": "repeated 4-grams",
    "words": "words",
    "words_over_reference": "over the reference",
    "stopped": "stopped",
}
"""Headings of the numbers."""


def words(text: str) -> list[str]:
    return WORD.findall(text.lower().replace("’", "'"))


def ngrams(sequence: Words, n: int) -> list[tuple[str, ...]]:
    return [tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1)]


def distinct(sequence: Words, n: int) -> float | None:
    """The share of different n-grams among all; None for fewer than n words."""
    grams = ngrams(sequence, n)
    return len(set(grams)) / len(grams) if grams else None


def repeated(sequence: Words, n: int = REPEAT_SIZE) -> float | None:
    """The share of n-grams that stood before in the same text; None for fewer than n words."""
    share = distinct(sequence, n)
    return None if share is None else 1.0 - share


def entropy_bits(sequence: Words) -> float | None:
    """The entropy of the text's own distribution of words; None for no words."""
    if not sequence:
        return None
    counts = Counter(sequence).values()
    return math.log2(len(sequence)) - math.fsum(count * math.log2(count) for count in counts) / len(sequence)


def longest_repeat(sequence: Words) -> int:
    """Words of the longest span that stands at least twice in the text; the two may overlap.

    What repeats at a length repeats at every shorter one, so the length is found by halving.
    """
    low, high = 0, max(0, len(sequence) - 1)
    while low < high:
        middle = (low + high + 1) // 2
        grams = ngrams(sequence, middle)
        low, high = (middle, high) if len(set(grams)) < len(grams) else (low, middle - 1)
    return low


def pooled_distinct(texts: Iterable[Words], n: int) -> float | None:
    """The share of different n-grams in all texts together: falls where texts resemble each other.

    It falls with the number of texts too: compare it at the same number.
    """
    grams = [gram for text in texts for gram in ngrams(text, n)]
    return len(set(grams)) / len(grams) if grams else None


def measure(generations: Sequence[Generation]) -> dict[str, Measure | None]:
    """A system's numbers, each a mean over texts; pooled ones over seeds. None where no text is long enough."""
    texts = [words(each.text) for each in generations]
    prompts = [each.prompt_id for each in generations]

    def mean(values: Iterable[float | None]) -> Measure | None:
        known = [(prompt, value) for prompt, value in zip(prompts, values, strict=True) if value is not None]
        return quotient([prompt for prompt, _ in known], [value for _, value in known])

    is_human = generations[0].system == REFERENCE
    return {
        **{f"distinct_{n}": mean(distinct(text, n) for text in texts) for n in SIZES},
        **{f"pooled_distinct_{n}": _mean_pool(generations, n) for n in SIZES},
        "entropy_bits": mean(map(entropy_bits, texts)),
        "longest_repeat": mean(map(longest_repeat, texts)),
        f"repeated_{REPEAT_SIZE}": mean(map(repeated, texts)),
        "words": mean(map(len, texts)),
        "words_over_reference": quotient(
            prompts, [len(text) for text in texts], [len(words(each.reference)) for each in generations]
        ),
        "stopped": None if is_human else mean(float(each.is_stopped) for each in generations),
    }


def _mean_pool(generations: Sequence[Generation], n: int) -> Measure | None:
    pools = by_seed(generations).values()
    values = [pooled_distinct([words(each.text) for each in pool], n) for pool in pools]
    known = [value for value in values if value is not None]
    return Measure.of(known) if known else None
