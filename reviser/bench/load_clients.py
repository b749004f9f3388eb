"""Clients of a server, good and bad: what each does once, and what came of it.

    good    complete, stream, fill, edit, watch, and slow (a watcher that reads little by little): each gets a text
    bad     gone, half-closed, half a head, broken JSON, wrong types, a body too large: each gets what it deserves

A text is right if the same request, done alone by a `Writer`, gives it too.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from reviser.bench.http_client import Exchange, make_request, post_json
from reviser.decoding.writer import Writer

PROMPTS = (
    "The old lighthouse", "In the spring of that year the company", "She opened the letter and", "The river rises in",
    "After the storm the harbour", "Bees are", "The committee met on Monday to", "He had never been to the city, but",
)  # fmt: skip
GAPS = (
    ("The keeper lit the lamp", " until morning."), ("The museum was founded in", " and is open every day."),
    ("When the train stopped,", " and nobody spoke."), ("The village lies", " near the border."),
)  # fmt: skip
DRAFTS = (
    "I has never been too Paris, but my freind have went there twice.",
    "The keeper lighted the lamp evry night untill morning, and nobody new why.",
    "Their are many reason for this. One of them are the whether.",
    "He go to school by bus every days, and his sister walk.",
)
WRONG_TYPES: tuple[dict[str, Any], ...] = (
    {"prompt": {"a": 1}}, {"prompt": "a", "seed": "x"}, {"prompt": "a", "n": 1.5}, {"prompt": [1, 2]},
    {"prompt": "a", "stream": "yes"}, {"prompt": "a", "temperature": "hot"}, {"prompt": "a", "unknown": 1},
)  # fmt: skip
BROKEN = (b"{", b'{"prompt": }', b"\xff\xfe", b"[" * 2000, b'"a"', b"{'prompt': 'a'}")
MAX_TOKENS, GAP_TOKENS = 48, 24
LIMIT_S = 120.0
"""An answer that takes longer is lost."""
Outcome = Literal["done", "left", "refused", "lost"]
GOOD = ("complete", "stream", "fill", "edit", "watch", "slow")
BAD = ("gone", "half-closed", "half a head", "broken JSON", "wrong types", "too large")
WEIGHTS = {name: 5 if name in GOOD else 2 for name in (*GOOD, *BAD)} | {"watch": 12, "slow": 8, "half a head": 1}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a text, which can also be done alone."""

    job: Literal["complete", "stream", "fill", "edit", "watch"]
    number: int
    seed: int

    @classmethod
    def draw(cls, kind: str, chance: random.Random, num_seeds: int) -> Asked:
        job: Any = "watch" if kind == "slow" else kind
        return cls(job, chance.randrange(len(TEXTS[job])), 0 if job == "edit" else chance.randrange(num_seeds))

    def request(self, is_wordy: bool = False) -> bytes:
        given: Any = TEXTS[self.job][self.number]
        if self.job == "edit":
            return post_json("/v1/edits", {"text": given})
        if self.job == "fill":
            before, behind = given
            fields = {"input_prefix": before, "input_suffix": behind, "seed": self.seed, "n_predict": GAP_TOKENS}
            return post_json("/infill", fields)
        fields = {"prompt": given, "seed": self.seed, "max_tokens": MAX_TOKENS}
        if self.job == "watch":
            return post_json("/v1/trajectories", fields | {"canvas": is_wordy})
        return post_json("/v1/completions", fields | {"stream": self.job == "stream"})

    def read(self, answer: bytes) -> str:
        """The text in a whole answer."""
        if self.job in ("stream", "watch"):
            events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
            if "error" in events[-1]:
                raise ValueError(events[-1]["error"]["message"])
            return str(events[-1]["new"]) if self.job == "watch" else "".join(map(_read_choice, events))
        fields = json.loads(answer)
        return (
            _read_choice(fields)
            if self.job == "complete"
            else str(fields[{"fill": "content", "edit": "text"}[self.job]])
        )

    def write(self, writer: Writer) -> str:
        """The same text, without a server."""
        given: Any = TEXTS[self.job][self.number]
        if self.job == "edit":
            return writer.edit(given).text
        if self.job == "fill":
            return writer.infill(*given, seed=self.seed, max_tokens=GAP_TOKENS)[0].new
        return writer.generate(given, seed=self.seed, max_tokens=MAX_TOKENS)[0].new


TEXTS: dict[str, tuple[Any, ...]] = {
    "complete": PROMPTS, "stream": PROMPTS, "watch": PROMPTS, "fill": GAPS, "edit": DRAFTS,
}  # fmt: skip


def _read_choice(fields: dict[str, Any]) -> str:
    return str(fields["choices"][0]["text"])


