"""Damaged requests to a real `reviser serve`, over every endpoint that it describes, and kills under load."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torture.fuzzer import Fuzzer, Schema
from torture.trial import Patience, Tally, environment, hang_s, kill, reviser, start, trial
from torture.world import world

ANSWER_S = 60
NUM_CLIENTS = 4
FINE = {*range(200, 500), 503, 504} - {500}
"""Anything but a fault of the server; 503 and 504 are its limits."""
MOST_GROWTH_MIB = 64
"""Beyond what it had after a fifth of the requests: allocators keep some, and a leak would take more."""
DECODED = -1
"""Under which answers to a POST that went well are counted, beside the statuses."""


class Server:
    """`reviser serve` in a process of its own."""

    def __init__(self, place: Path, port: int = 0) -> None:
        self.log = place / f"server-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            words = reviser("serve", "--model", world().editor, "--port", port, "--timeout-s", "20", "--grace-s", "5")
            self.process = start(words, env=environment(), stderr=log)
        self.url = self._wait()

    def _wait(self) -> str:
        until = time.monotonic() + hang_s() / 2
        while time.monotonic() < until:
            if found := re.search(r"ready: .* at (http://\S+)", self.log.read_text("utf-8", "replace")):
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        kill(self.process)
        raise RuntimeError(f"the server did not start: {self.log.read_text('utf-8', 'replace')[-300:]}")

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    @property
    def memory_mib(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20

    @property
    def num_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ask(self, path: str) -> Any:
        connection = http.client.HTTPConnection(*self.address, timeout=ANSWER_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            return int(self.process.wait(30))
        except subprocess.TimeoutExpired:
            kill(self.process)
            return -1


Sending = tuple["Client", threading.Thread]


class Client:
    """One that sends requests over a connection which it keeps, and counts what comes back."""

    def __init__(self, server: Server, fuzzer: Fuzzer) -> None:
        self.server, self.fuzzer = server, fuzzer
        self.tally, self.seen = Tally(), Counter[int]()
        self.connection = http.client.HTTPConnection(*server.address, timeout=ANSWER_S)

    def send(self, count: int, share: float = 1.0) -> None:
        """So many requests, or fewer if the server goes away or a share of the time is over."""
        while self.tally.tried < count and not Patience.is_over(share) and self.server.process.poll() is None:
            method, path, body, headers = self.fuzzer.request()
            try:
                self._send(method, path, body, headers)
            except (ValueError, http.client.InvalidURL):
                self.connection.close()  # this client refuses to send it
            except TimeoutError:
                self.tally.add(f"{_show(method, path, body)}: no answer in {ANSWER_S} s")
                self.connection.close()
            except (OSError, http.client.HTTPException) as error:
                self.connection.close()
                # A server may hang up on a request that is no HTTP, or whose body it will not read.
                is_alive = self.server.process.poll() is None
                gone = f"{_show(method, path, body)}: {type(error).__name__}, and the server is gone"
                self.tally.add(None if is_alive else gone)
        self.connection.close()

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
        self.connection.request(method, path, body, headers)
        if self.fuzzer.chance.random() < 0.01:  # it goes away
            self.connection.close()
            self.tally.add(None)
            return
        answer = self.connection.getresponse()
        answer.read()
        self.seen[answer.status] += 1
        self.seen[DECODED] += method == "POST" and answer.status == 200
        is_fine = answer.status in FINE
        self.tally.add(None if is_fine else f"{_show(method, path, body)}: {answer.status}", answer.status >= 400)
        if answer.will_close:
            self.connection.close()


def _show(method: str, path: str, body: bytes) -> str:
    return f"{method} {path[:60]} {body[:200]!r}"


def begin_clients(
    server: Server, schema: Schema, count: int, chance: random.Random, share: float = 1.0
) -> list[Sending]:
    """Clients that send so many requests together, each in a thread of its own."""
    fuzzers = [Fuzzer(schema, world().trajectory, random.Random(chance.random())) for _ in range(NUM_CLIENTS)]
    clients = [Client(server, fuzzer) for fuzzer in fuzzers]
    threads = [threading.Thread(target=each.send, args=(-(-count // NUM_CLIENTS), share)) for each in clients]
    for thread in threads:
        thread.start()
    return list(zip(clients, threads, strict=True))


def send_all(
    server: Server,
    schema: Schema,
    count: int,
    chance: random.Random,
    tally: Tally,
    seen: Counter[int],
    share: float = 1.0,
) -> None:
    for client, thread in begin_clients(server, schema, count, chance, share):
        thread.join()
        tally.merge(client.tally)
        seen.update(client.seen)


@trial("server", "requests", "damaged requests to all endpoints", 1_000_000, 300)
def requests(count: int, chance: random.Random, place: Path) -> Tally:
    tally, seen, server = Tally(), Counter[int](), Server(place)
    schema = json.loads(server.ask("/openapi.json"))
    try:
        send_all(server, schema, max(1, count // 5), chance, tally, seen, 0.2)
        before, opened = server.memory_mib, server.num_descriptors
        send_all(server, schema, count - count // 5, chance, tally, seen)
        for _ in range(100):
            if json.loads(server.ask("/health"))["requests"] == 0:
                break
            time.sleep(0.2)
        state = json.loads(server.ask("/health"))
        tally.add(None if state["requests"] == 0 else f"{state['requests']} requests are never finished")
        rows = re.findall(r"^reviser\w*rows\w*(?:\{.*\})? (\S+)$", server.ask("/metrics"), re.M)
        tally.add(None if rows else "nothing tells of rows")
        tally.add(f"rows stay in use: {rows}" if any(float(each) for each in rows) else None)
        time.sleep(1)
        grown, left = server.memory_mib - before, server.num_descriptors - opened
        tally.add(f"{grown:.0f} MiB more memory" if grown > MOST_GROWTH_MIB else None)
        tally.add(f"{left} more descriptors" if left > NUM_CLIENTS else None)
        tally.notes |= {"MiB grown": round(grown, 1), "descriptors left": left}
        tally.notes |= {"texts written or checked": seen.pop(DECODED)}
        tally.notes |= {f"answered {status}": number for status, number in sorted(seen.items())}
        log = server.log.read_text("utf-8", "replace")
        tally.add("a traceback in the log: " + log.strip().splitlines()[-1] if "Traceback" in log else None)
    finally:
        code = server.stop()
    tally.add(None if code == 0 else f"SIGTERM: it ends with {code}")
    return tally


@trial("server", "bytes", "connections that speak no HTTP", 2000, 20)
def raw_bytes(count: int, chance: random.Random, place: Path) -> Tally:
    """Whatever comes in, the next client is answered."""
    tally, server = Tally(), Server(place)
    starts = [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"POST /infill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
        b"\x16\x03\x01\x02\x00",
        b"GET " + b"/" * 70_000,
        b"POST /infill HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"A: b\r\n" * 500,
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    try:
        for number in range(count):
            with contextlib.suppress(OSError), socket.create_connection(server.address, 10) as client:
                client.sendall(chance.choice(starts) + chance.randbytes(chance.randint(0, 200)))
                if chance.random() < 0.3:
                    client.settimeout(0.05)
                    client.recv(4096)
            is_checked = number % 100 == 99 or number == count - 1
            tally.add("it answers no more" if is_checked and "status" not in server.ask("/health") else None)
        time.sleep(1)
        tally.notes["descriptors at the end"] = server.num_descriptors
        log = server.log.read_text("utf-8", "replace")
        tally.add("a traceback in the log: " + log.strip().splitlines()[-1] if "Traceback" in log else None)
    finally:
        server.stop()
    return tally


@trial("server", "kills", "SIGKILL and SIGTERM under load, and a new start at the same port", 20, 1)
def kills_under_load(count: int, chance: random.Random, place: Path) -> Tally:
    tally = Tally()
    server = Server(place)
    for number in range(count):
        schema = json.loads(server.ask("/openapi.json"))
        sending = begin_clients(server, schema, 10**6, random.Random(number))
        time.sleep(chance.random() * 2)
        if number % 2:
            code = server.stop()
            tally.add(None if code == 0 else f"SIGTERM under load: it ends with {code}")
        else:
            tally.add(None if kill(server.process) else "it had ended by itself")
        for _, thread in sending:
            thread.join(ANSWER_S * 2)
        tally.add("a client hangs" if any(thread.is_alive() for _, thread in sending) else None)
        server = Server(place, server.address[1])
        tally.add(None if "status" in server.ask("/health") else "it does not start again")
    server.stop()
    return tally
