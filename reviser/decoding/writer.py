"""Texts in, texts out: a model with its tokenizer, and the three jobs.

    generate   continue prompts; an empty one writes from nothing; the model may revise what it wrote
    infill     write in the gap between two texts, or in several gaps, any length
    edit       correct a text that is on the canvas already, and say what was changed

`stream` yields the same as events, one per action, for viewers and servers. The same seed gives the same text.

>>> writer = Writer.from_pretrained()  # doctest: +SKIP
>>> writer.generate("Bees are", seed=1)  # doctest: +SKIP
[Text('Bees are about the size of a tree, ...', 131 actions for 127 tokens, log-probability -273.11, ended by model)]
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from reviser.canvas import Rules
from reviser.config import ModelConfig
from reviser.decoding.arguments import (
    Weights,
    check_all_whole,
    check_counts,
    check_device,
    check_text,
    check_weights,
    check_whole,
    list_prompts,
)
from reviser.decoding.cpu.array_engine import ArrayEngine
from reviser.decoding.cpu.array_reading import score_by_kernels
from reviser.decoding.cpu.file_weights import load_model
from reviser.decoding.cpu.kernel_model import KernelModel
from reviser.decoding.gap_filling import (
    GapLimits,
    check_telling,
    fill_in_turn,
    find_fillings,
    gap_places,
    knows_gaps,
    number_of_gap,
    passable,
    rate_filling,
    refill,
    split_gaps,
    usual_best_of,
)
from reviser.decoding.presets import DEFAULT, LONGEST_GAP, SCAN, Sampling, check_sampling
from reviser.decoding.requests import Decoded, Event, Request, Text, edit_budget, find_end, join_revision, keep_best
from reviser.errors import ConfigError
from reviser.model.folder import FolderConfig, check_tokenizer, find, read_config, tokenizer_of
from reviser.orders.record import Draft
from reviser.orders.rng import Random
from reviser.proofreading.choices import MIN_PROBABILITY, PASSES, REVISE_PROBABILITY, Proofreading, revising
from reviser.proofreading.proofread import Edited, Propose, check_can_edit, proofread
from reviser.proofreading.rereading import scan_for
from reviser.proofreading.revising import EditAll, Revision, make_editor, revise_canvases
from reviser.proofreading.windows import Room
from reviser.tokenizer import Tokenizer

if TYPE_CHECKING:
    from reviser.decoding.cpu.step import CpuStep
    from reviser.decoding.engine import Engine
    from reviser.model.transformer import Transformer

    AnyModel = Transformer | KernelModel

__all__ = ["Writer", "Text", "load", "Weights", "NUM_ALTERNATIVES"]

ATTEMPTS = 4
"""How often more texts are written where some came out alike."""
NUM_ALTERNATIVES = 5
"""How many of the most probable actions an event shows."""


class Writer:
    """A model and its tokenizer, ready for jobs.

    `weights="int8"` rounds the model's matrices to bytes, once and as they are now: several times as fast on a CPU,
    and not quite the same model (cpu/step.py). "auto" and "float32" compute with the weights as they are; only
    `from_pretrained` tells them apart. A model from an int8 folder may come as a `KernelModel`, which needs no torch.
    """

    def __init__(
        self,
        model: AnyModel,
        tokenizer: Tokenizer,
        num_rows: int = 16,
        weights: Weights = "auto",
        order: str | None = None,
        name: str = "unnamed",
        jobs: str = "",
        notes: str = "",
    ) -> None:
        check_tokenizer(model.config, tokenizer)
        check_weights(weights)
        self.config: ModelConfig = model.config
        self.tokenizer, self.name = tokenizer, name
        self.num_rows = check_whole("num_rows", num_rows)
        self._given = model
        self._arrays = model if isinstance(model, KernelModel) else _rounded(model) if weights == "int8" else None
        """What takes the model's steps in int8, where it does."""
        self.order = order
        """The order that the model was trained with, where that is known."""
        self.jobs = jobs
        """How the examples that it was trained on were cut, as settings of data.jobs, where that is known."""
        self.notes = notes
        """What its maker says of it, in Markdown."""
        self.described: FolderConfig | None = None
        """What the model's folder says of it, where it comes from one."""
        self.has_gaps = knows_gaps(jobs) and "jump" in self.config.operators
        """Whether the model fills several gaps at once, as one that was trained to; another fills them in turn."""
        self.room = Room.of(self.config, jobs)
        """How much text it proofreads at a time."""
        self._has_graphs = self.device.startswith("cuda")
        self._idle: dict[tuple[frozenset[str], Sampling, int, int], ArrayEngine | Engine] = {}
        """The last engine that is worth keeping: one on a GPU, for its captured step, or one of a single row."""

    def __repr__(self) -> str:
        return f"Writer({self.name}, {self.device}, {self.precision})"

    @cached_property
    def model(self) -> Transformer:
        """The model for torch; one that was read without it is made of the same weights when this is first asked."""
        if not isinstance(self._given, KernelModel):
            return self._given
        from reviser.decoding.cpu.step import transformer_of

        return transformer_of(self._given)

    @cached_property
    def kernels(self) -> CpuStep | None:
        """What takes the model's steps where that is not the fastest exact way."""
        if self._arrays is None:
            return None
        from reviser.decoding.cpu.step import CpuStep

        return CpuStep(self.model, "int8", kernels=self._arrays)

    @property
    def device(self) -> str:
        """Where the model is: "cpu", or a GPU's name."""
        return "cpu" if isinstance(self._given, KernelModel) else str(self._given.embedding.weight.device)

    @property
    def precision(self) -> str:
        """What matrix products are computed in."""
        return "int8" if self._arrays else str(self.model.embedding.weight.dtype).removeprefix("torch.")

    @classmethod
    def from_pretrained(
        cls,
        spec: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        num_rows: int = 16,
        weights: Weights = "auto",
    ) -> Writer:
        """A model folder, a run folder or a hub id; None and "shipped" are the shipped model.

        "auto" computes in int8 where the folder holds int8 weights and the CPU's kernels know the model.
        """
        check_device(device)
        check_weights(weights)
        folder = find(spec)
        described = read_config(folder)
        order, jobs = (described.trained.order, described.trained.jobs) if described.trained else (None, "")
        name = folder.name if spec in (None, "shipped") else str(spec)
        about = order, name, jobs, described.notes
        model, weights = load_model(folder, described, device, weights)
        writer = cls(model, tokenizer_of(folder), num_rows, weights, *about)
        writer.described = described
        return writer

    def save_pretrained(self, folder: str | os.PathLike[str]) -> Path:
        """Write a folder that `from_pretrained` makes the same writer of; its weights are rounded as they were in the
        folder that this one comes from."""
        from reviser.model.checkpoint import save_pretrained

        own = self.described or FolderConfig(self.config)
        about = self.model, folder, self.tokenizer
        return save_pretrained(*about, weights=own.weights, trained=own.trained, notes=self.notes)

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        n: int = 1,
        best_of: int = 1,
        max_actions: int = 256,
        max_tokens: int | None = None,
        seed: int = 0,
        sampling: Sampling = DEFAULT,
        revise: int = 0,
        revise_probability: float = REVISE_PROBABILITY,
        revise_by: str = "reading",
        out_of_order: bool = False,
    ) -> list[Text]:
        """`n` continuations of each prompt, in the order of the prompts; up to `revise` passes change what is better
        changed (docs/own-states.md). `out_of_order` tells a model that has learned it to write so."""
        if (how := revising(revise, revise_probability, revise_by)) is not None:
            check_can_edit(self.config)
        drafts = [self.continuation(text, max_tokens, out_of_order) for text in list_prompts(prompts)]
        written = self.write_drafts(drafts, n, best_of, max_actions, seed, sampling)
        return written if how is None else self.revise(written, how)

    def revise(self, texts: Sequence[Text], how: Proofreading, propose: Propose | None = None) -> list[Text]:
        """Texts as the model itself would change them, what was given protected; one trajectory holds both."""
        canvases, rules = [text.decoded.canvas for text in texts], [text.draft.rules for text in texts]
        revised = revise_canvases(canvases, rules, self.editor(how, propose), self.tokenizer)
        return [self._put_revision(*each) for each in zip(texts, revised, strict=True)]

    def editor(self, how: Proofreading, propose: Propose | None = None) -> EditAll:
        """What goes over texts as `how` says."""
        scan = replace(SCAN, scan=scan_for(how))
        propose = propose or partial(self.propose, sampling=scan, max_actions=how.max_actions)
        filling = partial(refill, self.gap, self.write)
        return make_editor(how, propose, filling, self.tokenizer, self.config, self.read, self.room)

    def _put_revision(self, text: Text, revision: Revision) -> Text:
        joined = join_revision(text.decoded, revision)
        new = self._read(text.draft, joined)
        return replace(new, log_probability=text.log_probability, fit=text.fit, number=text.number, revision=revision)

    def infill(
        self,
        prefix: str,
        suffix: str | None = None,
        *more: str,
        n: int = 1,
        best_of: int | None = None,
        max_actions: int = 256,
        max_tokens: int | None = LONGEST_GAP,
        min_length: int = 0,
        max_length: int | None = None,
        seed: int = 0,
        sampling: Sampling = DEFAULT,
    ) -> list[Text]:
        """`n` different ways to fill gaps, those that fit best first (`Text.fit`); fewer where no more were found.
        Each is the best of `best_of`, of four where something follows and of one where nothing does.

        Given are the texts before and behind a gap, those around several gaps, or one text with ___ where its gaps
        are. `max_tokens` bounds what is written, times the number of gaps (None: up to what the canvas holds);
        `min_length` and `max_length` bound each gap, in tokens.
        """
        parts = split_gaps(check_text("text", prefix)) if suffix is None else [prefix, suffix, *more]
        limits = GapLimits(max_tokens, min_length, max_length)
        return self.fill(parts, limits, n, best_of, max_actions, seed, sampling)

    def fill(
        self,
        parts: Sequence[str],
        limits: GapLimits | None = None,
        n: int = 1,
        best_of: int | None = 1,
        max_actions: int = 256,
        seed: int = 0,
        sampling: Sampling = DEFAULT,
        num_alternatives: int = 0,
    ) -> list[Text]:
        """`infill` of the parts around gaps; a `best_of` of None is the usual number."""
        check_sampling(sampling)
        tries = usual_best_of(parts, sampling) if best_of is None else best_of
        n, best_of, max_actions, seed = check_counts(n, tries, max_actions, seed)
        limits, best_of = limits or GapLimits(), best_of if sampling.temperature else 1
        found, others = dict[str, Text](), dict[str, Text]()
        for attempt in range(ATTEMPTS if n > 1 and sampling.temperature else 1):
            numbers = range(attempt * n * best_of, (attempt + 1) * n * best_of)
            texts = self._fill_once(parts, limits, numbers, max_actions, seed, sampling, num_alternatives)
            compared = self.compare([replace(text, number=i) for i, text in zip(numbers, texts, strict=True)])
            for kept, some in ((found, keep_best(compared, best_of)), (others, compared)):
                for text in some:
                    kept.setdefault(text.text, text)
            if len(others) >= n:
                break
        # Where the best are the same, others that differ are better than none.
        rest = sorted((others[each] for each in others if each not in found), key=lambda text: -text.score)
        return sorted([*found.values(), *rest][:n], key=lambda text: -text.score)

    def compare(self, texts: Sequence[Text]) -> list[Text]:
        """Several fillings with how well each fits."""
        begins = [gap_places(text.draft)[0] for text in texts]
        if len(texts) == 1 or begins[0] == len(texts[0].draft.canvas.tokens):
            return list(texts)
        read = self.read([text.decoded.canvas.tokens for text in texts], begins)
        pairs = zip(texts, read, strict=True)
        fits = [rate_filling(text.draft, text.decoded.canvas, scores) for text, scores in pairs]
        if None in fits:
            return list(texts)
        return [replace(text, fit=fit) for text, fit in zip(texts, fits, strict=True)]

    def _fill_once(
        self,
        parts: Sequence[str],
        limits: GapLimits,
        numbers: Sequence[int],
        max_actions: int,
        seed: int,
        sampling: Sampling,
        num_alternatives: int,
    ) -> list[Text]:
        """A text for each number."""
        sampling = replace(sampling, min_tokens=max(sampling.min_tokens, limits.min_length))
        if self.fills_at_once(parts, limits):
            draft = self.gaps(parts, limits)
            requests = [Request(draft, max_actions, Random.of(seed, 0, number).state) for number in numbers]
            return self.write(requests, sampling, num_alternatives)

        def write(requests: Sequence[Request]) -> list[Decoded]:
            return [text.decoded for text in self.write(requests, sampling, num_alternatives)]

        tokens = self._encode_parts(parts)
        draft, rules = passable(Draft.gaps(tokens, self._rules(0))), partial(self._rules, max_tokens=limits.most)
        turns = [partial(number_of_gap, seed, number) for number in numbers]
        written = fill_in_turn(draft, tokens, rules, write, max_actions, turns)
        return [self._read(draft, each) for each in written]

    def fills_at_once(self, parts: Sequence[str], limits: GapLimits) -> bool:
        """Whether all gaps are filled in one go: there is one, or the model knows several and none has a limit."""
        return len(parts) == 2 or (self.has_gaps and not limits.is_strict and bool(parts[-1]))

    def gaps(self, parts: Sequence[str], limits: GapLimits | None = None) -> Draft:
        """The draft that fills the gaps between texts, all of them in one go."""
        limits = limits or GapLimits()
        tokens = self._encode_parts(parts)
        return Draft.gaps(tokens, self._rules(sum(map(len, tokens)), limits.room(len(parts) - 1)))

    def _encode_parts(self, parts: Sequence[str]) -> list[list[int]]:
        names = ("prefix", "suffix") if len(parts) == 2 else ("part",) * len(parts)
        return [self.tokenizer.encode(check_text(name, part)) for name, part in zip(names, parts, strict=True)]

    def edit(
        self,
        text: str,
        *,
        format: str = "text",
        min_probability: float = MIN_PROBABILITY,
        passes: int = PASSES,
        words: Sequence[str] = (),
        reread: bool = True,
        spelling: bool = True,
        within: tuple[int, int] | None = None,
        seed: int = 0,
        sampling: Sampling | None = None,
    ) -> Edited:
        """The text as the model would correct it, of any length, with its edits (docs/proofreading.md)."""
        how = Proofreading(format, min_probability, passes, words, reread, spelling, within)
        sampling = replace(SCAN, scan=scan_for(how)) if sampling is None else sampling
        check_sampling(sampling)
        propose = partial(self.propose, seed=check_whole("seed", seed), sampling=sampling)
        return proofread(text, propose, self.tokenizer, self.config, how, room=self.room, read=self.read)

    def read(self, texts: Sequence[Sequence[int]], begins: Sequence[int] | None = None) -> list[list[float]]:
        """The log-probability of each token of texts, or of those from `begins` on, as written from left to right; an
        empty list for a text that the model's context does not hold."""
        firsts = [0] * len(texts) if begins is None else begins
        most = min(self.config.context - 1, self.config.max_length)
        fits = [len(tokens) <= most for tokens in texts]
        asked = [(tokens, first) for tokens, first, fit in zip(texts, firsts, fits, strict=True) if fit]
        scored = iter(self._score([each[0] for each in asked], [each[1] for each in asked]))
        return [next(scored) if fit else [] for fit in fits]

    def _score(self, texts: Sequence[Sequence[int]], begins: Sequence[int]) -> list[list[float]]:
        if self._arrays is not None:
            return score_by_kernels(self._arrays, texts, begins)
        from reviser.decoding.reading import score_tokens

        return score_tokens(self.model, None, texts, begins)

    def propose(
        self, drafts: Sequence[Draft], seed: int = 0, sampling: Sampling = SCAN, max_actions: int | None = None
    ) -> list[Decoded]:
        """What the model does with each draft in `max_actions`, or `edit_budget`, whatever the others are."""
        state = Random.of(seed, 0, 0).state
        requests = [Request(draft, max_actions or edit_budget(draft), state) for draft in drafts]
        return [text.decoded for text in self.write(requests, sampling)]

    def stream(
        self,
        start: Draft | str,
        *,
        max_actions: int = 256,
        seed: int = 0,
        sampling: Sampling = DEFAULT,
        number: int = 0,
    ) -> Iterator[Event]:
        """Every action as it is chosen; `start` is a prompt or any draft.

        With the same seed, the first text that the jobs give with `best_of=1`, or the text of another `number`.
        """
        begun = self.continuation(start) if isinstance(start, str) else start
        if not isinstance(begun, Draft):
            raise ConfigError(f"start is {start!r}, of type {type(start).__name__}; give a prompt (str) or a Draft")
        check_sampling(sampling)
        max_actions, seed, number = check_all_whole(max_actions=max_actions, seed=seed, number=number)
        engine = self._engine(begun.rules, sampling, 1, NUM_ALTERNATIVES)
        return engine.events(Request(begun, max_actions, Random.of(seed, 0, number).state))

    def _engine(self, rules: Rules, sampling: Sampling, num_rows: int, num_alternatives: int) -> ArrayEngine | Engine:
        if self._arrays is not None and ArrayEngine.knows(rules):
            return ArrayEngine(self._arrays, sampling, num_rows, num_alternatives)
        from reviser.decoding.engine import Engine

        return Engine(self.model, sampling, num_rows, self.kernels, num_alternatives)

    def collect(self, start: Draft, events: Sequence[Event], max_actions: int = 256, number: int = 0) -> Text:
        """The text of a stream from that draft, at its end or before; of the same `number`."""
        canvas = events[-1].canvas if events else start.canvas
        ended_by = find_end(Request(start, max_actions), canvas, len(events), self.config.context)
        actions, scores = tuple(event.action for event in events), tuple(event.log_probability for event in events)
        alternatives = tuple(event.alternatives for event in events)
        return replace(self._read(start, Decoded(actions, scores, canvas, ended_by, alternatives)), number=number)

    def continuation(self, prompt: str, max_tokens: int | None = None, out_of_order: bool = False) -> Draft:
        """The draft that continues a prompt."""
        tokens = self.tokenizer.encode(check_text("prompt", prompt))
        rules = self._rules(len(tokens), max_tokens)
        if not out_of_order:
            return Draft.continuation(tokens, rules)
        check_telling(self.jobs, tokens)
        return Draft.told(tokens, rules)

    def gap(self, prefix: str, suffix: str, max_tokens: int | None = None) -> Draft:
        """The draft that fills the gap between two texts; without a suffix it is a continuation."""
        before = self.tokenizer.encode(check_text("prefix", prefix))
        after = self.tokenizer.encode(check_text("suffix", suffix))
        return Draft.infill(before, after, self._rules(len(before) + len(after), max_tokens))

    def write_drafts(
        self,
        drafts: Sequence[Draft],
        n: int = 1,
        best_of: int = 1,
        max_actions: int = 256,
        seed: int = 0,
        sampling: Sampling = DEFAULT,
        num_alternatives: int = 0,
    ) -> list[Text]:
        """`n` texts from each draft, in the order of the drafts, each the best of `best_of`."""
        n, best_of, max_actions, seed = check_counts(n, best_of, max_actions, seed)
        requests = [
            Request(each, max_actions, Random.of(seed, place, number).state)
            for place, each in enumerate(drafts)
            for number in range(n * best_of)
        ]
        written = enumerate(self.write(requests, sampling, num_alternatives))
        return keep_best([replace(text, number=i % (n * best_of)) for i, text in written], best_of)

    def write(
        self, requests: Sequence[Request], sampling: Sampling = DEFAULT, num_alternatives: int = 0
    ) -> list[Text]:
        """The texts of requests, for callers that make drafts and random numbers themselves."""
        check_sampling(sampling)
        if not requests:
            return []
        num_rows, rules = min(self.num_rows, len(requests)), requests[0].draft.rules
        asked = rules.operators, sampling, num_rows, num_alternatives
        # Taken out while it writes, so that calls from several threads never share one.
        engine = self._idle.pop(asked, None) or self._engine(rules, *asked[1:])
        written = engine.write(requests)
        if self._has_graphs or num_rows == 1:
            self._idle = {asked: engine}
        return [self._read(request.draft, each) for request, each in zip(requests, written, strict=True)]

    def _rules(self, given: int, max_tokens: int | None = None) -> Rules:
        config = self.config
        longest = config.max_length
        if max_tokens is not None:
            room = check_whole("max_tokens", max_tokens)
            if room < 1:
                raise ConfigError(f"max_tokens={room} must be at least 1")
            longest = min(given + room, longest)
        return Rules(config.alphabet, frozenset(config.operators), max_length=longest)

    def _read(self, draft: Draft, decoded: Decoded) -> Text:
        tokens = decoded.canvas.tokens
        new = tokens[draft.prefix : len(tokens) - draft.suffix]
        return Text(
            self.tokenizer.decode(tokens),
            self.tokenizer.decode(new),
            sum(decoded.log_probabilities),
            draft,
            decoded,
            tuple(self.tokenizer.decode(each) for each in find_fillings(draft, decoded.canvas)),
        )


def _rounded(model: Transformer) -> KernelModel:
    from reviser.decoding.cpu.step import CpuStep

    return CpuStep(model, "int8").kernels


def load(spec: str | os.PathLike[str] | None = None, device: str = "cpu") -> Writer:
    """A model ready to write: the shipped one, or that of a model folder, a run folder or a hub id."""
    return Writer.from_pretrained(spec, device)
