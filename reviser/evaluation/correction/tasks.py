"""Texts to correct, with what people made of them, and clean texts that should be left alone.

    a JFLEG-like folder   NAME.src, NAME.ref0, NAME.ref1, ...: a sentence a line, words and punctuation split
    pairs                 JSON lines with `before` and `after`, and `kind` where the kind of mistake is known; or the
                          held-out pairs of a data folder
    errors                held-out sentences of a data folder, with mistakes made in them by its table
    clean texts           documents, out of which sentences are cut

>>> cut_sentences("Dr. Bell slept. Did he dream? Nobody knows!")
['Dr. Bell slept.', 'Did he dream?', 'Nobody knows!']
"""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from reviser.data.shards import Shards
from reviser.data.slots import ERRORS, open_maker
from reviser.data.unpack import PACKINGS, unpack
from reviser.errors import DataError
from reviser.evaluation.correction.words import count_words, join_words, split_words
from reviser.evaluation.gap_kinds import sentence_spans
from reviser.evaluation.prompts import check_there, read_named
from reviser.mistakes.mistake_kinds import MistakeConfig
from reviser.orders.rng import Random

Words = Sequence[str]
Thing = TypeVar("Thing")
SHORTEST, LONGEST = 4, 60
"""Words of a sentence that is cut out of a document."""


