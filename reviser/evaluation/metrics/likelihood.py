"""How probable texts are to a model: log p(y) from left to right, a lower bound of it in every other order.

A text is written by many trajectories A. K of them are drawn from the order's q, which knows how probable each was:

    log p(y)  >=  E log (1/K) sum_k p(A_k) / q(A_k)        K = 1: E [ log p(A) - log q(A) ]

More samples tighten it; it tends to the log of the sum of p over the trajectories that q can draw. The softmax runs
over valid actions, STOP included, and no step budget cuts anything off. From left to right the model may do nothing
but append and stop: there is one trajectory a text, so the number is exact.

    prompts = cut_prompts(documents, tokenizer, 128, prefix=32, length=128)
    log_likelihood(model, tokenizer, Runs(0.05, "end"), prompts, samples=8).log_p

MDLM and SEDD have no order; theirs is the bound of their papers, K its draws of a noise level (diffusion/bound.py).

What is given and what is scored is text, so that systems with different tokenizers get the same. Each part (prefix,
text, suffix) is encoded on its own, as it is when a model writes.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reviser.canvas import Rules
from reviser.config import ModelConfig
from reviser.data.examples import NEAR, Examples, Gap, heldout_examples, with_ends
from reviser.diffusion.bound import bound_nats, common_room
from reviser.diffusion.denoiser import Denoiser
from reviser.errors import ConfigError, DataError
from reviser.evaluation.generations import Prompt
from reviser.evaluation.measures import difference, quotient, sum_up
from reviser.model.checkpoint import find, read_config
from reviser.model.transformer import Transformer
from reviser.orders.policies import Diff, LeftToRight, Mixture, Order
from reviser.orders.registry import format_order
from reviser.orders.rng import Random
from reviser.tokenizer import Tokenizer
from reviser.training.heldout import Nats, Sampled, summarise
from reviser.training.runs import read_settings

Tokens = Sequence[int]
AT_ONCE = 128
"""Trajectories that are drawn, packed and scored together."""
TEXTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class TextLikelihoods:
    """What texts are worth to a model, in nats; one entry a text."""

    log_p: list[float]
    """log p(text | what is given), or a lower bound of it."""
    log_q: list[float]
    """Of the trajectories drawn for a text, their mean."""
    num_tokens: list[int]
    samples: int
    """Trajectories drawn for each text; 1 where there is but one."""
    is_exact: bool
    """False: `log_p` is a bound, in expectation."""
    insert_nats: list[float] = field(default_factory=list)
    """What the INSERTs of a text's trajectories cost, their mean; none for a model without trajectories."""
    cursor_nats: list[float] = field(default_factory=list)
    """The same of its MOVEs and JUMPs."""
    log_reached: list[float] = field(default_factory=list)
    """Like `log_p`, of the canvas becoming the text at some time, whether or not the model stops there; empty where
    all trajectories drawn for some text move on after their last INSERT."""


def log_likelihood(
    model: Transformer,
    tokenizer: Tokenizer,
    order: Order | None,
    texts: Sequence[str | Prompt],
    samples: int = 1,
    seed: int = 0,
    precision: str = "float32",
    advance: Callable[[int], None] | None = None,
) -> TextLikelihoods:
    """How probable texts are; of a prompt its reference, given what stands before and behind it.

    A denoiser has no order. `advance` is told, now and then, how many more trajectories have been scored.
    """
    prompts = [Prompt("", "", each) if isinstance(each, str) else each for each in texts]
    parts = [tokenizer.encode_many([p.reference, p.prefix, p.suffix]) for p in prompts]
    gaps = [Gap(target, prefix, suffix) for target, prefix, suffix in parts]
    return score_gaps(model, order, gaps, samples, seed, precision, advance, tokenizer)


