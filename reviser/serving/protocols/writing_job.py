"""What the endpoints that write have in common: fields of a request, the texts it asks for, and what of them is sent.

A model that edits may change any character until it stops. So a stream sends text early only where nothing can change
it any more: the model cannot remove, and it cannot go back or was told not to (`moves: false`). Else all comes at the
end; /v1/trajectories shows what happens until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from reviser.canvas import Canvas
from reviser.decoding.gap_filling import GapLimits, usual_best_of
from reviser.decoding.presets import DEFAULT, LONGEST_GAP, Sampling
from reviser.decoding.requests import Event
from reviser.decoding.writer import NUM_ALTERNATIVES, Text, Writer
from reviser.orders.record import Draft
from reviser.serving.failures import RequestError
from reviser.serving.protocols.stops import Stops, StopSeeker
from reviser.serving.serve_config import ServeConfig
from reviser.serving.served_writer import ServedWriter, TellEvent

Number = Annotated[float, Field(allow_inf_nan=False)]
GOING_BACK = {"move", "jump"}
NO_STOPS = Stops()


class Body(BaseModel):
    """A request's JSON; a field that is not here is refused by its name."""

    model_config = ConfigDict(extra="forbid")


class SamplingBody(Body):
    """How actions are drawn, each as on the command line and with its default."""

    seed: StrictInt | None = Field(None, description="The same seed gives the same text (default 0).")
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: StrictInt | None = None
    min_p: Number | None = None
    min_tokens: StrictInt | None = Field(None, description="The model does not stop before it has written so many.")
    moves: StrictBool | None = Field(None, description="false: write from left to right, which can be streamed.")
    max_actions: StrictInt = 256

    def sampling(self, preset: Sampling = DEFAULT) -> Sampling:
        names = ("temperature", "top_p", "top_k", "min_p", "min_tokens", "moves")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(preset, **given)


def check_given(config: ServeConfig, **texts: str) -> None:
    """Refuse a text that is too long or is no text."""
    for name, text in texts.items():
        if len(text) > config.max_characters:
            most = f"at most {config.max_characters} are allowed; send less, or raise --max-characters"
            raise RequestError(413, f"{name} has {len(text)} characters, and {most}", param=name)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RequestError(400, f"{name} holds half of a surrogate pair; send whole characters", name) from None


def check_neutral(body: BaseModel, **neutral: Any) -> None:
    """Refuse fields that say something which cannot be done here."""
    for name, value in neutral.items():
        given = getattr(body, name)
        if given is not None and given != value:
            raise RequestError(400, f"{name} is not supported; leave it out", name, "unsupported_parameter")