@dataclass(frozen=True, slots=True)
class CorrectionTask:
    """Texts as systems get them. Where people corrected them there are references, in words; else they are clean."""

    name: str
    texts: list[str]
    references: list[list[Words]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """The kind of mistake of each text; empty where that is not known."""
    targets: list[str] = field(default_factory=list)
    """The only reference of each text, as it was written; empty where there are several, or only words."""

    @property
    def is_clean(self) -> bool:
        return not self.references

    def by_kind(self) -> dict[str, list[int]]:
        """The places of each kind's texts, kinds by name."""
        places: dict[str, list[int]] = {}
        for place, kind in enumerate(self.kinds):
            places.setdefault(kind, []).append(place)
        return dict(sorted(places.items()))


def draw(things: Iterable[Thing], n: int | None, seed: int) -> list[Thing]:
    """`n` of the things, all equally likely to be among them, in their own order; all where `n` is None.

    >>> draw("abcdefgh", 3, seed=0), draw("ab", 3, seed=0)
    (['a', 'b', 'f'], ['a', 'b'])
    """
    if n is None:
        return list(things)
    rng, kept = Random.of(seed), list[tuple[int, Thing]]()
    for place, thing in enumerate(things):
        if place < n:
            kept.append((place, thing))
        elif (chosen := rng.below(place + 1)) < n:
            kept[chosen] = (place, thing)
    return [thing for _, thing in sorted(kept, key=lambda each: each[0])]


def read_jfleg(folder: str | Path, n: int | None = None, seed: int = 0) -> list[CorrectionTask]:
    """A task for each NAME.src of a folder."""
    sources = sorted(Path(folder).glob("*.src"))
    if not sources:
        raise DataError(f"{folder}: no file NAME.src; give a folder with NAME.src, NAME.ref0, NAME.ref1, ...")
    return [_read_split(path, n, seed) for path in sources]


def _read_split(path: Path, n: int | None, seed: int) -> CorrectionTask:
    files = sorted(path.parent.glob(f"{path.stem}.ref*"))
    if not files:
        raise DataError(f"{path}: no references beside it; they are called {path.stem}.ref0, {path.stem}.ref1, ...")
    # Joined and split again, so that a text that nobody changed has no edits.
    columns = [[join_words(line.split()) for line in _read_lines(file)] for file in (path, *files)]
    for file, lines in zip(files, columns[1:], strict=True):
        if len(lines) != len(columns[0]):
            raise DataError(f"{file}: {len(lines)} lines, but {path.name} has {len(columns[0])}; both need as many")
    rows = draw([row for row in zip(*columns, strict=True) if row[0]], n, seed)
    if not rows:
        raise DataError(f"{path}: no sentence in it; a sentence stands on a line")
    references: list[list[Words]] = [[split_words(text) for text in row[1:]] for row in rows]
    return CorrectionTask(f"{path.parent.name}/{path.stem}", [row[0] for row in rows], references)


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(f"{path}: cannot be read ({reason}); get the file again") from None


def read_pairs(file: str | Path, n: int | None = None, seed: int = 0) -> CorrectionTask:
    """The task of a file of pairs, or of the held-out pairs of a data folder."""
    is_folder = Path(file).is_dir()
    pairs = draw(_read_held_out(Path(file)) if is_folder else _read_objects(Path(file)), n, seed)
    if not pairs:
        raise DataError(f"{file}: no pairs in it; a pair is a line with `before` and `after`")
    kinds = [str(pair.get("kind") or "none") for pair in pairs]
    references: list[list[Words]] = [[split_words(pair["after"])] for pair in pairs]
    texts = [pair["before"] for pair in pairs]
    name = f"pairs in {Path(file).name}" if is_folder else Path(file).name
    kinds = kinds if any(map(_has_kind, pairs)) else []
    return CorrectionTask(name, texts, references, kinds, [pair["after"] for pair in pairs])


def _read_held_out(folder: Path) -> Iterator[dict[str, Any]]:
    shards = Shards.open(folder, "heldout")
    shards.verify()
    for document in np.flatnonzero(shards.cuts).tolist():
        ids, cut = shards[document].tolist(), int(shards.cuts[document])
        before, after = (shards.tokenizer.decode(side) for side in (ids[:cut], ids[cut:]))
        yield {"before": before, "after": after}


def make_errors(folder: str | Path, n: int, seed: int = 0) -> CorrectionTask:
    """`n` held-out sentences of a data folder with mistakes made in them, each by the kind of its only mistake."""
    clean, tokenizer = read_clean(folder, n, seed).texts, Shards.open(folder, "heldout").tokenizer
    maker = open_maker(Path(folder) / ERRORS, MistakeConfig(clean=0.0), tokenizer)
    ids = [np.array(each, np.int32) for each in tokenizer.encode_many(clean)]
    lasts = np.cumsum([len(each) for each in ids])
    states = np.array([Random.of(seed, place).state for place in range(len(ids))], np.uint64)
    made = maker.make(np.concatenate(ids), lasts - np.array([len(each) for each in ids]), lasts, states)
    texts, references, kinds, targets = list[str](), list[list[Words]](), list[str](), list[str]()
    for place, sentence in enumerate(clean):
        mistakes, text = made.mistakes(place), tokenizer.decode(made.text(place).tolist())
        if text != sentence:
            texts.append(text)
            references.append([split_words(sentence)])
            targets.append(sentence)
            kinds.append(mistakes[0].kind.label if len(mistakes) == 1 else "several")
    if not texts:
        raise DataError(f"{folder}: no mistake could be made in its {len(clean)} sentences; raise --sentences")
    return CorrectionTask(f"errors in {Path(folder).name}", texts, references, kinds, targets)


def _has_kind(pair: dict[str, Any]) -> bool:
    return bool(pair.get("kind"))


def _read_objects(path: Path) -> Iterator[dict[str, Any]]:
    check_there([path])
    try:
        with path.open("rb") as packed:
            for number, line in enumerate(unpack(packed, path.suffix if path.suffix in PACKINGS else ""), 1):
                if line.strip():
                    yield _read_pair(f"{path}, line {number}", line)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise DataError(f"{path}: cannot be read to its end ({reason}); get the file again") from None


def _read_pair(where: str, line: bytes) -> dict[str, Any]:
    try:
        pair: Any = json.loads(line)
    except (ValueError, RecursionError):
        raise DataError(f"{where}: not JSON; a pair is an object with `before` and `after`") from None
    for name in ("before", "after"):
        if not isinstance(pair, dict) or not isinstance(pair.get(name), str):
            raise DataError(f"{where}: no text under `{name}`; a pair is an object with `before` and `after`")
    # Half of a pair of surrogates is JSON, but no text.
    texts = {name: pair[name].encode("utf-8", "replace").decode("utf-8") for name in ("before", "after")}
    return {**pair, **texts}


def read_clean(path: str | Path, n: int, seed: int = 0) -> CorrectionTask:
    """`n` sentences out of as many documents, or fewer documents where there are fewer."""
    documents = draw((text for _, text in read_named([path])), n, seed)
    sentences = draw([each for text in documents for each in cut_sentences(text) if is_whole(each)], n, seed)
    if not sentences:
        raise DataError(f"{path}: no whole sentence of {SHORTEST} to {LONGEST} words in it; give other texts")
    return CorrectionTask(Path(path).name, sentences)


def cut_sentences(text: str) -> list[str]:
    """The sentences of each line, cut where a mark ends one and the next begins with no small letter."""
    lines = [(line, sentence_spans(line)) for line in text.splitlines()]
    return [" ".join(line[first:last].split()) for line, spans in lines for first, last in spans]


def is_whole(sentence: str) -> bool:
    """Whether it begins and ends as a sentence does and is neither short nor long: no heading, no list."""
    size = count_words(split_words(sentence))
    return (
        SHORTEST <= size <= LONGEST
        and not sentence[0].islower()
        and sentence.rstrip("\"'”’)]").endswith((".", "!", "?"))
    )
