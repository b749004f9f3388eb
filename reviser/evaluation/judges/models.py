"""Judges: a chat endpoint, a local critic, and the likelihood of the texts; all behind `arena.Judge`.

A chat model or critic gets one message, the request and both texts between marks, and replies [[A]] for the first,
[[B]] for the second or, where ties are allowed, [[C]]. The last such mark of a reply counts, so it may reason before.

>>> read_verdict("A is dull, so [[A]] will not do: [[B]]")
'second'
>>> read_verdict("Both are fine.") is None
True
"""

from __future__ import annotations

import hashlib
import json
import math
import queue
import re
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from reviser.errors import CheckpointError, ConfigError, DataError
from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.arena import FAILED, UNANSWERED, Judgment, Pair
from reviser.evaluation.judges.endpoint import Endpoint, RefusedError, UnansweredError

if TYPE_CHECKING:
    from reviser.evaluation.evaluator import Evaluator

MARKS = {"A": "first", "B": "second", "C": "tie"}
_HEAD = (
    "You are an impartial judge. Below stand a request and what two assistants, A and B, wrote for it. Decide which "
    "of the two does better what the request asks for: which fits the given text, holds together, stays on its "
    "subject, is correct and well written, and says more. The order in which they stand, their lengths and the "
    "assistants' names must not sway you.\n"
)
_TAIL = (
    "\n\n[User Question]\n{request}\n\n"
    "[The Start of Assistant A's Answer]\n{first}\n[The End of Assistant A's Answer]\n\n"
    "[The Start of Assistant B's Answer]\n{second}\n[The End of Assistant B's Answer]\n"
)
CHAT_TEMPLATE = (
    _HEAD + 'End your reply with your verdict: "[[A]]" if A is better, "[[B]]" if B is better, "[[C]]" if neither is.'
) + _TAIL
# The parts, their order, their marks and the bare verdict are those that Skywork-Critic was trained with, the words
# are not (https://huggingface.co/Skywork/Skywork-Critic-Llama-3.1-8B, section "Demo Code"). It knows no tie.
CRITIC_TEMPLATE = (_HEAD + 'Reply with your verdict alone: "[[A]]" if A is better, "[[B]]" if B is better.') + _TAIL
REMINDER = "Your reply names no winner. Reply with one of [[A]], [[B]] and [[C]] and nothing else."
ASKS = 2
"""How often a chat model is asked before a pair counts as failed."""
FEWEST_SILENT = 3
"""So many unanswered pairs in a row, or as many as are asked at once, mean that the endpoint is down."""


def read_template(path: str | Path) -> str:
    """A judge's message with {request}, {first} and {second} in it, once each."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); give a text file with the judge's message") from None
    for name in ("{request}", "{first}", "{second}"):
        if text.count(name) != 1:
            raise ConfigError(f"{path} holds {name} {text.count(name)} times; a judge's message holds it once")
    return text


def make_request(pair: Pair) -> str:
    prefix, suffix = pair.first.prefix, pair.first.suffix
    if suffix:
        return f"Write what belongs at [GAP] in this text, so that it reads as one:\n\n{prefix}[GAP]{suffix}"
    return f"Continue this text:\n\n{prefix}"


def make_message(template: str, pair: Pair) -> str:
    """The template filled in one pass, so that a text may hold a placeholder's name."""
    parts = {"{request}": make_request(pair), "{first}": pair.first.text, "{second}": pair.second.text}
    return re.sub(r"\{(?:request|first|second)\}", lambda found: parts[found[0]], template)


def read_verdict(reply: str, marks: str = "ABC") -> str | None:
    """The last mark's meaning; None where the reply has none."""
    found = re.findall(rf"\[\[([{marks}])\]\]", reply)
    return MARKS[found[-1]] if found else None


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class ChatJudge:
    """A chat model behind an endpoint, asked about several pairs at once."""

    def __init__(self, endpoint: Endpoint, concurrency: int = 4, template: str = CHAT_TEMPLATE) -> None:
        if concurrency < 1:
            raise ConfigError(f"--concurrency {concurrency} must be at least 1")
        self.endpoint, self.concurrency, self.template = endpoint, concurrency, template
        self.sha256: str | None = None
        fields = f", body {_short(json.dumps(endpoint.body, sort_keys=True))}" if endpoint.body else ""
        self.name = f"http {endpoint.model} at {endpoint.url}, message {_short(template)}{fields}"

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        """An error that ends the run is raised when all that was under way has been handed over."""
        waiting: queue.SimpleQueue[Pair | None] = queue.SimpleQueue()
        done: queue.SimpleQueue[Judgment | Exception] = queue.SimpleQueue()
        for _ in range(self.concurrency):
            threading.Thread(target=self._work, args=(waiting, done), daemon=True).start()
        source, num_open, num_silent, failure = iter(pairs), 0, 0, None
        self.endpoint.closing.clear()
        try:
            while True:
                free = self.concurrency - num_open if failure is None else 0
                for pair in islice(source, free):
                    waiting.put(pair)
                    num_open += 1
                if not num_open:
                    break
                said = done.get()
                num_open -= 1
                if isinstance(said, Exception):
                    failure = failure or said
                else:
                    num_silent = num_silent + 1 if said.verdict == UNANSWERED else 0
                    failure = failure or self._is_down(said, num_silent)
                    yield said
                if failure is not None:
                    self.endpoint.closing.set()
        finally:
            self.endpoint.closing.set()
            for _ in range(self.concurrency):
                waiting.put(None)
        if failure is not None:
            raise failure

    def _is_down(self, said: Judgment, num_silent: int) -> Exception | None:
        most = max(FEWEST_SILENT, self.concurrency) if self.endpoint.has_answered else 1
        if num_silent < most:
            return None
        return ConfigError(
            f"{self.endpoint.url} does not answer: {said.reply}; what was judged is kept, "
            "run the command again to go on"
        )

    def _work(self, waiting: queue.SimpleQueue[Pair | None], done: queue.SimpleQueue[Judgment | Exception]) -> None:
        while (pair := waiting.get()) is not None:
            try:
                done.put(self._judge(pair))
            except Exception as error:
                done.put(error)

    def _judge(self, pair: Pair) -> Judgment:
        messages = [{"role": "user", "content": make_message(self.template, pair)}]
        try:
            for _ in range(ASKS):
                reply = self.endpoint.ask(messages)
                if (verdict := read_verdict(reply)) is not None:
                    return Judgment.of(pair, verdict, reply, self.name)
                messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": REMINDER}]
        except UnansweredError as error:
            return Judgment.of(pair, UNANSWERED, str(error), self.name)
        except RefusedError as error:
            if not self.endpoint.has_answered:
                raise ConfigError(f"{self.endpoint.url} refuses the first request: {error}; see --body") from None
            reply = f"refused: {error}"
        return Judgment.of(pair, FAILED, reply, self.name)


