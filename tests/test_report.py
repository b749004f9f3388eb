"""Results to reports: numbers with errors, a table for every kind, Markdown, a page by itself, README."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.cli import main
from reviser.evaluation.generations import Generation
from reviser.evaluation.judges.arena import Judgment
from reviser.evaluation.measures import Measure
from reviser.evaluation.metrics import evalppl
from reviser.evaluation.metrics import win_rates as scores
from reviser.evaluation.metrics.paper_flops import rows as flops_rows
from reviser.evaluation.texts import lay_out
from reviser.orders.record import Draft
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.orders.statistics import summarise
from reviser.reports.html import UNPRINTABLE, write_html
from reviser.reports.markdown import END, write_markdown, write_table
from reviser.reports.results import make_result
from reviser.reports.sections import RENDERERS, render
from reviser.reports.tables import Bars, Scatter, Section, Table, bar, show, show_any, tabulate

ROOT = Path(__file__).parents[1]
WORDS = ("eval", "something")
TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9))
def test_a_value_ends_where_its_error_does(value: float, error: float) -> None:
    left, right = show(value, error).replace(",", "").split(" ± ")
    decimals = [len(text.partition(".")[2]) for text in (left, right)]
    assert decimals[0] == decimals[1]
    digits = len(right.replace(".", "").strip("0")) or 1
    assert digits <= 2
    assert float(right) == pytest.approx(error, rel=0.2501)
    unit = 10.0 ** math.floor(math.log10(error)) / (10 if error < 2 * 10.0 ** math.floor(math.log10(error)) else 1)
    assert abs(float(left) - value) <= 0.501 * unit + 1e-12 * abs(value)


@pytest.mark.parametrize(
    "value, error, text",
    [
        (12345.0, 276.0, "12,300 ± 300"),
        (0.5, 0.096, "0.50 ± 0.10"),
        (5.0, 0.0, "5.000 ± 0"),
        (5.0, math.nan, "5.000"),
        (math.inf, 1.0, "inf"),
        (1e20, 1e18, "1e+20 ± 1e+18"),
        (None, None, "-"),
        (0.0, None, "0"),
        (3e-7, None, "3e-07"),
        (1234567, None, "1,234,567"),
    ],
)
def test_numbers_are_written_by_hand_computed_rules(value: Any, error: Any, text: str) -> None:
    assert show(value, error) == text


def test_anything_is_written_as_one_line() -> None:
    assert show_any({"value": 2.0, "error": 0.13, "n": 3}) == "2.00 ± 0.13"
    assert show_any({"value": 0.5, "low": 0.25, "high": 0.75}) == "0.50 (0.25 to 0.75)"
    assert show_any([1, True, None, "a\n b"]) == "1, yes, -, a b"
    assert show_any([]) == "-"


# Documents whose rows the suites' own functions make.


def generation(system: str, prompt: str, text: str) -> Generation:
    return Generation(system, prompt, 0, "Once", text, "", " upon a time there was", True, 4, 5)


def evalppl_rows() -> list[dict[str, Any]]:
    texts = [generation(name, f"p{i}", f" a {name} text of {i}") for name in ("ours", "ar") for i in range(3)]
    number = {"(reference)": 2.0, "ours": 3.0, "ar": 4.0}
    found = [
        evalppl.Score(10 * number[each.system] + int(each.prompt_id[1]), 10, len(each.text))
        for each in lay_out(texts)
    ]
    return evalppl.summarise(texts, found)


def arena_document() -> dict[str, Any]:
    verdicts = ["first", "first", "tie", "second", "failed"]
    return scores.score([Judgment("ours", "ar", f"p{i}", 0, said, "", "j", "t") for i, said in enumerate(verdicts)])


def statistics(order: str) -> dict[str, Any]:
    draft = Draft.continuation((), Rules(Alphabet(10, 9), max_length=20))
    return summarise(parse_order(order).draw(draft, [1, 2, 3] * 4, Random.of(1, i)) for i in range(3))


def likelihood_row(system: str, error: float | None) -> dict[str, Any]:
    return {"system": system, "order": "runs", "K": 8, "nats_per_token": 4.0, "error": error, "perplexity": 54.6,
            "bits_per_byte": 1.6, "is_exact": error is None, "n": 50, "log_q_per_token": -1.0}  # fmt: skip


@cache
def documents() -> dict[str, dict[str, Any]]:
    wrote = {"system": "ours", "generations": 9, "empty": 1, "stopped_share": 0.875, "mean_characters": 101.0,
             "mean_reference_characters": 99.0, "mean_actions": 40.0}  # fmt: skip
    edited = {"system": "ours", "statistics": statistics("runs"), "null": statistics("random-walk"),
              "stopped_share": 0.5, "length_ratio": 1.25, "n": 3}  # fmt: skip
    spread = {"mean": 0.8, "deviation": 0.02, "n": 3}
    alike = {"system": "ours", "seeds": [1], "texts": 100, "references": 100, "empty": 0, "clusters": 10,
             "mauve": asdict(Measure(0.8, 0.011, 3)), "mauve_over_seeds": spread,
             "mauve_over_clusterings": spread}  # fmt: skip
    filled = {"system": "ours", "texts": 20, "empty": 1, "middle_bits_per_byte": asdict(Measure(1.5, 0.1, 20)),
              "ended_middle_bits_per_byte": asdict(Measure(1.6, 0.1, 20)),
              "suffix_bits_per_byte": asdict(Measure(1.3, 0.02, 20)), "exact_match": asdict(Measure(0.25, 0.1, 8)),
              "within_half_and_twice": asdict(Measure(0.5, None, 20)),
              "length_quantiles": {"10%": 0.5, "25%": 0.75, "50%": 1.0, "75%": 1.5, "90%": 2.0},
              "more_than_first": {"middle_bits_per_byte": asdict(Measure(-0.5, 0.1, 20))},
              "middle": {"is_exact": False, "samples": 8, "sees_suffix": True, "has_end": False, "left_out": 2,
                         "longest": 57}}  # fmt: skip
    empty = {"system": "(nothing)", "suffix_bits_per_byte": asdict(Measure(1.4, 0.02, 20))}
    filled["by_kind"] = {"word": {key: filled[key] for key in ("texts", "middle_bits_per_byte")}}
    fought = arena_document()
    return {
        "likelihood": make_result(
            "likelihood", [likelihood_row("ours", 0.02), likelihood_row("ar", None)], {"n": 50}, WORDS
        ),
        "evalppl": make_result(
            "evalppl", evalppl_rows(), {}, WORDS, evaluator={"name": "small", "sha256": "ab" * 32}
        ),
        "mauve": make_result("mauve", [alike, alike | {"system": "ar"}], {}, WORDS),
        "arena": make_result("arena", fought.pop("rows"), {"judge": "j"}, WORDS, **fought),
        "generations": make_result(
            "generations", [wrote], {"seeds": [1, 2]}, WORDS, generations={"ours.jsonl": "ab" * 32}
        ),
        "gaps": make_result("gaps", [filled, empty], {}, WORDS),
        "trajectories": make_result("trajectories", [edited], {"order": "runs"}, WORDS),
        "flops": make_result("flops", [asdict(row) for row in flops_rows()], {"tokens": 128}, WORDS),
        "infill": make_result(
            "infill", [{"system": "ours", "exact": {"value": 0.5, "error": 0.013, "n": 9}}], {}, WORDS
        ),
    }


def section_of(kind: str) -> Section:
    return render(Path(f"{kind}.json"), documents()[kind])[0]


def column(table: Table, name: str) -> list[str]:
    return [row[table.columns.index(name)] for row in table.rows]


def test_likelihood_has_errors_of_perplexity_and_bits_and_says_what_is_exact() -> None:
    [table] = section_of("likelihood").tables
    assert column(table, "nats/token") == ["4.00 ± 0.02", "4.000"]
    assert column(table, "perplexity/token") == ["54.6 ± 1.1", "54.60"]
    assert column(table, "bits/byte") == ["1.600 ± 0.008", "1.600"]
    assert column(table, "is") == ["a bound", "exact"]
    assert isinstance(table.plot, Bars)
    first = table.plot.bars[0]
    assert (first.low, first.high) == (pytest.approx(1.592), pytest.approx(1.608))


def test_evalppl_has_bars_and_is_drawn_against_distinct_2() -> None:
    probable, varied = section_of("evalppl").tables
    rows = evalppl_rows()
    assert column(probable, "system") == ["(reference)", "ours", "ar"]
    assert column(probable, "evalPPL") == [show(r["perplexity"]["value"], r["perplexity"]["error"]) for r in rows]
    assert isinstance(probable.plot, Bars)
    assert [each.value for each in probable.plot.bars] == [row["perplexity"]["value"] for row in rows]
    assert isinstance(varied.plot, Scatter)
    assert [each.x.value for each in varied.plot.points] == [row["distinct_2"]["value"] for row in rows]


def test_evalppl_without_diversity_is_one_table() -> None:
    rows = [{"system": name, "perplexity": {"value": 9.0, "error": 0.5}} for name in ("a", "b")]
    section, _ = render(Path("x.json"), make_result("evalppl", rows, {}, WORDS))
    assert [table.title for table in section.tables] == ["How probable an evaluator finds the texts"]


def test_arena_has_win_rates_with_intervals_strengths_and_what_was_not_counted() -> None:
    won, strengths = section_of("arena").tables
    share = arena_document()["rows"][0]["win_rate"]
    assert won.rows[0][:5] == ("ar", "ours", "1", "1", "2")
    assert column(won, "win rate") == [show(100 * share["value"], 100 * share["error"]) + "%"]
    assert column(strengths, "system") == ["ours", "ar"]
    assert any("the text shown first won 66.7%" in note for note in won.notes)
    assert "not counted: 1 failed, 0 unanswered" in won.notes


def test_two_pairings_are_drawn_about_one_half() -> None:
    document = documents()["arena"] | {"rows": documents()["arena"]["rows"] * 2}
    plot = render(Path("x.json"), document)[0].tables[0].plot
    assert isinstance(plot, Bars)
    assert (plot.mark, plot.most) == (0.5, 1.0)
    share = document["rows"][0]["win_rate"]
    assert (plot.bars[0].low, plot.bars[0].high) == (share["low"], share["high"])


def test_trajectories_stand_beside_their_order_alone() -> None:
    [table] = section_of("trajectories").tables
    assert table.columns == ("", "ours", "the order alone, at the lengths of ours")
    assert table.rows[0][1] == f"{statistics('runs')['actions_per_token']:.2f}"
    assert table.notes == ("ours: 50.0% stopped by themselves, 1.250 times as long as the references",)


def test_flops_has_a_table_for_each_group() -> None:
    tables = section_of("flops").tables
    assert [each.title for each in tables] == [
        f"Cost: {name}" for name in ("summary", "diffusion-100m", "diffusion-large", "refinement")
    ]
    assert tables[0].rows[1] == ("Reviser", "p_move=0.20", "19.97", "1.253")


def test_mauve_and_generations_have_their_tables() -> None:
    [alike] = section_of("mauve").tables
    assert alike.rows[0] == (
        "ours",
        "0.800 ± 0.011",
        "0.80 sd 0.02 (n 3)",
        "0.80 sd 0.02 (n 3)",
        "100",
        "100",
        "0",
        "10",
    )
    [wrote] = section_of("generations").tables
    assert wrote.rows == (("ours", "9", "1", "87.5%", "101.0", "99.00", "40.00"),)


def test_filled_gaps_are_drawn_by_what_stands_behind_them() -> None:
    table, by_kind = section_of("gaps").tables
    assert table.columns == (
        "system", "true middle, bits/byte", "more than the first's", "with its end", "suffix, bits/byte",
        "exact, 1 to 3 words", "half to twice as long", "length over the original's", "texts", "empty",
    )  # fmt: skip
    assert table.rows[0][5:8] == ("25 ± 10%", "50.0%", "10% 0.50, 25% 0.75, 50% 1.00, 75% 1.50, 90% 2.00")
    assert isinstance(table.plot, Bars)
    assert [bar.value for bar in table.plot.bars] == [1.3, 1.4]
    assert table.notes == (
        "ours: the true middle given both sides: a bound, K = 8; 2 gaps left out, longer than canvases of 57 tokens",
    )
    assert by_kind.rows == (("word", "ours", "1.50 ± 0.10", "20"),)


def test_gaps_of_older_results_are_shown_by_their_suffixes_alone() -> None:
    old = {"system": "ours", "texts": 9, "empty": 0, "whole_bits_per_byte": asdict(Measure(1.5, 0.1, 9)),
           "suffix_bits_per_byte": asdict(Measure(1.3, 0.1, 9)), "length_over_reference": None}  # fmt: skip
    [table] = RENDERERS["gaps"](make_result("gaps", [old], {}, WORDS))
    assert table.columns == ("system", "suffix, bits/byte", "texts", "empty")


def test_a_kind_without_a_renderer_is_one_table_of_its_rows() -> None:
    assert "infill" not in RENDERERS
    [table] = section_of("infill").tables
    assert (table.columns, table.rows) == (("system", "exact"), (("ours", "0.500 ± 0.013"),))


def test_a_section_says_how_its_result_came_about() -> None:
    told = section_of("evalppl").about
    assert {"command", "reviser", "hardware", "date", "evaluator"} <= told.keys()
    assert told["evaluator"] == f"name small, sha256 {'ab' * 32}"
    document = documents()["flops"] | {"commit": "0123456789" * 4 + " with changes"}
    assert render(Path("x.json"), document)[0].about["commit"] == "0123456 with changes"
    assert section_of("flops").about["config"] == "tokens 128"


def test_columns_that_say_nothing_are_left_out_and_one_bar_is_no_plot() -> None:
    columns = {"a": lambda row: row, "b": lambda _: "-"}
    table = tabulate("t", ["x"], columns, plot=Bars("t", (bar("x", 1.0),)))
    assert (table.columns, table.rows, table.plot) == (("a",), (("x",),), None)


# Markdown and HTML.


class Reader(HTMLParser):
    """Checks that tags close in order; keeps texts, tags and links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for key, value in attrs if key in ("href", "src", "xlink:href", "action", "style")]
        assert not any(key.startswith("on") for key, _ in attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


@settings(max_examples=50)
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_whatever_a_result_says_a_page_shows_it_as_text(name: str, cell: str, note: str, label: str) -> None:
    def page_of(name: str, cell: str, note: str, label: str) -> Reader:
        plot = Bars(label, (bar(label, 1.0), bar(label, 2.0)))
        table = Table(name, (cell, note), ((cell, note),), (note,), plot)
        return parse(write_html([Section(name, name, "x", (table,), {"command": cell, label: note})]))

    page, plain = page_of(name, cell, note, label), page_of("a", "b", "c", "d")
    assert page.tags == plain.tags
    assert all(link.startswith("#") for link in page.links)
    for text in (name, cell, note, label):
        assert UNPRINTABLE.sub("\ufffd", text) in page.text


def test_the_page_needs_nothing_from_outside() -> None:
    page = write_html([section_of(kind) for kind in documents()])
    assert not {"script", "link", "img", "iframe"} & set(parse(page).tags)
    assert "url(" not in page
    assert "@import" not in page
    assert "http" not in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    # likelihood, evalPPL, evalPPL against distinct-2, MAUVE, gaps; one pairing is no plot
    assert page.count("<svg") == 5


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
def test_cells_do_not_break_a_markdown_table(cells: list[tuple[str, str]]) -> None:
    lines = write_table(Table("t", ("a", "b"), tuple(cells))).split("\n")
    assert len(lines) == 2 + len(cells)
    for line in (lines[0], *lines[2:]):
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3


def test_markdown_has_every_section_with_its_command_as_code() -> None:
    sections = [section_of(kind) for kind in documents()]
    text = write_markdown(sections)
    assert re.findall("^## (.*)$", text, re.M) == [f"{kind}.json" for kind in documents()]
    assert text.count("\n- command: `reviser") == len(sections)


# The command.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    results = tmp_path / "in"
    results.mkdir()
    for kind in ("likelihood", "flops"):
        (results / f"{kind}.json").write_text(json.dumps(documents()[kind]), "utf-8")
    return results


def test_report_prints_markdown_or_writes_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"# Results\n\n## {folder}/likelihood.json\n")
    markdown, page = folder.parent / "out" / "a.md", folder.parent / "out" / "a.html"
    twice = str(folder / "flops.json")
    assert main(["report", str(folder), twice, "--markdown", str(markdown), "--html", str(page)]) == 0
    assert capsys.readouterr().out == ""
    assert markdown.read_text("utf-8") == printed
    assert "Likelihood of held-out text" in parse(page.read_text("utf-8")).text
    assert sorted(path.name for path in page.parent.iterdir()) == ["a.html", "a.md"]


