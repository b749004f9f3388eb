"""Words out of a corpus, and what installed packages know about them.

codespell's dictionary (CC BY-SA 3.0) is read from its package and turned round: right word to misspellings.
lemminflect (MIT) gives the other inflections of a word. Neither is part of this package.

>>> count_words(["The boats lay still. Two boats are from Hull. Hull isn’t far."])["hull"]
WordCount(num=2, num_capital=1, num_first=1)
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from reviser.errors import DataError, MissingPackageError

INSTALL = "pip install 'reviser[errors]'"
NEEDED_FOR = "building an error table"
FIND_WORDS = re.compile(r"(?<![A-Za-z0-9_/@’'.-])[A-Za-z]+(?:['’][A-Za-z]+)*(?![\w/@’'(]|\.\w)").findall
FIND_FIRSTS = re.compile(r"(?:^|\n|[.!?:][\"”)]*\s)\s*[\"“(]*([A-Z][A-Za-z]*(?:['’][A-Za-z]+)*)").findall
SPELLED = re.compile("[a-z]+(?:'[a-z]+)*").fullmatch
LONGEST_DIFFERENCE = 2
"""A misspelling that is longer or shorter than its word by more letters is left out."""


class WordCount(NamedTuple):
    num: int
    num_capital: int
    """How often with a capital letter where no sentence begins."""
    num_first: int
    """How often with a capital letter at the beginning of a sentence."""


@dataclass(frozen=True)
class Inflected:
    """A word's tags (VBD, NNS, ...), and the other inflections of the lemmas it may belong to, with theirs."""

    tags: frozenset[str] = frozenset()
    others: Mapping[str, frozenset[str]] = field(default_factory=dict)


def count_words(texts: Iterable[str]) -> dict[str, WordCount]:
    """How often each word of ASCII letters and apostrophes occurs, in lower case."""
    counts: Counter[str] = Counter()
    firsts: Counter[str] = Counter()
    for text in texts:
        counts.update(FIND_WORDS(text))
        firsts.update(FIND_FIRSTS(text))
    found: dict[str, WordCount] = {}
    for word, num in counts.items():
        lower = word.lower().replace("’", "'")
        num_first = min(num, firsts[word]) if word[0].isupper() else 0
        num_capital = num - num_first if word[0].isupper() else 0
        known = found.get(lower, WordCount(0, 0, 0))
        found[lower] = WordCount(known.num + num, known.num_capital + num_capital, known.num_first + num_first)
    return found


def read_misspellings() -> dict[str, list[str]]:
    """The misspellings of each word, out of the dictionary in the package codespell."""
    # Located but never imported: only its dictionary is wanted.
    package = importlib.util.find_spec("codespell_lib")
    if package is None or not package.submodule_search_locations:
        raise MissingPackageError("codespell", NEEDED_FOR, INSTALL)
    path = Path(package.submodule_search_locations[0]) / "data" / "dictionary.txt"
    try:
        lines = path.read_text("utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read codespell's dictionary {path}: {error}; reinstall it: {INSTALL}") from error
    return turn_round(lines)


def turn_round(lines: Iterable[str]) -> dict[str, list[str]]:
    """Lines like `teh->the` and `cant->can't, cannot,` as right word to wrong ones.

    Behind the last comma, if anything stands there, is a remark.

    >>> turn_round(["teh->the", "recieve->receive", "hte->the, a remark"])
    {'the': ['teh', 'hte'], 'receive': ['recieve']}
    """
    found: dict[str, list[str]] = {}
    for line in lines:
        wrong, is_entry, rest = line.strip().partition("->")
        rights = [right.strip() for right in rest.split(",")]
        for right in rights[:-1] if len(rights) > 1 else rights:
            is_near = abs(len(right) - len(wrong)) <= LONGEST_DIFFERENCE
            if is_entry and is_near and SPELLED(wrong) and SPELLED(right):
                found.setdefault(right, []).append(wrong)
    return found


def read_inflections(words: Iterable[str]) -> dict[str, Inflected]:
    """What lemminflect knows about each word as a noun or verb, and the words it knows nothing of left out."""
    try:
        package = importlib.import_module("lemminflect")
    except ImportError as error:
        raise MissingPackageError("lemminflect", NEEDED_FOR, INSTALL) from error
    found = {word: _inflect(package, word) for word in words if word.isalpha()}
    return {word: each for word, each in found.items() if each.tags}


def _inflect(package: Any, word: str) -> Inflected:
    forms: dict[str, set[str]] = {}
    for part in ("NOUN", "VERB", "ADJ"):
        for lemma in package.getAllLemmas(word, upos=part).get(part, ()):
            for tag, spellings in package.getAllInflections(lemma, upos=part).items():
                for spelling in spellings:
                    forms.setdefault(spelling, set()).add(tag)
    own = frozenset(forms.pop(word, ()))
    return Inflected(own, {other: frozenset(tags) for other, tags in forms.items()} if own else {})
