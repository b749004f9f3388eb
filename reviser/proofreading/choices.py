"""What can be chosen about proofreading: a format, words that stay, how sure and how often. Nothing heavy is loaded.

>>> format_of("notes/today.md")
'markdown'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reviser.errors import ConfigError, DataError

PASSES = 3
MIN_PROBABILITY = 0.5
REVISE_PROBABILITY = 0.75
"""The least of a change in a model's own draft."""
REVISE_ACTIONS = 256
"""That a model takes at most in one pass over one window of a draft."""
ENDINGS = {
    "text": ("", ".txt", ".text"),
    "markdown": (".md", ".markdown", ".mdown", ".mkd", ".qmd", ".rmd"),
    "rst": (".rst", ".rest"),
    "html": (".html", ".htm", ".xhtml"),
    "latex": (".tex", ".ltx", ".latex"),
}
"""The formats, and what the names of their files end with."""
FORMATS = tuple(ENDINGS)
REVISE_BY = ("reading", "scan")
"""How a model goes over its own drafts: it fills anew what it reads as weakest (rewriting.py), or scans for places to
change as a proofreader does."""
MARKUP = {
    "text": "",
    "markdown": "`*_~$<>[]()\\|#^{}&",
    "rst": "`*_|<>[]\\:",
    "html": "<>&",
    "latex": "\\{}$%&#~^_[]",
}
"""Characters of which no edit may add or drop one, or it could change what is markup."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """How an edit's actions and a second reading are made one probability (rereading.py): weights of log-odds."""

    bias: float
    actions: float
    """Of the log-odds of the edit's actions."""
    reading: float
    """Of each nat that the text gains."""
    rewrites: bool = False
    """Whether edits may write whole stretches anew. Then only the way to an edit counts of its actions, and not which
    words are chosen or how many; and the nats gained are those beyond what a change of length would explain."""
    least_scan: float = 0.1
    """The least probability of a change at which a model still stops to look at a place."""


CORRECTING = Weighing(-1.10, 0.44, 0.14)
"""Fitted to made errors and clean text (tools/fit_rereading.py, LOG.md)."""
REVISING = Weighing(0.0, 0.5, 0.2, rewrites=True, least_scan=0.02)
"""For a model's own drafts, where they are scanned; chosen by hand, to be fitted to a model with
tools/fit_revising.py."""


@dataclass(frozen=True, slots=True)
class Proofreading:
    """How a text is proofread."""

    format: str = "text"
    min_probability: float = MIN_PROBABILITY
    passes: int = PASSES
    words: Sequence[str] = ()
    reread: bool = True
    """Whether the model also reads the text with and without each edit (rereading.py)."""
    spelling: bool = True
    """Whether words that are in no list are read with those that may have been meant (spelling.py); this is also a
    second reading, and left out without `reread`."""
    within: tuple[int, int] | None = None
    """Characters from where to where may change; what is around them is only read. None: all."""
    weighing: Weighing = CORRECTING
    max_actions: int | None = None
    """That the model takes in one pass over one window; None: as many as its context holds."""
    by: str = "scan"
    """One of REVISE_BY; a text that is no draft of the model's own is always scanned."""

    def __post_init__(self) -> None:
        check_format(self.format)
        if not isinstance(self.min_probability, int | float) or not 0 <= self.min_probability <= 1:
            raise ConfigError(f"min_probability={self.min_probability!r} must be a number between 0 and 1")
        if not isinstance(self.passes, int) or self.passes < 1:
            raise ConfigError(f"passes={self.passes!r} must be a whole number of at least 1")
        if isinstance(self.words, str) or not all(isinstance(word, str) and word for word in self.words):
            raise ConfigError(f"words={self.words!r} must be a list of words")
        if self.within is not None and not 0 <= self.within[0] <= self.within[1]:
            raise ConfigError(f"within={self.within!r} must be two places in the text, the first before the second")


def revising(passes: int, min_probability: float = REVISE_PROBABILITY, by: str = REVISE_BY[0]) -> Proofreading | None:
    """How a model goes over its own drafts so many times; None for not at all."""
    if not isinstance(passes, int) or passes < 0:
        raise ConfigError(f"revise={passes!r} must be a whole number of passes, 0 or more")
    if not isinstance(min_probability, int | float) or not 0 <= min_probability <= 1:
        raise ConfigError(f"revise_probability={min_probability!r} must be a number between 0 and 1")
    if by not in REVISE_BY:
        raise ConfigError(f"revise_by={by!r} must be {' or '.join(REVISE_BY)}")
    if not passes:
        return None
    return Proofreading(
        "text", min_probability, passes, spelling=False, weighing=REVISING, max_actions=REVISE_ACTIONS, by=by
    )


def check_format(format: str) -> None:
    if format not in FORMATS:
        raise ConfigError(f"no format {format!r}; formats are {', '.join(FORMATS)}")


def format_of(path: str | os.PathLike[str]) -> str:
    """The format of a file by its name."""
    ending = Path(path).suffix.lower()
    for name, endings in ENDINGS.items():
        if ending in endings:
            return name
    raise DataError(f"{path}: no format is known for {ending}; give one with --format: {', '.join(FORMATS)}")


def read_words(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The user's own words: one a line, with # before a comment."""
    try:
        lines = Path(path).read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; a file of words has one word a line") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; give a file with one word a line") from None
    return tuple(filter(None, (line.partition("#")[0].strip() for line in lines)))
