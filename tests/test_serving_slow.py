"""Clients that send or read too slowly or open too many connections hold nothing for ever; patient ones get all."""

import json
import re
import socket
import time
from contextlib import contextmanager

import httpx
import pytest
from served import make_writer, serving, wait_until

from reviser.serving import connections
from reviser.serving.running_engine import RunningEngine

WRITER = make_writer("move", context=200)
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
STREAM = {"prompt": "ab", "max_actions": 190, "min_tokens": 190, "canvas": True}


@contextmanager
def connect(served, buffer=None):
    raw = socket.socket()
    if buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    raw.settimeout(10)
    raw.connect(("127.0.0.1", int(served.url.rpartition(":")[2])))
    with raw:
        yield raw


def post(path, body, **headers):
    head = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def read_all(raw):
    """What comes until the server closes, broken off or not."""
    parts = []
    try:
        while part := raw.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def read_until(raw, wanted):
    """What comes up to some words, which must come."""
    read = b""
    while wanted not in read:
        part = raw.recv(1 << 16)
        assert part, read
        read += part
    return read


def drip(raw, data, pause_s=0.02, limit_s=5.0):
    """Send byte by byte, over and over, until the server has had enough; how long that took."""
    begin = time.monotonic()
    try:
        while time.monotonic() < begin + limit_s:
            for byte in data:
                raw.sendall(bytes([byte]))
                time.sleep(pause_s)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return time.monotonic() - begin


def num_open(served):
    return len(served.server.server_state.connections)


@pytest.mark.parametrize("sent", [b"", GET])
def test_who_says_nothing_is_let_go(served_fast, sent):
    with connect(served_fast) as raw:
        raw.sendall(sent)
        answer = read_all(raw)
        assert answer.startswith(b"HTTP/1.1 200") if sent else answer == b""
    wait_until(lambda: num_open(served_fast) == 0)


@pytest.fixture
def served_fast(monkeypatch):
    monkeypatch.setattr(connections, "LINGER_S", 0.2)
    monkeypatch.setattr("reviser.serving.server.KEEP_ALIVE_S", 0.3)
    with serving(WRITER, head_timeout_s=0.3, body_timeout_s=0.3, send_timeout_s=0.6, max_body_bytes=5000) as served:
        yield served


@pytest.mark.parametrize("before", [b"", GET])
def test_headers_that_trickle_in_are_cut_off(served_fast, before):
    with connect(served_fast) as raw:
        raw.sendall(before)
        if before:
            read_until(raw, b'"requests":')
        seconds = drip(raw, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100)
        assert 0.2 < seconds < 3
    wait_until(lambda: num_open(served_fast) == 0)
    with connect(served_fast) as raw:
        raw.sendall(GET[:9])
        assert read_all(raw).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_trickles_in_is_answered_and_cut_off(served_fast):
    whole = post("/v1/completions", b" " * 4000)
    with connect(served_fast) as raw:
        raw.sendall(whole[:-3900])
        answer = read_until(raw, b"the body did not come within 0.3 s; send it faster")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert drip(raw, b" " * 4000) < 3
    wait_until(lambda: num_open(served_fast) == 0)


def test_a_body_that_goes_on_behind_its_answer_is_cut_off(served_fast):
    with connect(served_fast) as raw:
        raw.sendall(post("/v1/completions", b" ", **{"Content-Length": 10**9}))
        read_until(raw, b"the body is larger than 5000 bytes")
        assert drip(raw, b" " * 100) < 3


def test_a_connection_goes_on_behind_a_body_that_was_refused_unread(served_fast):
    with connect(served_fast) as raw:
        raw.sendall(post("/v1/completions", b" " * 6000) + GET)
        answer = b""
        while answer.count(b"HTTP/1.1 ") < 2:
            answer += raw.recv(1 << 16)
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"413", b"200"]


def shrink(served):
    """Little room in the kernel, so that a client that does not read is noticed."""
    for opened in served.server.servers[0].sockets:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


@pytest.mark.parametrize(
    "asked",
    [b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n", post("/v1/trajectories", json.dumps(STREAM).encode())],
    ids=["answer", "stream"],
)
def test_who_does_not_read_is_cut_off_and_holds_no_row(served_fast, asked):
    shrink(served_fast)
    with connect(served_fast, buffer=2048) as raw:
        raw.sendall(asked)
        wait_until(lambda: num_open(served_fast) == 1)
        begin = time.monotonic()
        wait_until(lambda: num_open(served_fast) == 0, limit_s=30)
        assert time.monotonic() - begin > 0.4
        wait_until(lambda: served_fast.service.num_admitted == 0)
        assert served_fast.service.scheduler.num_decoding == 0
        assert b"event: done" not in read_all(raw)


def test_who_reads_slowly_but_steadily_gets_everything(served_fast):
    shrink(served_fast)
    whole = served_fast.http.post("/v1/trajectories", json=STREAM).text
    with connect(served_fast, buffer=2048) as raw:
        raw.sendall(post("/v1/trajectories", json.dumps(STREAM).encode(), Connection="close"))
        begin, read = time.monotonic(), b""
        while part := raw.recv(2048):
            read += part
            time.sleep(0.02)
        assert time.monotonic() - begin > 0.7
    assert len(whole) > 1 << 16
    assert [line for line in read.decode().splitlines() if line.startswith("data: ")] == [
        line for line in whole.splitlines() if line.startswith("data: ")
    ]


def test_connections_beyond_the_limit_are_told_so_until_others_go(monkeypatch):
    monkeypatch.setattr(connections, "SPARE", 1)
    with serving(WRITER, max_connections=2) as served:
        with connect(served) as first, connect(served):
            wait_until(lambda: num_open(served) == 2)
            with httpx.Client(base_url=served.url) as surplus:
                refused = surplus.post("/v1/completions", json={"prompt": "a"})
                assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
                assert refused.json()["error"]["message"] == "all 2 connections are open; try again later"
                wait_until(lambda: num_open(served) == 2)
                assert surplus.get("/health").status_code == 200
                with connect(served) as last:
                    assert read_all(last) == b""
            first.sendall(GET)
            assert first.recv(1 << 16).startswith(b"HTTP/1.1 200")
        wait_until(lambda: num_open(served) == 0)
        assert served.post("/v1/completions", prompt="a", max_tokens=2).status_code == 200


def test_small_parts_of_an_answer_are_sent_at_once():
    with serving(WRITER) as served, connect(served) as raw:
        times = []
        for _ in range(5):
            begin = time.monotonic()
            raw.sendall(GET)
            read_until(raw, b'"requests":')
            times.append(time.monotonic() - begin)
        [connection] = served.server.server_state.connections
        opened = connection.transport.get_extra_info("socket")
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        # Else all but the first would take 40 ms.
        assert min(times) < 0.03


def test_a_stream_that_is_quiet_gives_signs_of_life(monkeypatch):
    advance = RunningEngine.advance

    def advance_slowly(self):
        time.sleep(0.15)
        return advance(self)

    monkeypatch.setattr("reviser.serving.event_stream.PING_S", 0.05)
    monkeypatch.setattr(RunningEngine, "advance", advance_slowly)
    with serving(WRITER) as served:
        answer = served.http.post("/v1/trajectories", json={"prompt": "ab", "max_actions": 3})
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.text.count("event: action") <= 3 <= answer.text.count(": ping\n\n")
