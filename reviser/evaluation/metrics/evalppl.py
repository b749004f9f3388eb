"""evalPPL: how probable a separate model finds what systems wrote, per token of that model and per byte of text.

    prefix              text                      suffix
    The old light|house stood empty until morning.|
    ------------- -------------------------------
    context: free  scored                          seen by masked evaluators alone

The whole is tokenised at once. A token that holds at least one character of the text is scored whole, so `lighthouse`
above costs the text its prefix letters too; the bytes counted are those of the text alone. A text without tokens is
empty: it is counted, and scored nowhere. (A tokenizer that gives no offsets: scored are the tokens between the ones
that the whole shares with the prefix alone, from the front, and with the suffix alone, from the back.)

A causal evaluator gives -log p of each token from what stands before it. A masked one gives a pseudo-likelihood:
`chunk` neighbouring tokens are masked at a time, all else is seen; no probability of the text, so its numbers compare
with those of the same evaluator and chunk alone.

>>> round(Score(nats=2.0, num_tokens=4, num_bytes=10).bits_per_byte, 3)
0.289
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F

from reviser.errors import DataError
from reviser.evaluation.evaluator import Evaluator
from reviser.evaluation.generations import Generation
from reviser.evaluation.measures import Measure, Spread, quotient, sum_up
from reviser.evaluation.metrics.diversity import measure
from reviser.evaluation.texts import by_seed, by_system

Advance = Callable[[int], None]
"""Told how many more texts are scored."""


@dataclass(frozen=True, slots=True)
class Score:
    """What an evaluator makes of one text."""

    nats: float
    num_tokens: int
    num_bytes: int

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.num_bytes


@dataclass(frozen=True, slots=True)
class Item:
    """A text in the evaluator's tokens, of which those from `first` up to `last` are scored."""

    ids: tuple[int, ...]
    first: int
    last: int


def score(
    evaluator: Evaluator,
    generations: Sequence[Generation],
    batch: int = 8,
    chunk: int = 1,
    advance: Advance = lambda _: None,
) -> list[Score]:
    """A score for each generation, in their order; neither batch nor padding changes it but for rounding."""
    items = [prepare(evaluator, each) for each in generations]
    nats = [0.0] * len(items)
    scored = [index for index, item in enumerate(items) if item.first < item.last]
    scored.sort(key=lambda index: -len(items[index].ids))
    with torch.inference_mode():
        for index, value in _run(evaluator, items, scored, batch, chunk, advance):
            nats[index] += value
    advance(len(items) - len(scored))
    return [_score(*each) for each in zip(nats, items, generations, strict=True)]


def _score(nats: float, item: Item, generation: Generation) -> Score:
    num_tokens = item.last - item.first
    return Score(nats, num_tokens, len(generation.text.encode()) if num_tokens else 0)


def _run(
    evaluator: Evaluator, items: Sequence[Item], scored: Sequence[int], batch: int, chunk: int, advance: Advance
) -> Iterator[tuple[int, float]]:
    """Indices of items with nats to add."""
    if evaluator.kind == "masked":
        for _, same in groupby(scored, key=lambda index: len(items[index].ids)):
            indices = list(same)
            yield from _masked_nats(evaluator, items, indices, batch, chunk)
            advance(len(indices))
        return
    # What several suites, or several views of a gap, ask about is read once.
    unread = list(dict.fromkeys(items[index].ids for index in scored if items[index].ids not in evaluator.known))
    for start in range(0, len(unread), batch):
        part = unread[start : start + batch]
        evaluator.known.update(zip(part, _read(evaluator, part), strict=True))
        advance(len(part))
    advance(len(scored) - len(unread))
    for index in scored:
        item = items[index]
        yield index, math.fsum(evaluator.known[item.ids][item.first - 1 : item.last - 1])


def _read(evaluator: Evaluator, rows: Sequence[tuple[int, ...]]) -> Iterator[tuple[float, ...]]:
    """-log p of each token of each row but its first; rows are padded on the right, which no token sees."""
    T = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (T - len(row))] for row in rows], device=evaluator.device)
    lengths = torch.tensor([len(row) for row in rows], device=evaluator.device)
    mask = (torch.arange(T, device=evaluator.device) < lengths[:, None]).long()
    logits = evaluator.model(input_ids=ids, attention_mask=mask).logits
    for index, row in enumerate(rows):
        nats = F.cross_entropy(logits[index, : len(row) - 1].float(), ids[index, 1 : len(row)], reduction="none")
        yield tuple(nats.tolist())


def _masked_nats(
    evaluator: Evaluator, items: Sequence[Item], indices: Sequence[int], batch: int, chunk: int
) -> Iterator[tuple[int, float]]:
    """Only texts of one length share a batch: no padding, whose mask diffusion models each read in their own way."""
    places = [
        (index, start, min(start + chunk, items[index].last))
        for index in indices
        for start in range(items[index].first, items[index].last, chunk)
    ]
    back = int(evaluator.is_shifted)
    for at in range(0, len(places), batch):
        part = places[at : at + batch]
        ids = torch.tensor([items[index].ids for index, _, _ in part], device=evaluator.device)
        hidden = ids.clone()
        for row, (_, start, end) in enumerate(part):
            hidden[row, start:end] = evaluator.tokenizer.mask_token_id
        logits = evaluator.model(input_ids=hidden).logits
        for row, (index, start, end) in enumerate(part):
            out = logits[row, start - back : end - back].float()
            yield index, F.cross_entropy(out, ids[row, start:end], reduction="sum").item()


