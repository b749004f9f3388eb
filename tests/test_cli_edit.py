"""`reviser edit` as a user runs it: a scripted model on texts and files, and what can be wrong with them."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scripted import ScriptedWriter, fix
from test_cli_live import Terminal
from test_cli_write import fail, make_folder, run
from test_proofread import big_markdown
from tiny import random_model

from reviser.cli import main
from reviser.config import ModelConfig
from reviser.decoding.writer import Writer
from reviser.errors import DataError
from reviser.model.checkpoint import save_pretrained
from reviser.proofreading.changes import make_diff, quote
from reviser.proofreading.edits import Edit
from reviser.proofreading.proofread import Edited
from reviser.proofreading.text_files import read_text_file
from reviser.tokenizer import load

TEXT = "I recieve teh mail.\n\n    teh code\n\nIt is `teh` naïve teh end.\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    writer = ScriptedWriter()
    return str(save_pretrained(writer.model, tmp_path_factory.mktemp("models") / "scripted", writer.tokenizer))


@pytest.fixture
def edit(model: str, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The words of the command, whose model is scripted."""
    writer = ScriptedWriter()
    monkeypatch.setattr(Writer, "from_pretrained", lambda *_, **__: writer)
    return ["edit", "--model", model]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "page.md"
    path.write_text(TEXT)
    return path


WANTED = TEXT.replace("recieve teh", "receive the").replace("naïve teh", "naive the")


