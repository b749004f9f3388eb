"""`reviser data errors` and `reviser data error-table`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from reviser.cli import main
from reviser.mistakes import word_sources
from reviser.mistakes.word_sources import Inflected

TEXT = "The boats lay still, and the gulls were asleep."


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A table built by the command, out of word lists that stand in for the packages."""
    monkeypatch.setattr(word_sources, "read_misspellings", lambda: {"asleep": ["alseep"]})
    monkeypatch.setattr(
        word_sources,
        "read_inflections",
        lambda words: {"boats": Inflected(frozenset({"NNS"}))} if "boats" in words else {},
    )
    corpus, out = tmp_path / "corpus.txt", tmp_path / "errors.npz"
    corpus.write_text(" ".join([TEXT] * 5))
    assert main(["data", "error-table", str(corpus), "--out", str(out), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["num_words"] > 8
    assert made["words_of_kind"]["misspelling"] == 1
    assert made["num_bytes"] == out.stat().st_size
    return out


def test_errors_are_shown_by_kind_and_are_the_same_for_a_seed(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = ["--set", "misspelling=1", "--set", "spread=0"]
    notes = tmp_path / "notes.txt"
    notes.write_text(TEXT + "\n")
    shown = []
    for text in (TEXT, str(notes), "-"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT + "\n"))
        assert main(["data", "errors", text, "--table", str(table), *rates, "--n", "2"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] == shown[2]
    first, _ = shown[0].split("\n---\n")
    assert [line.split() for line in first.splitlines() if "alseep'" in line] == [
        ["misspelling", "'", "asleep'", "'", "alseep'"]
    ]
    assert main(["data", "errors", TEXT, "--table", str(table), *rates, "--json"]) == 0
    [made] = json.loads(capsys.readouterr().out)["texts"]
    assert {"kind": "misspelling", "before": " asleep", "after": " alseep"} in made["errors"]
    assert made["text"] in first


def test_a_text_without_errors_says_so(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "errors", TEXT, "--table", str(table), "--set", "clean=1"]) == 0
    assert capsys.readouterr().out == f"{TEXT}\n\n  no errors\n"


def test_a_data_folder_gives_its_words(
    data: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "more.npz"
    assert main(["data", "error-table", str(data), "--out", str(out), "--tokenizer", str(data)]) == 0
    assert "words from" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["errors", "none.txt", "--table", "TABLE"],
            "none.txt: no such file; to use the name itself as text, pipe it",
        ),
        (["errors", TEXT, "--table", "none.npz"], "cannot read the error table none.npz: No such file or directory"),
        (["errors", TEXT, "--table", "TABLE", "--set", "artcle=1"], "no setting artcle; did you mean article?"),
        (
            ["errors", TEXT, "--table", "TABLE", "--set", "article=2"],
            "article=2.0 is not a probability between 0 and 1",
        ),
        (["errors", TEXT, "--table", "TABLE", "--tokenizer", "bytes"], "built for the tokenizer 01d767822e8b"),
        (["errors", TEXT, "--table", "TABLE", "--n", "0"], "--n 0 must be at least 1"),
        (["errors", "BAD", "--table", "TABLE"], "is not UTF-8 text"),
        (["error-table", "x.txt", "--out", "TABLE"], "exists; choose another --out or delete it"),
        (["error-table", "x.txt", "--out", "new.npz", "--num-words", "0"], "--num-words 0 must be at least 1"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    table: Path, tmp_path: Path, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"\xff\xfe")
    given = [{"TABLE": str(table), "BAD": str(bad)}.get(word, word) for word in words]
    assert main(["data", *given]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1
