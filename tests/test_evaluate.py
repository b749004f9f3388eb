"""`reviser.evaluate`: systems of every kind, what they give, what is kept; and how systems are named."""

from __future__ import annotations

import io
import json
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


class Giving:
    """A system that gives what it was given."""

    def __init__(self, written: Any) -> None:
        self.written = written

    def generate(self, prompts: Sequence[reviser.Prompt], seed: int) -> Any:
        return self.written


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
        ({"none": Giving([None, None])}, PROMPTS, ["diversity"], "system none gave None for prompt p1; give a text"),
        ({"bare": Giving("ab")}, PROMPTS, ["diversity"], "system bare gave 'ab'; give a list with one text for each"),
        ({"gone": Giving(None)}, PROMPTS, ["diversity"], "system gone gave None; give a list"),
        ({"kind": Echo}, PROMPTS, ["diversity"], "system kind is a type; give a Writer"),
        ({}, PROMPTS, ["diversity"], "systems must be a dictionary from name to system, not {}"),
        ([Echo()], PROMPTS, ["diversity"], "systems must be a dictionary from name to system"),
        ({"echo": Echo()}, "Once", ["diversity"], "prompts must be a list, not 'Once'; write ['Once']"),
        ({"echo": Echo()}, [3], ["diversity"], "prompts hold 3; give str or Prompt"),
        ({"echo": Echo()}, PROMPTS, "diversity", "metrics must be a list, not 'diversity'"),
        ({"echo": Echo()}, PROMPTS, [len], "metrics hold <built-in function len>; give str or Scoring"),
        ({"echo": Echo()}, PROMPTS, [], "metrics are empty; name at least one"),
        ({"echo": Echo()}, PROMPTS, ["evalpl"], "no metric 'evalpl'; metrics are diversity"),
        ({"echo": Echo()}, PROMPTS, [Metrics(generations=(), n=1)], "suite metrics has generations or n of its own"),
        ({"slow": "shipped,steps=x"}, PROMPTS, ["diversity"], "system slow: steps=x must be a whole number"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_one_line(systems: Any, prompts: Any, metrics: list[str], said: str) -> None:
    with pytest.raises(reviser.ReviserError) as raised:
        reviser.evaluate(systems, prompts, metrics)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_generations_of_other_prompts_are_refused() -> None:
    first = reviser.evaluate({"echo": Echo()}, PROMPTS, seeds=(1,)).generations
    assert reviser.evaluate({"same": Giving(first)}, PROMPTS, seeds=(1,)).generations[0].system == "same"
    for given_, seed in ((first[::-1], 1), (first, 2)):
        with pytest.raises(reviser.ReviserError, match="give them in the order of the prompts"):
            reviser.evaluate({"odd": Giving(given_)}, PROMPTS, seeds=(seed,))


def test_a_result_made_in_python_claims_no_command_and_says_what_was_measured() -> None:
    results = reviser.evaluate({"echo": Echo()}, PROMPTS, seeds=(1, 2), max_tokens=9)
    document = results.documents["metrics"]
    assert document["command"] is None
    wanted = {"systems": ["echo"], "prompts": 2, "seeds": [1, 2], "max_tokens": 9}
    assert wanted.items() <= document["config"].items()
    assert results.rows("diversity") == results.rows("metrics")


def test_metrics_that_clash_or_fail_are_one_line() -> None:
    def fail(texts: Any) -> Any:
        raise ZeroDivisionError("nothing there")

    metrics: dict[str, Any] = {
        "one-k": lambda texts: {"k": 1},
        "two-k": lambda texts: {"k": 2},
        "own-key": lambda texts: {"texts": 2},
        "failing": fail,
        "endless": lambda texts: {"x": float("inf")},
    }
    for name, function in metrics.items():
        reviser.register_metric(name, function)
    for names, said in (
        (["one-k", "two-k"], "metric two-k gives 'k', as metric one-k does; give it another key"),
        (["own-key"], "metric own-key gives 'texts', as the row itself does; give it another key"),
        (["failing"], r"metric failing failed on system \(reference\) \(ZeroDivisionError: nothing there\); fix it"),
        (["endless"], "metric endless gives x as inf; give a finite number, a Measure or None"),
    ):
        with pytest.raises(reviser.ReviserError, match=said):
            reviser.evaluate({"echo": Echo()}, PROMPTS, names)
    for words, said in (
        (("likelihood", len), "reviser already measures 'likelihood'; give this metric another name"),
        (("number", 3), "metric 'number' is int; register a function of one system's generations"),
        ((3, len), "metric 3: a name has lower-case letters"),
        (("cols", len, "abc"), "metric 'cols': columns must be a dictionary from key to heading"),
    ):
        with pytest.raises(reviser.ReviserError, match=said):
            reviser.register_metric(*words)  # type: ignore[arg-type]


def test_a_plugin_runs_again_when_it_changes_and_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    register = "import reviser\ndef f(texts):\n    return {'x': %d}\nreviser.register_metric('changing', f)\n"
    for number in (1, 2):
        file.write_text(register % number)
        reviser.load_plugin(file)
        assert reviser.evaluate({"echo": Echo()}, PROMPTS, ["changing"]).value("changing", "echo", "x") == number
    other = tmp_path / "other.py"
    for end, kind in (("1 / 0\n", "ZeroDivisionError"), ("raise SystemExit(0)\n", "SystemExit")):
        other.write_text(register.replace("changing", "half") % 1 + end)
        with pytest.raises(reviser.ReviserError, match=rf"other.py does not run \({kind}"):
            reviser.load_plugin(other)
        with pytest.raises(reviser.ReviserError, match="no metric 'half'"):
            reviser.evaluate({"echo": Echo()}, PROMPTS, ["half"])


def test_a_result_records_the_plugin_of_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from reviser.cli import main

    made = reviser.evaluate({"echo": Echo()}, PROMPTS).save(tmp_path / "r") / "generations.jsonl"
    file, out = tmp_path / "plug.py", tmp_path / "out.json"
    file.write_text("import reviser\ndef g(texts):\n    return {'y': 1}\nreviser.register_metric('plugged', g)\n")
    words = ["--plugin", str(file), "eval", "metrics", str(made), "--metric", "plugged"]
    assert main([*words, "--out", str(out)]) == 0
    assert json.loads(out.read_text())["command"] == " ".join(["reviser", *words])
    assert main(["eval", "metrics", str(made), "--out", str(out)]) == 0
    assert "--plugin" not in json.loads(out.read_text())["command"]


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
