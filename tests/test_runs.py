"""A run may be stopped or killed at any step: it goes on bit for bit. Its folder explains itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import (
    HARD,
    copied,
    flags,
    fork,
    losses,
    make_trainer,
    metrics,
    settings,
    start,
    train,
    train_in_process,
    wait_for,
)

from reviser.cli import main
from reviser.errors import CheckpointError
from reviser.model.checkpoint import find, from_pretrained, tokenizer_of, weights
from reviser.training.runs import Run, read_settings

# stopping and going on


def test_a_run_stopped_at_any_step_goes_on_as_if_it_had_not(
    whole: Path, half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(losses(whole)) == list(range(1, 13))
    run = copied(half, tmp_path)
    assert train("--resume", run, "--steps", 3) == 0
    assert f"saved at step 7; resume with: reviser train --resume {run}" in capsys.readouterr().err
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [5, pytest.param(6, marks=pytest.mark.slow), pytest.param(9, marks=pytest.mark.slow)]
)
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


@pytest.mark.slow
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
    assert last == f"saved at step {step}; resume with: reviser train --resume {run}"
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
    assert read_settings(run).train.steps == 6
    assert "settings changed: train.steps=6" in (run / "log.txt").read_text()
    assert train("--resume", run) == 0
    assert max(losses(run)) == 6
    capsys.readouterr()
    assert train("--resume", run, "--set", "train.keep=9", "--show") == 0
    shown = json.loads(capsys.readouterr().out)["train"]
    assert (shown["steps"], shown["keep"]) == (6, 9)
    assert read_settings(run).train.keep == 2


# what a run leaves


def test_a_run_folder_explains_itself(whole: Path, data: Path) -> None:
    assert read_settings(whole) == settings(*HARD)
    about = json.loads((whole / "run.json").read_text())
    assert about["data"] == str(data)
    assert {
        "format",
        "version",
        "reviser",
        "commit",
        "command",
        "torch",
        "python",
        "hardware",
        "started",
    } < about.keys()
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
    bound = trainer.heldout["continue"].measure(from_pretrained(whole / "model"), torch.device("cpu"))
    assert bound.nats_per_token == metrics(whole)[-1]["bound_nats_per_token"]
    assert tokenizer_of(whole / "model").num_text == 257


def test_filling_gaps_is_measured_apart(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert start(data, run, "train.eval_infill=3", "train.steps=4", more=["--json"]) == 0
    out, err = capsys.readouterr()
    (found,) = [line for line in metrics(run) if "bound_perplexity" in line]
    names = ("bound_nats_per_token", "bound_error", "bound_perplexity", "bits_per_byte")
    for name in [*names, *(f"infill_{each}" for each in names)]:
        assert json.loads(out)[name] == found[name]
    for before, title in (("", "bound"), ("infill_", "infill bound")):
        assert f"held-out {title} {found[before + 'bound_perplexity']:.2f} ppl/token" in err
    trainer = make_trainer(data, "train.eval_infill=3")
    assert [each.packed.num_tokens.tolist() for each in trainer.heldout.values()][1] == [12] * 3
    bound = trainer.heldout["infill"].measure(from_pretrained(run / "model"), torch.device("cpu"))
    assert bound.nats_per_token == found["infill_bound_nats_per_token"]
    scalars = EventAccumulator(str(run / "tensorboard")).Reload()
    assert scalars.Scalars("infill_bits_per_byte")[0].value == pytest.approx(bound.bits_per_byte)


def test_an_unfinished_run_can_write(half: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(half, tmp_path)
    newest = run / "checkpoints" / "step-00000004"
    assert find(run) == Run(run).model_folder == newest
    model, saved = from_pretrained(run), Run(run).load()
    assert all(torch.equal(tensor, saved.weights[name]) for name, tensor in weights(model).items())
    assert tokenizer_of(run).num_text == 257
    assert main(["info", str(run), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["folder"], about["trained"]["steps"]) == (str(newest), 4)
    assert main(["generate", "the", "--model", str(run), "--max-tokens", "8", "--seed", "1"]) == 0
    (newest / "config.json").unlink()
    with pytest.raises(CheckpointError) as caught:
        find(run)
    assert str(caught.value) == (
        f"{newest} was saved by an older version, without the config.json that loading it takes; "
        f"run: reviser train --resume {run}"
    )
    shutil.rmtree(newest)
    with pytest.raises(CheckpointError) as caught:
        find(run)
    assert str(caught.value) == (
        f"{run} is a run without a model or checkpoint yet; let it train longer, or give another folder"
    )


def test_a_checkpoint_that_is_loaded_as_a_model_is_checked(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    path = Run(run).model_folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged or was replaced: its sha256 is"):
        from_pretrained(run)


def test_a_finished_run_stands_for_its_model(whole: Path) -> None:
    assert find(whole) == Run(whole).model_folder == whole / "model"


def test_a_checkpoint_of_before_goes_on(whole: Path, half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    for name in ("config.json", "tokenizer.json"):
        (run / "checkpoints" / "step-00000004" / name).unlink()
    assert train("--resume", run) == 0
    assert losses(run) == losses(whole)


def test_a_damaged_line_of_metrics_is_dropped(whole: Path, half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    content = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(content + b'{"step": 3, \xff\n')
    assert len(Run(run).metrics) == content.count(b"\n")
    assert train("--resume", run) == 0
    assert losses(run) == losses(whole)


@pytest.mark.parametrize("is_removed", [False, True], ids=["not yet", "in part"])
def test_a_run_killed_while_it_drops_a_checkpoint_drops_it_afterwards(
    is_removed: bool, whole: Path, tmp_path: Path
) -> None:
    run = copied(whole, tmp_path)
    shutil.copytree(run / "checkpoints" / "step-00000008", run / "checkpoints" / "step-00000004")
    shutil.copytree(run / "checkpoints" / "step-00000008", run / "checkpoints" / ".step-00000004.part")
    if is_removed:
        (run / "checkpoints" / "step-00000004" / "state.json").unlink()
    assert train("--resume", run) == 0
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000008", "step-00000012"]


def test_only_the_newest_checkpoints_are_kept(whole: Path) -> None:
    assert Run(whole).steps() == [8, 12]
    assert not list((whole / "checkpoints").glob(".*"))


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
    first, second = err.splitlines()[:2]
    assert first == "no data folder given: training on this package's own source, prepared in runs/debug/data"
    assert second.startswith("run runs/debug: 274,352 parameters, order runs:jump=0.05,start=end, ")
    assert "step      2/2  loss " in err
    assert [path.name for path in Path("runs").iterdir()] == ["debug"]
    assert sorted(path.name for path in Path("runs/debug").iterdir()) == [
        ".lock", "checkpoints", "config.json", "data", "log.txt", "metrics.jsonl", "model", "run.json", "samples",
        "source.jsonl", "tensorboard",
    ]  # fmt: skip
    assert json.loads(Path("runs/debug/run.json").read_text())["data"] == str(tmp_path / "runs/debug/data")
    assert train("--resume", "runs/debug", "--set", "train.steps=3") == 0


def test_show_prints_the_config_and_trains_nothing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paper-100m", "--data", data, "--out", tmp_path / "run", "--set", "train.steps=7", "--show"]
    assert train(*words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["train"]["steps"], shown["model"]["num_layers"]) == (7, 24)
    assert not list(tmp_path.iterdir())


def test_show_of_debug_makes_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train("debug", "--set", "train.steps=7", "--show") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["train"]["steps"], shown["model"]["num_text"], shown["model"]["pad"]) == (7, 257, 256)
    assert not list(tmp_path.iterdir())


def test_help_is_quick_and_needs_no_torch() -> None:
    code = "import sys; from reviser.cli import main\ntry: main(['train', '--help'])\n" \
           "except SystemExit: sys.exit('torch' in sys.modules)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.count("\n  reviser train") == 4
