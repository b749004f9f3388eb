"""generate and infill as a user runs them, on a tiny model folder."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from tiny import random_model

from reviser.actions import OPERATORS
from reviser.cli import build_parser, main
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.presets import DEFAULT, GREEDY, PAPER, Sampling
from reviser.decoding.writer import Writer
from reviser.model import folder as folders
from reviser.model.checkpoint import pack_folder, save_pretrained
from reviser.tokenizer import load
from reviser.viewer.terminal import visible

GAPLESS = st.text(st.characters(exclude_characters="_"))
PROMPT, GAP = "The old", "The old ___ still."


def make_folder(folder: Path) -> str:
    """A tiny model that knows every operator."""
    config = ModelConfig(
        num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=120, max_length=64,
        operators=JUMPING, canvas=CanvasConfig(kind="window", slot_width=8),
    )  # fmt: skip
    return str(save_pretrained(random_model(config, seed=1), folder / "tiny", load("bytes")))


JUMPING = tuple(name for name in OPERATORS if name not in ("copy", "paste"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_folder(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def writer(model: str) -> Writer:
    return Writer.from_pretrained(model)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, str]:
    """What a command prints on standard output and standard error."""
    capsys.readouterr()
    assert main(list(map(str, words))) == 0
    out, err = capsys.readouterr()
    return out, err


def document(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    out, err = run(capsys, *words, "--json")
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    return found


def fail(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a refused command prints."""
    capsys.readouterr()
    assert main(list(map(str, words))) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("error: ").rstrip("\n")


COMMANDS: list[tuple[str, str]] = [("generate", PROMPT), ("infill", GAP)]


@pytest.mark.parametrize(("command", "text"), COMMANDS)
def test_text_and_document_are_what_the_writer_gives(
    command: str, text: str, model: str, writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"n": 3, "seed": 7, "max_actions": 40, "max_tokens": 30, "sampling": replace(DEFAULT, top_p=0.9)}
    wanted = {
        "generate": lambda: writer.generate(PROMPT, **asked),
        "infill": lambda: writer.infill("The old", " still.", **asked),
    }[command]()
    flags = ["--n", 3, "--seed", 7, "--max-actions", 40, "--max-tokens", 30, "--top-p", 0.9, "--model", model]
    out, err = run(capsys, command, text, *flags)
    assert out == "\n---\n".join(each.text for each in wanted) + "\n"
    lines = err.splitlines()
    assert len(lines) == (4 if command == "generate" else 3), "no rate where actions of other fillings count too"
    for line, each in zip(lines, wanted, strict=False):
        assert line.startswith(f"{each.num_actions} actions for {each.num_tokens} tokens, log-probability ")
        ends = {"model": "stopped by itself", "actions": "ended by --max-actions 40"}
        assert line.endswith((ends | {"length": "ended by --max-tokens 30"})[each.ended_by])
    assert command == "infill" or lines[-1].startswith("3 texts, ")
    found = document(capsys, command, text, *flags)
    assert (found["command"], found["given"], found["model"], found["seed"]) == (command, text, model, 7)
    assert found["sampling"]["top_p"] == 0.9
    for each, entry in zip(wanted, found["texts"], strict=True):
        assert (entry["text"], entry["new"]) == (each.text, each.new)
        assert entry["log_probability"] == each.log_probability
        assert (entry["has_stopped"], entry["ended_by"]) == (each.has_stopped, each.ended_by)
        assert entry["num_actions"] == each.num_actions
        assert len(entry["actions"]) == len(entry["trajectory"]["log_probabilities"]) == each.num_actions
        assert tuple(entry["trajectory"]["actions"]) == each.trajectory.actions


