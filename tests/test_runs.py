"""A run may be stopped, killed, damaged or out of disk: it goes on bit for bit, or says what is wrong."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import (
    flags,
    fork,
    losses,
    make_data,
    make_trainer,
    metrics,
    settings,
    start,
    train,
    train_in_process,
    wait_for,
)

from reviser.config import load as load_config
from reviser.errors import CheckpointError, DivergenceError
from reviser.model.checkpoint import from_pretrained, tokenizer_of
from reviser.training.runs import MODEL, OPTIMIZER, STATE, Run
from reviser.training.settings import RunConfig

# Muon computes in bf16, which some CPUs do by other means.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")

HARD = ("model.dropout=0.2", "train.accumulate=2", "data.workers=3", "model.canvas.kind=window", "train.steps=12")
"""Settings under which a careless resume would show."""


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the hard settings that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert start(data, out, *HARD) == 0
    return out


@pytest.fixture(scope="module")
def half(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after 4 of its steps."""
    out = tmp_path_factory.mktemp("half") / "run"
    assert start(data, out, *HARD, more=["--steps", 4]) == 0
    return out


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / "run"))


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def fail(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a refused command prints."""
    capsys.readouterr()
    assert train(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    line = err.splitlines()[-1]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


# stopping and going on


def test_a_run_stopped_at_any_step_goes_on_as_if_it_had_not(
    whole: Path, half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(losses(whole)) == list(range(1, 13))
    run = copied(half, tmp_path)
    assert train("--resume", run, "--steps", 3) == 0
    assert f"saved at step 7; go on with: reviser train --resume {run}" in capsys.readouterr().err
    assert train("--resume", run) == 0
    assert losses(run) == losses(whole)
    one, other = (from_pretrained(each / "model").state_dict() for each in (run, whole))
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_muon_goes_on_as_well(data: Path, tmp_path: Path) -> None:
    changes = ("optimizer.name=muon", "train.steps=4")
    assert start(data, tmp_path / "whole", *changes) == 0
    assert start(data, tmp_path / "parts", *changes, more=["--steps", 2]) == 0
    assert train("--resume", tmp_path / "parts") == 0
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


@pytest.mark.parametrize("step", [5, 6, 9])
def test_a_killed_run_goes_on_from_its_last_checkpoint(step: int, whole: Path, half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    process = fork(train_in_process, ["--resume", run], {}, tmp_path / "output")
    wait_for(run, step)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 7, "loss_na')
    assert train("--resume", run) == 0
    assert losses(run) == losses(whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_stop_saves_first(number: int, data: Path, tmp_path: Path) -> None:
    more = [*HARD, "train.steps=2000", "train.save_every=1000", "train.eval_every=1000", "train.sample_every=1000"]
    run = tmp_path / "run"
    words = ["debug", "--data", data, "--out", run, *flags(*more)]
    process = fork(train_in_process, words, {}, tmp_path / "output")
    wait_for(run, 3)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == 130
    (step,) = Run(run).steps()
    assert step >= 3
    assert max(losses(run)) == step
    last = (tmp_path / "output").read_text().splitlines()[-1]
    assert last == f"saved at step {step}; go on with: reviser train --resume {run}"
    assert train("--resume", run, "--steps", 1) == 0
    other = tmp_path / "other"
    assert start(data, other, *more, more=["--steps", step + 1]) == 0
    assert losses(other) == losses(run)


def test_a_finished_run_stays_finished(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(whole, tmp_path)
    assert train("--resume", run) == 0
    assert capsys.readouterr().out == f"done; the model is in {run}/model, its samples in {run}/samples\n"
    assert losses(run) == losses(whole)


def test_settings_changed_on_the_way_are_kept(half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(half, tmp_path)
    assert train("--resume", run, "--set", "train.steps=6", "--steps", 1) == 0
    assert load_config(RunConfig, run / "config.json").train.steps == 6
    assert "settings changed: train.steps=6" in (run / "log.txt").read_text()
    assert train("--resume", run) == 0
    assert max(losses(run)) == 6
    capsys.readouterr()
    assert train("--resume", run, "--set", "train.keep=9", "--show") == 0
    shown = json.loads(capsys.readouterr().out)["train"]
    assert (shown["steps"], shown["keep"]) == (6, 9)
    assert load_config(RunConfig, run / "config.json").train.keep == 2


# what a run leaves


def test_a_run_folder_explains_itself(whole: Path, data: Path) -> None:
    assert load_config(RunConfig, whole / "config.json") == settings(*HARD)
    about = json.loads((whole / "run.json").read_text())
    assert about["data"] == str(data)
    assert {"version", "commit", "command", "torch", "python", "hardware", "started"} < about.keys()
    steps = [line for line in metrics(whole) if "loss_nats" in line]
    wanted = {
        "step",
        "elapsed_s",
        "loss_nats",
        "gradient_norm",
        "lr",
        "epoch",
        "actions_per_s",
        "waiting_share",
        "fill",
    }
    assert all(line.keys() == wanted for line in steps)
    assert steps[1]["lr"] == pytest.approx(5e-3)
    assert all(0.9 < line["fill"] <= 1 for line in steps)
    bounds = [line for line in metrics(whole) if "bound_perplexity" in line]
    assert [line["step"] for line in bounds] == [4, 8, 12]
    assert bounds[-1]["bits_per_byte"] < bounds[0]["bits_per_byte"]
    assert [path.name for path in sorted((whole / "samples").iterdir())] == ["step-00000008.txt", "step-00000012.txt"]
    assert list((whole / "tensorboard").glob("events*"))
    assert len((whole / "log.txt").read_text().splitlines()) == len(metrics(whole))


def test_the_model_folder_holds_what_was_measured_last(whole: Path, data: Path) -> None:
    trainer = make_trainer(data, *HARD)
    assert trainer.heldout is not None
    bound = trainer.heldout.measure(from_pretrained(whole / "model"), torch.device("cpu"))
    assert bound.nats_per_token == metrics(whole)[-1]["bound_nats_per_token"]
    assert tokenizer_of(whole / "model").num_text == 257


def test_only_the_newest_checkpoints_are_kept(whole: Path) -> None:
    assert Run(whole).steps() == [8, 12]
    assert not list((whole / "checkpoints").glob(".*"))


# what goes wrong


def test_a_run_folder_is_never_overwritten(
    whole: Path, half: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in whole.rglob("*"))
    line = fail(capsys, "debug", "--data", data, "--out", whole)
    assert line == f"{whole} exists already; continue it with --resume {whole} or choose another --out"
    assert sorted((path, path.stat().st_mtime_ns) for path in whole.rglob("*")) == before
    (tmp_path / "file").write_text("mine")
    line = fail(capsys, "debug", "--data", data, "--out", tmp_path / "file")
    assert line == f"{tmp_path / 'file'} exists already; remove it or choose another --out"
    (tmp_path / "empty").mkdir()
    assert start(data, tmp_path / "empty", "train.steps=1") == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "give either a recipe or --resume RUN"),
        (["debug", "--resume", "somewhere"], "give either a recipe or --resume RUN"),
        (["debug", "--steps", "0"], "--steps 0 must be at least 1"),
        (["dbug"], "no recipe 'dbug'; recipes are debug, small, paper_100m, paper_300m, ar_100m, ar_300m"),
        (["small"], "small needs text to train on; make a folder with reviser data prepare, give it as --data"),
        (["--resume", "nowhere"], "nowhere is no run folder: it holds no config.json"),
        (
            ["small", "--data", "nowhere"],
            "nowhere: no data folder, for it holds no data.json; make one with: reviser data prepare",
        ),
    ],
)
def test_a_command_that_cannot_run_is_answered_in_one_line(
    words: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fail(capsys, *words) == text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--set", "optimizer.rl=1"], "no setting optimizer.rl; did you mean optimizer.lr?"),
        (["--set", "train.step=9"], "no setting train.step; did you mean train.steps?"),
        (["--set", "train.steps=many"], "train.steps is 'many'; it must be a whole number"),
        (["--set", "data.order=rums"], "no order 'rums'; orders are"),
        (["--set", "train.eval_length=9000"], "no held-out document has"),
        (["--set", "model.num_text=300"], "the tokenizer has 257 tokens and pad 256, the model 300 and 256"),
        (["--device", "warp"], "no device 'warp' to train on; write cpu, cuda or cuda:1"),
        (["--device", "meta"], "no device 'meta' to train on; write cpu, cuda or cuda:1"),
    ],
)
def test_a_setting_that_cannot_be_used_leaves_no_folder_behind(
    words: list[str], text: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text in fail(capsys, "debug", "--data", data, "--out", tmp_path / "run", *words)
    assert not list(tmp_path.iterdir())


def test_a_gpu_that_is_not_there_is_named(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    line = fail(capsys, "debug", "--data", data, "--out", tmp_path / "run", "--device", "cuda")
    assert line == "device cuda was asked for, but no GPU is usable here; use --device cpu"


def test_a_run_without_a_checkpoint_says_so(half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(half, tmp_path)
    shutil.rmtree(checkpoint(run, 4))
    assert fail(capsys, "--resume", run) == f"{run} has no checkpoint yet; remove it and start the run anew"
    line = fail(capsys, "debug", "--out", run)
    assert line == f"{run} exists already; remove it or choose another --out"
    with pytest.raises(CheckpointError, match=r"has no checkpoint of step 3; it has \[4\]"):
        Run(half).load(3)
    (run / "run.json").write_text("{")
    assert fail(capsys, "--resume", run).startswith(f"{run / 'run.json'} is missing or damaged (")


def complain(run: Path, state: dict[str, Any]) -> str:
    """Why a run's checkpoint cannot be loaded; nothing where it can, and then it holds that state."""
    try:
        found = Run(run).load().state
    except CheckpointError as error:
        return str(error)
    assert found == state
    return ""


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, STATE])
def test_a_damaged_checkpoint_is_named(
    name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(whole, tmp_path)
    path = checkpoint(run, 12) / name
    good, saved = path.read_bytes(), Run(run).load().state
    places = range(len(good)) if name == STATE else [0, 9, len(good) // 2, len(good) - 1]
    for place in places:
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        complaint = complain(run, saved)
        assert "damaged" in complaint or name == STATE
        assert not complaint or complaint.endswith("; remove step-00000012 to continue from step 8")
    path.write_bytes(good[: len(good) // 2])
    assert "damaged" in fail(capsys, "--resume", run)
    path.unlink()
    assert "damaged" in fail(capsys, "--resume", run)
    shutil.rmtree(checkpoint(run, 12))
    assert train("--resume", run) == 0
    assert losses(run) == losses(whole)


def test_a_checkpoint_of_another_shape_or_optimizer_is_named(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = fail(capsys, "--resume", half, "--set", "model.width=64")
    assert line.startswith("the checkpoint: tensor ")
    assert "has the shape" in line
    line = fail(capsys, "--resume", half, "--set", "optimizer.name=muon")
    wanted = "the checkpoint was not made with optimizer.name=muon; go on with the optimizer it was begun with"
    assert line == wanted


def test_a_damaged_shard_is_named(data: Path, half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Path(shutil.copytree(data, tmp_path / "data"))
    shard = broken / "train-00000.bin"
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    shard.write_bytes(content)
    line = fail(capsys, "debug", "--data", broken, "--out", tmp_path / "run")
    assert line.startswith(f"{shard}: damaged, its sha256 is not ")
    assert not (tmp_path / "run").exists()
    assert f"{shard}: damaged" in fail(capsys, "--resume", half, "--data", broken)
    shard.write_bytes(content[:-2])
    line = fail(capsys, "debug", "--data", broken, "--out", tmp_path / "run")
    sizes = f"{len(content) - 2} bytes, but {len(content)} were written"
    assert line == f"{shard}: {sizes}; prepare the folder again"


def test_data_without_held_out_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_data(tmp_path, num_documents=5, holdout=0.0)
    line = fail(capsys, "debug", "--data", folder, "--out", tmp_path / "run")
    assert line == f"{folder}: no document in split heldout; prepare more text or another --holdout"


@pytest.mark.parametrize("log_every", [1, 100])
def test_a_loss_that_is_no_number_ends_the_run_before_anything_is_saved(
    log_every: int, half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(half, tmp_path)
    changes = ["optimizer.lr=1e30", f"train.log_every={log_every}", "train.eval_every=100", "train.save_every=6"]
    line = fail(capsys, "--resume", run, *(f"--set={each}" for each in changes))
    assert line == (
        "step 6: loss nan, gradient norm nan; the checkpoint of step 4 is whole; continue it with a smaller "
        "--set optimizer.lr or optimizer.clip"
    )
    assert Run(run).steps() == [4]
    assert train("--resume", run, "--set=optimizer.lr=1e-3", "--steps", 1) == 0


def test_a_weight_or_bound_that_is_no_number_is_named(data: Path, tmp_path: Path) -> None:
    trainer = make_trainer(data, "train.steps=4", "train.eval_every=2")
    trainer.run = Run.create(tmp_path / "run", trainer.settings, str(data))
    assert trainer.heldout is not None
    packed = trainer.heldout.packed
    trainer.heldout.packed = replace(packed, log_q=packed.log_q * math.nan)
    with pytest.raises(DivergenceError, match=r"^step 2: held-out bound nan; there is no checkpoint yet; continue"):
        trainer.train()
    with torch.no_grad():
        trainer.model.embedding.weight[:] = math.nan
    with pytest.raises(DivergenceError, match=r"^step 3: loss nan, gradient norm nan; there is no checkpoint yet;"):
        trainer.train()
    assert Run(tmp_path / "run").steps() == []


def fill_disk(words: Sequence[object], num_bytes: int, log: Path) -> None:
    """Train where no file may grow beyond a size, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))
    train_in_process(words, {}, log)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (60_000, "cannot save the checkpoint of step 8: "),
        (2_000, "cannot write into "),
    ],
)
def test_a_full_disk_is_named_and_the_last_checkpoint_stays(
    num_bytes: int, text: str, whole: Path, half: Path, tmp_path: Path
) -> None:
    run = copied(half, tmp_path)
    before = {path.name: path.read_bytes() for path in checkpoint(run, 4).iterdir()}
    process = fork(fill_disk, ["--resume", run], num_bytes, tmp_path / "output")
    process.join(60)
    assert process.exitcode == 2
    lines = (tmp_path / "output").read_text().splitlines()
    assert lines[-1].startswith(f"error: {text}")
    assert "File too large" in lines[-1]
    assert "; the checkpoint of step 4 is whole" in lines[-1]
    assert {path.name: path.read_bytes() for path in checkpoint(run, 4).iterdir()} == before
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000004"]
    assert train("--resume", run) == 0
    assert losses(run) == losses(whole)


def test_a_folder_that_cannot_be_made_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    line = fail(capsys, "debug", "--data", data, "--out", tmp_path / "file" / "run")
    assert line == f"cannot make the run folder {tmp_path / 'file' / 'run'}: Not a directory"
    line = fail(capsys, "debug", "--out", tmp_path / "file" / "run")
    assert line.startswith(f"cannot write {tmp_path / 'file' / 'own-source' / 'source.jsonl'}: ")
    assert line.endswith("; choose another --out")


# the command


def test_debug_trains_on_the_package_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = [
        f"--set={each}" for each in ("train.steps=2", "train.eval_examples=4", "train.rows=2", "train.log_every=1")
    ]
    assert train("debug", *small, "--json") == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["run"], result["step"], result["is_done"]) == ("runs/debug", 2, True)
    assert result["bound_perplexity"] > 1
    assert err.startswith("run runs/debug: 274,352 parameters, order runs:jump=0.05,start=end, ")
    assert "step      2/2  loss " in err
    assert sorted(path.name for path in Path("runs").iterdir()) == ["debug", "own-source"]
    assert sorted(path.name for path in Path("runs/debug").iterdir()) == [
        "checkpoints", "config.json", "log.txt", "metrics.jsonl", "model", "run.json", "samples", "tensorboard",
    ]  # fmt: skip


def test_show_prints_the_config_and_trains_nothing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paper-100m", "--data", data, "--out", tmp_path / "run", "--set", "train.steps=7", "--show"]
    assert train(*words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["train"]["steps"], shown["model"]["num_layers"]) == (7, 24)
    assert not list(tmp_path.iterdir())


def test_help_is_quick_and_needs_no_torch() -> None:
    code = "import sys; from reviser.cli import main\ntry: main(['train', '--help'])\n" \
           "except SystemExit: sys.exit('torch' in sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.count("\n  reviser train") == 3