def score_gaps(
    model: Transformer,
    order: Order | None,
    gaps: Sequence[Gap],
    samples: int = 1,
    seed: int = 0,
    precision: str = "float32",
    advance: Callable[[int], None] | None = None,
    tokenizer: Tokenizer | None = None,
) -> TextLikelihoods:
    """`log_likelihood` of token ids; an order that cuts at the ends of sentences needs the tokenizer."""
    if samples < 1:
        raise ConfigError(f"{samples} samples a text; at least 1 is needed")
    if isinstance(model, Denoiser):
        return _score_canvases(model, gaps, samples, seed, precision, advance)
    if order is None:
        raise ConfigError("a model that edits is measured by an order; give one, e.g. left-to-right")
    rules, is_exact = rules_of(model.config, order), isinstance(order, LeftToRight)
    rules = with_ends(rules, order, tokenizer)
    num_samples = 1 if is_exact else samples
    kinds, log_q = np.empty((len(gaps) * num_samples, 3)), np.empty(len(gaps) * num_samples)
    is_insert_last = np.empty(len(log_q), np.bool_)
    for start in range(0, len(log_q), AT_ONCE):
        part = range(start, min(start + AT_ONCE, len(log_q)))
        drawn = Sampled(_examples(gaps, part, num_samples, seed), order, rules, model.config.canvas)
        kinds[part.start : part.stop] = drawn.score_kinds(model, model.head_weight.device, precision)
        log_q[part.start : part.stop] = drawn.packed.log_q
        is_insert_last[part.start : part.stop] = drawn.is_insert_last(model.config.alphabet)
        if advance is not None:
            advance(len(part))
    weights = (-kinds.sum(axis=1) - log_q).reshape(-1, num_samples)
    # A trajectory that moves on after its last INSERT is the continuation of another one, which counts already.
    reached = np.where(is_insert_last, -kinds[:, :2].sum(axis=1) - log_q, -np.inf).reshape(-1, num_samples)
    is_reached = bool((reached > -np.inf).any(axis=1).all())
    given, inserts, cursor = (
        each.reshape(-1, num_samples).mean(axis=1).tolist() for each in (log_q, kinds[:, 0], kinds[:, 1])
    )
    log_p = log_mean_exp(weights).tolist()
    log_reached = log_mean_exp(reached).tolist() if is_reached else []
    lengths = [len(gap.target) for gap in gaps]
    return TextLikelihoods(log_p, given, lengths, num_samples, is_exact, inserts, cursor, log_reached)


def _score_canvases(
    model: Denoiser,
    gaps: Sequence[Gap],
    samples: int,
    seed: int,
    precision: str,
    advance: Callable[[int], None] | None,
) -> TextLikelihoods:
    """A denoiser's bound; its draws are averaged, for it is a mean of nats and not of probabilities."""
    device = model.head_weight.device
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        nats = bound_nats(model, gaps, common_room(gaps), samples, seed, device, advance=advance)
    lengths = [len(gap.target) for gap in gaps]
    return TextLikelihoods((-nats).tolist(), [0.0] * len(gaps), lengths, samples, False)


def log_mean_exp(weights: Nats) -> Nats:
    """The log of the mean of exp over the last axis."""
    total: Nats = np.logaddexp.reduce(weights, axis=-1)
    return total - math.log(weights.shape[-1])


def rules_of(config: ModelConfig, order: Order) -> Rules:
    """What the model may do while it is measured: from left to right append and stop, else all it can."""
    parts = [part for _, part in order.parts] if isinstance(order, Mixture) else [order]
    if any(isinstance(part, Diff) for part in parts):
        raise ConfigError("diff turns one text into another; to measure new text choose left-to-right, runs, ...")
    missing = sorted(order.needs - set(config.operators))
    if missing and order.has_likelihood:
        has = ", ".join(sorted(config.operators)) or "none"
        raise ConfigError(f"{format_order(order)} uses {missing[0]}, which the model does not have; it has {has}")
    operators = frozenset() if isinstance(order, LeftToRight) else frozenset(config.operators)
    return Rules(config.alphabet, operators, config.max_length, config.has_jumps)