class CriticJudge:
    """A local `transformers` chat model that replies with a verdict alone, greedily."""

    def __init__(
        self, evaluator: Evaluator, batch: int = 8, reply_tokens: int = 16, template: str = CRITIC_TEMPLATE
    ) -> None:
        if batch < 1 or reply_tokens < 1:
            raise ConfigError(f"--batch {batch} and --reply-tokens {reply_tokens} must be at least 1")
        if not evaluator.tokenizer.chat_template:
            raise CheckpointError(f"{evaluator.name} has no chat template; give a chat model, or take another judge")
        self.evaluator, self.batch, self.reply_tokens, self.template = evaluator, batch, reply_tokens, template
        self.sha256: str | None = evaluator.sha256
        dtype = evaluator.about["dtype"]
        self.name = f"critic {evaluator.name} {evaluator.sha256[:8]} in {dtype}, message {_short(template)}"

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        source = iter(pairs)
        while chunk := list(islice(source, self.batch)):
            for pair, reply in zip(chunk, self._replies(chunk), strict=True):
                yield Judgment.of(pair, read_verdict(reply, "AB") or FAILED, reply, self.name)

    def _replies(self, pairs: list[Pair]) -> list[str]:
        import torch

        tokenizer, model = self.evaluator.tokenizer, self.evaluator.model
        tokenizer.padding_side = "left"
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        messages = [[{"role": "user", "content": make_message(self.template, pair)}] for pair in pairs]
        given = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to(self.evaluator.device)
        length = given["input_ids"].shape[1]
        if length + self.reply_tokens > self.evaluator.limit:
            raise DataError(
                f"{self.evaluator.name} reads {self.evaluator.limit} tokens, but a pair takes {length} and "
                f"{self.reply_tokens} for the reply; take a critic with more room"
            )
        with torch.inference_mode():
            ids = model.generate(
                **given, max_new_tokens=self.reply_tokens, do_sample=False, temperature=None, top_p=None, top_k=None,
                use_cache=True, pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        replies: list[str] = tokenizer.batch_decode(ids[:, length:], skip_special_tokens=True)
        return replies


class TextScorer(Protocol):
    name: str
    sha256: str

    def bits_per_byte(self, prefix: str, text: str) -> float:
        """The mean bits that a byte of the text costs behind the prefix."""
        ...


class EvaluatorScorer:
    """The evaluator of evalPPL as a scorer."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.name, self.sha256 = evaluator, evaluator.name, evaluator.sha256

    def bits_per_byte(self, prefix: str, text: str) -> float:
        from reviser.evaluation.metrics.evalppl import score

        [found] = score(self.evaluator, [Generation("judged", "judged", 0, prefix, text, "", "", True, 0, 0)])
        return found.bits_per_byte if found.num_bytes else math.inf


class LikelihoodJudge:
    """The text with fewer bits per byte wins; no more than `margin` apart they tie. A gap's text is scored with the
    suffix behind it. The order shown does not matter to it."""

    def __init__(self, scorer: TextScorer, margin: float = 0.0) -> None:
        if margin < 0:
            raise ConfigError(f"--margin {margin} must be at least 0 bits per byte")
        self.scorer, self.margin = scorer, margin
        self.sha256: str | None = scorer.sha256
        self.name = f"likelihood {scorer.name} {scorer.sha256[:8]}, margin {margin:g}"

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        known: dict[tuple[str, str], float] = {}
        for pair in pairs:
            first, second = self._bits(pair.first, known), self._bits(pair.second, known)
            is_tie = first == second or abs(first - second) <= self.margin
            verdict = "tie" if is_tie else "first" if first < second else "second"
            yield Judgment.of(pair, verdict, f"{first:.6f} and {second:.6f} bits per byte", self.name)

    def _bits(self, generation: Generation, known: dict[tuple[str, str], float]) -> float:
        """A system's text meets every other system's, and is scored once."""
        spot = generation.prefix, generation.text + generation.suffix
        if spot not in known:
            known[spot] = self.scorer.bits_per_byte(*spot)
        return known[spot]
