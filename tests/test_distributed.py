"""Two processes learn what one learns, and a run goes on under any number of them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tiny import flags, fork, losses, metrics, start, train, train_in_process, wait_for
from torch.nn.parallel import DistributedDataParallel

from reviser.model.checkpoint import from_pretrained
from reviser.training.distributed import Team, leave_team
from reviser.training.runs import Run

CHANGES = ("train.rows=8", "train.accumulate=2", "model.canvas.kind=window", "train.steps=8")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def start_two(words: Sequence[object], logs: Path) -> list[Any]:
    """What torchrun does: a process for each rank, told by its environment."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [place | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    return [fork(train_in_process, words, each, logs / f"rank{each['RANK']}") for each in ranks]


def run_two(words: Sequence[object], logs: Path) -> list[int]:
    """The exit codes of both."""
    processes = start_two(words, logs)
    for process in processes:
        process.join(120)
    return [process.exitcode for process in processes]


def fresh(data: Path, out: Path, *changes: str) -> list[object]:
    return ["debug", "--data", data, "--out", out, *flags(*CHANGES, *changes)]


@pytest.fixture(scope="module")
def one(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a single process."""
    out = tmp_path_factory.mktemp("one") / "run"
    assert start(data, out, *CHANGES) == 0
    return out


def assert_alike(run: Path, other: Path) -> None:
    """Same losses, bounds and weights, but for the order in which floats were added."""
    assert losses(run) == pytest.approx(losses(other), rel=1e-4)
    assert len(metrics(run)) == len(metrics(other))
    for mine, theirs in zip(metrics(run), metrics(other), strict=True):
        for name in ("gradient_norm", "bound_nats_per_token"):
            assert mine.get(name) == (theirs.get(name) and pytest.approx(theirs[name], rel=1e-3))
    models = [from_pretrained(each / "model").state_dict() for each in (run, other)]
    for name, tensor in models[0].items():
        torch.testing.assert_close(tensor, models[1][name], atol=2e-3, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_two_processes_learn_what_one_learns(parallel: str, data: Path, one: Path, tmp_path: Path) -> None:
    assert run_two(fresh(data, tmp_path / "run", f"train.parallel={parallel}"), tmp_path) == [0, 0]
    assert_alike(tmp_path / "run", one)
    assert (tmp_path / "rank1").read_text() == ""


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_run_begun_by_two_goes_on_alone_and_the_other_way_round(
    parallel: str, data: Path, one: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert run_two([*fresh(data, run, f"train.parallel={parallel}"), "--steps", 3], tmp_path) == [0, 0]
    assert train("--resume", run, "--steps", 2) == 0
    assert run_two(["--resume", run], tmp_path) == [0, 0]
    extra = [line for line in metrics(run) if line["step"] in (3, 5) and "bound_perplexity" in line]
    assert len(extra) == 2
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("".join(f"{x}\n" for x in lines if not re.search('"step": [35],.*bound', x)))
    assert_alike(run, one)
    assert "continued from step 5 on 2 process(es)" in (run / "log.txt").read_text()


@pytest.mark.slow
def test_torchrun_starts_the_command(data: Path, one: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "reviser",
    ]
    words = ["train", "--device", "cpu", *fresh(data, tmp_path / "run"), "--steps", 2, "--json"]
    done = subprocess.run(
        [*command, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert '"step": 2, "is_done": false' in done.stdout
    first = {step: loss for step, loss in losses(one).items() if step <= 2}
    assert losses(tmp_path / "run") == pytest.approx(first, rel=1e-4)


@pytest.mark.slow
def test_processes_stop_together(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    more = ("train.steps=4000", "train.save_every=2000", "train.eval_every=2000", "train.sample_every=2000")
    processes = start_two(fresh(data, run, *more), tmp_path)
    wait_for(run, 2)
    os.kill(processes[1].pid, signal.SIGTERM)
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [130, 130]
    (step,) = [int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")]
    assert (tmp_path / "rank0").read_text().splitlines()[-1].startswith(f"saved at step {step}; resume with: ")


def leave_often(rank: int, folder: Path) -> None:
    """Train a little and leave, again and again."""
    torch.set_num_threads(1)
    for number in range(200):
        store = dist.FileStore(str(folder / f"store{number}"), 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        module = DistributedDataParallel(torch.nn.Linear(64, 64))
        module(torch.randn(4, 64)).sum().backward()
        dist.barrier()
        leave_team()
        del module


@pytest.mark.slow
def test_a_team_can_be_left_at_any_time(tmp_path: Path) -> None:
    """A module that frees its group waited for itself in one of forty."""
    processes = [fork(leave_often, rank, tmp_path) for rank in range(2)]
    for process in processes:
        process.join(60)
        process.kill()  # one that waits for itself keeps pytest from its end
    assert [process.exitcode for process in processes] == [0, 0]


def test_numbers_go_from_host_to_host_and_never_over_a_device() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        # Nothing can be read back from this device.
        team = Team(0, 2, torch.device("meta"))
        assert team.sum(2.5) == 2.5
        assert team.sum_each(np.array([1.0, 4.0])).tolist() == [1.0, 4.0]
        assert team.any(True)
        assert not team.any(False)
        assert team.share("word") == "word"
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_all_processes_keep_off_a_run_that_is_trained_elsewhere(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert start(data, run, *CHANGES, more=["--steps", 1]) == 0
    with Run(run).owned():
        assert run_two(["--resume", run], tmp_path) == [2, 2]
    for rank in range(2):
        assert (tmp_path / f"rank{rank}").read_text().startswith(f"error: another process is training in {run};")


def test_rows_that_do_not_divide_over_the_processes_are_named(data: Path, tmp_path: Path) -> None:
    words = fresh(data, tmp_path / "run", "train.rows=6", "train.accumulate=2")
    assert run_two(words, tmp_path) == [2, 2]
    line = (tmp_path / "rank0").read_text()
    assert line == "error: train.rows=6 in accumulate=2 parts do not divide over 2 processes; choose a multiple\n"
    assert not (tmp_path / "run").exists()


def test_a_gate_that_cannot_be_shared_is_named(data: Path, tmp_path: Path) -> None:
    gate = ("model.canvas.kind=cross", "model.canvas.gate=scalar", "train.parallel=fsdp")
    assert run_two(fresh(data, tmp_path / "run", *gate), tmp_path) == [2, 2]
    line = (tmp_path / "rank0").read_text()
    assert line == "error: train.parallel=fsdp cannot share model.canvas.gate=scalar; use ddp or another gate\n"


@pytest.mark.slow
def test_all_processes_end_when_the_loss_is_no_number(data: Path, tmp_path: Path) -> None:
    rare = ("train.log_every=100", "train.eval_every=100")
    words = fresh(data, tmp_path / "run", "optimizer.lr=1e30", "train.parallel=fsdp", *rare)
    assert run_two(words, tmp_path) == [2, 2]
    assert "error: step 4: loss nan, gradient norm nan" in (tmp_path / "rank0").read_text()
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        ("train.parallel=fsdp", "optimizer.name=muon"),
        ("train.parallel=ddp", "optimizer.name=muon"),
        ("train.parallel=fsdp", "model.canvas.kind=cross", "model.canvas.gate=mlp", "model.tied=false"),
        ("train.parallel=fsdp", "model.canvas.kind=pool", "model.positions=absolute"),
        ("train.parallel=ddp", "model.canvas.kind=cross-window", "model.canvas.gate=scalar"),
    ],
)
def test_every_model_and_optimizer_learns_in_two_processes(
    changes: tuple[str, ...], data: Path, tmp_path: Path
) -> None:
    assert start(data, tmp_path / "one", *CHANGES, *changes, "train.steps=4") == 0
    assert run_two(fresh(data, tmp_path / "two", *changes, "train.steps=4"), tmp_path) == [0, 0]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-3)


@pytest.mark.slow
def test_muon_in_shards_is_resumed(data: Path, tmp_path: Path) -> None:
    changes, run = ("train.parallel=fsdp", "optimizer.name=muon", "train.steps=4"), tmp_path / "run"
    assert start(data, tmp_path / "one", *CHANGES, *changes) == 0
    assert run_two([*fresh(data, run, *changes), "--steps", 2], tmp_path) == [0, 0]
    assert run_two(["--resume", run], tmp_path) == [0, 0]
    assert losses(run) == pytest.approx(losses(tmp_path / "one"), rel=1e-3)
