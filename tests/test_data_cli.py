"""`reviser data`: results on stdout, progress on stderr, one JSON document where asked."""

from __future__ import annotations

import argparse
import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import reviser.data.corpus
import reviser.viewer.progress_bar
from reviser.cli.data import add
from reviser.cli.shared.fields import parse_bytes, parse_share
from reviser.errors import ConfigError, DataError, ReviserError
from reviser.tokenizer import load
from reviser.viewer.progress_bar import count_up, show_progress

TEXTS = [f"The boat {i} lay still, and gull {i * i} was asleep." for i in range(60)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*TEXTS, TEXTS[0]]) + "{bad\n")
    return path


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reviser")
    add(parser.add_subparsers(required=True))
    return parser


def run(*words: object) -> int:
    args = build_parser().parse_args(["data", *map(str, words)])
    code: int = args.run(args)
    return code


def leaves() -> dict[str, argparse.ArgumentParser]:
    def children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
        return next(action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))

    return children(children(build_parser())["data"])


def test_prepare_and_info_print_the_same_json(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("prepare", corpus, out, "--tokenizer", "bytes", "--holdout", "10%", "--workers", 1, "--json") == 0
    prepared: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert prepared.pop("seconds") >= 0
    assert run("info", out, "--json") == 0
    assert json.loads(capsys.readouterr().out) == prepared
    assert sum(split["num_documents"] for split in prepared["splits"].values()) == 60
    assert prepared["num_duplicates"] == 1
    assert run("info", out, "--verify", "--json") == 0
    assert json.loads(capsys.readouterr().out) == prepared | {"verified": True, "problem": None}


def test_the_summary_is_readable(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prepare", corpus, tmp_path / "out", "--tokenizer", "bytes", "--workers", 2) == 0
    text, progress = capsys.readouterr()
    assert progress == ""
    assert "uint16 ids of 257 tokens" in text
    assert "  dropped    duplicates: 1, bad records: 1\n             1 x not JSON\n" in text
    assert "  read from  1 files, 0 of them empty, " in text
    assert f"  first bad  {corpus}:62: not JSON\n" in text
    assert "took" in text
    assert run("info", tmp_path / "out", "--verify") == 0
    assert "checksums  all files match" in capsys.readouterr().out


def test_empty_files_are_counted_and_named(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    assert run("prepare", tmp_path / "empty.txt", corpus, tmp_path / "out", "--tokenizer", "bytes") == 0
    text = capsys.readouterr().out
    assert "bad records: 1\n" in text
    assert "  read from  2 files, 1 of them empty, " in text
    assert f"  first bad  {tmp_path}/empty.txt: empty file\n             {corpus}:62: not JSON\n" in text


def test_files_of_other_kinds_are_told(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("a.txt", "b.csv", "c.csv", "notes.html"):
        (folder / name).write_text("Some text.")
    assert run("prepare", folder, tmp_path / "out", "--tokenizer", "bytes", "--workers", 1) == 0
    assert "note: 3 files of other kinds were left out: 2 .csv, 1 .html\n" in capsys.readouterr().err


def test_a_damaged_folder_fails_the_check(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    run("prepare", corpus, out, "--tokenizer", "bytes", "--holdout", "0", "--workers", 1)
    shard = out / "train-00000.bin"
    shard.write_bytes(shard.read_bytes()[:-2] + b"zz")
    assert run("info", out) == 0
    capsys.readouterr()
    assert run("info", out, "--verify", "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["verified"] is False
    assert answer["problem"].startswith(f"{shard}: damaged")
    assert run("info", out, "--verify") == 1
    assert f"checksums  {shard}: damaged" in capsys.readouterr().out


def test_a_tokenizer_is_made_once(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tokenizer"
    assert run("tokenizer", corpus, "--size", 280, "--out", out, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    tokenizer = load(out)
    assert (answer["num_text"], answer["sha256"]) == (280, tokenizer.sha256)
    assert (answer["num_documents"], answer["num_bad"]) == (61, {"not JSON": 1})
    assert answer["bytes_per_token"] > 1
    with pytest.raises(ConfigError, match=r"tokenizer\.json exists; choose another --out or delete it"):
        run("tokenizer", corpus, "--size", 300, "--out", out)
    assert run("tokenizer", corpus, "--size", 9999, "--out", tmp_path / "b", "--limit-bytes", "0.2K") == 0
    text = capsys.readouterr().out
    assert "(fewer than 9,999: the text has no more pairs to merge)" in text
    assert "learned from 5 documents" in text


def test_a_tokenizer_needs_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataError, match=r"no document to learn from; .*a\.txt: empty file"):
        run("tokenizer", tmp_path / "a.txt", "--size", 300, "--out", tmp_path / "out")
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        run("tokenizer", tmp_path / "nowhere", "--size", 300, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_shares_and_sizes_are_read_as_written() -> None:
    assert [parse_share(text) for text in ("0.5%", "0.005", "0", "25%")] == [0.005, 0.005, 0.0, 0.25]
    assert [parse_bytes(text) for text in ("200M", "1.5g", "5000", "2k")] == [200_000_000, 1_500_000_000, 5000, 2000]
    with pytest.raises(ConfigError, match=r"--holdout 'few' is not a share; write it as 0\.5% or 0\.005"):
        parse_share("few")
    for text in ("many", "", "inf", "nan"):
        with pytest.raises(ConfigError, match=f"--limit-bytes '{text}' is not a size; write it as 200M"):
            parse_bytes(text)
    with pytest.raises(ConfigError, match="--limit-bytes 0 leaves nothing to read"):
        parse_bytes("0")


def test_ctrl_c_says_how_to_resume(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def show(self, done: float, total: float | None, text: str) -> None:
            raise KeyboardInterrupt

    words = ("prepare", corpus, tmp_path / "out", "--tokenizer", "bytes", "--workers", 1)
    with monkeypatch.context() as patch:
        patch.setattr(reviser.viewer.progress_bar, "_Lines", lambda title: Interrupted())
        assert run(*words) == 130
    assert capsys.readouterr() == ("", "stopped; run the same command again to resume\n")
    assert run(*words) == 0


LEARN_FOREVER = """
import hashlib, sys
import reviser.tokenizer
from reviser.cli import main

def learn(texts, size):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"outside", b"Python", 1 << 30)

reviser.tokenizer.train = learn
sys.exit(main(["data", "tokenizer", sys.argv[1], "--size", "300", "--out", sys.argv[2]]))
"""


def test_ctrl_c_does_not_wait_for_a_tokenizer(corpus: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEARN_FOREVER, str(corpus), str(tmp_path / "out")]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        try:
            _, said = child.communicate(timeout=20)
        finally:
            child.kill()
    assert (child.returncode, said) == (130, "stopped; nothing was written\n")
    assert not (tmp_path / "out").exists()


def test_progress_is_lines_in_a_log(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviser.viewer.progress_bar, "LINE_EVERY_S", 0.0)
    run("prepare", corpus, tmp_path / "out", "--tokenizer", "bytes", "--workers", 1)
    assert capsys.readouterr().err == "prepare: 100%, 60 documents, 0.0M tokens, 0.0 MB of text\n"


def test_counted_work_says_how_much_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviser.viewer.progress_bar, "LINE_EVERY_S", 0.0)
    with count_up("evalppl", 2000) as advance:
        advance(500)
        advance(1500)
    assert capsys.readouterr().err == "evalppl: 25%, 500 of 2,000 texts\nevalppl: 100%, 2,000 of 2,000 texts\n"


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with show_progress("prepare") as bar:
        bar.show(5, 10, "five of ten")
    assert "50%" in terminal.getvalue()
    assert "five of ten" in terminal.getvalue()


@pytest.mark.parametrize("name", ["prepare", "tokenizer", "info"])
def test_every_help_has_two_examples_that_parse(name: str) -> None:
    parser = leaves()[name]
    assert parser.description
    examples = [line.split() for line in (parser.epilog or "").splitlines() if line.startswith("  reviser data ")]
    assert len(examples) == 2
    for _, *words in examples:
        assert callable(build_parser().parse_args(words).run)


def test_errors_reach_the_main_program_as_one_line(tmp_path: Path) -> None:
    with pytest.raises(ReviserError, match="no tokenizer 'gpt9'"):
        run("prepare", tmp_path / "a.txt", tmp_path / "out", "--tokenizer", "gpt9")
    with pytest.raises(ReviserError, match=r"not a data folder: it has no data\.json"):
        run("info", tmp_path)
