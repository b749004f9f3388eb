"""`reviser serve` as a command: what it refuses, and that it stops as it should."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import fields

import httpx
import pytest

from reviser.cli import build_parser, main
from reviser.decoding.writer import Writer
from reviser.serving.serve_config import ServeConfig


def refuse(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["serve", *words]) == 2
    return capsys.readouterr().err


def test_every_setting_of_a_server_is_an_option() -> None:
    args = build_parser().parse_args(["serve"])
    for each in fields(ServeConfig):
        default = getattr(ServeConfig(), each.name)
        assert getattr(args, each.name) == (list(default) if isinstance(default, tuple) else default)


def test_what_cannot_be_served_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert refuse(capsys, "--port", "70000") == (
        "error: port 70000 must be between 0 and 65535; 0 takes any that is free\n"
    )
    assert "cannot listen on 203.0.113.1:8000" in refuse(capsys, "--host", "203.0.113.1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in refuse(capsys, "--port", port)
    assert "no/such/folder" in refuse(capsys, "--port", "0", "--model", "no/such/folder")


def test_packages_that_are_missing_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("reviser.serving")]:
        if name not in ("reviser.serving", "reviser.serving.serve_config"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert refuse(capsys) == (
        "error: reviser serve needs the package uvicorn, which is not installed; run: pip install 'reviser[serve]'\n"
    )


def test_the_command_line_loads_no_server_until_it_serves() -> None:
    code = "import sys; from reviser.cli import build_parser; build_parser(); " \
           "sys.exit(any(name in sys.modules for name in ('torch', 'fastapi', 'uvicorn', 'pydantic')))"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_server_starts_warns_answers_and_stops() -> None:
    words = ["-m", "reviser", "serve", "--port", "0", "--host", "0.0.0.0"]
    with ExitStack() as held:
        process = held.enter_context(subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True))
        held.callback(process.kill)
        assert process.stderr is not None
        assert "lets EVERYONE, for there is no --token, reach this server" in process.stderr.readline()
        ready = process.stderr.readline()
        url = ready.split()[-1].replace("0.0.0.0", "127.0.0.1")
        assert ready.startswith("ready: reviser-small at http://")
        ends = "The old lighthouse", " until morning."
        asked = {"input_prefix": ends[0], "input_suffix": ends[1], "seed": 2}
        answer = httpx.post(f"{url}/infill", json=asked, timeout=60)
        [filled] = Writer.from_pretrained().infill(*ends, seed=2)
        assert answer.json()["content"] == filled.new
        process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        assert process.wait(20) == 0
        assert time.monotonic() - begin < 10