def test_what_stands_around_the_gap_stays(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for entry in document(capsys, "infill", GAP, "--n", 4, "--model", model)["texts"]:
        assert entry["text"] == f"The old{entry['new']} still."


def test_best_of_is_the_writers_and_the_page_has_the_same_text(
    model: str, writer: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["generate", PROMPT, "--n", 2, "--best-of", 3, "--seed", 5, "--max-actions", 30, "--model", model]
    wanted = writer.generate(PROMPT, n=2, best_of=3, seed=5, max_actions=30)
    plain = document(capsys, *asked)
    assert [entry["text"] for entry in plain["texts"]] == [each.text for each in wanted]
    page = tmp_path / "pages" / "page.html"
    assert document(capsys, *asked, "--html", page) == plain
    assert "reviser generate: The old" in page.read_text("utf-8")
    assert all(
        str(entry["trajectory"]["actions"])[:-1].replace(" ", "") in page.read_text() for entry in plain["texts"]
    )
    assert "actions/s" not in run(capsys, *asked)[1]


def test_the_trajectory_file_replays_and_shows(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "written.jsonl"
    asked = ["infill", GAP, "--n", 4, "--max-actions", 9, "--max-tokens", 4, "--model", model, "--out", path]
    found = document(capsys, *asked)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for line, entry in zip(lines, found["texts"], strict=True):
        assert line.items() >= entry["trajectory"].items()
        assert line.keys() - entry["trajectory"].keys() == {"version", "checksum"}
    assert run(capsys, "trajectory", "check", path)[0] == "4 trajectories replay\n"
    assert "{The old}|{ still.}" in run(capsys, "trajectory", "show", path, "--index", 0)[0]
    for number, entry in enumerate(found["texts"]):
        shown = run(capsys, "trajectory", "show", path, "--index", number)[0]
        assert entry["trajectory"]["ended_by"] == entry["ended_by"]
        assert ("STOP" in shown) == (entry["ended_by"] in ("model", "length"))
        assert ("not finished" in shown) == (entry["ended_by"] == "actions")
        assert ("ended by a full canvas" in shown) == (entry["ended_by"] == "length")
        assert f"{entry['num_actions']} actions for {entry['num_tokens']} tokens" in shown


def test_a_record_names_the_default_tokenizer_where_it_is_the_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = load("default")
    config = ModelConfig(
        num_text=tokenizer.num_text, pad=tokenizer.pad, num_layers=1, width=16, num_heads=2, ff_width=16, context=40
    )
    save_pretrained(random_model(config), tmp_path / "default", tokenizer)
    found = document(capsys, "generate", "--max-actions", 4, "--model", tmp_path / "default")
    assert found["texts"][0]["trajectory"]["tokenizer"] == {"name": "default", "sha256": tokenizer.sha256}
    assert found["given"] == ""


def test_seeds_decide(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, same, other = (
        run(capsys, "generate", PROMPT, "--model", model, "--n", 2, "--seed", seed)[0] for seed in (1, 1, 2)
    )
    assert one == same != other


def test_every_sampling_field_is_an_option_and_arrives(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "temperature": 0.7, "top_k": 9, "top_p": 0.8, "min_p": 0.1, "move_temperature": 0.5, "stop_bias": -0.5,
        "jump_bias": 0.25, "keep_moves": True, "min_tokens": 3, "no_repeat": 4, "calm": True,
        "moves": True,
    }  # fmt: skip
    assert {*values, "scan"} == {each.name for each in fields(Sampling)}
    base = ["generate", PROMPT, "--model", model, "--max-actions", 3]
    for name, value in values.items():
        option = [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
        assert document(capsys, *base, *option)["sampling"][name] == value
    for flags, wanted in (
        ([], DEFAULT),
        (["--greedy", "--scan", "0.3"], Sampling(0, scan=0.3)),
        (["--sampling", "paper"], PAPER),
        (["--greedy"], GREEDY),
        (["--sampling", "greedy"], GREEDY),
    ):
        assert Sampling(**document(capsys, *base, *flags)["sampling"]) == wanted
    written = document(capsys, *base, "--no-moves", "--jump-bias", 9)
    assert written["sampling"]["moves"] is False
    assert not [name for text in written["texts"] for name in text["actions"] if name.startswith(("MOVE", "JUMP"))]


def test_the_help_says_what_the_fields_say() -> None:
    capture = io.StringIO()
    commands = next(a for a in build_parser()._actions if isinstance(a.choices, dict))
    assert isinstance(commands.choices, dict)
    commands.choices["generate"].print_help(capture)
    words = " ".join(capture.getvalue().split())
    assert "only the k most probable actions; 0 is all (default 50)" in words
    assert "--calm, --no-calm consecutive MOVEs add up to one distance" in words
    assert "or take more than needed; a JUMP stands alone (default on)" in words
    assert "--moves, --no-moves leave MOVE and JUMP to the model; without, both are forbidden" in words
    assert "as probable as the most probable (default 0.06)" in words


def test_standard_input_is_a_text(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{GAP}\n"))
    assert document(capsys, "infill", "-", "--model", model) == document(capsys, "infill", GAP, "--model", model)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8"))
    assert fail(capsys, "generate", "-", "--model", model) == "standard input is not UTF-8 text"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["infill", "no gap here"], "the text has no gap; write ___ where something is to be filled in"),
        (["infill", ""], "the text has no gap; write ___ where something is to be filled in"),
        (["infill", "___ ___ b"], "two gaps have nothing between them; write one ___ for both"),
        (["infill", GAP, "--min-length", "-1"], "min_length=-1 must be 0 or more"),
        (["infill", GAP, "--min-length", "4", "--max-length", "3"], "max_length=3 must be at least 4 (min_length)"),
        (["infill", GAP, "--max-length", "0"], "max_length=0 must be at least 1"),
        (
            ["infill", "___ and ___", "--live"],
            "--live shows gaps filled in one go, and these are filled in turn; drop --live",
        ),
        (["generate", "x" * 63, "--max-tokens", "0"], "max_tokens=0 must be at least 1"),
        (["generate", "x" * 65], "a prompt of 65 tokens does not fit a canvas of 64; shorten it"),
        (["generate", "x" * 130], "a prompt of 130 tokens leaves no room in a context of 120 positions; shorten it"),
        (["generate", "x", "--max-actions", "0"], "max_actions=0 must be at least 1"),
        (["generate", "x", "--n", "0"], "--n 0 must be at least 1"),
        (["generate", "x", "--best-of", "0"], "--best-of 0 must be at least 1"),
        (["generate", "x", "--pace", "-1"], "--pace -1.0 must be 0 or more"),
        (["generate", "x", "--temperature", "-1"], "temperature=-1.0 must be finite and 0 or more"),
        (["generate", "x", "--temperature", "hot"], "temperature is 'hot'; it must be a number"),
        (["generate", "x", "--top-p", "0"], "top_p=0.0 must be above 0 and at most 1"),
        (["generate", "x", "--greedy", "--move-temperature", "1"], "means nothing at temperature=0; drop one"),
        (
            ["generate", "x", "--live", "--json"],
            "--live shows every text as it is written, --json only the result; drop one",
        ),
        (["generate", "x", "--live", "--best-of", "2"], "--best-of only the result; drop one"),
        (["generate", "x", "--device", "abacus"], "--device abacus is not usable here; write cpu, or cuda where"),
        (["generate", "x", "--device", "cuda:99"], "--device cuda:99 is not usable here; write cpu, or cuda where"),
        (["generate", "\ud800"], "is a lone surrogate"),
    ],
)
def test_bad_usage_is_one_line(words: list[str], text: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert text in fail(capsys, *words, "--model", model)


def test_a_model_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(capsys, "generate", "x", "--model", tmp_path / "none").startswith("no model folder ")
    monkeypatch.setattr(folders, "SHIPPED", tmp_path / "reviser-small")
    wanted = "no model is shipped with this copy of reviser; give a model folder (--model FOLDER)"
    assert fail(capsys, "generate", "x") == wanted


@pytest.mark.parametrize("flag", ["--out", "--html"])
def test_a_file_that_cannot_be_written_is_one_line_before_the_work(
    flag: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    path = tmp_path / "taken" / "new" / "x"
    asked = ["generate", "x", "--model", model, "--max-actions", "2", flag]
    assert fail(capsys, *asked, path) == f"cannot write {path}: Not a directory; give another file"
    assert "File name too long; give another file" in fail(capsys, *asked, tmp_path / ("x" * 300))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["taken"]
    run(capsys, *asked, os.devnull)
    run(capsys, *asked, tmp_path / "some" / "new" / "file")


def test_a_disk_that_fills_up_meanwhile_is_one_line(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reviser.cli.write.check_output", lambda option, path: None)
    (tmp_path / "taken").write_text("")
    for flag in ("--out", "--html"):
        assert (
            main(["generate", "x", "--model", model, "--max-actions", "2", flag, str(tmp_path / "taken" / "x")]) == 2
        )
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: cannot write {tmp_path}/taken/x: ")


@pytest.mark.parametrize(("command", "text"), COMMANDS)
def test_the_title_of_a_card_is_the_beginning_of_the_whole_text(
    command: str, text: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [command, text, "--n", 2, "--max-actions", 30, "--model", model, "--html", tmp_path / "page.html"]
    texts = [entry["text"] for entry in document(capsys, *asked)["texts"]]
    page = (tmp_path / "page.html").read_text("utf-8")
    [data] = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)
    assert [example["title"] for example in json.loads(data)["examples"]] == [visible(each)[:200] for each in texts]
    assert all(example["title"].startswith(PROMPT) for example in json.loads(data)["examples"])


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (PROMPT, ["--stop-bias", 99], "stopped by itself"),
        (PROMPT, ["--stop-bias", -99, "--max-actions", 9], "ended by --max-actions 9"),
        (PROMPT, ["--stop-bias", 9, "--min-tokens", 3, "--max-tokens", 3], "ended by --max-tokens 3"),
        ("x" * 62, ["--stop-bias", 9, "--min-tokens", 2], "ended by the canvas, which holds 64 tokens"),
        (PROMPT, ["--stop-bias", -99], "ended by the model's context: 120 positions with the given text"),
    ],
)
def test_what_ended_a_text_is_said(
    text: str, flags: list[object], said: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = run(capsys, "generate", text, "--model", model, *flags)[1]
    assert re.search(rf", {re.escape(said)}, \d+ actions/s$", line.rstrip())


def test_the_shipped_model_is_the_default_and_decodes_in_int8(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folders, "SHIPPED", pack_folder(model, tmp_path / "rounded", "int8"))

    def score(*flags: object) -> float:
        found = document(capsys, "generate", PROMPT, *flags)
        assert found["model"] == (model if model in flags else "rounded")
        return float(found["texts"][0]["log_probability"])

    assert score() == score("--model", "shipped") == score("--weights", "auto") == score("--weights", "int8")
    assert score() != score("--weights", "float32")
    assert score("--model", model) == score("--model", model, "--weights", "float32")
    assert score("--model", model) != score("--model", model, "--weights", "int8")


@pytest.mark.slow
def test_writing_does_not_load_torchs_compiler(model: str) -> None:
    code = (
        "import sys; from reviser.cli import main; main(sys.argv[1:]); "
        "sys.exit(any(name in sys.modules for name in ('torch._dynamo', 'sympy', 'rich', 'transformers')))"
    )
    words = ["generate", PROMPT, "--model", model, "--max-actions", "5"]
    process = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["generate", "Hi", "--modle", "x"], "no such option here: --modle; see reviser generate --help"),
        (["generate", "Hi", "--n", "x"], "argument --n: invalid int value: 'x'; see reviser generate --help"),
        (["infill"], "the following arguments are required: TEXT; see reviser infill --help"),
        ([], "the following arguments are required: COMMAND; see reviser --help"),
        (
            ["generate", "--greedy", "--sampling", "paper"],
            "argument --sampling: not allowed with argument --greedy; see",
        ),
    ],
)
def test_what_the_parser_refuses_is_one_line_that_names_the_help(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {text}")


def test_a_folder_to_write_to_is_refused_before_the_work(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("html", "out"):
        assert "is a folder; give a file" in fail(capsys, "generate", PROMPT, "--model", model, f"--{name}", tmp_path)


def test_a_run_folder_stands_for_its_model(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").symlink_to(model, target_is_directory=True)
    (tmp_path / "run.json").write_text("{}")
    flags = ["generate", PROMPT, "--max-actions", 9]
    one, other = (document(capsys, *flags, "--model", spec)["texts"] for spec in (model, tmp_path))
    assert [each["text"] for each in one] == [each["text"] for each in other]


def test_a_text_that_ends_in_a_space_is_noted_once(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--max-actions", 3, "--model", model]
    assert "note: most tokens begin with a space" in run(capsys, "generate", PROMPT + " ", *flags)[1]
    assert "note" not in run(capsys, "generate", PROMPT, *flags)[1]


def test_info_without_a_folder_shows_the_shipped_model(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "info", "--json")
    assert json.loads(out)["num_parameters"] == 30_337_600


@pytest.mark.parametrize("more", [[], ["--best-of", "3"], ["--revise", "1", "--sampling", "paper"]])
def test_a_kept_seed_leads_to_the_draft_again(more: list[str], tmp_path: Path) -> None:
    path, writer = tmp_path / "kept.jsonl", Writer.from_pretrained()
    asked = ["generate", "The old", "--n", "2", "--seed", "4", "--max-tokens", "6", "--out", str(path), *more]
    assert main(asked) == 0
    sampling = PAPER if "paper" in more else DEFAULT
    numbers = []
    for record in map(json.loads, path.read_text().splitlines()):
        seed, number = record["seed"]
        start = writer.continuation("The old", 6)
        events = writer.stream(start, seed=seed, number=number, sampling=sampling)
        draft = [event.action for event in events if event.action != writer.config.alphabet.stop]
        assert record["actions"][: len(draft)] == draft
        numbers.append(number)
    assert len(set(numbers)) == 2
