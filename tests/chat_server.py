"""A chat endpoint on this machine that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-never-to-be-seen-0123456789"
Answer = tuple[int, dict[str, str], bytes]


def say(content: Any, code: int = 200, **headers: str) -> Answer:
    return code, headers, json.dumps({"choices": [{"message": {"content": content}}]}).encode()


def fail(code: int, message: str, **headers: str) -> Answer:
    return code, headers, json.dumps({"error": {"message": message}}).encode()


def judge_rightly(body: dict[str, Any]) -> Answer:
    shown = body["messages"][0]["content"].split("[The Start of Assistant A's Answer]")[1]
    return say("I find [[A]]" if "better" in shown.split("[The End")[0] else "I find [[B]]")


class Server:
    """Answers by `script(number of the request, its body)`; None closes the connection without a word."""

    def __init__(self, script: Callable[[int, dict[str, Any]], Answer | None]) -> None:
        self.script, self.lock = script, threading.Lock()
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.num_keys: list[int] = []
        """How many headers of each request hold the key."""
        self.given: Counter[str] = Counter()
        """How many verdicts went out for each message."""
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.bodies.append(body)
            self.keys.append(handler.headers["Authorization"])
            self.num_keys.append(sum(KEY in value for value in handler.headers.values()))
            number = len(self.bodies) - 1
        answer = self.script(number, body)
        if answer is None:
            handler.close_connection = True
            return
        code, headers, data = answer
        handler.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)
        if code == 200 and (b"[[A]]" in data or b"[[B]]" in data):
            with self.lock:
                self.given[body["messages"][0]["content"]] += 1


@contextmanager
def serve(script: Callable[[int, dict[str, Any]], Answer | None]) -> Iterator[Server]:
    server = Server(script)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                server.answer(self)
            except OSError:
                self.close_connection = True  # the judge has given up waiting

        def do_GET(self) -> None:
            server.keys.append(self.headers["Authorization"])  # only a redirect leads here
            self.send_error(501)

        def log_message(self, *args: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    server.url = f"http://127.0.0.1:{listener.server_port}/v1"
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
