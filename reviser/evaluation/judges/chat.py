"""A judge behind an HTTP endpoint: a chat model that reads both texts, may reason, and ends with a mark."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator
from itertools import islice

from reviser.errors import ConfigError
from reviser.evaluation.judges.endpoint import Endpoint, RefusedError, UnansweredError
from reviser.evaluation.judges.judgments import FAILED, UNANSWERED, Judgment
from reviser.evaluation.judges.messages import CHAT_TEMPLATE, REMINDER, make_message, read_verdict, short_hash
from reviser.evaluation.judges.pairs import Pair

ASKS = 2
"""How often a chat model is asked before a pair counts as failed."""
FEWEST_SILENT = 3
"""This many unanswered pairs in a row, or as many as are asked at once, mean that the endpoint is down."""


class ChatJudge:
    """Asks a chat model about several pairs at once."""

    def __init__(self, endpoint: Endpoint, concurrency: int = 4, template: str = CHAT_TEMPLATE) -> None:
        if concurrency < 1:
            raise ConfigError(f"--concurrency {concurrency} must be at least 1")
        self.endpoint, self.concurrency, self.template = endpoint, concurrency, template
        self.sha256: str | None = None
        fields = f", body {short_hash(json.dumps(endpoint.body, sort_keys=True))}" if endpoint.body else ""
        self.name = f"http {endpoint.model} at {endpoint.url}, message {short_hash(template)}{fields}"

    def judge(self, pairs: Iterable[Pair]) -> Iterator[Judgment]:
        """Yield judgments as they arrive; an error that ends the run is raised after those already under way."""
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
                    failure = failure or self._find_outage(said, num_silent)
                    yield said
                if failure is not None:
                    self.endpoint.closing.set()
        finally:
            self.endpoint.closing.set()
            for _ in range(self.concurrency):
                waiting.put(None)
        if failure is not None:
            raise failure

    def _find_outage(self, said: Judgment, num_silent: int) -> Exception | None:
        most = max(FEWEST_SILENT, self.concurrency) if self.endpoint.has_answered else 1
        if num_silent < most:
            return None
        return ConfigError(
            f"{self.endpoint.url} does not answer: {said.reply}; earlier judgments are kept, "
            "run the command again to continue"
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
                raise ConfigError(f"{self.endpoint.url} rejects the first request: {error}; check --body") from None
            reply = f"refused: {error}"
        return Judgment.of(pair, FAILED, reply, self.name)
