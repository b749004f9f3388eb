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
from urllib.parse import quote_from_bytes, urlencode, urlsplit

from torture.trial import Tally, environment, kill, reviser, start, trial
from torture.world import world

ANSWER_S = 60
NUM_CLIENTS = 4
FINE = {*range(200, 500), 503, 504} - {500}
"""Anything but a fault of the server; 503 and 504 are its limits."""
MOST_GROWTH_MIB = 64
"""Beyond what it had after a fifth of the requests: allocators keep some, and a leak would take more."""
TEXTS = [
    "",
    "a",
    "The old sea",
    "é" * 40,
    "\ud800",
    "\x00",
    "\u202e\x1b[2J",
    "<script>",
    "x" * 5000,
    "\U0001f600",
    "\n" * 50,
    "___",
    "%00",
    "../../etc/passwd",
    "{" * 500,
    "  ",
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**31,
    2**63,
    10**30,
    -0.0,
    0.5,
    1e308,
    1e-300,
    [],
    {},
    [[]],
    [None],
    {"a": {"b": []}},
    [1, 2],
    ["a", "b"],
    {"include_usage": 3},
]


class Server:
    """`reviser serve` in a process of its own."""

    def __init__(self, place: Path, port: int = 0) -> None:
        self.log = place / f"server-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            words = reviser("serve", "--model", world().model, "--port", port, "--timeout-s", "20", "--grace-s", "5")
            self.process = start(words, env=environment(), stderr=log)
        self.url = self._wait()

    def _wait(self) -> str:
        for _ in range(1200):
            if found := re.search(r"ready: .* at (http://\S+)", self.log.read_text("utf-8", "replace")):
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
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


class Fuzzer:
    """Requests out of the server's own description, each damaged in some way."""

    def __init__(self, schema: dict[str, Any], chance: random.Random) -> None:
        self.chance = chance
        self.endpoints = [(method.upper(), path) for path, methods in schema["paths"].items() for method in methods]
        self.endpoints += [("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/static/index.html")]
        self.fields = {
            name: list(each.get("properties", {})) for name, each in schema["components"]["schemas"].items()
        }
        self.names = sorted(
            {field for fields in self.fields.values() for field in fields} | {"nothing", "a" * 300, ""}
        )

    def request(self) -> tuple[str, str, bytes, dict[str, str]]:
        """A method, a path, a body and headers."""
        chance = self.chance
        method, path = chance.choice(self.endpoints)
        if chance.random() < 0.05:
            method = chance.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"])
        if chance.random() < 0.05:
            path = chance.choice(
                [
                    "/%2e%2e/%2e%2e/etc/passwd",
                    "/static/../app.py",
                    "/static/%00",
                    path + "/",
                    path * 50,
                    "//",
                    "/v1/%ff",
                    f"{path}?{'a=b&' * 200}",
                    f"{path}?text=%ff&data=%5B",
                ]
            )
        headers = {"Content-Type": "application/json"}
        if path.startswith("/v2"):
            headers, body = {"Content-Type": "application/x-www-form-urlencoded"}, self.form()
        else:
            body = self.json_body()
        if chance.random() < 0.1:
            body = self.damage(body)
        if chance.random() < 0.05:
            headers["Content-Type"] = chance.choice(
                ["", "text/plain", "application/json; charset=utf-16", "multipart/x"]
            )
        if chance.random() < 0.03:
            headers |= chance.choice(
                [
                    {"Authorization": "Bearer x"},
                    {"Origin": "http://evil"},
                    {"Accept": "\x7f"},
                    {"X-Long": "y" * 3000},
                    {"Host": "evil.example"},
                    {"Expect": "100-continue"},
                ]
            )
        return method, path, b"" if method == "GET" else body, headers

    def json_body(self) -> bytes:
        chance = self.chance
        body: dict[str, Any] = {"max_actions": chance.randint(1, 4)} if chance.random() < 0.9 else {"max_tokens": 2}
        for name in chance.sample(self.names, chance.randint(0, 5)):
            body[name] = chance.choice(TEXTS) if chance.random() < 0.5 else chance.choice(VALUES)
        usual = {
            "prompt": "The",
            "input_prefix": "a",
            "input_suffix": "b",
            "prefix": "a",
            "suffix": "b",
            "text": "teh",
            "stream": True,
            "seed": 3,
            "n": 2,
            "logprobs": 2,
        }
        for name in chance.sample(list(usual), chance.randint(0, 3)):
            body[name] = usual[name]
        return json.dumps(body).encode()

    def form(self) -> bytes:
        chance = self.chance
        fields: dict[str, Any] = {"language": chance.choice(["en-US", "auto", "xx", ""])}
        if chance.random() < 0.8:
            fields["text"] = chance.choice(TEXTS)
        if chance.random() < 0.3:
            annotation = [{"text": chance.choice(TEXTS)}, {"markup": "<b>", "interpretAs": 3}, chance.choice(VALUES)]
            fields["data"] = json.dumps({"annotation": annotation[: chance.randint(0, 3)]})
        for name in ("enabledRules", "disabledRules", "enabledOnly", "level", "x" * 50):
            if chance.random() < 0.2:
                fields[name] = str(chance.choice(VALUES))
        return urlencode(fields, errors="surrogatepass").encode()

    def damage(self, body: bytes) -> bytes:
        chance = self.chance
        place = chance.randrange(len(body) + 1)
        return chance.choice(
            [
                body[:place],
                body[:place] + bytes([chance.randrange(256)]) + body[place + 1 :],
                b"[" * 20_000,
                b'{"prompt":' * 3_000,
                b"\xff" + body,
                b"",
                body * 3,
                b'{"seed": ' + b"9" * 5000 + b"}",
                b'{"temperature": NaN, "top_p": Infinity}',
                b"x" * ((1 << 20) + 5) if chance.random() < 0.05 else b"null",
                quote_from_bytes(body).encode(),
            ]
        )