def prepare(evaluator: Evaluator, generation: Generation) -> Item:
    """A generation in the evaluator's tokens, cut so that it fits."""
    suffix = generation.suffix if evaluator.kind == "masked" else ""
    item = _tokenise(evaluator.tokenizer, generation.prefix, generation.text, suffix)
    if item.first == item.last:
        return item
    needs_before = evaluator.kind == "causal" or evaluator.is_shifted
    start = evaluator.tokenizer.bos_token_id
    if (evaluator.has_start and item.ids[0] != start) or (needs_before and item.first == 0):
        item = _put_start(evaluator, item)
    return _fit(item, evaluator, generation)


def _tokenise(tokenizer: Any, prefix: str, text: str, suffix: str) -> Item:
    whole, end = prefix + text + suffix, len(prefix) + len(text)
    if not text:
        return Item((), 0, 0)
    if not tokenizer.is_fast:
        ids = tokenizer.encode(whole)
        first = _shared(ids, tokenizer.encode(prefix)) if prefix else _num_special(tokenizer, ids)
        last = len(ids) - (_shared(ids[first:][::-1], tokenizer.encode(suffix)[::-1]) if suffix else 0)
        return Item(tuple(ids), first, last)
    encoded = tokenizer(whole, return_offsets_mapping=True)
    spans = encoded["offset_mapping"]
    counted = [i for i, (low, high) in enumerate(spans) if high > len(prefix) and low < end]
    return Item(tuple(encoded["input_ids"]), *((counted[0], counted[-1] + 1) if counted else (0, 0)))


def _shared(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many ids both begin with."""
    return next((i for i, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b), min(len(ids), len(others)))


def _num_special(tokenizer: Any, ids: Sequence[int]) -> int:
    return next((i for i, each in enumerate(ids) if each not in tokenizer.all_special_ids), len(ids))


def _put_start(evaluator: Evaluator, item: Item) -> Item:
    tokenizer = evaluator.tokenizer
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None:
        raise DataError(
            f"evaluator {evaluator.name} has no start token, so a text without prefix cannot be scored; "
            "give texts with a prefix"
        )
    return Item((start, *item.ids), item.first + 1, item.last + 1)


def _fit(item: Item, evaluator: Evaluator, generation: Generation) -> Item:
    """Leave out the far ends of the context where the whole is longer than the evaluator reads."""
    over = len(item.ids) - evaluator.limit
    if over <= 0:
        return item
    ids, special = item.ids, evaluator.tokenizer.all_special_ids
    low, high = int(ids[0] in special), len(ids) - int(ids[-1] in special and item.last < len(ids))
    front = min(over, max(0, item.first - max(low, 1)))
    back = over - front
    if high - back < item.last:
        raise DataError(
            f"the text of system {generation.system} for prompt {generation.prompt_id} has "
            f"{item.last - item.first} tokens; evaluator {evaluator.name} reads {evaluator.limit} with what stands "
            "around them; use one that reads more"
        )
    kept = (*ids[:low], *ids[low + front : high - back], *ids[high:])
    return Item(kept, item.first - front, item.last - front)


def summarise(generations: Sequence[Generation], scores: Sequence[Score]) -> list[dict[str, Any]]:
    """A row a system, the references first: perplexity, bits per byte, diversity; scores in `lay_out`'s order."""
    rest = iter(scores)
    return [_row(name, own, [next(rest) for _ in own]) for name, own in by_system(generations).items()]


def _row(name: str, own: Sequence[Generation], scores: Sequence[Score]) -> dict[str, Any]:
    full = [(each, one) for each, one in zip(own, scores, strict=True) if one.num_tokens]
    pools = [[pair for pair in full if pair[0].seed == seed] for seed in by_seed(own)]
    row: dict[str, Any] = {
        "system": name,
        "prompts": len({each.prompt_id for each in own}),
        "seeds": list(by_seed(own)),
        "texts": len(own),
        "empty": len(own) - len(full),
    }
    for key, number in (("perplexity", perplexity), ("bits_per_byte", bits_per_byte)):
        found = number(full)
        over = [one.value for one in map(number, pools) if one]
        row[key] = asdict(found) if found else None
        row[f"{key}_over_seeds"] = asdict(Spread.of(over)) if over else None
    row["by_prompt"] = {"nats_per_token": sum_up(*_parts(full), [float(one.num_tokens) for _, one in full])}
    row["tokens"] = sum(one.num_tokens for one in scores)
    row["bytes"] = sum(one.num_bytes for one in scores)
    return row | {key: asdict(value) if value else None for key, value in measure(own).items()}


Pairs = Sequence[tuple[Generation, Score]]


def perplexity(pairs: Pairs) -> Measure | None:
    """exp of the nats per token of all texts together; a long text counts more."""
    found = quotient(*_parts(pairs), [float(one.num_tokens) for _, one in pairs])
    if found is None:
        return None
    value = math.exp(found.value)
    return Measure(value, None if found.error is None else value * found.error, found.n)


def bits_per_byte(pairs: Pairs) -> Measure | None:
    """Bits of all texts together over their bytes."""
    return quotient(*bit_parts(pairs))


def bit_parts(pairs: Pairs) -> tuple[list[str], list[float], list[float]]:
    """Prompts, nats, and bytes in such a unit that their quotient is in bits."""
    return *_parts(pairs), [math.log(2) * one.num_bytes for _, one in pairs]


def _parts(pairs: Pairs) -> tuple[list[str], list[float]]:
    return [each.prompt_id for each, _ in pairs], [one.nats for _, one in pairs]