RESULTS = "results are what `reviser eval` and `reviser bench` write with --out"
SHARED = '"format": "reviser result", "version": 2'
BAD = {
    "{": f"not valid JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); {RESULTS}",
    "[1]": f"not a result: it has no field `kind`; {RESULTS}",
    '{"rows": []}': f"not a result: it has no field `kind`; {RESULTS}",
    '{"kind": "odd", "rows": [], "version": "0.1.0"}':
        "a result of version 1, but this program reads version 2; measure again or, from a checkout of the source, "
        "convert it with: python tools/convert_results.py FILE",
    '{"kind": "odd", "rows": [], "version": 2}':
        f"not a result, for its field `format` is None and not 'reviser result'; {RESULTS}",
    '{"format": "reviser result", "kind": "odd", "rows": [], "version": 3}':
        "a result of version 3, but this program reads version 2; measure again, or read it with the reviser that "
        "wrote it",
    f'{{{SHARED}, "kind": "odd", "rows": [1]}}':
        "the rows of this odd result are not a list of objects; measure again",
    f'{{{SHARED}, "kind": "odd", "rows": []}}': "a result of kind odd without rows; measure it again",
    f'{{{SHARED}, "kind": "flops", "rows": []}}': "a result of kind flops without rows; measure it again",
    f'{{{SHARED}, "kind": "decode"}}': "the rows of this decode result are not a list of objects; measure again",
    f'{{{SHARED}, "kind": "likelihood", "rows": [{{"system": "a", "bits_per_byte": 1, "K": 1}}]}}':
        "a result of kind likelihood needs the field 'nats_per_token'; measure it again",
    f'{{{SHARED}, "kind": "mauve", "rows": [{{"system": "a", "mauve": 3}}]}}':
        "not a result of kind mauve ('int' object is not subscriptable); measure it again",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_result_is_one_line_and_the_others_are_reported(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.json").write_text(text, "utf-8")
    assert main(["report", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert err == f"{folder / 'bad.json'}: {BAD[text]}\n"
    assert re.findall("^## .*/(.*)$", out, re.M) == ["likelihood.json", "flops.json"]


def test_what_is_not_there_or_named_twice_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, missing, other = folder.parent / "empty", folder.parent / "missing.json", folder.parent / "flops.json"
    empty.mkdir()
    other.write_text((folder / "flops.json").read_text("utf-8"), "utf-8")
    assert main(["report", str(empty), str(missing)]) == 1
    out, err = capsys.readouterr()
    said = [
        f"{empty}: the folder holds no .json file; write results there with --out",
        f"{missing}: cannot be read (No such file or directory); {RESULTS}",
    ]
    assert (out, err.splitlines()) == ("", said)
    assert main(["report", str(folder), str(other)]) == 1
    assert f"{other}: there is another result called flops; rename one of them" in capsys.readouterr().err


def test_a_readme_is_checked_and_made_anew(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = folder.parent / "README.md"
    before = f"# Title\n\n<!-- table: likelihood -->\n{END}\n\nEnd.\n"
    readme.write_text(before, "utf-8")
    words = ["report", str(folder), "--readme", str(readme)]
    assert main([*words, "--check"]) == 1
    told = f"{readme}: table likelihood is not what the results say; run: reviser report --readme {readme}\n"
    assert capsys.readouterr().out == told
    assert readme.read_text("utf-8") == before
    assert main(words) == 0
    assert "| ours | runs | 8 | 4.00 ± 0.02 | 54.6 ± 1.1 |" in readme.read_text("utf-8")
    assert main([*words, "--check"]) == 0


def test_what_the_user_must_change_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = folder / "no" / "README.md"
    cases = {
        ("--check",): "error: --check needs --readme, the file to check\n",
        ("--html", str(folder)): f"error: {folder}: cannot be written (Is a directory); give another file\n",
        ("--readme", str(lost)): f"error: {lost}: cannot be read ([Errno 2] No such file or directory: '{lost}'); "
        "give a Markdown file\n",
    }
    for words, text in cases.items():
        assert main(["report", str(folder), *words]) == 2
        assert capsys.readouterr().err == text
    assert not list(folder.parent.glob("*.part"))
