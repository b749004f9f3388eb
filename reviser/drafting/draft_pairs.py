"""Pairs of texts from a model's own writing: before, spans of a text are the model's; after, it is as it was.

    after     The boats lay still, and the gulls were asleep. A child came down the steps.
    before    The boats lay still, and the wind had gone. A child came down the steps.

A model that learns to turn one into the other learns to find what it wrote itself, and to write it anew. It fills
spans with the text on both sides in view. Half of the sentences it writes from what stands before them alone, as it
does when it continues a text, up to as many sentences as there were. Fillings that are empty, are the original again,
hold a line end, are no sentences where those stood, or had to be cut off are left out, and so are texts without any
that is left.

Everything about text `number` is drawn from (seed, number), so a file can be resumed behind its last line. A line is

    {"before": ..., "after": ..., "source": "part.jsonl:7", "number": 12, "spans": [...], "maker": ...}

and `reviser data prepare` reads it as a pair. `spans` says of each span where it is in `before`, its kind, whether
the model saw both sides of it, and, where it was asked for, how many nats the original reads better.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from reviser.data.shards import HEADER, Shards
from reviser.data.sources import read_documents
from reviser.decoding.presets import PAPER, Sampling
from reviser.decoding.requests import Request
from reviser.decoding.writer import Text, Writer
from reviser.drafting.draft_spans import LEAST, DraftSpan, choose_spans, cut_sentences, cut_stretch, has_sentences
from reviser.errors import ConfigError, DataError
from reviser.files import drop_half_line, locked
from reviser.orders.rng import Random, threshold
from reviser.proofreading.edits import Edit, apply_edits
from reviser.proofreading.rereading import find_gains
from reviser.tokenizer import Tokenizer

Named = tuple[str, str]
"""Where a document comes from, and its text."""
TellDrafts = Callable[[int, int], None]
"""Called with how many texts have been taken, and how many pairs there are."""
PER_ROW = 4
"""Spans that are filled together, for each row of the engine."""
ROOM, SPARE = 2, 8
"""A filling may be so many times as long as the original, and so many tokens longer."""
ODD = re.compile(r"[\n\r\ufffd\0]")
"""What no filling may hold."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """How texts are cut and spans are filled."""

    seed: int = 0
    tokens: int = 170
    """Of a text at most."""
    spans: tuple[int, int] = (1, 3)
    """In a text."""
    blind: float = 0.5
    """Share of sentences that are written from what stands before them alone."""
    per_document: int = 4
    """Texts of one document at most; a short one gives fewer."""
    min_gain: float | None = None
    """Leave out spans unless the original reads better by this many nats, at equal length, to the model itself."""
    sampling: Sampling = field(default=PAPER)

    def __post_init__(self) -> None:
        if self.tokens < LEAST:
            raise ConfigError(f"--tokens {self.tokens} must be at least {LEAST}")
        if not 1 <= self.spans[0] <= self.spans[1]:
            raise ConfigError(f"--spans {self.spans[0]},{self.spans[1]} must be two whole numbers from 1 up, as 1,3")
        if not 0 <= self.blind <= 1:
            raise ConfigError(f"--blind {self.blind} must be a share between 0 and 1")
        if self.per_document < 1:
            raise ConfigError(f"--per-document {self.per_document} must be at least 1")


@dataclass(frozen=True, slots=True)
class PlannedText:
    """A text, the spans that are to be written anew, and which of them without a view of what follows."""

    number: int
    source: str
    text: str
    spans: tuple[DraftSpan, ...]
    is_blind: tuple[bool, ...]


def read_sources(paths: Sequence[str], field: str = "text") -> Iterator[Named]:
    """The documents of files and folders, and the training documents of data folders."""
    for path in paths:
        if (Path(path) / HEADER).is_file():
            shards = Shards.open(path, "train")
            yield from ((f"train:{i}", shards.tokenizer.decode(shards[i].tolist())) for i in shards.plain.tolist())
        else:
            yield from ((f"{Path(each.file).name}:{each.line}", each.text) for each in read_documents([path], field))


def plan_texts(
    documents: Iterable[Named], tokenizer: Tokenizer, how: Drafting, begin: int = 0
) -> Iterator[PlannedText]:
    """Texts with spans from number `begin` on; a text without a span has a number too."""
    number = 0
    for source, document in documents:
        for _ in range(max(1, min(how.per_document, len(document) // (4 * how.tokens)))):
            if number >= begin:
                yield _plan(number, source, document, tokenizer, how)
            number += 1


def _plan(number: int, source: str, document: str, tokenizer: Tokenizer, how: Drafting) -> PlannedText:
    rng = Random.of(how.seed, number)
    text = cut_stretch(document, tokenizer, how.tokens, rng)
    spans = choose_spans(text, rng, how.spans) if text else []
    blind = tuple(bool(each.start) and rng.chance(threshold(how.blind)) and each.is_sentences for each in spans)
    return PlannedText(number, source, text, tuple(spans), blind)


@dataclass(frozen=True, slots=True)
class Filling:
    """What a model wrote in a span, as an edit of the text."""

    edit: Edit
    kind: str
    is_blind: bool
    gain: float | None = None
    """Nats by which the original reads better, where that was asked for."""


def fill_spans(writer: Writer, plans: Sequence[PlannedText], how: Drafting) -> list[list[Filling]]:
    """What the model writes in the spans of each text, without what is of no use."""
    requests = [_request(writer, plan, place, how.seed) for plan in plans for place in range(len(plan.spans))]
    written = iter(writer.write(requests, how.sampling))
    read = [[_read_filling(plan, place, next(written)) for place in range(len(plan.spans))] for plan in plans]
    filled = [[each for each in fillings if each is not None] for fillings in read]
    return filled if how.min_gain is None else _keep_worse(writer, plans, filled, how.min_gain)


def _request(writer: Writer, plan: PlannedText, place: int, seed: int) -> Request:
    span = plan.spans[place]
    room = ROOM * len(writer.tokenizer.encode(plan.text[span.start : span.end])) + SPARE
    behind = "" if plan.is_blind[place] else plan.text[span.end :]
    draft = writer.gap(plan.text[: span.start], behind, room)
    return Request(draft, ROOM * room, Random.of(seed, plan.number, place).state)


def _read_filling(plan: PlannedText, place: int, written: Text) -> Filling | None:
    span, is_blind = plan.spans[place], plan.is_blind[place]
    original = plan.text[span.start : span.end]
    new = cut_sentences(written.new, original) if is_blind else written.new
    is_whole = is_blind or (written.has_stopped and (not span.is_sentences or has_sentences(new)))
    if not is_whole or not new.strip() or ODD.search(new) or new == original:
        return None
    return Filling(Edit(span.start, span.end, original, new, 1.0), span.kind, is_blind)


def _keep_worse(
    writer: Writer, plans: Sequence[PlannedText], filled: Sequence[Sequence[Filling]], min_gain: float
) -> list[list[Filling]]:
    """The fillings that the model itself, reading from left to right, finds so much worse than the originals."""
    shown = [("", plan.text, "", [each.edit for each in own]) for plan, own in zip(plans, filled, strict=True) if own]
    found = iter(find_gains(shown, writer.tokenizer, writer.read, at_equal_length=True))
    weighed = [
        [replace(each, gain=-gain) for each, gain in zip(own, next(found), strict=True)] if own else []
        for own in filled
    ]
    return [[each for each in own if each.gain is not None and each.gain >= min_gain] for own in weighed]


def make_pairs(writer: Writer, plans: Sequence[PlannedText], how: Drafting) -> list[dict[str, Any]]:
    """The pairs of some texts, one for each that has a filling left."""
    filled = fill_spans(writer, plans, how)
    return [_pair(plan, fillings) for plan, fillings in zip(plans, filled, strict=True) if fillings]


def _pair(plan: PlannedText, fillings: Sequence[Filling]) -> dict[str, Any]:
    spans, growth = [], 0
    for each in fillings:
        start = each.edit.start + growth
        growth += each.edit.growth
        told = {"start": start, "end": each.edit.end + growth, "kind": each.kind}
        told["sees"] = "prefix" if each.is_blind else "both"
        spans.append(told if each.gain is None else told | {"nats": round(each.gain, 2)})
    pair = {"before": apply_edits(plan.text, [each.edit for each in fillings]), "after": plan.text}
    return pair | {"source": plan.source, "number": plan.number, "spans": spans}


def write_drafts(
    writer: Writer,
    documents: Iterable[Named],
    out: str | os.PathLike[str],
    how: Drafting,
    maker: str = "",
    most: int | None = None,
    report: TellDrafts = lambda *_: None,
) -> int:
    """Pairs of all documents, or `most` of them, as lines of a file, which is resumed where it exists; how many it
    holds."""
    try:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        with locked(out):
            return _write_locked(writer, documents, Path(out), how, maker, most, report)
    except BlockingIOError:
        raise ConfigError(f"{out}: another run writes to it; wait for that run, or give another --out") from None
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written ({error.strerror}); give another --out") from None


def _write_locked(
    writer: Writer,
    documents: Iterable[Named],
    out: Path,
    how: Drafting,
    maker: str,
    most: int | None,
    report: TellDrafts,
) -> int:
    sign = _sign(how, maker)
    begun, num_pairs = _read_begun(out, sign)
    plans = plan_texts(documents, writer.tokenizer, how, begun)
    with out.open("a", encoding="utf-8") as file:
        while most is None or num_pairs < most:
            batch = _take_batch(plans, PER_ROW * writer.num_rows)
            if not batch:
                break
            pairs = make_pairs(writer, [plan for plan in batch if plan.spans], how)
            pairs = pairs if most is None else pairs[: most - num_pairs]
            file.write("".join(json.dumps(pair | {"maker": sign}, ensure_ascii=False) + "\n" for pair in pairs))
            file.flush()
            num_pairs += len(pairs)
            report(batch[-1].number + 1, num_pairs)
    return num_pairs


def _take_batch(plans: Iterator[PlannedText], num_spans: int) -> list[PlannedText]:
    """The next texts that have so many spans together."""
    batch, count = list[PlannedText](), 0
    for plan in islice(plans, 16 * num_spans):
        batch.append(plan)
        count += len(plan.spans)
        if count >= num_spans:
            break
    return batch


def _sign(how: Drafting, maker: str) -> str:
    """What a pair depends on besides the documents, as a short hash."""
    return hashlib.sha256(json.dumps([asdict(how), maker]).encode()).hexdigest()[:16]


def _read_begun(out: Path, sign: str) -> tuple[int, int]:
    """The text behind the last that a file holds a pair of, and how many pairs it holds."""
    drop_half_line(out)
    if not out.exists():
        return 0, 0
    number, count = -1, 0
    with out.open(encoding="utf-8") as file:
        for count, line in enumerate(file, 1):
            try:
                pair = json.loads(line)
                number, made = int(pair["number"]), pair["maker"]
            except (ValueError, KeyError, TypeError):
                raise DataError(f"{out}, line {count}: not a pair of drafts; give another --out") from None
            if made != sign:
                raise ConfigError(
                    f"{out}: its pairs were made with another model or other settings; give another --out"
                )
    return number + 1, count
