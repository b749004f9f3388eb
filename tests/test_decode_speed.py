"""`reviser bench decode`: it runs all three decoders and prints one document."""

from __future__ import annotations

import json

import pytest

from reviser.cli import main

TINY = ["--recipe", "debug", "--vocabulary", "300", "--set", "model.context=200", "--set", "data.row=256"]


def test_it_times_the_engine_and_the_bare_step_with_every_kind_of_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", *TINY, "--batch", "1,3", "--no-transformers", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    kinds = ["torch", "lean float32", "lean int8"]
    asked = [(batch, kind) for batch in (1, 3) for kind in kinds]
    assert [(row["batch"], row["step"]) for row in result["batches"]] == asked
    assert all(row["ours_actions_per_s"] > 0 and row["ours_over_bare_time"] > 0 for row in result["batches"])


def test_it_times_transformers_where_it_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    assert main(["bench", "decode", *TINY]) == 0
    assert "ours_over_transformers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["decode", "--batch", "many"], "--batch many is no list of numbers; write 1,64,256"),
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