def _examples(gaps: Sequence[Gap], numbers: range, samples: int, seed: int) -> Examples:
    """Example i is sample i % samples of gap i // samples; its stream depends on these two and the seed alone."""
    chosen = [gaps[i // samples] for i in numbers]
    texts = [[*gap.prefix, *gap.target, *gap.suffix] for gap in chosen]

    def count(lists: Iterable[Tokens]) -> npt.NDArray[np.int64]:
        return np.array([len(each) for each in lists], np.int64)

    ends = np.cumsum(count(texts))
    return Examples(
        np.array([token for text in texts for token in text], np.int32),
        ends - count(texts),
        count(gap.prefix for gap in chosen),
        count(gap.target for gap in chosen),
        count(gap.suffix for gap in chosen),
        np.array([Random.of(seed, i // samples, i % samples).state for i in numbers], np.uint64),
        np.array([i // samples for i in numbers], np.int64),
    )


class _Encoded:
    """Documents in memory, as `heldout_examples` reads them."""

    def __init__(self, documents: Sequence[Tokens], tokenizer: Tokenizer) -> None:
        self.documents, self.tokenizer = documents, tokenizer
        self.lengths = np.array([len(document) for document in documents], np.int64)

    def gather(
        self, documents: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        places = zip(documents.tolist(), starts.tolist(), sizes.tolist(), strict=True)
        return np.array([t for d, start, size in places for t in self.documents[d][start : start + size]], np.int32)


def cut_prompts(
    documents: Iterable[tuple[str, str]], ruler: Tokenizer, count: int, prefix: int, length: int, infill: bool = False
) -> list[Prompt]:
    """Prompts out of the beginnings of the first documents that are long enough; documents come with a name.

    Lengths are in the ruler's tokens. A continuation ends where a sentence ends, when one is near; with `infill`
    as much text is given behind the gap as before it.
    """
    need = prefix + length + (prefix if infill else 0) + NEAR
    named = _long_enough(iter(documents), ruler, need, count)
    if not named:
        raise DataError(f"no text has {need} tokens; give longer texts, or measure shorter stretches of them")
    tokens = [each for _, each in named]
    cut = heldout_examples(_Encoded(tokens, ruler), count, prefix, length, infill)
    sizes = np.stack([cut.prefix, cut.length, cut.suffix], axis=1).tolist()
    prompts = [_prompt(name, ruler.pieces(each), *size) for (name, each), size in zip(named, sizes, strict=True)]
    return [prompt for prompt in prompts if prompt.reference]


def _long_enough(
    documents: Iterable[tuple[str, str]], ruler: Tokenizer, need: int, count: int
) -> list[tuple[str, Tokens]]:
    """Name and tokens of the first documents with enough of them; no more are read than that takes."""
    found: list[tuple[str, Tokens]] = []
    while len(found) < count and (part := list(itertools.islice(documents, TEXTS_AT_ONCE))):
        encoded = ruler.encode_many([text for _, text in part])
        found += [(name, ids) for (name, _), ids in zip(part, encoded, strict=True) if len(ids) >= need]
    return found[:count]


def _prompt(name: str, pieces: Sequence[str], prefix: int, length: int, suffix: int) -> Prompt:
    """A character that a cut would split belongs to what is behind the cut."""
    places = (0, prefix, prefix + length, prefix + length + suffix)
    before, middle, behind = ("".join(pieces[start:end]) for start, end in itertools.pairwise(places))
    return Prompt(name, before, middle, behind)


def trained_order(model: str | os.PathLike[str]) -> str:
    """The order a model was trained with, as its folder says, or the run folder that it lies in."""
    folder = find(model)
    described = read_config(folder)
    if described.trained is not None:
        return described.trained.order
    try:
        run = read_settings(folder.resolve().parent)
    except ConfigError:
        run = None
    if run is None or run.model != described.model:
        raise ConfigError(f"{model} does not say what order it was trained with; give it, e.g. --order left-to-right")
    return run.data.order


def measure(
    model: Transformer,
    tokenizer: Tokenizer,
    order: Order | None,
    prompts: Sequence[Prompt],
    samples: int = 1,
    seed: int = 0,
    precision: str = "float32",
    advance: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """A system's row of the result; errors are standard errors over texts, None for a single one."""
    found = log_likelihood(model, tokenizer, order, prompts, samples, seed, precision, advance)
    name, operators = _name(model, order)
    return row_of(found, prompts, name) | {"operators": operators}


def row_of(found: TextLikelihoods, prompts: Sequence[Prompt], order: str) -> dict[str, Any]:
    """What a system's likelihood of prompts' references comes to."""
    num_bytes = sum(len(prompt.reference.encode()) for prompt in prompts)
    bits = _bits(found, prompts)
    measured = quotient(*bits)
    bound = summarise(-np.array(found.log_p), np.array(found.log_q), np.array(found.num_tokens), num_bytes)
    return {
        "order": order,
        "K": found.samples,
        "nats_per_token": bound.nats_per_token,
        "error": bound.error if len(prompts) > 1 else None,
        "perplexity": bound.perplexity,
        "bits_per_byte": bound.bits_per_byte,
        "bits_per_byte_error": measured.error if measured else None,
        "is_exact": found.is_exact,
        "n": len(prompts),
        "log_q_per_token": bound.log_q_per_token,
        "insert_nats_per_token": _per_token(found.insert_nats, found),
        "cursor_nats_per_token": _per_token(found.cursor_nats, found),
        "num_tokens": sum(found.num_tokens),
        "num_bytes": num_bytes,
        "by_prompt": {"bits_per_byte": sum_up(*bits)},
    }


def _per_token(nats: Sequence[float], found: TextLikelihoods) -> float | None:
    return sum(nats) / sum(found.num_tokens) if nats else None


def beside_first(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that say how many bits per byte they have more than the first; what is hard, is hard for all."""
    first, *others = rows
    beside = [first]
    for row in others:
        found = difference(*(each["by_prompt"]["bits_per_byte"] for each in (row, first)))
        beside.append(row | {"more_than_first": asdict(found) if found else None})
    return beside


def _bits(found: TextLikelihoods, prompts: Sequence[Prompt]) -> tuple[list[str], list[float], list[float]]:
    """Each text's name, bits and bytes, which vary together: theirs is no mean of quotients."""
    bits = [-log_p / math.log(2) for log_p in found.log_p]
    return [prompt.id for prompt in prompts], bits, [float(len(prompt.reference.encode())) for prompt in prompts]


def _name(model: Transformer, order: Order | None) -> tuple[str, list[str]]:
    """How a model was measured: its order and what it might do, or its family."""
    if isinstance(model, Denoiser):
        return model.family, []
    assert order is not None, "it would have been refused"
    return format_order(order), sorted(rules_of(model.config, order).operators)
