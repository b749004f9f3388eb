"""Whatever goes wrong with a run is told in one line, and what was saved stays."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import resource
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import (
    checkpoint,
    copied,
    fail,
    flags,
    fork,
    losses,
    make_data,
    make_trainer,
    start,
    train,
    train_in_process,
    wait_for,
)

from reviser.data.corpus import prepare
from reviser.data.shards import read_header
from reviser.errors import CheckpointError, ConfigError, DivergenceError
from reviser.files import locked, stamp
from reviser.tokenizer import load as load_tokenizer
from reviser.training.recipes import RECIPES
from reviser.training.runs import MODEL, OPTIMIZER, STATE, Run


def test_a_run_folder_is_never_overwritten(
    whole: Path, half: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in whole.rglob("*"))
    line = fail(capsys, "debug", "--data", data, "--out", whole)
    assert line == f"{whole} already exists; continue it with --resume {whole} or choose another --out"
    assert sorted((path, path.stat().st_mtime_ns) for path in whole.rglob("*")) == before
    (tmp_path / "file").write_text("mine")
    line = fail(capsys, "debug", "--data", data, "--out", tmp_path / "file")
    assert line == f"{tmp_path / 'file'} already exists; remove it or choose another --out"
    (tmp_path / "empty").mkdir()
    assert start(data, tmp_path / "empty", "train.steps=1") == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "give either a recipe or --resume RUN"),
        (["debug", "--resume", "somewhere"], "give either a recipe or --resume RUN"),
        (["--resume", "somewhere", "--out", "x"], "somewhere is resumed where it is; drop --out x"),
        (["debug", "--steps", "0"], "--steps 0 must be at least 1"),
        (["dbug"], f"no recipe 'dbug'; recipes are {', '.join(RECIPES)}"),
        (
            ["small"],
            "small needs text to train on; make a data folder with `reviser data prepare`, give it as --data",
        ),
        (["--resume", "nowhere"], "nowhere is not a run folder: it holds no config.json"),
        (
            ["small", "--data", "nowhere"],
            "nowhere: not a data folder: it has no data.json; make one with: reviser data prepare",
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


@pytest.mark.parametrize("is_there", [False, True])
def test_an_order_that_cannot_be_drawn_leaves_no_folder_behind(
    is_there: bool, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("this order cannot be drawn")

    monkeypatch.setattr("reviser.data.packing.Packer.draw", refuse)
    monkeypatch.setattr("reviser.training.reviser_family.ReviserFamily.make_heldout", lambda *_, **__: None)
    if is_there:
        (tmp_path / "new" / "run").mkdir(parents=True)
    line = fail(capsys, "debug", "--data", data, "--out", tmp_path / "new" / "run")
    assert line == "this order cannot be drawn"
    assert [path.name for path in tmp_path.rglob("*")] == (["new", "run"] if is_there else [])


def test_a_gpu_that_is_not_there_is_named(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    line = fail(capsys, "debug", "--data", data, "--out", tmp_path / "run", "--device", "cuda")
    assert line == "device cuda was asked for, but no GPU is usable here; use --device cpu"


def test_a_run_without_a_checkpoint_says_so(half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(half, tmp_path)
    shutil.rmtree(checkpoint(run, 4))
    assert fail(capsys, "--resume", run) == f"{run} has no checkpoint yet; remove it and start the run again"
    line = fail(capsys, "debug", "--out", run)
    assert line == f"{run} already exists; remove it or choose another --out"
    with pytest.raises(CheckpointError, match=r"has no checkpoint of step 3; it has \[4\]"):
        Run(half).load(3)
    (run / "run.json").write_text("{")
    assert fail(capsys, "--resume", run).startswith(f"{run / 'run.json'} is missing or damaged (")


def test_a_changed_or_newer_run_file_is_named(half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(half, tmp_path)
    path, good = run / "run.json", (run / "run.json").read_text()
    assert json.loads(good)["format"] == "reviser run"
    path.write_text(good.replace('"data": "', '"data": "x'))
    line = fail(capsys, "--resume", run)
    assert (
        line == f"{path} is missing or damaged (its checksum is not that of what it says); copy the run folder again"
    )
    path.write_text(json.dumps(stamp(json.loads(good) | {"version": 3})))
    line = fail(capsys, "--resume", run)
    assert line.startswith(f"{path} has the format reviser run 3; this version reads reviser run 2; resume")
    before = {name: value for name, value in json.loads(good).items() if name not in ("format", "checksum")}
    path.write_text(json.dumps(before | {"version": "0.1.0"}))
    assert Run.open(run)[2] == before["data"]
    path.write_text(good)
    config = run / "config.json"
    config.write_text(config.read_text().replace('"seed": ', '"seed": 1', 1))
    assert fail(capsys, "--resume", run).startswith("the settings in config.json are not those that were saved (")
    config.write_text(config.read_text().replace('"version": 1', '"version": 5', 1))
    assert fail(capsys, "--resume", run) == f"the config {config} has the version 5; this version reads 1"


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
    assert line == "the checkpoint was made with optimizer.name=adamw; resume with that one"


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


def test_a_run_goes_on_with_its_own_data_alone(
    data: Path, half: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, moved = copied(half, tmp_path), Path(shutil.copytree(data, tmp_path / "moved"))
    shutil.copytree(data.parent, tmp_path / "again", ignore=shutil.ignore_patterns("data"))
    source = tmp_path / "again" / "source.jsonl"
    lines = source.read_text().splitlines(keepends=True)
    source.write_text("".join(reversed(lines)))
    about = json.loads((run / "run.json").read_text()) | {"data": str(tmp_path / "again" / "data")}
    (run / "run.json").write_text(json.dumps(stamp(about)))
    prepare([source], tmp_path / "again" / "data", load_tokenizer("bytes"), holdout=0.1)
    old, new = (read_header(each).sha256[:12] for each in (data, tmp_path / "again" / "data"))
    assert fail(capsys, "--resume", run) == (
        f"the checkpoint was made with other data (sha256 {old}, now {new}); give the folder the run began with as "
        "--data, or start another run"
    )
    assert train("--resume", run, "--data", moved) == 0
    assert losses(run) == losses(whole)


def test_data_without_held_out_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_data(tmp_path, num_documents=5, holdout=0.0)
    line = fail(capsys, "debug", "--data", folder, "--out", tmp_path / "run")
    assert line == f"{folder}: no document in split heldout; prepare more text or choose another --holdout"


@pytest.mark.parametrize("log_every", [1, 100])
def test_a_loss_that_is_no_number_ends_the_run_before_anything_is_saved(
    log_every: int, half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(half, tmp_path)
    changes = ["optimizer.lr=1e30", f"train.log_every={log_every}", "train.eval_every=100", "train.save_every=6"]
    line = fail(capsys, "--resume", run, *(f"--set={each}" for each in changes))
    assert line == (
        "step 6: loss nan, gradient norm nan; the checkpoint of step 4 is intact; continue it with a smaller "
        "--set optimizer.lr or optimizer.clip"
    )
    assert Run(run).steps() == [4]
    assert train("--resume", run, "--set=optimizer.lr=1e-3", "--steps", 1) == 0


def test_a_weight_or_bound_that_is_no_number_is_named(data: Path, tmp_path: Path) -> None:
    trainer = make_trainer(data, "train.steps=4", "train.eval_every=2")
    trainer.run = Run.create(tmp_path / "run", trainer.settings, str(data))
    packed = trainer.heldout["continue"].packed
    trainer.heldout["continue"].packed = replace(packed, log_q=packed.log_q * math.nan)
    with pytest.raises(DivergenceError, match=r"^step 2: held-out bound nan; there is no checkpoint yet; remove "):
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
        pytest.param(60_000, "cannot save the checkpoint of step 8: ", marks=pytest.mark.slow),
        (2_000, "cannot write {run}/metrics.jsonl: "),
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
    assert lines[-1].startswith(f"error: {text.format(run=run)}")
    assert "File too large" in lines[-1]
    assert "; the checkpoint of step 4 is intact" in lines[-1]
    assert {path.name: path.read_bytes() for path in checkpoint(run, 4).iterdir()} == before
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000004"]
    assert train("--resume", run) == 0
    assert losses(run) == losses(whole)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "No such file or directory", "/lib/gone"), "/lib/gone: No such file or directory"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (OSError("the device went away"), "the device went away"),
    ],
)
def test_what_the_system_refuses_on_the_way_is_named(
    error: OSError, text: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(data, "train.steps=4")
    trainer.run = Run.create(tmp_path / "run", trainer.settings, str(data))

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(trainer, "_measure", refuse)
    with pytest.raises(CheckpointError) as caught:
        trainer.train()
    rest = "there is no checkpoint yet; fix that and start the run again"
    assert str(caught.value) == f"training stopped at step 4: {text}; {rest}"


def test_a_sample_that_cannot_be_written_is_named(data: Path, tmp_path: Path) -> None:
    trainer = make_trainer(data, "train.steps=1")
    trainer.run = Run.create(tmp_path / "run", trainer.settings, str(data))
    path = tmp_path / "run" / "samples" / "step-00000001.txt"
    path.mkdir()
    with pytest.raises(CheckpointError, match=f"^cannot write {path}: Is a directory; there is no checkpoint yet;"):
        trainer.train()


def test_a_model_that_cannot_be_written_is_named(data: Path, tmp_path: Path) -> None:
    trainer = make_trainer(data, "train.steps=1")
    trainer.run = Run.create(tmp_path / "run", trainer.settings, str(data))
    trainer.train()
    path, text = tmp_path / "run" / "model", "File exists; the checkpoint of step 1 is intact;"
    with (tmp_path / "run" / f".model.{os.getpid()}.new").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match=f"^cannot write {path}: {text}"):
            trainer.finish()


def test_a_run_is_continued_by_one_process_at_a_time(
    whole: Path, half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(half, tmp_path)
    before = (run / "metrics.jsonl").read_bytes()
    with Run(run).owned():
        line = fail(capsys, "--resume", run)
        wanted = f"another process is training in {run}; wait for it or stop it, or start another run"
        assert line == wanted
        assert fail(capsys, "--resume", run, "--set", "train.steps=9") == wanted
    assert (run / "metrics.jsonl").read_bytes() == before
    assert train("--resume", run) == 0
    assert losses(run) == losses(whole)


@pytest.mark.slow
def test_a_run_in_the_making_is_continued_by_nobody(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["debug", "--data", data, "--out", run, *flags("train.steps=4000", "train.save_every=1")]
    process = fork(train_in_process, words, {}, tmp_path / "output")
    try:
        wait_for(run, 2)
        assert fail(capsys, "--resume", run).startswith(f"another process is training in {run};")
    finally:
        process.kill()
        process.join()
    assert train("--resume", run, "--steps", 1) == 0


def test_a_lock_keeps_others_out_also_where_the_file_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    for name in ("real", "soft"):
        with locked(tmp_path / name), pytest.raises(BlockingIOError), locked(tmp_path / name):
            pass
        with locked(tmp_path / name):
            pass
        monkeypatch.setattr("fcntl.flock", refuse)


def test_a_folder_that_cannot_be_made_is_named(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    line = fail(capsys, "debug", "--data", data, "--out", tmp_path / "file" / "run")
    assert line == f"cannot make the run folder {tmp_path / 'file' / 'run'}: Not a directory"
    assert fail(capsys, "debug", "--out", tmp_path / "file" / "run") == line