def test_a_text_a_file_and_standard_input_are_edited(
    edit: list[object], page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(capsys, *edit, "Read teh mail.") == ("Read the mail.\n", "text: 1 edit\n")
    assert run(capsys, *edit, "page.md")[0] == WANTED
    monkeypatch.setattr("sys.stdin", io.StringIO("Read teh mail.\n"))
    assert run(capsys, *edit, "-") == ("Read the mail.\n", "standard input: 1 edit\n")
    assert run(capsys, *edit, "Nothing.") == ("Nothing.\n", "text: no edits\n")
    assert run(capsys, *edit, "page.md", "--min-probability", "0.99")[0] == TEXT
    (page.parent / "words").write_text("teh\n")
    assert run(capsys, *edit, "Read teh mail.", "--words", "words")[0] == "Read teh mail.\n"
    assert run(capsys, *edit, "Read `teh` mail.", "--format", "markdown")[0] == "Read `teh` mail.\n"


def test_check_lists_every_edit_with_its_place(
    edit: list[object], page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (page.parent / "clean.txt").write_text("Nothing.\n")
    (page.parent / "empty.txt").write_text("")
    assert main([*map(str, edit), "page.md", "clean.txt", "empty.txt", "--check"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith('page.md:1:3: "recieve teh" -> "receive the" (0.')
    assert out[1].startswith('page.md:5:13: "naïve teh" -> "naive the" (0.')
    assert len(out) == 2
    assert main([*map(str, edit), "clean.txt", "empty.txt", "--check"]) == 0
    assert capsys.readouterr().out == ""
    assert page.read_text() == TEXT
    assert quote('say "it\'s"\n') == '"say \\"it\'s\\"\\n"'


def test_a_diff_can_be_applied_with_patch(edit: list[object], page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (TEXT, "One teh", "One teh\r\ntwo teh\r\n", "One\u2028teh\n" * 20):
        page.write_bytes(text.encode())
        assert main([*map(str, edit), "page.md", "--diff", "--check"]) == 1
        diff = capsys.readouterr().out
        assert diff.startswith("--- page.md\n+++ page.md\n@@ ")
        wanted = run(capsys, *edit, "page.md")[0]
        if shutil.which("patch") is not None:
            subprocess.run(["patch", "--binary", "-s", "-p0"], input=diff.encode(), check=True)
            assert page.read_bytes() == wanted.encode()
    assert make_diff(Edited("same", ()), "x") == ""


def test_json_is_one_document_whose_edits_make_the_text(
    edit: list[object], page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = run(capsys, *edit, "page.md", "--json")
    document: dict[str, Any] = json.loads(out)
    assert (err, document["command"], document["passes"], document["sampling"]["temperature"]) == ("", "edit", 3, 0)
    [entry] = document["texts"]
    assert (entry["file"], entry["format"], entry["text"]) == ("page.md", "markdown", WANTED)
    [first, second] = entry["edits"]
    assert (first["start"], first["end"], first["line"], first["column"]) == (2, 13, 1, 3)
    assert (second["before"], second["after"], second["line"]) == ("naïve teh", "naive the", 5)
    assert 0 < first["probability"] < 1
    assert main([*map(str, edit), "page.md", "--json", "--check"]) == 1


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (TEXT.encode(), None),
        (b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode(), None),
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), None),
        (TEXT.encode("latin-1"), "latin-1"),
        (b"teh\r\nteh\rteh\n", None),
    ],
)
def test_in_place_changes_the_words_and_nothing_else(
    data: bytes, encoding: str | None, edit: list[object], page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page.write_bytes(data)
    page.chmod(0o640)
    words = [*edit, "page.md", "--in-place", *(["--encoding", encoding] if encoding else [])]
    assert run(capsys, *words)[0] == ""
    text = read_text_file("page.md", encoding)
    assert text.data != data
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    for old, new in (("recieve teh", "receive the"), ("naïve teh", "naive the"), ("teh\r", "the\r")):
        data = data.replace(old.encode(text.encoding), new.encode(text.encoding))
    data = data.replace(b"\rteh\n", b"\rthe\n")
    assert page.read_bytes() == data
    before = page.stat().st_mtime_ns
    assert run(capsys, *words)[1] == "page.md: no edits\n"
    assert page.stat().st_mtime_ns == before
    assert [each.name for each in page.parent.iterdir()] == ["page.md"]


def test_a_big_file_is_edited_in_place_once(
    edit: list[object], page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, codes = big_markdown(20_000)
    page.write_text(text)
    run(capsys, *edit, "page.md", "--in-place")
    first = page.read_text()
    assert first != text
    assert all(code in first for code in codes)
    run(capsys, *edit, "page.md", "--in-place")
    assert page.read_text() == first


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ("y\nn\n", "One the two teh three teh.\n"),
        ("n\nx\n\na\n", "One teh two the three the.\n"),
        ("y\nq\n", "One the two teh three teh.\n"),
        ("", "One teh two teh three teh.\n"),
    ],
)
def test_review_asks_about_each_edit(
    answers: str,
    wanted: str,
    edit: list[object],
    page: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page.write_text("One teh two teh three teh.\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    out, err = run(capsys, *edit, "page.md", "--review")
    assert out == wanted
    assert "page.md:1:5  edit 1 of 3, probability 0." in err
    assert "One [-teh-]{+the+} two teh three teh." in err
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    run(capsys, *edit, "page.md", "--review", "--in-place")
    assert page.read_text() == wanted


def test_the_page_shows_changes_and_escapes_text(
    edit: list[object], page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page.write_text("A <b>teh</b> & teh\x07.\n")
    (page.parent / "b.md").write_text("teh two\n")
    run(capsys, *edit, "page.md", "b.md", "--format", "markdown", "--html", "out.html")
    html = (page.parent / "out.html").read_text()
    assert "A &lt;b&gt;<del" in html
    assert '<ins title="probability 0.' in html
    assert ">the</ins>&lt;/b&gt; &amp; " in html
    assert "\x07" not in html
    assert "<h2>b.md</h2>" in html
    assert "3 edits." in html
    assert "http" not in html  # nothing is loaded from elsewhere


def test_live_draws_every_window_and_gives_the_same_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["edit", "Some text here.", "--model", make_folder(tmp_path), "--passes", "1"]
    words += ["--scan", "0.02", "--min-probability", "0"]
    wanted = run(capsys, *words)[0]
    assert run(capsys, *words, "--live")[0] == wanted
    terminal = Terminal(monkeypatch, 100, 30)
    assert main([*words, "--live", "--pace", "0"]) == 0
    written = terminal.close()
    assert "actions/s" in written
    assert "".join(wanted.split())[:8] in "".join(terminal.screen(written).text.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nope.txt"], "no file nope.txt; a text goes alone and in quotes, or to: reviser edit -"),
        (["page.md", "nope"], "no file nope; a text goes alone and in quotes, or to: reviser edit -"),
        (["."], ". is a folder; give the files in it"),
        ([" "], "the text is empty; give something to edit"),
        (["page.md", "page.md"], "2 texts and one output; add --in-place, --diff, --check, --json or --html"),
        (["text", "--in-place"], "--in-place writes files, and text is none; drop it or give a file"),
        (["page.md", "--in-place", "--check"], "--check and --in-place do not go together; drop one"),
        (["page.md", "--live", "--json"], "--json and --live do not go together; drop one"),
        (["page.md", "--passes", "0"], "passes=0 must be a whole number of at least 1"),
        (["page.md", "--min-probability", "2"], "min_probability=2.0 must be a number between 0 and 1"),
        (
            ["page.md", "--words", "none"],
            "cannot read none: No such file or directory; give a file with one word a line",
        ),
        (["page.md", "--encoding", "klingon"], "no encoding 'klingon'; give one that Python knows, such as utf-8"),
        (["page.md", "--pace", "-1"], "--pace -1.0 must be 0 or more"),
        (["page.md", "--html", "."], "--html . is a folder; give a file"),
        (
            ["code.py"],
            "code.py: no format is known for .py; give one with --format: text, markdown, rst, html, latex",
        ),
        (["binary.txt"], "binary.txt is a binary file (it holds zero bytes); give a text file"),
        (["latin.txt"], "latin.txt is not utf-8 text at byte 1; name its encoding, such as --encoding latin-1"),
        (["latin.txt", "--encoding", "ascii"], "latin.txt is not ascii text at byte 1; check --encoding"),
    ],
)
def test_bad_input_is_one_line_and_files_stay(
    words: list[str], text: str, edit: list[object], page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (page.parent / "code.py").write_text("teh = 1\n")
    (page.parent / "binary.txt").write_bytes(b"teh\0teh")
    (page.parent / "latin.txt").write_bytes(b"t\xe9h teh")
    before = {path: path.read_bytes() for path in page.parent.iterdir()}
    assert fail(capsys, *edit, *words) == text
    assert {path: path.read_bytes() for path in page.parent.iterdir()} == before


def test_standard_input_that_is_empty_or_needed_for_answers_is_refused(
    edit: list[object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert fail(capsys, *edit, "-") == "standard input is empty; give something to edit"
    monkeypatch.setattr("sys.stdin", io.StringIO("teh\n"))
    wanted = "--review reads answers from standard input; give the text in a file"
    assert fail(capsys, *edit, "-", "--review") == wanted
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), "utf-8"))
    assert fail(capsys, *edit, "-").startswith("standard input is not UTF-8 text")


def test_a_model_that_cannot_edit_says_what_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=64)
    folder = save_pretrained(random_model(config), tmp_path / "tiny", load("bytes"))
    line = fail(capsys, "edit", "Read teh mail.", "--model", folder)
    assert line == (
        f"{folder} cannot edit: it has the operators move, and editing needs delete or replace; "
        "use a model that was trained on edits"
    )


def test_a_file_that_changes_meanwhile_is_left_alone(
    model: str, page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rewrite(text: str) -> str:
        page.write_text("other\n")
        return fix(text)

    writer = ScriptedWriter(rewrite)
    monkeypatch.setattr(Writer, "from_pretrained", lambda *_, **__: writer)
    line = fail(capsys, "edit", "page.md", "--in-place", "--model", model)
    assert line == "page.md has changed since it was read; nothing was written, run it again"
    assert page.read_text() == "other\n"


def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    edit: list[object], page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and may(path, mode))
    line = fail(capsys, *edit, "page.md", "--in-place")
    assert line == "page.md cannot be written here; check the permissions of the file and its folder"
    assert page.read_text() == TEXT


def test_a_full_disk_leaves_the_file_as_it_was(
    edit: list[object], page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    line = fail(capsys, *edit, "page.md", "--in-place")
    assert line == "cannot write page.md: No space left on device; the file is as it was"
    assert page.read_text() == TEXT
    assert [path.name for path in page.parent.iterdir()] == ["page.md"]


def test_a_letter_that_the_encoding_lacks_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"t\xe9h")
    file = read_text_file(str(path), "latin-1")
    edited = Edited(file.text, (Edit(0, 1, "t", "☃", 1.0),))
    with pytest.raises(DataError, match="iso8859-1 has no '☃', which an edit needs; the file is as it was; convert"):
        file.write(edited.text)
    assert path.read_bytes() == b"t\xe9h"
    with pytest.raises(DataError, match=r"^cannot read .*/none: No such file or directory; give a text file"):
        read_text_file(str(tmp_path / "none"))
    path.write_bytes(b"+AGE-")
    with pytest.raises(DataError, match="would not be written back as it is in utf-7; check --encoding"):
        read_text_file(str(path), "utf-7")
