"""What a model folder says of its training is what the run did."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from tiny import HARD, SETTINGS, metrics, settings, start, train

from reviser.actions import Alphabet
from reviser.cli import main
from reviser.config import override
from reviser.errors import ConfigError
from reviser.model.folder import read_config
from reviser.training.provenance import describe, recipe_of
from reviser.training.recipes import RECIPES, find_recipe
from reviser.training.runs import Run

NOISY = ("data.order=runs:noise=0.1", "model.operators=move,delete", "train.steps=2")
CHANGES = (
    "train.steps=77", "train.masked=false", "optimizer.lr=0.03", "data.order=0.8*runs+0.2*left-to-right",
    "data.jobs.prefix=3,9", "data.jobs.infill=0.25", "model.dropout=0.1", "model.operators=move,delete",
    "optimizer.name=muon",
)  # fmt: skip


@given(st.sampled_from(sorted(RECIPES)), st.sets(st.sampled_from(CHANGES)))
def test_the_recipe_and_its_changes_give_the_settings_again(name: str, changes: set[str]) -> None:
    alphabet = Alphabet(9000, 7)
    try:
        wanted = override(RECIPES[name](alphabet), changes)
    except ConfigError:
        # Some recipes need the operators or the order that they have.
        reject()
    nearest, *words = shlex.split(recipe_of(wanted))
    assert words[::2] == ["--set"] * (len(words) // 2)
    assert override(find_recipe(nearest)(alphabet), words[1::2]) == wanted
    assert len(words) // 2 <= len(changes)


def test_a_recipe_as_it_is_has_no_changes() -> None:
    assert {recipe_of(recipe(Alphabet(9000, 7))) for recipe in RECIPES.values()} == set(RECIPES)


def test_a_model_folder_says_how_it_was_trained(whole: Path) -> None:
    trained, wanted = read_config(whole / "model").trained, settings(*HARD)
    assert trained is not None
    assert trained.order == wanted.data.order
    assert override(SETTINGS, [f"data.jobs.{each}" for each in trained.jobs.split()]).data.jobs == wanted.data.jobs
    assert (trained.steps, trained.positions) == (12, 12 * wanted.train.rows * wanted.data.row)
    assert trained.data_sha256 == Run(whole).load().state["data_sha256"]
    last = metrics(whole)[-1]
    (bound,) = trained.bounds
    assert (bound.job, bound.nats_per_token) == ("continue", last["bound_nats_per_token"])
    assert (bound.error, bound.bits_per_byte) == (last["bound_error"], last["bits_per_byte"])
    card = (whole / "model" / "README.md").read_text("utf8")
    assert f"| recipe | `reviser train {trained.recipe}` |" in card


def test_a_finished_run_that_is_continued_says_the_same_again(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(run / "model")
    assert train("--resume", run) == 0
    assert read_config(run / "model") == read_config(whole / "model")


def test_an_order_without_a_likelihood_leaves_no_bound(data: Path, tmp_path: Path) -> None:
    assert start(data, tmp_path / "run", *NOISY) == 0
    trained = read_config(tmp_path / "run" / "model").trained
    assert trained == describe(
        settings(*NOISY),
        2,
        Run(tmp_path / "run").load().state["data_sha256"],
        {},
    )


def test_likelihood_needs_no_order_for_a_copied_model(
    whole: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(whole / "model", tmp_path / "model")
    words = [str(data), "--system", f"ours={copy}", "--n", "3", "--length", "12", "--prefix", "6", "--json"]
    assert main(["eval", "likelihood", "--device", "cpu", *words]) == 0
    assert [row["order"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["runs"]
    assert main(["eval", "likelihood", "--device", "cpu", *words, "--order", "left-to-right"]) == 0
    assert [row["order"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["left-to-right"]
