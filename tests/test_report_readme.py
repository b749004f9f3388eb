"""The tables of README and docs, and the numbers in README's sentences, are those of the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_report import ROOT, documents

from reviser.errors import DataError
from reviser.evaluation.measures import difference
from reviser.reports.markdown import END, fill, write_table
from reviser.reports.sections import read_report
from reviser.reports.tables import Table, show_any

SPEED = Table("t", ("threads", "runs"), (("1", "2"),))


@given(st.lists(st.sampled_from(["some text", "", "| a |", "<!-- a note -->"]), max_size=5))
def test_filling_touches_nothing_but_tables_and_filling_twice_is_filling_once(lines: list[str]) -> None:
    text = "\n".join([*lines, "<!-- table: speed -->", "| old |", END, *lines])
    filled = fill(text, {"speed": SPEED}, "x.md")
    body = ["| threads | runs |", "|---|---|", "| 1 | 2 |"]
    assert filled.text == "\n".join([*lines, "<!-- table: speed -->", *body, END, *lines])
    assert filled.changed == ("speed",)
    again = fill(filled.text, {"speed": SPEED}, "x.md")
    assert (again.text, again.changed) == (filled.text, ())


def test_a_table_without_a_result_or_an_end_is_named() -> None:
    text = "# Title\n<!-- table: speed -->\n"
    with pytest.raises(DataError, match=r"^x.md, line 2: no result is called speed; there are other$"):
        fill(text, {"other": SPEED}, "x.md")
    for rest in ("", f"<!-- table: speed -->\n{END}"):
        with pytest.raises(DataError, match=f"^x.md, line 2: the table has no end; put {END} after its last row$"):
            fill(text + rest, {"speed": SPEED}, "x.md")


def test_a_reproductions_folder_stands_for_its_results(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "config.json").write_text("{}", "utf-8")
    (tmp_path / "results" / "one.json").write_text(json.dumps(documents()["evalppl"]), "utf-8")
    report = read_report([tmp_path])
    assert ([section.name for section in report.sections], report.complaints) == (["one"], ())


def test_a_tables_number_is_one_that_its_result_has(tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text(json.dumps(documents()["evalppl"]), "utf-8")
    tables = read_report([tmp_path]).short
    assert list(tables) == ["gone", "gone:1", "gone:2"]
    assert write_table(tables["gone:2"]) in fill(f"<!-- table: gone:2 -->\n{END}", tables, "x.md").text
    assert tables["gone:2"] != tables["gone"] == tables["gone:1"]
    wrong = {"gone:3": "result gone has no table 3; it has 2", "x:2": "no result is called x:2; there are gone"}
    for name, said in wrong.items():
        with pytest.raises(DataError, match=f"^x.md, line 1: {said}$"):
            fill(f"<!-- table: {name} -->\n{END}", tables, "x.md")


def test_a_marker_may_ask_for_some_rows_and_columns() -> None:
    table = Table("t", ("a", "b", "c"), (("1", "2", "3"), ("4", "5", "6"), ("7", "8", "9")))
    text = f"<!-- table: t rows 3,1 columns 1,3 -->\n{END}"
    assert fill(text, {"t": table}, "x.md").text.split("\n")[1:-1] == [
        "| a | c |",
        "|---|---|",
        "| 7 | 9 |",
        "| 1 | 3 |",
    ]
    for asked, what in (("rows 4", "rows 4"), ("columns 1,0", "columns 1,0")):
        with pytest.raises(DataError, match=f"^x.md, line 1: {what} of a table with 3; name some of 1 to 3$"):
            fill(f"<!-- table: t {asked} -->\n{END}", {"t": table}, "x.md")


@pytest.mark.parametrize(
    "name, count",
    [
        ("README.md", 1),
        ("docs/measured.md", 2),
        ("docs/reproduce.md", 9),
        ("docs/report.md", 1),
        ("docs/trajectories.md", 1),
        ("docs/training.md", 2),
        ("docs/evaluation.md", 3),
        ("docs/reliability.md", 1),
    ],
)
def test_tables_of_readme_and_docs_are_what_the_results_say(name: str, count: int) -> None:
    report = read_report([ROOT / "results"])
    assert report.complaints == ()
    text = (ROOT / name).read_text("utf-8")
    assert text.count(f"\n{END}\n") == count
    assert fill(text, report.short, name).changed == (), f"run: reviser report --readme {name}"


def read(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text("utf-8"))


def told(measure: dict[str, float]) -> str:
    """As a sentence says it that has "less" or "more" beside it."""
    return show_any({"value": abs(measure["value"]), "error": measure["error"]})


PAGES = ("README.md", "docs/measured.md", "docs/reproduce.md")
README = " ".join(" ".join((ROOT / name).read_text("utf-8").split()) for name in PAGES)


def test_speeds_in_readme_and_docs_are_those_of_the_results() -> None:
    ratios = [row["ratio"] for row in read("train_speed_h200")["rows"]]
    assert f"training runs at {min(ratios):.2f} to {max(ratios):.2f} times a plain compiled GPT loop" in README
    times = [f"{row['ours_over_transformers']:.0f}" for row in read("decode_h200")["rows"]]
    assert f"decoding at {times[0]}, {times[1]} and {times[2]} times `transformers`" in README
    rows = {row["name"]: row for row in read("orders_h200")["rows"]}
    training = (ROOT / "docs" / "training.md").read_text("utf-8")
    assert f"behind left-to-right ({rows['left-to-right, Muon']['bound_perplexity']:.1f} with Muon)" in training
    jumping = [row["bound_perplexity"] for row in rows.values() if row["order"] != "left-to-right"]
    assert min(jumping) > rows["left-to-right"]["bound_perplexity"]


def test_comparisons_in_readme_are_those_of_the_results() -> None:
    tables: dict[str, dict[str, Any]] = {}
    for row in read("small_systems")["rows"]:
        tables.setdefault(row["table"], {})[row.get("system")] = row
    rows, costs = tables["differences"], tables["costs"]["ours"]
    ours, paper, rates = rows["ours"], rows["paper"], [rows[f"jump0.0{i}"] for i in (1, 2, 5)]
    bits, ppl = "bits_per_byte_more", "perplexity_ratio"
    suffix = "suffix_bits_per_byte_more"
    assert ours[bits]["value"] < 0
    assert f"ours has {told(ours[bits])} bits/byte less, {told(ours[ppl])} times the evalPPL" in README
    assert f"{told(costs['gmacs_per_byte_ratio'])} times the operations a byte" in README
    assert f"{told(costs['seconds_per_byte_ratio'])} times the seconds a byte" in README
    assert f"Reviser has {told(paper[bits])} bits/byte more and {told(paper[ppl])} times the evalPPL" in README
    assert "{:.2f}, {:.2f} and {:.2f} times".format(*(row[ppl]["value"] for row in rates)) in README
    assert "errors {:.2f} to {:.2f}".format(*(rates[i][ppl]["error"] for i in (0, -1))) in README
    assert f"cheaper by {told(ours[suffix])} bits/byte behind ours than behind an empty gap" in README
    assert ours[suffix]["value"] < 0
    assert not any("whole" in key for row in read("small_systems")["rows"] for key in row)
    assert rows["ar"].get(suffix) is rows["mdlm"].get(suffix) is rows["sedd"].get(suffix) is None


def test_bounds_and_gaps_in_readme_are_those_of_the_results() -> None:
    c4, held = (
        {row["system"]: row["more_than_first"] for row in read(f"small_bounds_{name}")["rows"] if row["K"] == 256}
        for name in ("c4", "heldout")
    )
    assert c4["ours"]["value"] < 0
    assert f"ours has {told(c4['ours'])} less and the paper's {told(c4['paper'])} more" in README
    assert f"of the corpus {told(held['ours'])} and {told(held['paper'])} more" in README
    filled = {row["system"]: row for row in read("small_systems_gaps")["rows"]}
    original, nothing = (filled[name]["by_prompt"]["suffix_bits_per_byte"] for name in ("(reference)", "(nothing)"))
    less = difference(original, nothing)
    assert less is not None
    assert f"and by {-less.value:.3f} behind the original" in README
    ours = filled["ours"]["length_quantiles"]
    assert f"half are under {ours['50%']:.1f} times the original, a tenth over {ours['90%']:.1f}" in README
    [shipped] = [row["perplexity_ratio"] for row in read("small_frontier")["rows"] if row["system"] == "shipped"]
    assert f"{told(shipped)} times left-to-right's evalPPL with one seed" in README
