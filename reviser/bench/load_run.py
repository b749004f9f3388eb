"""A server under load: many clients at a time, good and bad, and what that did to it.

    load         `streams` clients at a time for some seconds; then all must be gone, and every text right
    throughput   the same texts from the server and from the bare engine, in turn; no bad clients

>>> list_problems([{"kind": "watch", "sent": 3, "wrong": 1, "lost": 0}], {"rows_busy": 0, "requests_left": 0})
['1 of 3 watch: another text than without a server']
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reviser.bench.load_clients import BAD, GOOD, MAX_TOKENS, TEXTS, Asked, Crowd, Met
from reviser.bench.served_process import memory_mib, num_descriptors, read_meters
from reviser.decoding.engine import Engine
from reviser.decoding.presets import DEFAULT
from reviser.decoding.requests import Request
from reviser.decoding.writer import NUM_ALTERNATIVES, Writer
from reviser.errors import ConfigError
from reviser.orders.rng import Random

SAMPLE_S = 0.5
IDLE_S = 30.0
"""How long the server may take to be idle when all clients have gone."""
MOST_GROWTH_MIB = 32.0
"""Between the second fifth of the time and the last: the first fills caches, allocators keep some, and a leak would
take more."""
ROUNDS = 3
Report = Callable[[str], None]


@dataclass(slots=True)
class Load:
    """What a load brought."""

    mets: list[Met] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    seconds: float = 0.0


async def put_under_load(crowd: Crowd, pid: int, streams: int, seconds: float, seed: int) -> Load:
    """Clients one after the other on each of so many streams."""
    load, begin = Load(), time.monotonic()

    async def stream(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        while time.monotonic() < begin + seconds:
            load.mets.append(await crowd.send_one(chance))

    async def sample() -> None:
        while True:
            if (size := memory_mib(pid)) is not None:
                load.memory_mib.append(size)
            await asyncio.sleep(SAMPLE_S)

    watching = asyncio.create_task(sample())
    await asyncio.gather(*(stream(number) for number in range(streams)))
    watching.cancel()
    load.seconds = time.monotonic() - begin
    return load


def wait_idle(port: int) -> dict[str, float]:
    """The server's numbers once nobody is served any more, or when it took too long."""
    end = time.monotonic() + IDLE_S
    while True:
        meters = read_meters(port)
        if (not _count_left(meters) and not meters["reviser_rows_busy"]) or time.monotonic() > end:
            return meters
        time.sleep(0.1)


def _count_left(meters: Mapping[str, float]) -> float:
    return meters["reviser_requests_active"] + meters["reviser_requests_waiting"] + meters["reviser_texts_waiting"]


def count_wrong(mets: Sequence[Met], writer: Writer, report: Report) -> Counter[str]:
    """By kind, texts that are not what the writer gives alone; each request is written once."""
    seen: dict[Asked, list[Met]] = defaultdict(list)
    for met in mets:
        if met.outcome == "done" and met.asked is not None:
            seen[met.asked].append(met)
    wrong = Counter[str]()
    for number, (asked, found) in enumerate(sorted(seen.items(), key=lambda each: repr(each[0]))):
        if number % 20 == 0:
            report(f"comparing {len(seen)} different texts, {number} done")
        text = asked.write(writer)
        wrong.update(met.kind for met in found if met.text != text)
    return wrong


def describe_kinds(mets: Sequence[Met], wrong: Mapping[str, int]) -> list[dict[str, Any]]:
    """A row for each kind of client."""
    rows = []
    for kind in (*GOOD, *BAD):
        own = [met for met in mets if met.kind == kind]
        counts = Counter(met.outcome for met in own)
        rows.append(
            {
                "kind": kind,
                "sent": len(own),
                **{name: counts[name] for name in ("done", "left", "refused", "lost")},
                "wrong": wrong.get(kind, 0) if kind in GOOD else None,
                "seconds": find_shares([met.seconds for met in own if met.outcome == "done"]),
            }
        )
    return rows


def find_shares(values: Sequence[float]) -> dict[str, float | int] | None:
    """The median and the 99th of a hundred.

    >>> find_shares([3.0, 1.0, 2.0])
    {'p50': 2.0, 'p99': 3.0, 'n': 3}
    """
    if not values:
        return None
    ordered = sorted(values)
    return {name: ordered[int(share * (len(ordered) - 1) + 0.5)] for name, share in (("p50", 0.5), ("p99", 0.99))} | {
        "n": len(ordered)
    }


