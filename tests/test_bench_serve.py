"""`reviser bench serve` and `bench check`: what they count is true, and they notice what goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from served import make_writer, serving
from tiny import random_model

from reviser.bench.check_time import PARAGRAPHS, measure_checks
from reviser.bench.load_clients import BAD, GOOD, WEIGHTS, Crowd
from reviser.bench.load_run import measure_load, measure_throughput
from reviser.bench.served_process import ServedProcess
from reviser.cli import main
from reviser.decoding.writer import Writer
from reviser.errors import ConfigError
from reviser.model.checkpoint import save_pretrained
from reviser.reports.sections import tables_of

WRITER = make_writer("jump", "delete", "replace", context=200)


def quiet(_: str) -> None:
    """Nobody watches the progress."""


def put(served: Any, writer: Writer, seconds: float = 1.5) -> dict[str, Any]:
    crowd = Crowd(int(served.url.rpartition(":")[2]), num_seeds=2)
    return measure_load(crowd, os.getpid(), writer, 8, seconds, 0, quiet)


@pytest.mark.slow
def test_a_load_of_all_clients_leaves_nothing_and_gets_every_text_right() -> None:
    with serving(WRITER, rows=4, concurrency=8, head_timeout_s=0.2) as served:
        found = put(served, WRITER)
        assert [problem for problem in found["problems"] if "memory" not in problem] == []
        assert [row["kind"] for row in found["rows"]] == [*GOOD, *BAD]
        assert sum(row["sent"] for row in found["rows"]) == found["server"]["requests"] >= 8
        for row in found["rows"]:
            assert row["sent"] == row["done"] + row["left"]
        assert found["server"]["gap_s"]["n"] > 0
        found["throughput"] = measure_throughput(Crowd(int(served.url[-5:].strip(":"))), WRITER, 4, 4, quiet)
    assert found["throughput"]["watch"]["ratio"] > 0
    tables = tables_of({"kind": "serve_load", **found})
    assert [table.title for table in tables] == [
        "Clients of a server under load",
        "The server under load",
        "Speed of serving",
    ]


@pytest.mark.slow
def test_another_text_than_the_writers_is_noticed() -> None:
    other = Writer(random_model(WRITER.model.config, seed=1), WRITER.tokenizer)
    with serving(WRITER, rows=4, concurrency=8, head_timeout_s=0.2) as served:
        problems = put(served, other, 0.3)["problems"]
    assert any("another text than without a server" in problem for problem in problems)


def test_clients_whose_server_is_gone_are_lost() -> None:
    with serving(WRITER) as served:
        crowd = Crowd(int(served.url.rpartition(":")[2]))
    mets = [asyncio.run(crowd.send_one(random.Random(seed))) for seed in range(30)]
    assert {met.outcome for met in mets} == {"lost"}
    assert {met.kind for met in mets} <= set(WEIGHTS)


def test_a_server_that_refuses_so_many_is_told() -> None:
    with (
        serving(WRITER, concurrency=1, queue=0) as served,
        pytest.raises(ConfigError, match="the server refuses 8 requests at a time; ask for fewer --streams"),
    ):
        put(served, WRITER)


@pytest.mark.slow
def test_checks_of_all_lengths_are_timed() -> None:
    asked: list[str] = []
    with serving(WRITER) as served:
        rows = measure_checks(int(served.url.rpartition(":")[2]), 1, asked.append)
    assert [row["text"] for row in rows] == ["nothing", "a word", "a sentence", "a paragraph"]
    assert all(row["reviser_ms"]["p50"] > 0 for row in rows)
    assert asked.count(PARAGRAPHS[0]) == 2
    [table] = tables_of({"kind": "check_time", "rows": rows})
    assert table.columns[-1] == "Harper the first time"


@pytest.mark.parametrize(
    "words, message",
    [
        (["serve", "--streams", "0"], "--streams 0 must be at least 1"),
        (["serve", "--seconds", "0"], "--seconds 0 must be above 0 and at most 86400"),
        (["serve", "--model", "no/such/folder"], "no/such/folder"),
        (["check", "--repeats", "0"], "--repeats 0 must be at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(ConfigError, match=r"the server did not start \(error: .*no/such.*\); run: reviser serve"):
        ServedProcess(["--model", "no/such"]).__enter__()


@pytest.mark.slow
def test_the_commands_run_a_server_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_pretrained(WRITER.model, tmp_path / "model", WRITER.tokenizer)
    out = tmp_path / "load.json"
    words = ["serve", "--model", model, "--seconds", "1", "--streams", "4", "--rows", "2", "--out", out]
    code = main(["bench", *map(str, words)])
    result = json.loads(out.read_text("utf-8"))
    assert code == (1 if result["problems"] else 0)
    assert all("memory" in problem for problem in result["problems"])
    assert main(["bench", "check", "--all-cpus", "--model", str(model), "--repeats", "1", "--json"]) == 0
    capsys.readouterr()
    assert main(["report", str(out)]) == 0
    assert "Clients of a server under load" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="asks /proc for the server")
def test_a_load_that_is_ended_ends_its_server() -> None:
    command = [sys.executable, "-m", "reviser", "bench", "serve", "--seconds", "60", "--no-throughput"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        while "at a time" not in process.stderr.readline():
            assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.terminate()
        process.stderr.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert not any(Path(f"/proc/{child}/status").exists() for child in children)
