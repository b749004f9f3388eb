"""`reviser bench`: it runs all three decoders, and what it measures is a result that a report reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reviser.cli import main

TINY = ["--recipe", "debug", "--vocabulary", "300", "--set", "model.context=200", "--set", "data.row=256"]


@pytest.mark.slow
def test_it_times_the_engine_and_the_bare_step_with_every_kind_of_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", *TINY, "--batch", "1,3", "--no-transformers", "--new", "8", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["kind"] == "decode"
    kinds = ["torch", "numba float32", "numba int8"]
    asked = [(batch, kind) for batch in (1, 3) for kind in kinds]
    assert [(row["batch"], row["step"]) for row in result["rows"]] == asked
    assert all(row["ours_actions_per_s"] > 0 and row["ours_over_bare_time"] > 0 for row in result["rows"])


@pytest.mark.slow
def test_it_times_transformers_where_it_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    assert main(["bench", "decode", *TINY, "--new", "8"]) == 0
    assert "transformers, tokens/s" in capsys.readouterr().out


def test_what_is_measured_is_a_result_that_a_report_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--vocabulary", "300", "--set", "train.compile=false", "--set", "train.rows=1", "--set", "data.row=256"]
    small += ["--set", "model.context=200"]
    commands = {
        "drawing": ["trajectories", "--seconds", "0.01", "--n", "20"],
        "training": ["train", "debug", *small, "--steps", "1", "--warmup", "0", "--device", "cpu", "--no-plain"],
        "decoding": ["decode", *TINY, "--no-transformers", "--new", "4"],
    }
    for name, words in commands.items():
        assert main(["bench", *words, "--out", str(tmp_path / f"{name}.json")]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for title in ("Speed of drawing, actions a second", "Speed of training", "Speed of decoding"):
        assert shown.out.count(title) == 1
    for name in commands:
        result = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
        assert {"kind", "rows", "config", "command", "commit", "hardware", "date"} <= set(result)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["decode", "--batch", "many"], "--batch many is not a list of numbers; write 1,64,256"),
        (["decode", "--batch", "0"], "--batch 0: a batch has at least one row; write 1,64,256"),
        (["decode", "--device", "mars"], "no device 'mars'"),
        (["train", "debug", "--steps", "0"], "--steps 0 and --warmup 5 must be at least 1 and 0"),
    ],
)
def test_what_cannot_be_measured_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    assert main(["bench", *words]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1
