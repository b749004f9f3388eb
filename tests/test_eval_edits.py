"""`reviser eval edits`: systems that correct, the texts they get, what goes wrong, and the tables."""

from __future__ import annotations

import json
import lzma
import shutil
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_mistakes import PROSE, prose_table

from reviser.cli import main
from reviser.config import CanvasConfig, ModelConfig
from reviser.data.corpus import prepare
from reviser.decoding.presets import GREEDY
from reviser.decoding.writer import Writer
from reviser.errors import ConfigError, DataError, MissingPackageError
from reviser.evaluation.correction import peers
from reviser.evaluation.correction.correctors import ModelCorrector, open_corrector, parse_correctors
from reviser.evaluation.correction.peers import Codespell, Harper, apply_edits
from reviser.evaluation.correction.tasks import (
    cut_sentences,
    draw,
    make_errors,
    read_clean,
    read_jfleg,
    read_pairs,
)
from reviser.evaluation.correction.words import split_words
from reviser.evaluation.suites import Corrections
from reviser.mistakes.table_file import save_table
from reviser.model.checkpoint import save_pretrained
from reviser.model.transformer import Transformer
from reviser.reports.proofreading import short_edits
from reviser.reports.sections import read_report
from reviser.tokenizer import load

WRONG = ["I has lost teh key .", "He go home .", "All is well ."]
RIGHT = [
    ["I have lost the key .", "He goes home .", "All is well ."],
    ["I have lost the keys .", "He went home .", "Fine ."],
]
PAIRS = [
    {"before": "I saw teh cat.", "after": "I saw the cat.", "kind": "spelling"},
    {"before": "She have it.", "after": "She has it.", "kind": "grammar"},
    {"before": "An untold kind.", "after": "An untold kind!"},
]
HARPER = """
export const SuggestionKind = { Replace: 0, Remove: 1, InsertAfter: 2 };
const lint = (start, end, ...suggestions) => ({
  span: () => ({ start, end }), free() {},
  suggestions: () => suggestions.map(([kind, text]) => ({ kind: () => kind, get_replacement_text: () => text })),
});
export class LocalLinter {
  async setup() {}
  async lint(text) {
    if (text === "die") process.exit(3);
    if (text === "fail") throw new TypeError("no such text");
    const some = [lint(0, 3, [0, "The"], [0, "Tea"]), lint(2, 5, [0, "x"]), lint(4, 5)];
    return [...some, lint(6, 7, [1, ""]), lint(8, 9, [2, "!"])];
  }
}
"""
NODE = f"""#!{sys.executable}
import json, sys
print(json.dumps({{"ready": "1.0"}}), flush=True)
for line in sys.stdin:
    if json.loads(line)["text"] == "die":
        sys.exit("RuntimeError: out of patience")
    print(json.dumps({{"edits": [[0, 1, "X"]]}}), flush=True)
"""


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with JFLEG-like files, pairs and clean texts."""
    jfleg = tmp_path / "learners"
    jfleg.mkdir()
    for name, lines in (("dev.src", WRONG), ("dev.ref0", RIGHT[0]), ("dev.ref1", RIGHT[1])):
        (jfleg / name).write_text("".join(f"{line} \n" for line in lines))
    with lzma.open(tmp_path / "pairs.jsonl.xz", "wt") as file:
        file.write("\n".join(map(json.dumps, PAIRS)) + "\n\n")
    documents = [f"The {name} was here today. It had gone by night." for name in ("cat", "dog", "cow")]
    (tmp_path / "clean.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    return tmp_path


@pytest.fixture
def codespell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A codespell with a few words, whether or not the real one is installed."""
    site = tmp_path / "site"
    about, data = site / "codespell-9.1.dist-info", site / "codespell_lib" / "data"
    about.mkdir(parents=True)
    data.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: codespell\nVersion: 9.1\n")
    names = ("dictionary.txt", "dictionary_rare.txt")
    (about / "RECORD").write_text("".join(f"codespell_lib/data/{name},,\n" for name in names))
    (data / names[0]).write_text("teh->the\nlastes->lasts, latest,\n")
    (data / names[1]).write_text("loafing->loading, used by bakers\n")
    monkeypatch.syspath_prepend(site)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = ModelConfig(
        num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=120, max_length=100,
        operators=("jump", "delete", "replace"), canvas=CanvasConfig("window", window=2, slot_width=8),
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("model") / "it"
    save_pretrained(Transformer(config), folder, load("bytes"))
    return folder


def run(*words: object) -> int:
    return main(["eval", "edits", *map(str, words)])


def install_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for node and harper.js that speaks their protocol."""
    home = tmp_path / "node_modules" / "harper.js"
    home.mkdir(parents=True)
    (home / "package.json").write_text("{}")
    (tmp_path / "bin").mkdir()
    node = tmp_path / "bin" / "node"
    node.write_text(NODE)
    node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_every_system_has_a_row_for_every_set_of_texts(
    texts: Path, codespell: None, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"--jfleg": "learners", "--pairs": "pairs.jsonl.xz", "--clean": "clean.jsonl"}
    given_texts = [word for flag, name in data.items() for word in (flag, texts / name)]
    systems = ("source", "codespell", "codespell-first", f"ours={model}", f"twin={model},rewrites=true")
    words = [word for name in systems for word in ("--system", name)]
    out = texts / "edits.json"
    assert run(*given_texts, *words, "--sentences", 4, "--timed", 2, "--out", out, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(out.read_text())
    rows = {(row["data"], row["system"]): row for row in document["rows"]}
    names = ["source", "codespell", "codespell-first", "ours", "twin"]
    sets = ("learners/dev", "pairs.jsonl.xz", "clean.jsonl")
    assert list(rows) == [(each, name) for each in sets for name in names]
    source, spelled = (rows["learners/dev", name] for name in names[:2])
    assert (source["f_half"]["value"], source["precision"], source["missed"]) == (0, None, 3)
    # teh was found and has was not; the third text wanted nothing.
    assert (spelled["right"], spelled["false"], spelled["missed"], spelled["exact"]["value"]) == (1, 0, 2, 1 / 3)
    assert spelled["gleu_more"]["value"] == pytest.approx(spelled["gleu"]["value"] - source["gleu"]["value"])
    assert "by_kind" not in spelled
    kinds = rows["pairs.jsonl.xz", "codespell"]["by_kind"]
    assert {kind: each["right"] for kind, each in kinds.items()} == {"grammar": 0, "none": 0, "spelling": 1}
    clean = rows["clean.jsonl", "codespell"]
    assert (clean["false"], clean["left_alone"]["value"], clean["texts"]) == (0, 1.0, 4)
    ours = rows["learners/dev", "ours"]
    assert ours["actions"]["value"] >= 1
    assert ours["seconds"]["n"] == 2
    assert ours["seconds_together"] > 0
    assert document["config"]["systems"]["codespell"] == "codespell 9.1"


def test_tables_say_what_the_result_holds(texts: Path, codespell: None, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ("--pairs", texts / "pairs.jsonl.xz", "--clean", texts / "clean.jsonl", "--n", 2, "--timed", 0)
    out = texts / "edits.json"
    assert run(*shown, "--system", "source", "--system", "codespell", "--system", "harper", "--out", out) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("left out: system harper needs the package ")
    titles = ["Corrections: pairs.jsonl.xz", "By kind of mistake: pairs.jsonl.xz", "Clean text"]
    assert [line for line in printed.out.split("\n") if line in titles] == titles
    assert "left out: system harper" in printed.out
    [section] = read_report([out]).sections
    assert [table.title for table in section.tables] == titles
    assert "ms a text" not in section.tables[0].columns


@pytest.mark.parametrize(
    "words, text",
    [
        (
            ["--system", "source"],
            "there is nothing to correct; give at least one of --jfleg, --pairs, --errors and --clean",
        ),
        (["--system", "mine", "--clean", "x"], "--system mine is not NAME=MODEL; write shipped, ours=runs/mine or"),
        (["--system", "source", "--system", "source", "--clean", "x"], "--system names source twice"),
        (["--system", "harper=runs/x", "--clean", "x"], "--system harper=runs/x: harper means the peer of that name"),
        (["--system", "a=hf:gpt2", "--clean", "x"], "--system a=hf:gpt2: only models of our own kind correct texts"),
        (["--system", "a=shipped,top_q=1", "--pairs", "{}/pairs.jsonl.xz"], "--system a=shipped,top_q=1: "),
        (["--system", "source", "--clean", "x", "--n", "0"], "--n 0 must be at least 1"),
        (["--system", "source", "--clean", "{}/none.jsonl"], "none.jsonl: no such file or folder"),
        (["--system", "source", "--pairs", "{}/none.jsonl"], "none.jsonl: no such file or folder"),
        (["--system", "source", "--jfleg", "{}/none"], "none: no file NAME.src; give a folder with NAME.src"),
        (["--system", "harper", "--pairs", "{}/pairs.jsonl.xz"], "no system is left to measure: system harper needs"),
        (
            ["--system", "source", *["--pairs", "{}/pairs.jsonl.xz"] * 2],
            "two sets of texts are called pairs.jsonl.xz; rename one of the files",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    texts: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    assert run(*(word.replace("{}", str(texts)) for word in words)) == 2
    error = capsys.readouterr().err.strip().split("\n")[-1]
    assert error.startswith("error: ")
    assert text in error


@pytest.mark.parametrize(
    "name, content, text",
    [
        ("p.jsonl", "{}\n", "p.jsonl, line 1: no text under `before`; a pair is an object with `before` and `after`"),
        ("p.jsonl", '{"before": "a"}\n', "p.jsonl, line 1: no text under `after`"),
        ("p.jsonl", '\n["before"]\n', "p.jsonl, line 2: no text under `before`"),
        ("p.jsonl", "never\n", "p.jsonl, line 1: not JSON; a pair is"),
        ("p.jsonl", "\n", "p.jsonl: no pairs in it; a pair is a line with `before` and `after`"),
        ("p.jsonl.xz", "no xz", "p.jsonl.xz: cannot be read to its end (Input format not supported by decoder); get"),
    ],
)
def test_bad_pairs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, text: str
) -> None:
    (tmp_path / name).write_text(content)
    assert run("--system", "source", "--pairs", tmp_path / name) == 2
    assert text in capsys.readouterr().err


def test_bad_folders_and_texts_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dev.src").write_text("A .\nB .\n")
    assert run("--system", "source", "--jfleg", tmp_path) == 2
    assert "dev.src: no references beside it; they are called dev.ref0, dev.ref1, ..." in capsys.readouterr().err
    (tmp_path / "dev.ref0").write_text("A .\n")
    assert run("--system", "source", "--jfleg", tmp_path) == 2
    assert "dev.ref0: 1 lines, but dev.src has 2; both need as many" in capsys.readouterr().err
    (tmp_path / "dev.ref0").write_bytes(b"\xff\n.\n")
    assert run("--system", "source", "--jfleg", tmp_path) == 2
    assert "dev.ref0: cannot be read (it is not UTF-8); get the file again" in capsys.readouterr().err
    for name in ("dev.src", "dev.ref0"):
        (tmp_path / name).write_text("\n\n")
    assert run("--system", "source", "--jfleg", tmp_path) == 2
    assert "dev.src: no sentence in it; a sentence stands on a line" in capsys.readouterr().err
    (tmp_path / "clean.txt").write_text("a heading\nToo short.\n")
    assert run("--system", "source", "--clean", tmp_path / "clean.txt") == 2
    assert "clean.txt: no whole sentence of 4 to 60 words in it; give other texts" in capsys.readouterr().err


@given(st.lists(st.integers(), max_size=12), st.integers(1, 12), st.integers(0, 3))
def test_some_are_drawn_in_their_order_and_the_same_with_the_same_seed(things: list[int], n: int, seed: int) -> None:
    places = draw(range(len(things)), n, seed)
    assert places == sorted(set(places)) == draw(range(len(things)), n, seed)
    assert len(places) == min(n, len(things))
    assert draw(things, None, seed) == things


def test_texts_are_read_as_systems_get_them(texts: Path) -> None:
    [task] = read_jfleg(texts / "learners")
    assert task.texts == ["I has lost teh key.", "He go home.", "All is well."]
    assert task.references[0] == [["I", "have", "lost", "the", "key", "."], ["I", "have", "lost", "the", "keys", "."]]
    pairs = read_pairs(texts / "pairs.jsonl.xz")
    assert (pairs.texts[0], pairs.by_kind()) == ("I saw teh cat.", {"grammar": [1], "none": [2], "spelling": [0]})
    clean = read_clean(texts / "clean.jsonl", 2)
    assert clean.is_clean
    assert len(clean.texts) == 2
    assert cut_sentences("It is 3.5 m. long, e.g. This. (And so on.) Then J. Bell came.\nHe did!") == [
        "It is 3.5 m. long, e.g. This.", "(And so on.)", "Then J. Bell came.", "He did!",
    ]  # fmt: skip


@given(
    st.text(max_size=20), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5), st.text(max_size=3)), max_size=5)
)
def test_edits_that_overlap_are_skipped_and_the_rest_made(text: str, drawn: list[tuple[int, int, str]]) -> None:
    edits = [(min(start, len(text)), min(start + size, len(text)), new) for start, size, new in drawn]
    new, count = apply_edits(text, edits)
    assert count <= len(edits)
    assert (count == 0) == (not edits)
    assert apply_edits(text, []) == (text, 0)
    assert len(new) <= len(text) + sum(len(each) for _, _, each in edits)


def test_codespell_corrects_what_it_is_sure_of_or_takes_its_first_guess(codespell: None) -> None:
    texts = ["Teh TEH teh lastes loafing.", ""]
    assert [each.text for each in Codespell().correct(texts)] == ["The THE the lastes loafing.", ""]
    first = Codespell("codespell-first", takes_first=True).correct(texts)
    assert [(each.text, each.num_actions) for each in first] == [("The THE the lasts loading.", 5), ("", 0)]


def test_missing_programs_are_named_with_what_installs_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(peers, "version", fail)
    with pytest.raises(MissingPackageError, match=r"^system codespell needs the package codespell, which is not "):
        Codespell()
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"needs the package Node.js, .* run: apt install nodejs npm"):
        Harper()
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/node")
    with pytest.raises(MissingPackageError, match=r"needs the package harper.js, .* run: npm install --prefix "):
        Harper(folder=tmp_path)


def test_a_node_process_that_ends_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harper = Harper(folder=install_node(tmp_path, monkeypatch))
    assert [each.text for each in harper.correct(["abc", "line\none\u2028"])] == ["Xbc", "Xine\none\u2028"]
    said = (
        r"^system harper: the node process of Harper ended \(RuntimeError: out of patience\); install harper.js anew"
    )
    with pytest.raises(ConfigError, match=said):
        harper.correct(["die"])
    harper.close()
    (tmp_path / "bin" / "node").write_text(f"#!{sys.executable}\n")
    with pytest.raises(ConfigError, match=r"the node process of Harper ended; install"):
        Harper(folder=tmp_path)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_our_script_takes_harpers_first_suggestions(tmp_path: Path) -> None:
    home = tmp_path / "node_modules" / "harper.js"
    home.mkdir(parents=True)
    exports = {".": {"import": "./index.js"}, "./binary": {"import": "./binary.js"}}
    (home / "package.json").write_text(json.dumps({"type": "module", "version": "0.1", "exports": exports}))
    (home / "index.js").write_text(HARPER)
    (home / "binary.js").write_text("export const binary = {};")
    harper = Harper(folder=tmp_path)
    assert harper.version == "harper.js 0.1"
    [made] = harper.correct(["teh 😀 x y."])
    assert (made.text, made.num_actions) == ("The 😀  y!.", 3)
    with pytest.raises(ConfigError, match=r"ended \(TypeError: no such text\)"):
        harper.correct(["fail"])
    harper = Harper(folder=tmp_path)
    with pytest.raises(ConfigError, match=r"the node process of Harper ended; install"):
        harper.correct(["die"])


def test_a_model_corrects_alike_alone_and_together_and_leaves_long_texts(model: Path) -> None:
    writer = Writer.from_pretrained(model)
    texts = ["Some text.", "", "x" * 100, "Another one is here."]
    for rewrites in (False, True):
        system = ModelCorrector("ours", writer, GREEDY, rewrites)
        together = system.correct(texts)
        assert [each.text for each in together] == [system.correct([text])[0].text for text in texts]
        # A text too long to be rewritten is left as it is, and edited in windows.
        assert [each.num_actions > 0 for each in together] == [True, False, not rewrites, True]
        assert together[1] == replace(together[1], text="", is_finished=True)
        assert not rewrites or together[2] == replace(together[2], text=texts[2], is_finished=False)


def test_a_rewriting_that_found_no_end_is_the_source_again(model: Path) -> None:
    system = ModelCorrector("twin", Writer.from_pretrained(model), GREEDY, rewrites=True)
    for text in ("Some text.", "A word", "Another one is here."):
        [made] = system.correct([text])
        assert made.is_finished or made.text == text


def test_a_tokenizer_without_the_separator_cannot_rewrite(model: Path) -> None:
    writer: Any = Writer.from_pretrained(model)
    writer.tokenizer = type("Other", (), {"encode": lambda self, text: [1, 2]})()
    with pytest.raises(ConfigError, match=r"^system twin: its tokenizer has no token for the byte 0x1E"):
        ModelCorrector("twin", writer, GREEDY, rewrites=True)


def test_a_suite_knows_its_command() -> None:
    suite = Corrections(system=("source",), pairs=("p.jsonl",), threads=1)
    assert suite.words == ("eval", "edits", "--system", "source", "--pairs", "p.jsonl", "--threads", "1")


def test_what_edits_are_taken_is_a_setting_of_the_system(model: Path) -> None:
    system = open_corrector(parse_correctors([f"ours={model},min_probability=0.5,passes=1,stop_bias=1"])[0])
    assert isinstance(system, ModelCorrector)
    assert (system.how.min_probability, system.how.passes, system.sampling.stop_bias) == (0.5, 1, 1.0)
    for change, problem in (("passes=two", "passes a whole number"), ("min_probability=2", "between 0 and 1")):
        with pytest.raises(ConfigError, match=problem):
            open_corrector(parse_correctors([f"ours={model},{change}"])[0])


def test_a_data_folder_gives_its_held_out_pairs_and_sentences_with_errors(tmp_path: Path) -> None:
    prose = " ".join(PROSE.split())
    lines = [{"text": f"{prose} {'More. ' * k}"} for k in range(1, 7)]
    lines += [{"before": f"Teh {k} boats.", "after": f"The {k} boats.", "message": str(k)} for k in range(40)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    prepare([tmp_path / "all.jsonl"], tmp_path / "data", load("bytes"), holdout=0.5, pair_holdout=0.3)
    task = read_pairs(tmp_path / "data")
    assert task.name == "pairs in data"
    assert 3 < len(task.texts) < 25
    assert all(text.startswith("Teh ") for text in task.texts)
    assert task.references[0][0][0] == "The"
    with pytest.raises(DataError, match=r"errors\.npz: no such table"):
        make_errors(tmp_path / "data", 20)
    save_table(prose_table("bytes"), tmp_path / "data" / "errors.npz")
    one, other = (make_errors(tmp_path / "data", 20) for _ in range(2))
    assert one == other
    assert one.name == "errors in data"
    assert len(one.texts) == len(one.kinds) == len(one.references) > 3
    assert any(split_words(text) != words[0] for text, words in zip(one.texts, one.references, strict=True))


def test_the_short_table_has_a_row_for_each_system_and_a_dash_for_what_it_was_not_given() -> None:
    def measure(value: float) -> dict[str, float | int | None]:
        return {"value": value, "error": 0.01, "n": 9}

    def corrected(data: str, system: str, value: float) -> dict[str, object]:
        costs = {"actions": measure(4.0), "seconds": measure(0.05)}
        return {
            "data": data,
            "system": system,
            "is_clean": False,
            "gleu": measure(value),
            "f_half": measure(value),
            **costs,
        }

    rows = [corrected("people", "a", 0.4), corrected("people", "b", 0.5), corrected("made", "a", 0.6)]
    rows.append({"data": "clean", "system": "b", "is_clean": True, "false_per_1000_words": measure(3.0)})
    table = short_edits({"rows": rows})
    titles = ["GLEU, people", "F0.5, people", "F0.5, made", "false edits per 1,000 words, clean"]
    assert list(table.columns) == ["system", *titles, "actions a text"]
    assert [row[3:5] for row in table.rows] == [("0.600 ± 0.010", "-"), ("-", "3.000 ± 0.010")]
    assert [row[0] for row in table.rows] == ["a", "b"]
