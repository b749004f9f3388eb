"""A text of any length as windows that a model can hold, and each window as a draft.

    One sentence. Another one. |The third is long. A fourth.| And a fifth one follows.
    context, protected          the window: may change         context, protected

Windows lie side by side and cover all prose. A window holds whole paragraphs where they fit, else whole sentences,
else what fits between two words; text that is protected as a whole belongs to none. What the model makes of a window
depends on its own characters and on the sentences beside it, never on other windows.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reviser.canvas import CLOSED, Rules, protect
from reviser.config import ModelConfig, parse_jobs
from reviser.errors import TokenizerError
from reviser.orders.record import Draft
from reviser.tokenizer import Tokenizer

Span = tuple[int, int]

PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
SENTENCE = re.compile(
    r"(?<![\s.][A-Z])(?<!\be\.g)(?<!\bi\.e)(?<!\b[DMJS]r)(?<!\bMrs)(?<!\bvs)(?<!\bcf)(?<!\bFig)(?<!\bal)"
    r"[.!?…]+[\"'”’)\]*_]*(?=\s+[\"'“‘(\[*_]*[^\sa-z])|[。！？]+|\n(?=[^\S\n]*(?:[-*+•]|\d+[.)])\s)"
)
WORD = re.compile(r"\s+")
WINDOW_SHARE = 0.6
"""Of the positions that a model reads; the rest is left for its actions."""
CANVAS_SHARE = 0.8
"""Of the tokens that a canvas holds; the rest is left for what is inserted."""
CONTEXT_SHARE = 6
"""A window's context on each side has at most its size by this."""


@dataclass(frozen=True, slots=True)
class TextWindow:
    """Characters `start` to `end` of a text, and the context around them."""

    start: int
    end: int
    left: int
    """Where the context on the left begins."""
    right: int
    """Where the context on the right ends."""
    around: tuple[str, str]
    """The characters on either side, a line end at the ends of the text."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many tokens of text a model takes."""

    most: int
    """In a draft."""
    context: int
    """On each side of a window."""
    core: int
    """In a window."""

    @classmethod
    def of(cls, config: ModelConfig, jobs: str = "") -> Room:
        """What fits a model and is no longer than the drafts that it learned to edit, where `jobs` says how long they
        were: in longer ones it misses more."""
        most = min(int((config.context - 2) * WINDOW_SHARE), int(config.max_length * CANVAS_SHARE))
        context = most // CONTEXT_SHARE
        learned = parse_jobs(jobs)
        if not any(learned.get("edit", ()) + learned.get("pairs", ())):
            return cls(most, context, most - 2 * context)
        core = min(most - 2 * context, int(learned.get("draft", (most,))[-1]))
        context = min(context, int(learned.get("around", (most,))[-1]))
        return cls(core + 2 * context, context, core)


def cut_windows(text: str, protected: Sequence[Span], tokenizer: Tokenizer, room: Room) -> list[TextWindow]:
    """The windows of a text, whose prose they cover."""
    blocks = [place for span in protected if "\n" in text[slice(*span)].strip() for place in span]
    starts = [0, *sorted({*_sentence_ends(text), *blocks} - {0, len(text)})]
    spans = list(_between(starts, len(text)))
    sizes = list(map(len, tokenizer.encode_many([text[start:end] for start, end in spans])))
    breaks = {match.end() for match in PARAGRAPH.finditer(text)}
    packer = _Packer(text, tokenizer, room.core)
    paragraph: list[tuple[Span, int]] = []
    for span, size in zip(spans, sizes, strict=True):
        is_protected = _is_protected(protected, *span) and not text[slice(*span)].isspace()
        if span[0] in breaks or is_protected:
            packer.add(paragraph)
            paragraph = []
        if is_protected:
            packer.flush()
        else:
            paragraph.append((span, size))
    packer.add(paragraph)
    packer.flush()
    cores = [core for core in packer.cores if _has_prose(text, protected, *core)]
    contexts = [_context(text, core, starts, tokenizer, room.context) for core in cores]
    return [
        TextWindow(start, end, left, right, (text[max(start - 1, 0) : start] or "\n", text[end : end + 1] or "\n"))
        for (start, end), (left, right) in zip(cores, contexts, strict=True)
    ]


class _Packer:
    """Fills windows of at most `most` tokens with paragraphs, each given as its sentences and their sizes."""

    def __init__(self, text: str, tokenizer: Tokenizer, most: int) -> None:
        self._text, self._tokenizer, self._most = text, tokenizer, most
        self.cores: list[Span] = []
        self._open: Span | None = None
        self._size = 0

    def add(self, paragraph: Sequence[tuple[Span, int]]) -> None:
        if sum(size for _, size in paragraph) + self._size > self._most:
            self.flush()
        for span, size in paragraph:
            if size > self._most:
                self.flush()
                self.cores += _split(self._text, *span, self._tokenizer, self._most)
                continue
            if size + self._size > self._most:
                self.flush()
            self._open = (self._open or span)[0], span[1]
            self._size += size

    def flush(self) -> None:
        """End the window."""
        if self._open:
            self.cores.append(self._open)
        self._open, self._size = None, 0


