"""A server that never finishes: one request ends with its time-out, whatever arrives, and lets the connection go."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from reviser.errors import ConfigError
from reviser.evaluation.judges.endpoint import Endpoint, UnansweredError

pytest.importorskip("httpx")

HANGS_S = 60.0
"""A test that waits so long has found a hang."""
OK = b"HTTP/1.1 200 OK\r\n"


class Dripper:
    """Sends the pieces that `make` yields, a short pause after each, until the other side has gone."""

    def __init__(self, make: Callable[[], Iterable[bytes]], pause_s: float = 0.02, reads: bool = True) -> None:
        self.make, self.pause_s, self.reads = make, pause_s, reads
        self.is_over = threading.Event()
        self.threads: list[threading.Thread] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.threads.append(threading.Thread(target=self.drip, args=(connection,), daemon=True))
            self.threads[-1].start()

    def drip(self, connection: socket.socket) -> None:
        with connection:
            try:
                if self.reads:
                    read_request(connection)
                for piece in self.make():
                    connection.sendall(piece)
                    if self.is_over.wait(self.pause_s):
                        break_off(connection)
                        return
                while not self.is_over.is_set() and (not self.reads or connection.recv(65536)):
                    self.is_over.wait(0.02)
            except OSError:
                return


def read_request(connection: socket.socket) -> None:
    """All of it: what is left unread when a connection closes resets it."""
    request = b""
    while b"\r\n\r\n" not in request and (piece := connection.recv(65536)):
        request += piece
    head, _, body = request.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    missing = sum(lengths) - len(body)
    while missing > 0 and (piece := connection.recv(65536)):
        missing -= len(piece)


def break_off(connection: socket.socket) -> None:
    """Say that nothing more comes, and close when the other side has."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(1.0)
    while connection.recv(65536):
        pass


@contextmanager
def drip(make: Callable[[], Iterable[bytes]], pause_s: float = 0.02, reads: bool = True) -> Iterator[Dripper]:
    server = Dripper(make, pause_s, reads)
    accepting = threading.Thread(target=server.accept, daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        accepting.join()
        server.is_over.set()
        for thread in server.threads:
            thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def ask(endpoint: Endpoint, content: str = "?") -> Exception:
    """The error that a question ends in; a hang fails the test."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            endpoint.ask([{"role": "user", "content": content}])
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANGS_S)
    assert not thread.is_alive(), "the request did not end"
    return errors[0]


def forever(start: bytes, more: bytes) -> Callable[[], Iterable[bytes]]:
    return lambda: itertools.chain([start], itertools.repeat(more))


DRIPS = {
    "nothing": list,
    "half a status line": lambda: [b"HTTP/1.1 2"],
    "a status line without end": forever(b"HTTP/1.1 200 O", b"K"),
    "a header without end": forever(OK + b"X-Long: ", b"x"),
    "headers without end": forever(OK, b"X-More: x\r\n"),
    "100 Continue again and again": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early hints again and again": forever(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "a body of known length": forever(OK + b"Content-Length: 9999999\r\n\r\n", b" "),
    "a body up to the end": forever(OK + b"\r\n", b" "),
    "a body in chunks": forever(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a chunk's length": forever(OK + b"Transfer-Encoding: chunked\r\n\r\n0", b"0"),
    "trailers": forever(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"X-More: x\r\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRIPS)
def test_a_server_that_drips_meets_the_time_out_and_loses_its_connection(name: str) -> None:
    with drip(DRIPS[name]) as server:
        error = ask(Endpoint(server.url, "m", timeout_s=0.3, retries=0))
        # It ends when the other side has closed the connection, not before.
        for thread in server.threads:
            thread.join(HANGS_S)
            assert not thread.is_alive()
    assert isinstance(error, UnansweredError)
    assert str(error) == "no answer within 0.3 s, after 1 of 1 tries"


@pytest.mark.parametrize(
    "piece", [b"HTTP/1.1 100 Continue\r\n\r\n" * 400, OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 9]
)
def test_a_server_that_floods_meets_the_time_out_or_a_limit(piece: bytes) -> None:
    with drip(forever(b"", piece), pause_s=0.0) as server:
        error = ask(Endpoint(server.url, "m", timeout_s=0.3, retries=0))
    assert isinstance(error, UnansweredError)


def test_a_server_that_reads_nothing_or_speaks_no_tls_meets_the_time_out() -> None:
    with drip(list, reads=False) as server:
        error = ask(Endpoint(server.url, "m", timeout_s=0.3, retries=0), "x" * 30_000_000)
        assert str(error) == "no answer within 0.3 s, after 1 of 1 tries"
        safe = server.url.replace("http:", "https:")
        assert str(ask(Endpoint(safe, "m", timeout_s=0.3, retries=0))).startswith("no answer within 0.3 s")
    gc.collect()  # would complain about a connection left open


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, kind, text",
    [
        (500, UnansweredError, "500 bad, your key is, after 1 of 1 tries"),
        (401, ConfigError, "rejects the key: 401 bad, your key is; "),
        (404, ConfigError, "has no model m: 404 bad, your key is; "),
    ],
)
def test_an_error_whose_body_never_ends_counts_by_its_status(code: int, kind: type[Exception], text: str) -> None:
    """Even where the deadline cuts the key in two."""
    start = f"HTTP/1.1 {code} Oh\r\nContent-Length: 9999\r\n\r\nbad, your key is sk-01".encode()
    with drip(forever(start, b"")) as server:
        error = ask(Endpoint(server.url, "m", "sk-0123456789", timeout_s=1.5, retries=0))
    assert isinstance(error, kind)
    assert text in str(error)
    assert "sk-" not in str(error)


def test_a_reply_or_an_error_without_end_is_cut_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from reviser.evaluation.judges import exchange

    monkeypatch.setattr(exchange, "LONGEST_REPLY", 100_000)
    with drip(forever(OK + b"\r\n", b" " * 4096), pause_s=0.0) as server:
        error = ask(Endpoint(server.url, "m", retries=0))
    assert str(error) == "an answer of more than 100,000 bytes, after 1 of 1 tries"
    with drip(forever(b"HTTP/1.1 500 Oh\r\n\r\n", b"no " * 999), pause_s=0.0) as server:
        error = ask(Endpoint(server.url, "m", retries=0))
    assert str(error) == f"500 {('no ' * 99)[:200]}, after 1 of 1 tries"


@pytest.mark.parametrize(
    "sent, reason",
    [
        (b"", "Server disconnected without sending a response"),
        (b"\r\n", "no response line received"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "illegal status line"),
        (OK + b"Content-Length: 9\r\n\r\n{", "peer closed connection without sending complete message body"),
        (OK + b"Content-Length: \x1b]0;sk-0123456789\x07\r\n\r\n", "bad Content-Length"),
    ],
)
def test_a_server_that_breaks_off_or_speaks_something_else_is_one_line(sent: bytes, reason: str) -> None:
    with drip(lambda: iter([sent])) as server:
        server.is_over.set()  # close after the first piece
        error = ask(Endpoint(server.url, "m", "sk-0123456789", retries=0))
    assert isinstance(error, UnansweredError)
    assert f"a broken answer ({reason}" in str(error)
    assert str(error).isprintable()
    assert "sk-" not in str(error)


def test_a_question_may_be_asked_from_inside_an_event_loop() -> None:
    body = b'{"choices": [{"message": {"content": "[[A]]"}}]}'
    sent = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body

    async def main(url: str) -> str:
        return Endpoint(url, "m", retries=0).ask([])

    with drip(lambda: [sent]) as server:
        assert asyncio.run(main(server.url)) == "[[A]]"