@dataclass(slots=True)
class Met:
    """What came of a client."""

    kind: str
    outcome: Outcome
    asked: Asked | None = None
    text: str = ""
    why: str = ""
    seconds: float = 0.0
    first_s: float | None = None
    """To the first action of a watcher that reads as fast as it can."""
    gaps_s: list[float] = field(default_factory=list)
    """Between two of its actions."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Where clients go, and what they may ask."""

    port: int
    num_seeds: int = 4
    can_edit: bool = True
    max_body_bytes: int = 1 << 20

    async def send_one(self, chance: random.Random) -> Met:
        """One client of a random kind."""
        kinds = [kind for kind in WEIGHTS if self.can_edit or kind != "edit"]
        [kind] = chance.choices(kinds, [WEIGHTS[name] for name in kinds])
        begin = time.perf_counter()
        try:
            async with asyncio.timeout(LIMIT_S):
                met = await (self._good(kind, chance) if kind in GOOD else BADLY[kind](self, chance))
        except (OSError, EOFError, ValueError, KeyError, IndexError, TimeoutError) as error:
            met = Met(kind, "lost", why=f"{type(error).__name__}: {error}")
        met.seconds = time.perf_counter() - begin
        return met

    async def _good(self, kind: str, chance: random.Random) -> Met:
        asked = Asked.draw(kind, chance, self.num_seeds)
        return await self.ask(asked, kind, chance if kind == "slow" else None)

    async def ask(self, asked: Asked, kind: str, slow: random.Random | None = None) -> Met:
        """Ask for a text; with `slow`, read it little by little."""
        begin, times, parts = time.perf_counter(), list[float](), list[bytes]()
        exchange = await Exchange.open(self.port, 4096 if slow else None)
        try:
            status = await exchange.ask(asked.request(is_wordy=slow is not None))
            pace = {"size": 1024, "pause_s": slow.random() * 0.01} if slow else {}
            async for part in exchange.parts(**pace):  # type: ignore[arg-type]
                parts.append(part)
                times += [time.perf_counter()] * part.count(b"event: action")
        finally:
            exchange.close()
        if status in (429, 503):
            return Met(kind, "refused", asked)
        met = Met(kind, "done", asked, asked.read(b"".join(parts)))
        if times and slow is None:
            met.first_s = times[0] - begin
            met.gaps_s = [after - before for before, after in pairwise(times)]
        return met

    async def _go_away(self, chance: random.Random) -> Met:
        exchange = await Exchange.open(self.port)
        job = chance.choice([kind for kind in GOOD if self.can_edit or kind != "edit"])
        try:
            await exchange.send(Asked.draw(job, chance, self.num_seeds).request())
            await asyncio.sleep(chance.random() ** 2)
        finally:
            exchange.close(is_rude=chance.random() < 0.5)
        return Met("gone", "left")

    async def _close_half(self, chance: random.Random) -> Met:
        """Send all and close that side; the server may answer or take it for gone, but must close."""
        exchange = await Exchange.open(self.port)
        try:
            request = Asked.draw("watch", chance, self.num_seeds).request()
            size = len(request) if chance.random() < 0.5 else chance.randrange(1, len(request))
            await exchange.send(request[:size])
            exchange.end_sending()
            await exchange.read_to_end()
        except ConnectionResetError:
            pass
        finally:
            exchange.close()
        return Met("half-closed", "left")

    async def _send_half_a_head(self, chance: random.Random) -> Met:
        """Begin a request and wait; the server must say that it is too late, or just close."""
        exchange = await Exchange.open(self.port)
        try:
            head = make_request("GET", "/health")
            await exchange.send(head[: chance.randrange(1, len(head) - 4)])
            answer = await exchange.read_to_end()
        finally:
            exchange.close()
        return _expect("half a head", answer.split(b"\r\n")[0].split(b" ")[1:2] == [b"408"], answer)

    async def _send_broken(self, chance: random.Random) -> Met:
        return await self._expect_status("broken JSON", chance.choice(BROKEN), 400)

    async def _send_wrong(self, chance: random.Random) -> Met:
        return await self._expect_status("wrong types", json.dumps(chance.choice(WRONG_TYPES)).encode(), 400)

    async def _send_much(self, chance: random.Random) -> Met:
        body = b" " * (self.max_body_bytes + chance.randrange(1, self.max_body_bytes))
        return await self._expect_status("too large", body, 413)

    async def _expect_status(self, kind: str, body: bytes, wanted: int) -> Met:
        exchange = await Exchange.open(self.port)
        try:
            status = await exchange.ask(make_request("POST", "/v1/completions", body))
            answer = await exchange.read()
        finally:
            exchange.close()
        return _expect(kind, status == wanted, b"%d %b" % (status, answer))


def _expect(kind: str, is_right: bool, answer: bytes) -> Met:
    return Met(kind, "done") if is_right else Met(kind, "lost", why=answer[:80].decode("latin-1"))


BADLY: dict[str, Callable[[Crowd, random.Random], Awaitable[Met]]] = {
    "gone": Crowd._go_away,
    "half-closed": Crowd._close_half,
    "half a head": Crowd._send_half_a_head,
    "broken JSON": Crowd._send_broken,
    "wrong types": Crowd._send_wrong,
    "too large": Crowd._send_much,
}
