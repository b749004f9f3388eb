"""The kinds of mistakes and how often each is made.

A rate is the chance of a mistake at a place where it can be made: `article=0.06` spoils 6 of 100 articles. Rates vary
from text to text by a common factor, as people do. All arithmetic is on whole numbers, so that Python and the kernel
make the same mistakes.

>>> MistakeConfig().article > 0, Kind.ARTICLE.label
(True, 'article')
>>> MistakeConfig(article=2.0)
Traceback (most recent call last):
reviser.errors.ConfigError: article=2.0 is not a probability between 0 and 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from reviser.orders.rng import check_probability, threshold

NUM_FACTORS = 64
ONE = 256
"""A factor of 1."""


class Kind(IntEnum):
    """What a mistake is, in the order in which rates are summed."""

    MISSPELLING = 0
    PHONETIC = 1
    KEYBOARD = 2
    INFLECTION = 3
    DERIVATION = 4
    CONFUSION = 5
    SPLIT = 6
    MERGED = 7
    ARTICLE = 8
    PREPOSITION = 9
    AUXILIARY = 10
    PRONOUN = 11
    EXTRA = 12
    DOUBLED = 13
    MISSING = 14
    EXCHANGED = 15
    APOSTROPHE = 16
    LOWERED = 17
    RAISED = 18
    COMMA_ADDED = 19
    COMMA_DROPPED = 20
    FULL_STOP = 21
    SPACING = 22
    HYPHEN = 23

    @property
    def label(self) -> str:
        """Its name in settings and tables."""
        return self.name.lower()


NUM_KINDS = len(Kind)
DROPS = {Kind.ARTICLE: 8, Kind.PREPOSITION: 5, Kind.AUXILIARY: 7, Kind.PRONOUN: 3}
"""In how many of 16 cases such a word is left out rather than exchanged."""


@dataclass(frozen=True)
class MistakeConfig:
    """How often each mistake is made where it can be made, in texts that have any."""

    clean: float = 0.15
    """Share of texts that are left without a mistake on purpose; others may get none by chance."""
    spread: float = 1.0
    """How much rates vary between texts: 0 not at all, 1 as an exponential distribution does."""
    misspelling: float = 0.03
    """A usual misspelling: recieve."""
    phonetic: float = 0.016
    """Spelled as it sounds: fotograph, independant."""
    keyboard: float = 0.014
    """A slip of the fingers: letters dropped, swapped, doubled or of a neighbouring key."""
    inflection: float = 0.036
    """Another form of the same word: agreement, tense and number."""
    derivation: float = 0.04
    """Another part of speech of the same word: quick, quickly."""
    confusion: float = 0.035
    """A word that is taken for another: their, there."""
    split: float = 0.08
    """A word in two: with out."""
    merged: float = 0.006
    """Two words in one, perhaps with a hyphen: alot."""
    article: float = 0.11
    """An article left out or exchanged."""
    preposition: float = 0.06
    """A preposition left out or exchanged."""
    auxiliary: float = 0.07
    """An auxiliary verb left out or exchanged."""
    pronoun: float = 0.05
    """A pronoun left out or exchanged."""
    extra: float = 0.05
    """A small word too many: discuss about the plan."""
    doubled: float = 0.005
    """A word twice."""
    missing: float = 0.02
    """A common word left out, other than those above."""
    exchanged: float = 0.02
    """Two neighbouring words in the wrong order."""
    apostrophe: float = 0.06
    """An apostrophe left out, misplaced or too many."""
    lowered: float = 0.03
    """A capital letter that should be there and is not."""
    raised: float = 0.005
    """A capital letter that should not be there."""
    comma_added: float = 0.02
    """A comma too many, before words like that and because."""
    comma_dropped: float = 0.12
    """A comma left out."""
    full_stop: float = 0.08
    """A full stop left out, or a comma in its place."""
    spacing: float = 0.02
    """A space missing behind a comma or full stop, or one before a comma."""
    hyphen: float = 0.1
    """A space in place of a hyphen."""

    def __post_init__(self) -> None:
        for each in fields(self):
            check_probability(each.name, getattr(self, each.name))

    def limits(self) -> npt.NDArray[np.uint64]:
        """The number below which 24 random bits fall with the rate of each kind; their sum fits 32 bits."""
        return np.array([threshold(rate_of(self, kind)) >> 8 for kind in Kind], np.uint64)

    def factors(self) -> npt.NDArray[np.uint64]:
        """What rates are multiplied by, in 256ths: equally probable quantiles with a mean of about 1."""
        middles = [(i + 0.5) / NUM_FACTORS for i in range(NUM_FACTORS)]
        return np.array([round(ONE * (1 - self.spread * (1 + math.log(1 - u)))) for u in middles], np.uint64)


def rate_of(config: MistakeConfig, kind: Kind) -> float:
    """The rate of one kind."""
    return float(getattr(config, kind.label))
