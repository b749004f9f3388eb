"""Prompts out of documents: the paper's continuation benchmark, and gaps to infill; all in text.

Lengths are counted by one tokenizer, the ruler (GPT-2's in the paper), whatever the systems use:

    document   |-- prefix, 35 --|------ reference, to 180 in all ------|-- rest, not used --|
    document   .. |-- prefix --|--- gap, a word to a paragraph ---|-- suffix --| ..

>>> from reviser.tokenizer import load
>>> [prompt] = continuation_prompts([("a:1", "one two three four")], load("bytes"), Lengths(4, 9, 5, 99))
>>> prompt.prefix, prompt.reference
('one ', 'two t')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reviser.data.shards import HEADER, Shards
from reviser.data.sources import Complaints, read_documents
from reviser.errors import ConfigError, DataError
from reviser.evaluation.gap_kinds import GAP_KINDS, find_stretches
from reviser.evaluation.generations import Prompt
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer

Named = tuple[str, str]
"""A document's name, which lasts, and its text."""
LONGEST_TOKEN = 24
"""Characters that hardly a token has on average."""
TRIES = 8
"""Gaps of one kind that are drawn in a document, until one has enough text around it."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The continuation benchmark's lengths, in the ruler's tokens; the paper's are the defaults."""

    prefix: int = 35
    total: int = 180
    """Prefix and reference together, at most."""
    shortest: int = 144
    """Documents with fewer tokens are left out,"""
    longest: int = 216
    """and those with more, unless they are cut."""

    def __post_init__(self) -> None:
        if not 0 <= self.prefix < min(self.total, self.shortest) or self.longest < self.shortest:
            raise ConfigError(
                f"prefix {self.prefix}, total {self.total}, documents of {self.shortest} to {self.longest} tokens: "
                "the prefix must be shorter than both the total and the shortest document"
            )


def read_named(paths: Sequence[str | Path]) -> Iterator[Named]:
    """All documents of files and folders, named by file and line; of a data folder those held out, without pairs."""
    for path in map(Path, paths):
        yield from _read_heldout(path) if (path / HEADER).is_file() else _read_files(path)


def check_there(paths: Sequence[str | Path]) -> None:
    """Name a file or folder that is missing, before anything else is looked for."""
    for path in map(Path, paths):
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; give .jsonl or text files, or a data folder")


def _read_heldout(folder: Path) -> Iterator[Named]:
    shards = Shards.open(folder, "heldout")
    shards.verify()
    for i in shards.plain.tolist():
        yield f"heldout:{i}", shards.tokenizer.decode(shards[i].tolist())


def _read_files(path: Path) -> Iterator[Named]:
    check_there([path])
    bad, has_text = Complaints(), False
    for each in read_documents([path], complaints=bad):
        has_text = True
        yield f"{Path(each.file).name}:{each.line}", each.text
    if not has_text:
        raise DataError(f"{path} holds no text" + (f" ({bad.first[0]})" if bad.first else ""))


def continuation_prompts(
    documents: Iterable[Named], ruler: Tokenizer, lengths: Lengths | None = None, is_cut: bool = False
) -> list[Prompt]:
    """A prompt for every document of a fitting length; `is_cut` takes the beginning of longer ones too."""
    lengths = lengths or Lengths()
    prompts = []
    for name, text in documents:
        ids = ruler.encode(text)
        if len(ids) < lengths.shortest or (len(ids) > lengths.longest and not is_cut):
            continue
        first = _boundary(ruler, ids, lengths.prefix)
        last = _boundary(ruler, ids, min(lengths.total, len(ids)))
        prompts.append(Prompt(name, ruler.decode(ids[:first]), ruler.decode(ids[first:last])))
    if not prompts:
        hint = "give other texts" if is_cut else "give other texts, or cut longer ones with --cut"
        raise DataError(f"no document has {lengths.shortest} to {lengths.longest} tokens of the ruler; {hint}")
    return prompts


def infill_prompts(
    documents: Iterable[Named],
    ruler: Tokenizer,
    context: int = 48,
    longest: int = 96,
    kinds: Sequence[str] = GAP_KINDS,
    seed: int = 0,
) -> list[Prompt]:
    """A gap in every document that has one with enough text around it.

    What kind of gap is drawn, and where it is, depends on the seed and the document's number alone. A gap has at most
    `longest` tokens, and at least half of `context` on either side.
    """
    if min(context, longest) < 1:
        raise ConfigError(f"gaps of up to {longest} tokens in {context} of context: both must be at least 1")
    if wrong := [kind for kind in kinds if kind not in GAP_KINDS]:
        raise ConfigError(f"no gaps of kind {wrong[0]!r}; kinds are {', '.join(GAP_KINDS)}")
    cut = (_cut_gap(name, text, ruler, (context, longest), kinds, Random.of(seed, number))
           for number, (name, text) in enumerate(documents))  # fmt: skip
    prompts = [prompt for prompt in cut if prompt]
    if not prompts:
        raise DataError(
            f"no document has a gap of up to {longest} tokens in {context} + {context}; give longer texts"
        )
    return prompts


def _cut_gap(
    name: str, text: str, ruler: Tokenizer, lengths: tuple[int, int], kinds: Sequence[str], rng: Random
) -> Prompt | None:
    """A gap of a kind that is drawn; of another, if the document has none of that kind."""
    context, longest = lengths
    stretches, first = find_stretches(text), rng.below(len(kinds))
    for kind in (*kinds[first:], *kinds[:first]):
        places = stretches[kind]
        for _ in range(min(len(places), TRIES)):
            begin, end = places[rng.below(len(places))]
            # Enough characters for the context, and no more: documents may be long.
            sides = text[max(begin - LONGEST_TOKEN * context, 0) : begin], text[end : end + LONGEST_TOKEN * context]
            before, behind = (ruler.pieces(ruler.encode(side)) for side in sides)
            has_context = min(len(before), len(behind)) >= -(-context // 2)
            if has_context and len(ruler.encode(text[begin:end])) <= longest:
                prefix, suffix = "".join(before[-context:]), "".join(behind[:context])
                return Prompt(name, prefix, text[begin:end], suffix, kind)
    return None


def _boundary(ruler: Tokenizer, ids: Sequence[int], place: int) -> int:
    """The first place from here on that cuts no character in two."""
    while place < len(ids) and "\ufffd" in ruler.decode(ids[max(place - 4, 0) : place])[-1:]:
        place += 1
    return place
