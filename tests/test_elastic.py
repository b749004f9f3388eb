"""Training goes on when a machine dies: torchrun starts the command again, and that resumes the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from test_distributed import free_port
from tiny import fail, flags, losses, start, wait_for

from reviser.training.runs import Run

CHANGES = ("train.rows=4", "train.steps=12", "train.save_every=4", "train.eval_every=12")
LONG = ("train.rows=4", "train.steps=120", "train.save_every=10", "train.eval_every=120", "train.sample_every=120")


def launch(port: int, log: Path, is_host: bool, *words: object) -> subprocess.Popen[bytes]:
    """The agent of one node, with one process; the host keeps the rendezvous."""
    agent = ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d"]
    place = ["--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", f"is_host={int(is_host)},last_call_timeout=20"]
    command = ["train", "--device", "cpu", *map(str, words)]
    with open(log, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *agent, *place, "-m", "reviser", *command],
            stdout=file, stderr=file, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def kill_node(agent: subprocess.Popen[bytes]) -> None:
    """The agent and all that it has started, at once."""
    for process in [*psutil.Process(agent.pid).children(recursive=True), psutil.Process(agent.pid)]:
        process.send_signal(signal.SIGKILL)
    agent.wait()


@pytest.mark.slow
def test_a_killed_node_is_left_behind_and_the_run_goes_on(data: Path, tmp_path: Path) -> None:
    assert start(data, tmp_path / "one", *LONG) == 0
    run, port = tmp_path / "run", free_port()
    words = ("debug", "--data", data, "--out", run, *flags(*LONG), "--or-resume")
    agents = [launch(port, tmp_path / name, name == "first", *words) for name in ("first", "second")]
    try:
        wait_for(run, 30, limit_s=240)
        kill_node(agents[1])
        assert agents[0].wait(240) == 0, (tmp_path / "first").read_text()
    finally:
        for agent in agents:
            if agent.poll() is None:
                kill_node(agent)
    log = (run / "log.txt").read_text()
    assert "continued from step" in log
    assert "on 1 process(es)" in log
    assert Run(run).is_done
    assert losses(run) == pytest.approx(losses(tmp_path / "one"), rel=0.05)


@pytest.mark.slow
def test_a_run_is_begun_or_resumed_by_the_same_command(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(data, tmp_path / "one", *CHANGES) == 0
    run = tmp_path / "run"
    assert start(data, run, *CHANGES, more=("--or-resume", "--steps", 5)) == 0
    assert start(data, run, *CHANGES, more=("--or-resume",)) == 0
    assert losses(run) == losses(tmp_path / "one")
    assert "continued from step 5" in (run / "log.txt").read_text()
    words = ("debug", "--data", data, "--out", run, *flags(*CHANGES, "optimizer.lr=0.5"), "--or-resume")
    assert fail(capsys, *words) == (
        f"{run} was begun with optimizer.lr=0.005, now 0.5; give the same settings, or another --out"
    )
    assert fail(capsys, "--resume", run, "--or-resume") == "--resume and --or-resume do not go together; drop one"


def test_a_run_that_was_killed_before_its_first_checkpoint_is_begun_again(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, words = tmp_path / "run", ("debug", "--data", data)
    assert start(data, run, *CHANGES) == 0
    for path in (run / "checkpoints").iterdir():
        path.rename(tmp_path / path.name)
    (run / "model").rename(tmp_path / "model")
    assert "already exists; remove it" in fail(capsys, *words, "--out", run, *flags(*CHANGES))
    assert start(data, run, *CHANGES, more=("--or-resume", "--steps", 1)) == 0
    assert Run(run).step == 1
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary").touch()
    assert "already exists" in fail(capsys, *words, "--out", tmp_path / "mine", *flags(*CHANGES), "--or-resume")
    assert (tmp_path / "mine" / "diary").exists()
