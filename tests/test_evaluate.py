"""`reviser.evaluate`: systems of every kind, what they give, what is kept; and how systems are named."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reviser
from reviser.errors import ConfigError
from reviser.evaluation.specs import SystemSpec, parse_systems
from reviser.evaluation.suites import Metrics
from reviser.reports.sections import read_report
from reviser.reports.tables import Table
from reviser.reports.text import print_tables, write_table

PROMPTS = [
    reviser.Prompt("p1", "The boat lay", " still on the sea."),
    reviser.Prompt("p2", "A gull", " slept on its mast."),
]


class Echo:
    """A system with one verb."""

    def generate(self, prompts: Sequence[reviser.Prompt], seed: int) -> list[str]:
        return [f" {prompt.prefix.lower()} {seed}" for prompt in prompts]


def test_a_writer_a_folder_an_object_and_a_file_are_measured_side_by_side(whole: Path, tmp_path: Path) -> None:
    first = reviser.evaluate({"echo": Echo()}, PROMPTS, seeds=(1, 2))
    kept = first.save(tmp_path / "first") / "generations.jsonl"
    writer = reviser.load(whole, device="cpu")
    systems: dict[str, Any] = {"writer": writer, "folder": str(whole), "echo": Echo(), "kept": kept}
    results = reviser.evaluate(systems, PROMPTS, seeds=(1, 2), device="cpu", metrics=["diversity", "trajectories"])
    rows = {row["system"]: row for row in results.rows("metrics")}
    assert list(rows) == ["(reference)", "writer", "folder", "echo", "kept"]
    assert rows["writer"] | {"system": "folder"} == rows["folder"]
    assert rows["echo"] | {"system": "kept"} == rows["kept"]
    assert {row["system"] for row in results.rows("trajectories")} == {"writer", "folder"}
    texts = {each.key: each.text for each in results.generations}
    assert texts["echo", "p1", 2] == " the boat lay 2"
    assert "writer" in str(results)
    assert "<table>" in results._repr_html_()


def test_what_is_saved_is_what_the_commands_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = reviser.evaluate({"echo": Echo()}, PROMPTS).save(tmp_path / "results")
    assert sorted(path.name for path in folder.iterdir()) == ["generations.jsonl", "metrics.json"]
    report = read_report([folder])
    assert report.complaints == ()
    assert [section.name for section in report.sections] == ["metrics"]
    from reviser.cli import main

    assert main(["eval", "metrics", str(folder / "generations.jsonl"), "--metric", "diversity"]) == 0
    assert "echo" in capsys.readouterr().out


def test_likelihood_is_that_of_the_references(whole: Path) -> None:
    results = reviser.evaluate({"ours": reviser.load(whole, device="cpu")}, PROMPTS, ["likelihood"], samples=4)
    [row] = results.rows("likelihood")
    assert (row["system"], row["K"], row["n"], row["is_exact"]) == ("ours", 4, 2, False)
    assert results.generations == []


@pytest.mark.parametrize(
    "systems, prompts, metrics, said",
    [
        ({"echo": Echo()}, [], ["diversity"], "system echo has nothing to write into; give prompts"),
        ({"odd": 3}, PROMPTS, ["diversity"], "system odd is a int; give a Writer, the name of a model"),
        ({"echo": Echo()}, PROMPTS, ["likelihood"], "system echo has no log_likelihood"),
        ({"echo": Echo()}, ["Once"], ["likelihood"], "likelihood scores the references of prompts"),
        ({"few": type("Few", (), {"generate": lambda *_: ["one"]})()}, PROMPTS, ["diversity"],
         "system few gave 1 texts for 2 prompts; give one for each"),
        ({"lost": "no/such/folder"}, PROMPTS, ["diversity"], "no/such/folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_one_line(systems: Any, prompts: Any, metrics: list[str], said: str) -> None:
    with pytest.raises(reviser.ReviserError) as raised:
        reviser.evaluate(systems, prompts, metrics)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_was_not_measured_is_named() -> None:
    results = reviser.evaluate({"echo": Echo()}, PROMPTS)
    for words, said in (
        (("mauve", "echo", "mauve"), "'mauve' was not measured; measured were metrics"),
        (("metrics", "eco", "words"), r"no system 'eco' in metrics; systems are \(reference\), echo"),
        (("metrics", "echo", "wrods"), "metrics has no 'wrods'; it has system, "),
    ):
        with pytest.raises(ConfigError, match=said):
            results.value(*words)


def test_a_suite_measures_in_place_of_a_name() -> None:
    named = reviser.evaluate({"echo": Echo()}, PROMPTS, ["diversity"])
    made = reviser.evaluate({"echo": Echo()}, PROMPTS, [Metrics(generations=(), metric=("diversity",))])
    assert named.rows("metrics") == made.rows("metrics")


NAMES = st.text(st.characters(exclude_characters="=,", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(NAMES, NAMES, st.lists(st.sampled_from(["steps=8", "temperature=0.7", "top_k=50"]), max_size=3))
def test_a_system_reads_as_it_is_written(name: str, model: str, changes: list[str]) -> None:
    spec = SystemSpec(name, model, tuple(changes))
    assert SystemSpec.parse(spec.text) == spec
    assert spec.steps == (8 if "steps=8" in changes else None)
    assert len(spec.sampling) == sum(not change.startswith("steps") for change in changes)


def test_systems_need_names_of_their_own() -> None:
    assert [spec.name for spec in parse_systems(["shipped", "ours=runs/x"])] == ["shipped", "ours"]
    for texts, said in (
        (["a=x", "a=y"], "--system names a twice; give one of the two another name"),
        (["runs/x"], "--system runs/x is not NAME=MODEL; write shipped, ours=runs/mine or gpt2=hf:gpt2"),
        (["a=x,steps=-1"], "--system a=x,steps=-1: steps=-1 must be a whole number of at least 1"),
    ):
        with pytest.raises(ConfigError) as raised:
            parse_systems(texts)
        assert str(raised.value) == said


@given(st.lists(st.tuples(st.text(max_size=9), st.floats(-1e6, 1e6).map(str)), min_size=1, max_size=4))
def test_a_table_in_the_terminal_has_a_line_a_row_and_says_nothing_to_the_terminal(
    rows: list[tuple[str, str]],
) -> None:
    out = io.StringIO()
    write_table(Table("t", ("name", "number"), tuple(rows), ("a note",)), out)
    lines = out.getvalue().split("\n")
    assert len(lines) == len(rows) + 4
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for line in lines for c in line)


def test_the_terminal_says_who_measured() -> None:
    document = reviser.evaluate({"echo": Echo()}, PROMPTS).documents["metrics"]
    plain, judged, scored = io.StringIO(), io.StringIO(), io.StringIO()
    print_tables(document, plain)
    assert "measured by" not in plain.getvalue()
    print_tables(document | {"config": {"judge": "likelihood x"}}, judged)
    assert judged.getvalue().endswith("\nmeasured by judge likelihood x\n")
    print_tables(document | {"evaluator": {"name": "smollm2", "kind": "causal", "sha256": "b179"}}, scored)
    assert scored.getvalue().endswith("\nmeasured by smollm2 causal, sha256 b179\n")