def send_requests(server: Server, fuzzer: Fuzzer, count: int, tally: Tally, seen: Counter[int]) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=ANSWER_S)
    for _ in range(count):
        method, path, body, headers = fuzzer.request()
        shown = f"{method} {path[:60]} {body[:120]!r}"
        try:
            connection.request(method, path, body, headers)
            if fuzzer.chance.random() < 0.01:  # a client that goes away
                connection.close()
                continue
            answer = connection.getresponse()
            answer.read()
            seen[answer.status] += 1
            tally.add(None if answer.status in FINE else f"{shown}: {answer.status}", answer.status >= 400)
            if answer.will_close:
                connection.close()
        except TimeoutError:
            tally.add(f"{shown}: no answer in {ANSWER_S} s")
            connection.close()
        except (ValueError, http.client.InvalidURL):
            connection.close()  # this client refuses to send it
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            # A server may hang up on a request that is no HTTP, or whose body it will not read.
            is_alive = server.process.poll() is None
            tally.add(None if is_alive else f"{shown}: {type(error).__name__}, and the server is gone")
            if not is_alive:
                return
    connection.close()


@trial("server", "requests", "damaged requests to all endpoints", 1_000_000, 300)
def requests(count: int, chance: random.Random, place: Path) -> Tally:
    tally, seen, server = Tally(), Counter[int](), Server(place)
    schema = json.loads(server.ask("/openapi.json"))
    try:
        send_all(server, schema, max(1, count // 5), chance, tally, seen)
        before, opened = server.memory_mib, server.num_descriptors
        send_all(server, schema, count - count // 5, chance, tally, seen)
        for _ in range(100):
            if json.loads(server.ask("/health"))["requests"] == 0:
                break
            time.sleep(0.2)
        state = json.loads(server.ask("/health"))
        tally.add(None if state["requests"] == 0 else f"{state['requests']} requests are never finished")
        rows = re.findall(r"^reviser\w*rows\w*(?:\{.*\})? (\S+)$", server.ask("/metrics"), re.M)
        tally.add(f"rows stay in use: {rows}" if any(float(each) for each in rows) else None)
        time.sleep(1)
        grown, left = server.memory_mib - before, server.num_descriptors - opened
        tally.add(f"{grown:.0f} MiB more memory" if grown > MOST_GROWTH_MIB else None)
        tally.add(f"{left} more descriptors" if left > NUM_CLIENTS else None)
        tally.notes |= {"MiB grown": round(grown, 1), "descriptors left": left}
        tally.notes |= {f"answered {status}": number for status, number in sorted(seen.items())}
        log = server.log.read_text("utf-8", "replace")
        tally.add("a traceback in the log: " + log.strip().splitlines()[-1] if "Traceback" in log else None)
    finally:
        code = server.stop()
    tally.add(None if code == 0 else f"SIGTERM: it ends with {code}")
    return tally


def send_all(
    server: Server, schema: dict[str, Any], count: int, chance: random.Random, tally: Tally, seen: Counter[int]
) -> None:
    clients = [
        threading.Thread(
            target=send_requests,
            args=(server, Fuzzer(schema, random.Random(chance.random())), -(-count // NUM_CLIENTS), tally, seen),
        )
        for _ in range(NUM_CLIENTS)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


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
        quiet = Tally()
        clients = [
            threading.Thread(
                target=send_requests, args=(server, Fuzzer(schema, random.Random(number)), 10**6, quiet, Counter())
            )
            for _ in range(NUM_CLIENTS)
        ]
        for client in clients:
            client.start()
        time.sleep(chance.random() * 2)
        if number % 2:
            code = server.stop()
            tally.add(None if code == 0 else f"SIGTERM under load: it ends with {code}")
        else:
            tally.add(None if kill(server.process) else "it had ended by itself")
        for client in clients:
            client.join(ANSWER_S * 2)
        tally.add("a client hangs" if any(client.is_alive() for client in clients) else None)
        server = Server(place, server.address[1])
        tally.add(None if "status" in server.ask("/health") else "it does not start again")
    server.stop()
    return tally
