"""A real server on a free port, in a thread, with a tiny model."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from scripted import ScriptedWriter
from tiny import random_model

from reviser.config import ModelConfig
from reviser.decoding.writer import Writer
from reviser.serving.scheduler import Task
from reviser.serving.serve_config import ServeConfig
from reviser.serving.served_writer import ServedWriter
from reviser.serving.server import DrainingServer, listen, make_server
from reviser.serving.service import Service
from reviser.tokenizer import load


def make_writer(*operators: str, context: int = 64) -> Writer:
    """A random model on bytes."""
    config = ModelConfig(
        num_text=257, pad=256, num_layers=1, width=16, num_heads=2, ff_width=16, context=context, max_length=96,
        operators=operators,
    )  # fmt: skip
    return Writer(random_model(config), load("bytes"), name="tiny")


class ScriptedService(Service):
    """One whose jobs are done by the script of a `ScriptedWriter`."""

    def view(self, task: Task) -> ServedWriter:
        assert isinstance(self.writer, ScriptedWriter)
        return self.writer  # type: ignore[return-value]


@dataclass
class Served:
    """A server that runs."""

    url: str
    service: Service
    server: DrainingServer
    http: httpx.Client

    def post(self, path: str, **fields: Any) -> httpx.Response:
        # As ASCII, so that a test can send half of a character.
        return self.http.post(path, content=json.dumps(fields), headers={"Content-Type": "application/json"})

    def events(self, path: str, **fields: Any) -> Iterator[tuple[str, Any]]:
        """Kind and content of each server-sent event."""
        with self.http.stream("POST", path, json=fields) as response:
            assert response.status_code == 200, response.read()
            kind = "message"
            for line in response.iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data = line.removeprefix("data: ")
                    yield kind, data if data == "[DONE]" else json.loads(data)

    def stop(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)


def wait_until(is_true: Any, limit_s: float = 10.0) -> None:
    end = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


@contextmanager
def serving(writer: Writer, kind: type[Service] = Service, **settings: Any) -> Iterator[Served]:
    config = ServeConfig(port=0, **settings)
    opened = listen(config)
    url = f"http://127.0.0.1:{opened.getsockname()[1]}"
    service = kind(writer, config)
    server = make_server(service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        headers = {"Authorization": f"Bearer {config.token}"} if config.token else {}
        with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
            yield Served(url, service, server, http)
    finally:
        if thread.is_alive() and not service.is_draining:
            server.handle_exit(signal.SIGTERM, None)
        thread.join(10)
        assert not thread.is_alive()
        opened.close()
