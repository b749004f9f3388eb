"""Training from Python: the function that `reviser train` calls, as a notebook uses it."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import HARD, SETTINGS, copied, losses, settings

from reviser.actions import Alphabet
from reviser.errors import ConfigError, DivergenceError
from reviser.model.checkpoint import from_pretrained
from reviser.training.api import assignments, resolve, train
from reviser.training.loop import Trainer
from reviser.training.progress import NO_TENSORBOARD, LinesDisplay, Update, make_display
from reviser.training.recipes import debug
from reviser.training.runs import Run
from reviser.training.settings import RunConfig

SHORT = {"train.steps": 3, "train.eval_every": 3}


def tiny_recipe(alphabet: Alphabet) -> RunConfig:
    assert alphabet == SETTINGS.model.alphabet
    return settings("train.steps=3", "train.eval_every=3")


def test_a_run_tells_what_it_did_and_prints_nothing(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run = train(SETTINGS, data=data, out=tmp_path / "run", settings=SHORT, device="cpu")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert capfd.readouterr() == ("", "")
    assert (run.folder, run.step, run.is_done, run.was_stopped) == (tmp_path / "run", 3, True, False)
    assert run.metrics == [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in run.metrics if "loss_nats" in line] == [1, 2, 3]
    assert run.bounds["continue"].nats_per_token == run.metrics[-1]["bound_nats_per_token"]
    assert run.model_folder == run.folder / "model"
    assert from_pretrained(run.model_folder).config == SETTINGS.model
    assert run.settings == settings("train.steps=3", "train.eval_every=3")


def test_a_name_a_function_and_a_config_are_one_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = ["train.steps=2", "train.rows=2", "train.log_every=1", "train.eval_examples=2"]
    by_name = train("debug", data=data, settings=changes, device="cpu")
    by_function = train(debug, data=data, out="function", settings=changes, device="cpu")
    whole = resolve("debug", data=data, settings=changes)
    by_config = train(whole, data=data, out="config", device="cpu")
    assert by_name.folder == Path("runs/debug")
    assert losses(by_name.folder) == losses(by_function.folder) == losses(by_config.folder)
    assert by_name.settings == by_function.settings == by_config.settings == whole


def test_a_stopped_run_is_resumed(whole: Path, half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    first = train(resume=run, steps=2, device="cpu")
    assert (first.step, first.is_done, first.model_folder.name) == (6, False, "step-00000006")
    second = train(resume=str(run), device="cpu")
    assert second.is_done
    assert losses(run) == losses(whole)
    assert train(resume=run, settings={"train.steps": 13}, device="cpu").step == 13


def test_a_callback_is_called_with_every_measurement(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[Update] = []
    run = train(tiny_recipe, data=data, out=tmp_path / "run", device="cpu", progress=seen.append)
    assert [(each.step, each.steps) for each in seen] == [(1, 3), (2, 3), (3, 3), (3, 3)]
    recorded = [{name: line[name] for name in line if name not in ("step", "elapsed_s")} for line in run.metrics]
    assert [dict(each.values) for each in seen] == recorded
    assert capfd.readouterr() == ("", "")


def test_lines_go_to_stderr(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tiny_recipe, data=data, out=tmp_path / "run", device="cpu", progress="lines")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"run {tmp_path / 'run'}: ")
    assert [line[:15] for line in err.splitlines()[1:]] == [f"step      {step}/3  " for step in (1, 2, 3, 3)]


def test_square_brackets_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    LinesDisplay().say(NO_TENSORBOARD)
    assert "(pip install 'reviser[train]')" in capsys.readouterr().err


def interrupt_after(calls: int, where: str, monkeypatch: pytest.MonkeyPatch, holder: type[Any]) -> None:
    """Ctrl-C in the given call of a method, once it has done its work."""
    plain, count = getattr(holder, where), [0]

    def call(*args: Any, **named: Any) -> Any:
        result = plain(*args, **named)
        count[0] += 1
        if count[0] == calls:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    monkeypatch.setattr(holder, where, call)


def test_ctrl_c_between_updates_saves_and_says_how_to_resume(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    # Before the sixth step the learning rate is set; nothing of that step is in the state yet.
    with monkeypatch.context() as patch:
        patch.setattr("reviser.training.loop.set_lr", once_interrupting("reviser.training.loop.set_lr", 6))
        with pytest.raises(KeyboardInterrupt) as caught:
            train(settings(*HARD), data=data, out=run, device="cpu")
    assert str(caught.value) == f"saved at step 5; resume with reviser.train(resume={str(run)!r})"
    assert Run(run).steps() == [4, 5]
    train(resume=run, device="cpu")
    assert losses(run) == losses(whole)


def once_interrupting(name: str, calls: int) -> Any:
    module, _, function = name.rpartition(".")
    plain, count = getattr(__import__(module, fromlist=[function]), function), [0]

    def call(*args: Any, **named: Any) -> Any:
        count[0] += 1
        if count[0] == calls:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(*args, **named)

    return call


def test_ctrl_c_inside_an_update_keeps_the_last_checkpoint(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt_after(6, "step", patch, torch.optim.AdamW)
        with pytest.raises(KeyboardInterrupt) as caught:
            train(settings(*HARD), data=data, out=run, device="cpu")
    assert str(caught.value) == f"saved at step 4; resume with reviser.train(resume={str(run)!r})"
    train(resume=run, device="cpu")
    assert losses(run) == losses(whole)


def test_ctrl_c_before_the_first_step_leaves_no_folder(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_after(1, "feed", monkeypatch, Trainer)
    with pytest.raises(KeyboardInterrupt, match=r"^interrupted before the first checkpoint of .*run$"):
        train(tiny_recipe, data=data, out=tmp_path / "run", device="cpu")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_without_a_run_folder_says_so(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny import make_trainer

    trainer = make_trainer(data)
    interrupt_after(1, "feed", monkeypatch, Trainer)
    with pytest.raises(KeyboardInterrupt, match=r"^interrupted at step 0; this process saves nothing$"):
        trainer.train()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"recipe": None}, "give either a recipe or a run folder to resume"),
        ({"resume": "x"}, "give either a recipe or a run folder to resume"),
        ({"recipe": None, "resume": "x", "out": "y"}, "x is resumed where it is; drop out=y"),
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"recipe": "dbug"}, "no recipe 'dbug'; recipes are"),
        ({"recipe": "small", "data": None}, "small needs text to train on; make a data folder with `reviser"),
        ({"recipe": SETTINGS, "data": None}, "a config needs text to train on; make a data folder with"),
        ({"recipe": SETTINGS, "out": None}, "a config has no name to call its run folder by; give the folder"),
        ({"recipe": 7, "data": None}, "7 is not a recipe; give a name, a RunConfig, or a function that returns one"),
        ({"data": 7}, "data=7; give the path of a folder"),
        ({"steps": "3"}, "steps='3' must be a whole number of at least 1"),
        ({"settings": 3}, "settings=3; give a mapping of names to values, e.g. {'train.steps': 20}"),
        ({"settings": [3]}, "3 is not a setting; write 'name=value', or give a mapping of names to values"),
        ({"recipe": 7}, "7 is not a recipe; give a name, a RunConfig, or a function that returns one"),
        ({"settings": {"train.step": 2}}, "no setting train.step; did you mean train.steps?"),
        ({"settings": {"train.steps": 2.5}}, "train.steps is '2.5'; it must be a whole number"),
        ({"settings": "train.steps=2"}, "settings='train.steps=2'; give a mapping of names to values, e.g. {'train."),
        ({"settings": ["train.steps"]}, "'train.steps' is not a setting; write name=value"),
        ({"progress": "bar"}, "progress='bar'; give 'rich', 'lines', a function, or None to show nothing"),
        ({"device": "warp"}, "no device 'warp' to train on"),
    ],
)
def test_what_cannot_be_trained_is_named(
    given: dict[str, Any], text: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^" + re.escape(text)):
        train(**{"recipe": "debug", "data": data, "device": "cpu"} | given)
    assert not list(tmp_path.iterdir())


def test_settings_are_spelled_as_the_command_line_takes_them() -> None:
    values = {"train.steps": 20, "optimizer.lr": 1e-3, "train.masked": False, "data.jobs.prefix": (3, 9)}
    found = resolve("debug", settings=values)
    assert (found.train.steps, found.optimizer.lr, found.train.masked) == (20, 1e-3, False)
    assert found.data.jobs.prefix == (3, 9)
    assert assignments(["a=b"]) == ("a=b",)
    assert resolve("debug", settings=assignments(values)) == found


def test_a_float_that_is_whole_is_a_whole_number() -> None:
    found = resolve("debug", settings={"train.steps": 4.0, "optimizer.lr": 1.0, "data.jobs.prefix": (3.0, 9)})
    assert (found.train.steps, found.optimizer.lr, found.data.jobs.prefix) == (4, 1.0, (3, 9))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_done_run_keeps_the_settings_it_was_trained_with(data: Path, tmp_path: Path) -> None:
    run = train(SETTINGS, data=data, out=tmp_path / "run", settings=SHORT, device="cpu")
    before = contents(run.folder)
    text = f"{run.folder} is done after 3 steps; raise train.steps to train on, or start a new run"
    for changes in ({"optimizer.lr": 0.5}, {"data.order": "runs:jump=0.3"}, {"train.steps": 2}):
        with pytest.raises(ConfigError, match=rf"^{re.escape(text)}$"):
            train(resume=run.folder, settings=changes, device="cpu")
    assert contents(run.folder) == before
    assert train(resume=run.folder, settings={"train.steps": 3}, device="cpu").is_done
    assert train(resume=run.folder, device="cpu").is_done
    assert train(resume=run.folder, settings={"train.steps": 4, "optimizer.lr": 2e-3}, device="cpu").step == 4


def test_a_run_that_is_not_done_can_be_ended_early_but_not_with_other_settings(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    with pytest.raises(ConfigError, match=r"is done after 4 steps; raise train\.steps"):
        train(resume=run, settings={"train.steps": 4, "optimizer.lr": 0.5}, device="cpu")
    ended = train(resume=run, settings={"train.steps": 4}, device="cpu")
    assert (ended.step, ended.is_done) == (4, True)


def test_a_run_shows_where_it_is_and_how_far(whole: Path, half: Path, tmp_path: Path) -> None:
    assert repr(Run(whole)) == f"Run({str(whole)!r}, step=12, is_done=True)"
    assert repr(Run(half)) == f"Run({str(half)!r}, step=4, is_done=False)"
    assert repr(Run("nowhere")) == "Run('nowhere', step=0, is_done=False)"
    damaged = copied(whole, tmp_path)
    (damaged / "config.json").write_text("{")
    assert repr(Run(damaged)) == f"Run({str(damaged)!r}, unreadable)"


def test_a_loss_that_is_no_number_before_the_first_checkpoint_says_to_start_again(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    text = (
        rf"^step \d: loss .*; there is no checkpoint yet; remove {re.escape(str(out))} and start the run again with"
    )
    with pytest.raises(DivergenceError, match=text):
        train(SETTINGS, data=data, out=out, settings={**SHORT, "optimizer.lr": 1e30}, device="cpu")


def test_a_bar_is_shown_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_display("rich")) is LinesDisplay
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert type(make_display("rich")).__name__ == "BarDisplay"
    assert type(make_display("lines")) is LinesDisplay
