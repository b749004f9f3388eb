"""The slots of a corpus: which examples an epoch visits, out of documents and out of pairs of texts.

Examples to edit have a draft and what it is to become: documents with fresh mistakes in them, or pairs.

    document   The gulls were asleep.    mistakes made in it    [The gull were a sleep.] -> [The gulls were asleep.]
    pair       before, after             as it is               [before] -> [after], or [after] -> [after]

Gaps are moved to where words, phrases, sentences or paragraphs begin and end; where little is given, it is whole
words.

A model that rewrites gets the same examples as something to continue: the draft and a separator are its prompt, the
target is what it writes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reviser.data.examples import (
    EDIT,
    GAPS,
    MAX_WORDS,
    NEAR,
    WORDS,
    Documents,
    Examples,
    JobConfig,
    cut_documents,
    draw_chances,
    halve,
    join_examples,
    streams,
)
from reviser.data.shards import Shards
from reviser.errors import ConfigError, DataError
from reviser.mistakes.mistake_kinds import MistakeConfig
from reviser.mistakes.mistake_maker import MistakeMaker
from reviser.mistakes.table_file import load_table
from reviser.orders.kernels import _below, jit
from reviser.orders.rng import Random
from reviser.token_marks import sentence_ends, text_marks
from reviser.tokenizer import Tokenizer

Array = npt.NDArray[Any]
ERRORS = "errors.npz"
"""The table of a data folder that mistakes are made with."""
SEPARATOR = "\x1e"
"""What stands between a text and its corrected version for a model that rewrites: one byte, one token."""


class Slots:
    """Every example of a corpus has a slot; an epoch visits all slots in a random order.

    Documents come first, then pairs, as many as their share asks for: in an epoch some or all come several times.
    """

    def __init__(
        self,
        documents: Documents,
        jobs: JobConfig,
        marks: npt.NDArray[np.uint8],
        maker: MistakeMaker | None = None,
        separator: int = -1,
        breaks: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        usual = max(sum(jobs.prefix) // 2 + sum(jobs.length) // 2, 1)
        lengths = np.asarray(documents.lengths, np.int64)
        self.cuts = np.asarray(getattr(documents, "cuts", np.zeros(len(lengths))), np.int64)
        longer = np.maximum(self.cuts, lengths - self.cuts)
        self.pairs = np.flatnonzero((self.cuts > 0) & (longer <= jobs.draft[1]) & (jobs.pairs > 0))
        has_slots = (lengths >= 2) & (self.cuts == 0) & (jobs.pairs < 1)
        counts = np.where(has_slots, np.maximum(lengths // usual, 1), 0)
        if jobs.pairs and not len(self.pairs):
            raise DataError(
                f"jobs.pairs={jobs.pairs} and no pair of at most {jobs.draft[1]} tokens a side (jobs.draft) in the "
                "data; prepare JSON lines with before and after"
            )
        if not counts.any() and not len(self.pairs):
            raise DataError("no document has the 2 tokens that an example takes; prepare longer texts")
        self.ends = np.cumsum(counts)
        self.num_plain = int(self.ends[-1])
        share = jobs.pairs / (1 - jobs.pairs) if jobs.pairs < 1 else 0.0
        self.num_paired = (round(share * self.num_plain) or len(self.pairs)) if len(self.pairs) else 0
        self.jobs, self.documents, self.marks = jobs, documents, marks
        self.maker, self.separator, self.breaks = maker, separator, breaks
        if jobs.num_inner and breaks is None:
            raise ConfigError("jobs.gaps and jobs.sparse take a table of where words begin; make it with find_breaks")

    @classmethod
    def of(cls, shards: Shards, jobs: JobConfig, errors: str = "", mistakes: MistakeConfig | None = None) -> Slots:
        """The slots of a split; `errors` is the table that mistakes are made with, the folder's own if empty."""
        tokenizer = shards.tokenizer
        path = Path(errors) if errors else shards.folder / ERRORS
        maker = open_maker(path, mistakes or MistakeConfig(), tokenizer) if jobs.edit and jobs.pairs < 1 else None
        separator = separator_of(tokenizer) if jobs.rewrites else -1
        breaks = find_breaks(tokenizer) if jobs.num_inner else None
        return cls(shards, jobs, text_marks(tokenizer), maker, separator, breaks)

    def __len__(self) -> int:
        return self.num_plain + self.num_paired

    def shuffle(self, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """The order in which an epoch visits the slots."""
        return np.random.default_rng([seed, epoch]).permutation(len(self))

    def examples(self, slots: npt.NDArray[np.int64], seed: int, epoch: int | npt.NDArray[np.int64]) -> Examples:
        """The examples of some slots, all of one epoch or each of its own."""
        epochs, states = np.broadcast_to(epoch, slots.shape), np.empty(len(slots), np.uint64)
        for each in np.unique(epochs):
            states[epochs == each] = streams(Random.of(seed, int(each)), slots[epochs == each])
        is_pair = slots >= self.num_plain
        if not is_pair.any():
            examples = self._cut(slots, states)
        else:
            numbers = (slots - self.num_plain + epochs * self.num_paired)[is_pair] % len(self.pairs)
            pairs = cut_pairs(self.documents, self.cuts, self.pairs[numbers], states[is_pair], self.jobs.corrected)
            parts = [self._cut(slots[~is_pair], states[~is_pair]), pairs]
            # Back to the order of the slots.
            places = np.argsort(np.concatenate([np.flatnonzero(~is_pair), np.flatnonzero(is_pair)]))
            examples = join_examples(parts).select(places)
        return as_rewrites(examples, self.separator, self.jobs.longest_edit) if self.jobs.rewrites else examples

    def _cut(self, slots: npt.NDArray[np.int64], states: npt.NDArray[np.uint64]) -> Examples:
        documents = np.searchsorted(self.ends, slots, side="right")
        examples, kinds = cut_documents(self.documents, self.jobs, self.marks, documents, states)
        if self.breaks is not None:
            place_gaps(examples, kinds, self.breaks)
        return examples if self.maker is None else make_drafts(examples, kinds == EDIT, self.maker)


def heldout_drafts(
    shards: Shards, jobs: JobConfig, count: int, errors: str = "", mistakes: MistakeConfig | None = None
) -> Examples:
    """The same drafts to edit every time, documents with mistakes and pairs in the proportion of their shares."""
    paired = 1.0 if not jobs.edit else jobs.pairs / (jobs.edit * (1 - jobs.pairs) + jobs.pairs)
    slots = Slots.of(shards, replace(jobs, edit=1.0, pairs=paired), errors, mistakes)
    return slots.examples(slots.shuffle(0, 0)[:count], 0, 0)


def open_maker(path: Path, config: MistakeConfig, tokenizer: Tokenizer) -> MistakeMaker:
    """What makes mistakes, with the table of a file."""
    if not path.exists():
        raise DataError(
            f"{path}: no such table, and data.jobs.edit makes mistakes; build one with: reviser data error-table "
            f"{path.parent} --out {path}"
        )
    return MistakeMaker(load_table(path, tokenizer), config)


def make_drafts(examples: Examples, is_edit: npt.NDArray[np.bool_], maker: MistakeMaker) -> Examples:
    """The same examples; those to edit have a draft now: their target with mistakes."""
    chosen = np.flatnonzero(is_edit)
    first = (examples.first + examples.prefix)[chosen]
    states = examples.states[chosen]
    made = maker.make(examples.tokens, first, first + examples.length[chosen], states)
    sizes = np.diff(made.ends, prepend=0)
    drafts, drafted = examples.drafts.copy(), examples.drafted.copy()
    # Of a text of which nothing is left there is nothing to correct.
    drafts[chosen] = np.where(sizes > 0, len(examples.tokens) + made.ends - sizes, first)
    drafted[chosen] = np.where(sizes > 0, sizes, examples.length[chosen])
    examples.states[chosen] = states
    tokens = np.concatenate([examples.tokens, made.tokens])
    return replace(examples, tokens=tokens, drafts=drafts, drafted=drafted)


def cut_pairs(
    shards: Documents,
    cuts: npt.NDArray[np.int64],
    documents: npt.NDArray[np.int64],
    states: npt.NDArray[np.uint64],
    corrected: float = 0.0,
) -> Examples:
    """Pairs as examples: what stands before the cut of each document is to become what stands behind it.

    In a share of them, `corrected`, the draft is what stands behind the cut already.
    """
    sizes, zeros = shards.lengths[documents], np.zeros(len(documents), np.int64)
    tokens = shards.gather(documents, zeros, sizes)
    first = np.cumsum(sizes) - sizes
    cut = cuts[documents].astype(np.int64)
    drafts, drafted = first, cut
    if corrected:
        is_corrected = draw_chances(corrected, states)
        drafts, drafted = (np.where(is_corrected, a, b) for a, b in ((first + cut, drafts), (sizes - cut, drafted)))
    return Examples(tokens, first + cut, zeros, sizes - cut, zeros.copy(), states, documents, drafts, drafted)


def as_rewrites(examples: Examples, separator: int, longest: int) -> Examples:
    """The same with drafts as prompts, each with the separator behind it; the text around a draft is left out.

    What would be longer than `longest` becomes a shorter text that needs no correction.
    """
    is_edit = examples.drafted > 0
    if not is_edit.any():
        return examples
    chosen, parts = np.flatnonzero(is_edit), [examples.tokens]
    first, prefix, length, suffix = (
        getattr(examples, name).copy() for name in ("first", "prefix", "length", "suffix")
    )
    at, mark = len(examples.tokens), np.array([separator], np.int32)
    for i in chosen.tolist():
        start, count = int(examples.drafts[i]), int(examples.drafted[i])
        draft, target = examples.tokens[start : start + count], examples.target(i)
        if count + 1 + len(target) > longest:
            draft = target = target[: (longest - 1) // 2]
        parts += [draft, mark, target]
        first[i], prefix[i], length[i], suffix[i] = at, len(draft) + 1, len(target), 0
        at += len(draft) + 1 + len(target)
    zeros = np.zeros(len(examples), np.int64)
    return replace(
        examples, tokens=np.concatenate(parts), first=first, prefix=prefix, length=length, suffix=suffix,
        drafts=zeros, drafted=zeros.copy(),
    )  # fmt: skip


def separator_of(tokenizer: Tokenizer) -> int:
    """The token of the separator; a tokenizer that has none can't be used to rewrite."""
    ids = tokenizer.encode(SEPARATOR)
    if len(ids) != 1:
        raise ConfigError(
            "the tokenizer has no single token for the byte 0x1E, which separates a text from its rewriting"
        )
    return int(ids[0])


def find_breaks(tokenizer: Tokenizer) -> npt.NDArray[np.uint8]:
    """For each token: what ends with it (4 a paragraph or line, 3 a sentence, 2 a phrase, 1 a word, 0 nothing that
    can be seen), whether it begins with a space, and how many letters and digits it has."""
    table = np.zeros((tokenizer.num_text, 3), np.uint8)
    for token, is_end in enumerate(sentence_ends(tokenizer)):
        piece = tokenizer.piece(token)
        is_phrase, is_word = piece.endswith((",", ";", ":", ")", "–", "—")), piece[-1:].isspace()
        ends = "\n" in piece, bool(is_end), is_phrase, is_word, True
        table[token] = 4 - ends.index(True), piece[:1].isspace(), min(sum(map(str.isalnum, piece)), 255)
    return table


def place_gaps(examples: Examples, kinds: npt.NDArray[np.int64], breaks: npt.NDArray[np.uint8]) -> None:
    """Put the gaps of examples into their targets, in place: cut at breaks, or around a few words."""
    chosen = np.flatnonzero((kinds == GAPS) | (kinds == WORDS))
    _place_all(
        examples.tokens, chosen, kinds, breaks, examples.first, examples.prefix, examples.length, examples.suffix,
        examples.states, examples.inner,
    )  # fmt: skip


@jit
def _place_all(tokens: Array, chosen: Array, kinds: Array, breaks: Array, firsts: Array, prefixes: Array,
               lengths: Array, suffixes: Array, states: Array, inner: Array) -> None:  # fmt: skip
    for i in chosen:
        start = firsts[i] + prefixes[i]
        if kinds[i] == WORDS:
            _keep_words(tokens[start : start + lengths[i]], breaks, states[i : i + 1], inner[i])
            continue
        count = _fit_gaps(inner[i], lengths[i])
        text = tokens[firsts[i] : start + lengths[i] + suffixes[i]]
        prefixes[i], lengths[i] = _move_gaps(text, breaks, prefixes[i], lengths[i], suffixes[i] > 0, inner[i], count)
        suffixes[i] = len(text) - prefixes[i] - lengths[i]


@jit
def _fit_gaps(inner: Array, length: int) -> int:
    """Halve gaps, and leave some out, until they fit a target with a token for the last gap; how many are left."""
    count, total = 0, 0
    while count < len(inner) and inner[count, 1]:
        total += inner[count, 0] + inner[count, 1]
        count += 1
    while total >= length:
        is_least = total == 2 * count
        if is_least:
            count -= 1
            inner[count] = 0
        total = 2 * count if is_least else halve(inner, count)
    return count


@jit
def _move_gaps(text: Array, breaks: Array, prefix: int, length: int, has_suffix: bool, inner: Array,
               count: int) -> Any:  # fmt: skip
    """Move where gaps begin and end to breaks nearby; returns the prefix and the length of the target then."""
    cuts = np.empty(2 * count + 2, np.int64)
    cuts[0], cuts[-1] = prefix, prefix + length
    for k in range(2 * count):
        cuts[k + 1] = cuts[k] + inner[k // 2, k % 2]
    for k in range(len(cuts)):
        gap = cuts[k + 1] - cuts[k] if k % 2 == 0 else cuts[k] - cuts[k - 1]
        low = cuts[k - 1] + 1 if k else 1
        high = cuts[k + 1] - 1 if k + 1 < len(cuts) else len(text) - 1
        if (k or prefix) and (k + 1 < len(cuts) or has_suffix):
            cuts[k] = _find_break(text, breaks, cuts[k], low, high, min(max(gap // 4, 2), NEAR))
    for k in range(2 * count):
        inner[k // 2, k % 2] = cuts[k + 1] - cuts[k]
    return cuts[0], cuts[-1] - cuts[0]


@jit
def _find_break(text: Array, breaks: Array, place: int, low: int, high: int, reach: int) -> int:
    """The greatest break not farther than `reach`, of equal ones the nearest."""
    best, greatest = place, -1
    for away in range(reach + 1):
        for sign in (-1, 1):
            at = place + sign * away
            if low <= at <= high:
                is_edge = (breaks[text[at - 1], 2] > 0) != (breaks[text[at], 2] > 0)
                size = max(breaks[text[at - 1], 0], breaks[text[at], 1], 1 if is_edge else 0)
                if size > greatest:
                    best, greatest = at, size
    return best


@jit
def _keep_words(text: Array, breaks: Array, rng: Array, inner: Array) -> None:
    """Draw a few words of a target, long ones where there are any; all around them are gaps, which may be empty."""
    words, count = np.empty((len(text), 2), np.int64), 0
    for least in (4, 1):
        end = 0
        for start in range(len(text)):
            is_first = start == 0 or breaks[text[start], 1] or not breaks[text[start - 1], 2]
            if not (is_first and breaks[text[start], 2]):
                continue
            end, letters = start + 1, int(breaks[text[start], 2])
            while end < len(text) and breaks[text[end], 2] and not breaks[text[end], 1]:
                letters += int(breaks[text[end], 2])
                end += 1
            # What touches the end may be the beginning of a longer word.
            if letters >= least and end < len(text):
                words[count, 0], words[count, 1] = start, end
                count += 1
        if count:
            break
    wanted = min(1 + _below(rng, MAX_WORDS), count)
    # The first ones of a shuffle, in their order.
    for k in range(wanted):
        other = k + _below(rng, count - k)
        for side in range(2):
            words[k, side], words[other, side] = words[other, side], words[k, side]
    begins, behind = np.argsort(words[:wanted, 0]), 0
    for k in range(wanted):
        start, end = words[begins[k], 0], words[begins[k], 1]
        inner[k, 0], inner[k, 1] = start - behind, end - start
        behind = end