def describe_server(load: Load, opened: int | None, left: int | None, meters: Mapping[str, float]) -> dict[str, Any]:
    """What the load did to the server; descriptors are those before it and behind it."""
    fifth = max(len(load.memory_mib) // 5, 1)
    # The first fifth fills caches; very short loads have no second.
    second, last = load.memory_mib[fifth : 2 * fifth] or load.memory_mib[:fifth], load.memory_mib[-fifth:]
    watchers = [met for met in load.mets if met.first_s is not None]
    return {
        "seconds": load.seconds,
        "requests": len(load.mets),
        "memory_second_fifth_mib": sum(second) / len(second) if second else None,
        "memory_last_fifth_mib": sum(last) / len(last) if last else None,
        "memory_most_mib": max(load.memory_mib, default=None),
        "descriptors_before": opened,
        "descriptors_after": left,
        "rows_busy": int(meters["reviser_rows_busy"]),
        "requests_left": int(_count_left(meters)),
        "first_action_s": find_shares([met.first_s for met in watchers if met.first_s is not None]),
        "gap_s": find_shares([gap for met in watchers for gap in met.gaps_s]),
    }


def list_problems(rows: Sequence[Mapping[str, Any]], server: Mapping[str, Any]) -> list[str]:
    """What must not be, in words; none where all went well."""
    found = []
    for row in rows:
        for name, what in (("wrong", "another text than without a server"), ("lost", "no proper answer")):
            if row[name]:
                found.append(f"{row[name]} of {row['sent']} {row['kind']}: {what}")
    if server["rows_busy"] or server["requests_left"]:
        found.append(f"{server['rows_busy']} rows and {server['requests_left']} requests are left when all have gone")
    before, after = server.get("descriptors_before"), server.get("descriptors_after")
    if before is not None and after is not None and after > before:
        found.append(f"{after - before} more descriptors are open than before")
    second, last = server.get("memory_second_fifth_mib"), server.get("memory_last_fifth_mib")
    if second is not None and last is not None and last - second > MOST_GROWTH_MIB:
        found.append(f"memory grew by {last - second:.0f} MiB from the second fifth of the time to the last")
    return found


def measure_load(
    crowd: Crowd, pid: int, writer: Writer, streams: int, seconds: float, seed: int, report: Report
) -> dict[str, Any]:
    """Rows by kind of client, what the load did to the server, and problems."""
    if streams < 1 or not seconds > 0:
        raise ConfigError(f"streams={streams} and seconds={seconds} must be at least 1 and above 0")
    report("warming up")
    asyncio.run(warm_up(crowd, streams))
    wait_idle(crowd.port)
    opened = count_descriptors(pid)
    report(f"seed {seed}: {streams} clients at a time for {seconds:g} s")
    load = asyncio.run(put_under_load(crowd, pid, streams, seconds, seed))
    meters = wait_idle(crowd.port)
    left = count_descriptors(pid, opened)
    rows = describe_kinds(load.mets, count_wrong(load.mets, writer, report))
    server = describe_server(load, opened, left, meters)
    lost = [f"{met.kind}: {met.why}" for met in load.mets if met.outcome == "lost"]
    return {"rows": rows, "server": server, "problems": [*list_problems(rows, server), *lost[:5]]}


async def warm_up(crowd: Crowd, streams: int) -> None:
    """Every job, on all streams at once: then all kernels are loaded and all rows are in memory."""
    kinds = [kind for kind in GOOD if crowd.can_edit or kind != "edit"]
    asked = [(kinds[number % len(kinds)], random.Random(number)) for number in range(max(streams, len(kinds)))]
    mets = await asyncio.gather(*(crowd.ask(Asked.draw(kind, chance, 1), kind) for kind, chance in asked))
    if any(met.outcome != "done" for met in mets):
        raise ConfigError(f"the server refuses {streams} requests at a time; ask for fewer --streams")


def count_descriptors(pid: int, most: int | None = None) -> int | None:
    """What stays open; a connection that was just closed is waited for."""
    found = num_descriptors(pid)
    for _ in range(20):
        if found is None or (most is not None and found <= most):
            break
        time.sleep(0.1)
        now = num_descriptors(pid)
        found = now if now is None else min(found, now)
    return found


def measure_throughput(crowd: Crowd, writer: Writer, streams: int, num_rows: int, report: Report) -> dict[str, Any]:
    """Tokens a second of the server and of the bare engine, for the same prompts, seeds and batch."""
    asked = [(number, seed) for seed in range(streams) for number in range(len(TEXTS["watch"]))][:streams]
    found: dict[str, Any] = {"texts": len(asked), "streams": streams, "rows": num_rows}
    for job, num_alternatives in (("complete", 0), ("watch", NUM_ALTERNATIVES)):
        wanted = [Asked(job, number, seed) for number, seed in asked]  # type: ignore[arg-type]
        engine = Engine(writer.model, DEFAULT, num_rows, writer.kernels, num_alternatives)
        requests = [_make_request(writer, each) for each in wanted]
        spent, num_tokens = {"server": list[float](), "engine": list[float]()}, 0
        for turn in range(ROUNDS + 1):
            report(f"throughput of {job}, round {turn} of {ROUNDS}")
            num_tokens, engine_s = _time_engine(engine, requests)
            server_s = asyncio.run(_time_server(crowd, wanted, streams))
            if turn:  # the first is for the caches
                spent["engine"].append(engine_s)
                spent["server"].append(server_s)
        speeds = {name: num_tokens / sorted(times)[ROUNDS // 2] for name, times in spent.items()}
        found[job] = {f"{name}_tokens_per_s": speed for name, speed in speeds.items()}
        found[job]["ratio"] = speeds["server"] / speeds["engine"]
    return found


def _make_request(writer: Writer, asked: Asked) -> Request:
    draft = writer.continuation(TEXTS[asked.job][asked.number], MAX_TOKENS)
    return Request(draft, 256, Random.of(asked.seed, 0, 0).state)


def _time_engine(engine: Engine, requests: Sequence[Request]) -> tuple[int, float]:
    begin = time.perf_counter()
    written = engine.write(requests)
    seconds = time.perf_counter() - begin
    sizes = (len(each.canvas.tokens) - len(asked.draft.tokens) for each, asked in zip(written, requests, strict=True))
    return sum(sizes), seconds


async def _time_server(crowd: Crowd, wanted: Sequence[Asked], streams: int) -> float:
    waiting = list(reversed(wanted))

    async def stream() -> None:
        while waiting:
            met = await crowd.ask(waiting.pop(), "throughput")
            if met.outcome != "done":
                raise ConfigError(f"the server {met.outcome} a request of the throughput; give it a larger --queue")

    begin = time.perf_counter()
    await asyncio.gather(*(stream() for _ in range(streams)))
    return time.perf_counter() - begin
