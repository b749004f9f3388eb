"""What drafts are compared with: the same drafts revised, and the best of several drafts for as many actions.

Both begin with the drafts that a file of generations holds, so all rows are paired: text by text they have the same
first draft.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from reviser.decoding.requests import Request
from reviser.decoding.writer import Writer
from reviser.errors import DataError
from reviser.evaluation.generations import Generation, Prompt
from reviser.evaluation.systems import ReviserSystem, number_of
from reviser.orders.record import from_record
from reviser.orders.rng import Random, threshold
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.revising import revise_canvases

Drafts = Mapping[tuple[str, int], Generation]
"""By prompt and seed."""
MOST_DRAFTS = 16
"""Of which the best is taken, at most."""


def drafts_of(generations: Sequence[Generation], system: str) -> dict[tuple[str, int], Generation]:
    return {(each.prompt_id, each.seed): each for each in generations if each.system == system}


class RevisedDrafts:
    """Drafts after their model has gone over them; actions are those of draft and revision together."""

    def __init__(self, name: str, writer: Writer, drafts: Drafts, how: Proofreading) -> None:
        self.name, self.writer, self.drafts, self.how = name, writer, drafts, how

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        drafts = [self.drafts[prompt.id, seed] for prompt in prompts]
        trajectories = [from_record(_record_of(each)) for each in drafts]
        canvases, rules = [each.final for each in trajectories], [each.draft.rules for each in trajectories]
        revised = revise_canvases(canvases, rules, self.writer.editor(self.how), self.writer.tokenizer)
        for draft, begun, revision in zip(drafts, trajectories, revised, strict=True):
            tokens = revision.canvas.tokens[len(begun.draft.tokens) :]
            yield replace(
                draft, system=self.name, text=self.writer.tokenizer.decode(tokens), num_tokens=len(tokens),
                num_actions=draft.num_actions + revision.num_actions, record=None,
            )  # fmt: skip


def _record_of(draft: Generation) -> dict[str, object]:
    if draft.record is None:
        raise DataError(f"the draft of prompt {draft.prompt_id} has no trajectory; write the drafts again")
    return draft.record


class BestDrafts:
    """The draft that its own model finds most probable, by the mean log-probability of an action, of as many as cost
    the actions of revising one; the first is the draft itself."""

    def __init__(self, name: str, system: ReviserSystem, drafts: Drafts, ratio: float) -> None:
        self.name, self.system, self.drafts, self.ratio = name, system, drafts, min(ratio, MOST_DRAFTS)

    def num_drafts(self, prompt: Prompt, seed: int) -> int:
        """A whole number whose mean over texts is the ratio."""
        more = Random(number_of(prompt, seed)).chance(threshold(self.ratio - math.floor(self.ratio)))
        return max(1, math.floor(self.ratio) + more)

    def generate(self, prompts: Sequence[Prompt], seed: int) -> Iterator[Generation]:
        counts = [self.num_drafts(prompt, seed) for prompt in prompts]
        requests = [
            request
            for prompt, count in zip(prompts, counts, strict=True)
            if count > 1
            for request in self._requests(prompt, seed, count)
        ]
        written = iter(self.system.writer.write(requests, self.system.sampling))
        for prompt, count in zip(prompts, counts, strict=True):
            draft = self.drafts[prompt.id, seed]
            if count == 1:
                yield replace(draft, system=self.name, record=None)
                continue
            texts = [next(written) for _ in range(count)]
            best = max(texts, key=lambda text: text.score)
            yield replace(
                draft, system=self.name, text=best.new, is_stopped=best.has_stopped, num_tokens=best.num_tokens,
                num_actions=sum(text.num_actions for text in texts), record=None,
            )  # fmt: skip

    def _requests(self, prompt: Prompt, seed: int, count: int) -> list[Request]:
        first = self.system.request(prompt, seed)
        return [first, *(replace(first, number=Random.of(first.number, k).state) for k in range(1, count))]


def action_ratio(generations: Sequence[Generation], revised: str, draft: str) -> float:
    """How many times the actions of a draft were spent on it with its revision."""
    counts = [fmean(each.num_actions for each in generations if each.system == name) for name in (revised, draft)]
    return counts[0] / max(counts[1], 1.0)
