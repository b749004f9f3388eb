"""`reviser bench decode`: it runs all three decoders and prints one document."""

from __future__ import annotations

import json

import pytest

from reviser.cli import main

TINY = ["--recipe", "debug", "--vocabulary", "300", "--set", "model.context=200", "--set", "data.row=256"]


def test_it_times_the_engine_and_the_bare_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", *TINY, "--batch", "1,3", "--no-transformers", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in result["batches"]] == [1, 3]
    assert all(row["ours_actions_per_s"] > 0 and row["ours_over_bare_time"] > 0 for row in result["batches"])


def test_it_times_transformers_where_it_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    assert main(["bench", "decode", *TINY]) == 0
    assert "ours_over_transformers" in capsys.readouterr().out


def test_a_batch_that_is_no_number_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decode", "--batch", "many"]) == 2
    assert "--batch many is no list of numbers; write 1,64,256" in capsys.readouterr().err
