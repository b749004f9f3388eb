"""Revised drafts beside their drafts, and texts with a known span, measured with tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedWriter
from test_eval_evaluators import make_gpt2
from test_proofread import random_writer

from reviser.cli import main
from reviser.errors import ConfigError
from reviser.evaluation.generations import Generation, Prompt, read_generations
from reviser.evaluation.revisions.draft_scores import count_changes
from reviser.evaluation.revisions.known_spans import KnownSpan, measure_known, measure_parts, try_known
from reviser.evaluation.revisions.redrafts import BestDrafts, action_ratio
from reviser.evaluation.suites.redrafting import Redrafting, mark_nearest
from reviser.model.checkpoint import save_pretrained
from reviser.proofreading.choices import Proofreading
from reviser.proofreading.edits import Edit
from reviser.reports.sections import tables_of

WORDS = st.text("abc ", min_size=1, max_size=8)


@given(WORDS, WORDS, WORDS, WORDS)
def test_an_edit_in_the_span_brings_back_the_original(before: str, truth: str, behind: str, filling: str) -> None:
    known = KnownSpan(Prompt("p", before, truth, behind), filling)
    start, end = known.span
    assert known.text[start:end] == filling
    inside, outside = Edit(start, end, filling, "x", 0.5), Edit(0, 1, before[0], "y", 0.5)
    assert known.has(inside)
    assert not known.has(outside)
    assert known.restore([inside]) == known.original
    assert known.restore([outside, inside]) == "y" + known.original[1:]
    assert known.restore([outside]) == "y" + known.text[1:]
    assert known.restore([]) == known.text


def test_a_model_that_finds_its_words_is_told_from_one_that_does_not() -> None:
    writer = ScriptedWriter()
    gaps = [
        Prompt(f"p{i}", f"We saw the {side} and", " the boat", " that lay still there.")
        for i, side in enumerate("ab")
    ]
    texts = [KnownSpan(gap, " teh boat") for gap in gaps]
    how = Proofreading(min_probability=0.0, passes=1, reread=False)
    writer.infill = lambda *_, **__: [type("T", (), {"text": "again"})()]  # type: ignore[method-assign]
    tried = try_known(writer, texts, how)
    parts = measure_parts(tried)
    assert [parts[key]["value"] for key in ("span_found", "first_in_span", "originals_left_alone")] == [1.0, 1.0, 1.0]
    assert 0 < parts["chance"]["value"] < 1
    rows = {row["system"]: row for row in measure_known(tried, [])}
    assert rows["filled"]["recall"]["value"] == 0
    assert [rows[name]["f_half"]["value"] for name in ("revised", "span given", "words given", "original")] == [
        1.0
    ] * 4
    blind = try_known(ScriptedWriter(lambda text: text.replace("We", "They")), texts[:0] or texts, how)
    assert measure_parts(blind)["span_found"]["value"] == 0.0
    assert measure_parts(blind)["originals_left_alone"]["value"] == 0.0


def made(system: str, prompt: str, text: str, num_actions: int) -> Generation:
    return Generation(system, prompt, 0, "Once", text, "", " there", True, 1, num_actions)


def test_actions_and_changes_are_counted_beside_the_draft() -> None:
    drafts = [made("draft", "p", " a", 10), made("draft", "q", " b", 30)]
    revised = [made("revised", "p", " a", 12), made("revised", "q", " c", 38)]
    assert action_ratio([*drafts, *revised], "revised", "draft") == 1.25
    row = count_changes([*drafts, *revised], "revised", "draft")
    assert (row["actions"]["value"], row["changed"]["value"], row["texts"]) == (25.0, 0.5, 2)


@given(st.floats(1.0, 3.0))
def test_as_many_drafts_are_written_as_the_actions_allow(ratio: float) -> None:
    best: Any = BestDrafts("best", None, {}, ratio)  # type: ignore[arg-type]
    counts = [best.num_drafts(Prompt(f"p{i}", "", ""), 0) for i in range(400)]
    assert set(counts) <= {int(ratio), int(ratio) + 1}
    assert abs(sum(counts) / 400 - ratio) < 0.15


def test_the_cooler_drafts_nearest_in_variety_are_marked() -> None:
    rows = [{"system": name, "distinct_2": {"value": value}} for name, value in
            (("revised", 0.9), ("temperature 0.8", 0.95), ("temperature 0.7", 0.88))]  # fmt: skip
    assert [row.get("is_nearest", False) for row in mark_nearest(rows)] == [False, False, True]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"threshold": ("2",)}, "--threshold 2 must be a number between 0 and 1"),
        ({"threshold": ("a",)}, "--threshold a must be a number between 0 and 1"),
        ({"threshold": ()}, "--threshold is missing; give at least one, such as --threshold 0.75"),
        ({"cooler": ("1.2",)}, "--cooler 1.2 must be a number between 0 and 0.9"),
        ({"cooler": ("0.7", "0.70")}, "--cooler 0.7 is given twice; drop one"),
        ({"passes": 0}, "--passes 0 must be at least 1"),
        ({"spans": -1}, "--spans -1 must be at least 0"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Redrafting(texts=("a",), model="m", generations="g", **options)


def test_the_suite_writes_once_and_reports_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = random_writer()
    folder = str(save_pretrained(writer.model, tmp_path / "model", writer.tokenizer))
    prose = " ".join(f"Word{number} walked on." for number in range(30))
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": f"{number} {prose}"}) + "\n" for number in range(2)))
    generations, out = tmp_path / "made.jsonl", tmp_path / "result.json"
    words = ["eval", "revision", str(file), "--model", folder, "--generations", str(generations), "--n", "1"]
    words += ["--seeds", "1", "--cut", "--prefix", "6", "--total", "16", "--ruler", "default", "--spans", "0"]
    words += ["--threshold", "0.5", "--threshold", "0", "--cooler", "0.5", "--device", "cpu"]
    assert main(words) == 0
    written = generations.read_bytes()
    names = ["draft", "revised", "revised, 0", "best of several drafts", "temperature 0.5"]
    assert list(dict.fromkeys(each.system for each in read_generations(generations))) == names
    evaluator = str(make_gpt2(tmp_path))
    assert main([*words, "--evaluator", evaluator, "--out", str(out)]) == 0
    assert generations.read_bytes() == written
    document = json.loads(out.read_text())
    assert [row["system"] for row in document["rows"]] == ["(reference)", *names]
    revised = document["rows"][2]
    assert revised["evaluators"][evaluator]["preferred"]["n"] == 1
    assert [table.title for table in tables_of(document)] == ["Drafts and what became of them"]
    capsys.readouterr()
    assert main([*words[:4], "shipped-not-there", *words[5:]]) == 2
    capsys.readouterr()
    assert main([*words, "--features", f"mean:{evaluator}"]) == 2
    assert "MAUVE needs 100 prompts or more, and there are 1;" in capsys.readouterr().err