def _sentence_ends(text: str) -> list[int]:
    """Where sentences and paragraphs end; a space behind a sentence belongs to the next, as it does in tokens."""
    ends = {match.end() for pattern in (PARAGRAPH, SENTENCE) for match in pattern.finditer(text)}
    return sorted(ends)


def _between(starts: Sequence[int], size: int) -> Iterator[Span]:
    return zip(starts, [*starts[1:], size], strict=True)


def _split(text: str, start: int, end: int, tokenizer: Tokenizer, most: int) -> list[Span]:
    """A stretch in parts of at most `most` tokens, cut before white space where there is some."""
    if end - start < 2 or len(tokenizer.encode(text[start:end])) <= most:
        return [(start, end)]
    middle = (start + end) // 2
    gaps = [match.start() for match in WORD.finditer(text, start + 1, end)]
    cut = min(gaps, key=lambda place: abs(place - middle), default=middle)
    return [*_split(text, start, cut, tokenizer, most), *_split(text, cut, end, tokenizer, most)]


def _is_protected(protected: Sequence[Span], start: int, end: int) -> bool:
    """Whether all of a stretch is."""
    place = bisect_right(protected, (start, 1 << 60)) - 1
    return place >= 0 and protected[place][1] >= end


def _has_prose(text: str, protected: Sequence[Span], start: int, end: int) -> bool:
    """Whether a stretch has letters that may change."""
    return any(any(map(str.isalnum, text[a:b])) for a, b in _gaps(protected, start, end))


def _gaps(protected: Sequence[Span], start: int, end: int) -> Iterator[Span]:
    """What of a stretch is not protected."""
    for first, last in find_meeting(protected, start, end):
        if first > start:
            yield start, first
        start = max(start, last)
    if start < end:
        yield start, end


def find_meeting(spans: Sequence[Span], start: int, end: int) -> Iterator[Span]:
    """Those of sorted, disjoint spans that meet a stretch, if only at its ends."""
    for place in range(max(bisect_left(spans, (start, 0)) - 1, 0), len(spans)):
        first, last = spans[place]
        if first > end:
            break
        if last >= start:
            yield first, last


def _context(text: str, core: Span, starts: Sequence[int], tokenizer: Tokenizer, most: int) -> Span:
    """Where a window's context begins and ends: whole sentences on either side, up to `most` tokens on each."""
    left, right = core
    number = bisect_left(starts, left)
    while number > 0 and len(tokenizer.encode(text[starts[number - 1] : core[0]])) <= most:
        number -= 1
        left = starts[number]
    number = bisect_right(starts, right)
    while right < len(text):
        place = starts[number] if number < len(starts) else len(text)
        if len(tokenizer.encode(text[core[1] : place])) > most:
            break
        right, number = place, number + 1
    return left, right


def make_draft(
    left: str, core: str, right: str, protected: Sequence[Span], tokenizer: Tokenizer, rules: Rules
) -> Draft | None:
    """A window as a draft; `protected` counts the characters of its core, and may reach beyond it. None where nothing
    may change."""
    text = left + core + right
    tokens = tokenizer.encode(text)
    pieces = tokenizer.pieces(tokens)
    if "".join(pieces) != text:
        raise TokenizerError(
            "this model's tokenizer does not give texts back as they are, so it cannot edit them; "
            "use a model with a byte-level vocabulary"
        )
    begin, size = len(left), len(text)
    inside = [(begin + max(start, 0), begin + min(end, len(core))) for start, end in protected]
    spans = [(0, begin), *inside, (size - len(right), size)]
    fixed = _find_tokens(pieces, [span for span in spans if span[0] < span[1]])
    ends = [*([0] if left else []), *([len(tokens)] if right else [])]
    marks = protect(len(tokens), fixed, ends)
    is_closed = bool(marks) and all(mark & CLOSED for mark in marks)
    return None if is_closed else Draft.edit(tokens, rules, marks)


def _find_tokens(pieces: Sequence[str], spans: Sequence[Span]) -> list[Span]:
    """The tokens that have a character in some spans, as spans; a token of part of a character has all of it."""
    ends, place = [0] * len(pieces), sum(map(len, pieces))
    for number in range(len(pieces) - 1, -1, -1):
        ends[number] = place if pieces[number] or number + 1 == len(pieces) else ends[number + 1]
        place -= len(pieces[number])
    starts, place = [0] * len(pieces), 0
    for number, piece in enumerate(pieces):
        starts[number] = place
        place += len(piece)
    found: list[Span] = []
    for start, end in spans:
        first = bisect_right(ends, start)
        last = bisect_left(starts, end)
        if first < last and found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        elif first < last:
            found.append((first, last))
    return found
