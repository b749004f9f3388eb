"""The jobs of `Writer` for one client of a server: whatever it writes and reads is done in the running batch.

So a text from the server is the text that the command line writes with the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from reviser.canvas import apply_unchecked
from reviser.decoding.presets import DEFAULT, SCAN, Sampling
from reviser.decoding.requests import Decoded, Event, Request, edit_budget
from reviser.decoding.writer import NUM_ALTERNATIVES, Text, Writer
from reviser.orders.record import Draft
from reviser.orders.rng import Random
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.edits import Edit
from reviser.proofreading.other_ways import find_ways
from reviser.proofreading.rereading import scan_for
from reviser.serving.running_engine import Told
from reviser.serving.scheduler import Scheduler, Task, Watch

TellEvent = Callable[[Event], None]


class ServedWriter(Writer):
    """A writer's view for one task. `watch` may end each request of a call of `write` early."""

    def __init__(self, writer: Writer, scheduler: Scheduler, task: Task, watch: Watch | None = None) -> None:
        vars(self).update(vars(writer))
        self._scheduler, self.task, self._watch = scheduler, task, watch

    def watched(self, watch: Watch) -> ServedWriter:
        """The same writer, with its requests watched."""
        return ServedWriter(self, self._scheduler, self.task, watch)

    def write(
        self, requests: Sequence[Request], sampling: Sampling = DEFAULT, num_alternatives: int = 0
    ) -> list[Text]:
        written = self._scheduler.write(self.task, requests, sampling, num_alternatives, self._watch)
        return [self._read(request.draft, each) for request, each in zip(requests, written, strict=True)]

    def read(self, texts: Sequence[Sequence[int]], begins: Sequence[int] | None = None) -> list[list[float]]:
        return self._scheduler.call(self.task, partial(super().read, texts, begins))

    def find_ways(self, text: str, start: int, end: int) -> list[Edit]:
        """Ways to correct characters `start` to `end` of a text, each instead of the others; the most probable
        first."""

        def ask(draft: Draft) -> Decoded:
            request = Request(draft, edit_budget(draft), Random.of(0, 0, 0).state)
            sampling = replace(SCAN, scan=scan_for(Proofreading()))
            [written] = self.write([request], sampling, NUM_ALTERNATIVES)
            return written.decoded

        return find_ways(text, (start, end), ask, self.tokenizer, self.config, self.read, self.room)

    def follow(
        self, draft: Draft, tell: TellEvent, max_actions: int, seed: int, sampling: Sampling, number: int = 0
    ) -> Text:
        """The text of a draft; `tell` hears of every action as `Writer.stream` would give it, in another thread."""
        canvas, alphabet = draft.canvas, draft.rules.alphabet

        def watch(number: int, told: Told) -> bool:
            nonlocal canvas
            each = zip(told.actions, told.log_probabilities, told.alternatives, strict=True)
            for step, (action, score, alternatives) in enumerate(each, told.first):
                canvas = apply_unchecked(canvas, action, alphabet)
                tell(Event(step, action, score, alternatives, canvas))
            return self._watch is not None and self._watch(number, told)

        request = Request(draft, max_actions, Random.of(seed, 0, number).state)
        [decoded] = self._scheduler.write(self.task, [request], sampling, NUM_ALTERNATIVES, watch)
        return self._read(draft, decoded)