@dataclass(frozen=True, slots=True)
class WritingJob:
    """Texts that are asked for: continuations of prompts or, with a suffix, what stands between."""

    prompts: Sequence[str]
    suffix: str | None
    sampling: Sampling
    seed: int = 0
    n: int = 1
    best_of: int = 1
    max_tokens: int | None = None
    max_actions: int = 256
    stops: Stops = NO_STOPS
    has_alternatives: bool = False

    def with_usual_tries(self, writer: Writer, config: ServeConfig) -> WritingJob:
        """For who asks for no best_of. A text that can be sent while it is written is not compared with others, so
        that it is the same whether it is streamed or not."""
        count = len(self.prompts) * self.n
        tries = usual_tries(self.suffix or "", self.sampling, count, config)
        return self if self._only_grows(writer) else replace(self, best_of=tries)

    def check(self, config: ServeConfig) -> None:
        if not self.prompts:
            raise RequestError(400, "prompt is an empty list; give at least one text", "prompt")
        for name in ("n", "best_of"):
            if getattr(self, name) < 1:
                raise RequestError(400, f"{name}={getattr(self, name)} must be at least 1", name)
        count = len(self.prompts) * self.n * self.best_of
        if count > config.max_texts:
            most = f"at most {config.max_texts} are allowed; ask for fewer, or raise --max-texts"
            raise RequestError(400, f"prompts times n times best_of is {count}, and {most}", "n")
        for prompt in self.prompts:
            check_given(config, prompt=prompt)
        check_given(config, suffix=self.suffix or "")

    def draft(self, writer: Writer, prompt: str) -> Draft:
        if self.suffix:
            return writer.gaps([prompt, self.suffix], self._limits)
        return writer.continuation(prompt, self.max_tokens)

    @property
    def _limits(self) -> GapLimits:
        return GapLimits(self.max_tokens)

    def write(self, writer: ServedWriter) -> list[list[Text]]:
        """The texts of each prompt."""
        writer = self._ending(writer)
        limits = self.n, self.best_of, self.max_actions, self.seed
        num_alternatives = NUM_ALTERNATIVES if self.has_alternatives else 0
        if self.suffix:
            parts = [[prompt, self.suffix] for prompt in self.prompts]
            return [writer.fill(each, self._limits, *limits, self.sampling, num_alternatives) for each in parts]
        drafts = [self.draft(writer, prompt) for prompt in self.prompts]
        texts = writer.write_drafts(drafts, *limits, self.sampling, num_alternatives)
        return [texts[start : start + self.n] for start in range(0, len(texts), self.n)]

    def follow(self, writer: ServedWriter, tell: TellEvent) -> list[list[Text]]:
        """The same for a job that `is_append_only`; `tell` hears of every action."""
        draft, writer = self.draft(writer, self.prompts[0]), self._ending(writer)
        return [[writer.follow(draft, tell, self.max_actions, self.seed, self.sampling)]]

    def _ending(self, writer: ServedWriter) -> ServedWriter:
        """A writer that ends each text at a stop, where that changes nothing: what stands before it stays, and texts
        are not compared."""
        is_compared = self.best_of > 1 or (bool(self.suffix) and self.n > 1)
        if not self.stops or is_compared or not self._only_grows(writer):
            return writer
        return writer.watched(StopSeeker(self.stops, writer.tokenizer.decode, writer.tokenizer.num_text))

    def _only_grows(self, writer: Writer) -> bool:
        """Whether what has been written cannot change any more."""
        operators = set(writer.config.operators)
        return not operators - GOING_BACK and (not operators or not self.sampling.moves)

    def is_append_only(self, writer: Writer) -> bool:
        """The same, and it is one text."""
        return len(self.prompts) * self.n * self.best_of == 1 and self._only_grows(writer)


class Tail:
    """What a stream has sent of a text, and what is new of it."""

    def __init__(self, job: WritingJob, draft: Draft, writer: Writer) -> None:
        self._job, self._draft, self._writer, self._sent = job, draft, writer, ""

    def take(self, event: Event) -> str:
        """What an action adds that will stay."""
        canvas: Canvas = event.canvas
        new = canvas.tokens[self._draft.prefix : len(canvas.tokens) - self._draft.suffix]
        return self.rest(self._job.stops.settled(self._writer.tokenizer.decode(new)))

    def rest(self, text: str) -> str:
        """What of the text has not been sent."""
        more, self._sent = text[len(self._sent) :], max(text, self._sent, key=len)
        return more


def gap_limit(max_tokens: int | None, suffix: str | None) -> int | None:
    """The command line's limit where none is given."""
    return LONGEST_GAP if max_tokens is None and suffix else max_tokens


def usual_tries(suffix: str, sampling: Sampling, num_texts: int, config: ServeConfig) -> int:
    """The command line's best_of for gaps, or 1 where so many texts are more than the server allows."""
    tries = usual_best_of([suffix], sampling)
    return tries if num_texts * tries <= config.max_texts else 1


def iterate(groups: Sequence[Sequence[Text]], n: int) -> Iterator[tuple[int, Text]]:
    """All texts with OpenAI's index of each."""
    for place, texts in enumerate(groups):
        yield from ((place * n + number, text) for number, text in enumerate(texts))
