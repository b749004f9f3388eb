"""`reviser batch`: a line gets what its command gives with the line's seed, and the same bytes however it is run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from batched import make_model, read_lines, write_lines
from conftest import make_once

from reviser.batch.line_job import seed_of
from reviser.cli import main
from reviser.decoding.presets import PAPER
from reviser.decoding.writer import Writer

PROMPTS = [{"prompt": "ab", "id": "x"}, {"prompt": ""}, {"id": 7}, {"prompt": 3}, b"oops\n", {"prompt": "a" * 99}]
GAPS = [{"prefix": "ab", "suffix": "cd"}, {"text": "a ___ b ___ c"}, {"text": "none"}, {"prefix": "a"}, {}]
TEXTS = [{"text": "He go home."}, {"text": "# Teh *end*\n", "format": "markdown"}, {"text": " "}, {"text": "\ud800"}]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_once(tmp_path_factory, "batch-model", make_model) / "model"


def run(*words: object) -> int:
    return main(["batch", *map(str, words)])


def answer(folder: Path, model: Path, job: str, lines: list[Any], *words: object, name: str = "out.jsonl") -> Path:
    source = write_lines(folder / "in.jsonl", lines)
    assert run(job, source, folder / name, "--model", model, *words) == 1
    return folder / name


def problems(out: Path) -> dict[int, str]:
    return {each["line"]: each["problem"] for each in read_lines(out.with_suffix(".failures.jsonl"))}


def test_lines_are_continued_as_the_command_would(tmp_path: Path, model: Path) -> None:
    out = answer(tmp_path, model, "generate", PROMPTS, "--n", 2, "--max-actions", 9, "--seed", 5, "--rows", 3)
    first, second = read_lines(out)
    assert (first["line"], first["id"], second["line"], "id" in second) == (1, "x", 2, False)
    writer = Writer.from_pretrained(model)
    for each, prompt in ((first, "ab"), (second, "")):
        assert each["seed"] == seed_of(5, each["line"])
        texts = writer.generate(prompt, n=2, max_actions=9, seed=each["seed"])
        assert [(text["text"], text["log_probability"]) for text in each["texts"]] == [
            (text.text, text.log_probability) for text in texts
        ]
    assert problems(out) == {
        3: "no field 'prompt'",
        4: "field 'prompt' is int, not text",
        5: "not JSON",
        6: "a prompt of 99 tokens leaves no room in a context of 64 positions; shorten it",
    }
    assert read_lines(out.with_suffix(".failures.jsonl"))[2]["input"] == "oops"


def test_gaps_are_filled_as_the_command_would(tmp_path: Path, model: Path) -> None:
    out = answer(tmp_path, model, "infill", GAPS, "--max-actions", 9, "--max-tokens", 4)
    writer = Writer.from_pretrained(model)
    for each, parts in zip(read_lines(out), (["ab", "cd"], ["a ___ b ___ c"]), strict=True):
        [text] = writer.infill(*parts, max_actions=9, max_tokens=4, seed=each["seed"])
        assert each["texts"][0]["fillings"] == list(text.fillings)
        assert (each["texts"][0]["text"], each["texts"][0]["fit"]) == (text.text, text.fit)
    assert set(problems(out)) == {3, 4, 5}
    assert problems(out)[4] == "no field 'suffix'"
    assert problems(out)[5] == "no fields 'prefix' and 'suffix', and no field 'text'"


def test_texts_are_proofread_as_the_command_would(tmp_path: Path, model: Path) -> None:
    lines = [*TEXTS, {"text": "a", "format": "poem"}]
    out = answer(tmp_path, model, "edit", lines, "--min-probability", 0, "--passes", 2, "--sampling", "paper")
    writer = Writer.from_pretrained(model)
    for each, line in zip(read_lines(out), TEXTS, strict=False):
        how = {"min_probability": 0.0, "passes": 2, "format": line.get("format", "text")}
        edited = writer.edit(line["text"], seed=each["seed"], sampling=PAPER, **how)
        assert (each["text"], len(each["edits"])) == (edited.text, len(edited.edits))
    assert problems(out)[3] == "field 'text' is empty"
    assert problems(out)[4] == "field 'text' holds a lone surrogate, which is not valid Unicode"
    assert problems(out)[5].startswith("no format 'poem'; formats are")


def test_texts_are_scored_from_left_to_right(tmp_path: Path, model: Path) -> None:
    lines = [{"text": "one é"}, {"text": ""}, {"text": "x" * 80}, {"text": "two"}]
    out = answer(tmp_path, model, "score", lines)
    writer = Writer.from_pretrained(model)
    for each, text in zip(read_lines(out), ("one é", "two"), strict=True):
        [scores] = writer.read([writer.tokenizer.encode(text)])
        assert each["log_probability"] == pytest.approx(sum(scores))
        assert (each["num_tokens"], each["num_bytes"]) == (len(scores), len(text.encode()))
    assert problems(out) == {
        2: "field 'text' is empty", 3: "a text of 80 tokens, and the model reads 63; shorten it",
    }  # fmt: skip


def test_the_output_depends_neither_on_rows_nor_on_blocks(tmp_path: Path, model: Path) -> None:
    lines = [{"prompt": "ab"[: number % 3] * number} for number in range(20)] + [{}]
    outs = []
    for number, (rows, block) in enumerate(((1, 50), (4, 3), (16, 7))):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = ("--max-actions", 12, "--rows", rows, "--block", block)
        outs.append(answer(folder, model, "generate", lines, *words).read_bytes())
    assert outs[0] == outs[1] == outs[2]


@pytest.mark.parametrize(
    ("job", "lines"), [("generate", PROMPTS), ("infill", GAPS), ("edit", TEXTS), ("score", TEXTS)]
)
def test_a_table_holds_what_the_lines_hold(job: str, lines: list[Any], tmp_path: Path, model: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ("--max-actions", 9) if job in ("generate", "infill") else ()
    plain, table = (answer(tmp_path, model, job, lines, *words, name=f"out{end}") for end in (".jsonl", "2.parquet"))
    rows = parquet.read_table(table).to_pylist()
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == read_lines(plain)
    assert table.with_suffix(".failures.jsonl").read_bytes() == plain.with_suffix(".failures.jsonl").read_bytes()


def test_an_answer_has_the_words_of_the_commands_own_document(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{"prompt": "ab", "prefix": "a", "suffix": "b", "text": "Ab cd."}])
    for job, text in (("generate", "ab"), ("infill", "a___b"), ("edit", "Ab cd.")):
        capsys.readouterr()
        assert run(job, source, tmp_path / f"{job}.jsonl", "--model", model, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert told == {"job": job, "out": str(tmp_path / f"{job}.jsonl"), "num_lines": 1, "num_failed": 0} | {
            "failures": None
        }
        [line] = read_lines(tmp_path / f"{job}.jsonl")
        assert main([job, text, "--model", str(model), "--json", "--seed", str(line["seed"])]) == 0
        [document] = json.loads(capsys.readouterr().out)["texts"]
        answers = line["texts"][0] if job != "edit" else {k: line[k] for k in ("format", "text", "edits")}
        assert answers == {name: document[name] for name in answers}


def test_what_cannot_be_done_is_said_in_a_line(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write_lines(tmp_path / "in.jsonl", PROMPTS), tmp_path / "out.jsonl"
    blind = make_model(tmp_path, "move")

    def refuse(*words: object) -> str:
        capsys.readouterr()
        assert run(*words) == 2
        assert not out.exists()
        return capsys.readouterr().err

    assert refuse("generate", source, out, "--actors", 2) == (
        "error: --actors is for a cluster; give its address with --ray, or drop --actors\n"
    )
    assert "--cores 0 must be at least 1" in refuse("generate", source, out, "--ray", "local", "--cores", 0)
    assert "cannot edit: it has the operators move" in refuse("edit", source, out, "--model", blind)
    assert "--device tpu is not usable here" in refuse("score", source, out, "--device", "tpu")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert refuse("score", source, out, "--ray", "local") == (
        "error: --ray needs the package ray, which is not installed; run: pip install 'reviser[ray]'\n"
    )
    assert list(tmp_path.glob("out*")) == []
