"""Prompts, systems and generations: the same texts for all, kept as they come, gone on with."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reviser.cli import main
from reviser.config import CanvasConfig, ModelConfig
from reviser.errors import ConfigError, DataError, ReviserError
from reviser.evaluation.gap_kinds import GAP_KINDS, find_stretches
from reviser.evaluation.generations import (
    Generation,
    GenerationFile,
    Prompt,
    open_generations,
    read_generations,
)
from reviser.evaluation.measures import Measure
from reviser.evaluation.prompts import Lengths, continuation_prompts, infill_prompts
from reviser.evaluation.systems import Budget, CausalSystem, open_system
from reviser.files import stamp
from reviser.model.checkpoint import read_config, save_pretrained
from reviser.model.transformer import Transformer
from reviser.reports.results import write_result
from reviser.tokenizer import load

BYTES = load("bytes")
PROSE = " ".join(f"Word{number} walked on," for number in range(60))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with random weights and a window."""
    torch.manual_seed(0)
    config = ModelConfig(
        num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=400, max_length=400,
        canvas=CanvasConfig("window", window=2, slot_width=8),
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("model") / "it"
    save_pretrained(Transformer(config), folder, BYTES)
    return folder


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": f"{number} {PROSE}"}) + "\n" for number in range(5)))
    return file


@given(st.lists(st.text(min_size=1, max_size=60), max_size=8), st.integers(0, 6), st.integers(1, 9))
def test_a_prompt_is_the_beginning_of_its_document(documents: list[str], prefix: int, more: int) -> None:
    named = [(f"d:{number}", text) for number, text in enumerate(documents)]
    lengths = Lengths(prefix, prefix + more, prefix + 1, 200)
    fitting = {name for name, text in named if prefix + 1 <= len(text.encode()) <= 200}
    if not fitting:
        with pytest.raises(DataError, match="no document has"):
            continuation_prompts(named, BYTES, lengths)
        return
    prompts = continuation_prompts(named, BYTES, lengths)
    assert {prompt.id for prompt in prompts} == fitting
    for prompt in prompts:
        assert dict(named)[prompt.id].startswith(prompt.prefix + prompt.reference)
        assert len(prompt.prefix.encode()) >= prefix


def test_longer_documents_are_cut_only_when_asked() -> None:
    named = [("short:1", "x" * 50), ("long:1", "y" * 90)]
    lengths = Lengths(5, 20, 10, 60)
    assert [each.id for each in continuation_prompts(named, BYTES, lengths)] == ["short:1"]
    cut = continuation_prompts(named, BYTES, lengths, is_cut=True)
    assert [(each.id, len(each.reference)) for each in cut] == [("short:1", 15), ("long:1", 15)]


STORY = "\n".join(["The boats lay still, and the old gulls slept. A child came down to them."] * 6)


@given(st.integers(0, 1000), st.sampled_from(GAP_KINDS))
def test_gaps_of_a_kind_stand_at_its_boundaries_and_the_parts_are_the_text(seed: int, kind: str) -> None:
    # Places are tried at random, and once in a thousand documents none of them fits.
    named = [(f"a:{number}", STORY) for number in range(8)]
    prompt, *others = infill_prompts(named, BYTES, context=40, longest=80, kinds=[kind], seed=seed)
    assert prompt.prefix + prompt.reference + prompt.suffix in STORY
    assert prompt.kind == kind
    assert prompt.reference in {STORY[first:last] for first, last in find_stretches(STORY)[kind]}
    assert 20 <= len(prompt.prefix) <= 40
    assert 20 <= len(prompt.suffix) <= 40
    assert [prompt, *others] == infill_prompts(named, BYTES, 40, 80, [kind], seed)


def test_a_document_without_a_kind_of_gap_gives_another_kind_and_kinds_vary() -> None:
    named = [(f"a:{number}", STORY) for number in range(40)]
    assert {prompt.kind for prompt in infill_prompts(named, BYTES, 40, 80)} == set(GAP_KINDS)
    plain = [(name, text.replace(".", "").replace(",", "")) for name, text in named]
    assert {prompt.kind for prompt in infill_prompts(plain, BYTES, 40, 80)} == {"word", "words"}


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: Lengths(prefix=200), "the prefix must be shorter than both"),
        (lambda: infill_prompts([("a", PROSE)], BYTES, 4, 0), "gaps of up to 0 tokens in 4 of context: both must be"),
        (
            lambda: infill_prompts([("a", PROSE)], BYTES, kinds=["page"]),
            "no gaps of kind 'page'; kinds are word, words",
        ),
        (lambda: infill_prompts([("a", "short")], BYTES), "give longer texts"),
        (lambda: open_system("ours"), "--system ours is not NAME=MODEL"),
        (lambda: Measure.of([]), "nothing to average"),
    ],
)
def test_what_cannot_be_is_said(act: Any, text: str) -> None:
    with pytest.raises(ReviserError, match=text.replace("(", r"\(")):
        act()


def test_the_mean_and_its_error_by_hand() -> None:
    assert Measure.of([2.0, 4.0, 4.0, 6.0]) == Measure(4.0, pytest.approx((8 / 3 / 4) ** 0.5), 4)
    assert Measure.of([3.0]) == Measure(3.0, None, 1)


def test_a_generation_depends_on_its_prompt_and_seed_alone(model: Path) -> None:
    prompts = [Prompt(f"p:{n}", f"He said {n}", " and went away.") for n in range(6)]
    system = open_system(f"ours={model}")
    together = {each.key: each for each in system.generate(prompts, 7)}
    alone = [next(iter(system.generate([prompt], 7))) for prompt in reversed(prompts)]
    assert {each.key: each for each in alone} == together
    assert {each.text for each in system.generate(prompts, 8)} != {each.text for each in together.values()}


def test_a_gap_keeps_what_stands_around_it_and_its_budget_does_not_tell_its_length(model: Path) -> None:
    prompt = Prompt("p:1", "Before", " gap", " behind it.")
    [one] = open_system(f"ours={model}", budget=Budget(30)).generate([prompt], 1)
    assert one.full_text == f"Before{one.text} behind it."
    assert one.num_tokens <= 30
    assert 0 <= one.num_actions <= 53
    budget = Budget(30)
    lengths = {budget.tokens(Prompt("p", "Before", text, " behind"), len) for text in ("", "x", "long" * 20)}
    assert lengths == {30}


def test_it_writes_what_is_missing_and_nothing_twice(
    model: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made" / "g.jsonl"
    words = ["eval", "continuation", str(texts), "--ruler", "bytes", "--cut", "--system", f"ours={model}"]
    words += ["--generations", str(out), "--json", "--device", "cpu", "--total", "60"]
    assert main([*words, "--n", "2", "--seeds", "1"]) == 0
    before = out.read_text()
    assert main([*words, "--n", "3", "--seeds", "1,2"]) == 0
    after = out.read_text()
    assert after.startswith(before)
    keys = [each.key for each in read_generations(out)]
    assert len(keys) == len(set(keys)) == 6
    [row] = json.loads(capsys.readouterr().out.strip().split("\n")[-1])["rows"]
    assert row["generations"] == 6
    assert row["system"] == "ours"


def test_two_runs_do_not_write_to_one_file(
    model: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made" / "g.jsonl"
    words = ["eval", "continuation", str(texts), "--ruler", "bytes", "--cut", "--system", f"ours={model}"]
    with open_generations(out):
        assert main([*words, "--generations", str(out), "--device", "cpu"]) == 2
    said = capsys.readouterr().err.strip()
    assert said == f"error: {out}: another run writes generations to it; wait for that run, or give another file"
    assert not out.exists()


def test_the_room_is_the_same_for_all_references_and_counted_by_the_ruler() -> None:
    """145 tokens of the ruler, whatever the reference; for its own tokenizer exactly so many."""
    gpt = load("default")
    budget = Budget(145, lambda text: len(gpt.encode(text)))
    prompts = [Prompt("p", "The old lighthouse stood", text) for text in ("", " x", " empty until morning" * 30)]
    assert {budget.tokens(prompt, lambda text: len(gpt.encode(text))) for prompt in prompts} == {145}
    bytes_of = {budget.tokens(prompt, lambda text: len(text.encode())) for prompt in prompts}
    assert bytes_of == {math.ceil(145 * 24 / len(gpt.encode("The old lighthouse stood")))}
    assert budget.tokens(Prompt("p", "", "a reference alone"), len) > 1
    assert Budget(5).tokens(Prompt("p", "", ""), len) == 1


def test_a_continuation_has_the_papers_room_and_actions(model: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "g.jsonl"
    words = ["eval", "continuation", str(texts), "--ruler", "bytes", "--cut", "--system", f"ours={model}"]
    assert main([*words, "--generations", str(out), "--device", "cpu", "--seeds", "1"]) == 0
    made = read_generations(out)
    assert all(each.num_tokens <= 145 and each.num_actions <= 256 for each in made)
    assert max(each.num_actions for each in made) > 150
    assert {len(each.prefix) for each in made} == {35}


def test_the_result_is_written_where_the_user_says(
    model: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, out = tmp_path / "g.jsonl", tmp_path / "results" / "it.json"
    words = [
        "eval",
        "infill",
        str(texts),
        "--ruler",
        "bytes",
        "--system",
        f"ours={model}",
        "--generations",
        str(made),
    ]
    assert main([*words, "--seeds", "1", "--device", "cpu", "--json", "--out", str(out)]) == 0
    result = json.loads(out.read_text("utf-8"))
    assert result == stamp(json.loads(capsys.readouterr().out))
    assert result["kind"] == "generations"
    assert result["generations"] == {str(made): hashlib.sha256(made.read_bytes()).hexdigest()}
    assert result["rows"][0]["maker"] == read_generations(made)[0].maker
    assert main(["report", str(out)]) == 0
    assert "What systems wrote" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--temperature", "0.5"], "its texts of system ours were written with other weights or settings"),
        (["--top-k", "3"], "its texts of system ours were written with other weights or settings"),
        (["--prefix", "20", "--total", "45"], "its prompt texts.jsonl:1 was cut differently; give another file"),
    ],
)
def test_a_file_of_other_settings_is_not_gone_on_with(
    model: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    out = tmp_path / "g.jsonl"
    asked = ["eval", "continuation", str(texts), "--ruler", "bytes", "--cut", "--system", f"ours={model}"]
    asked += ["--generations", str(out), "--device", "cpu", "--n", "1", "--seeds", "1"]
    assert main([*asked, "--total", "60"]) == 0
    before = out.read_text()
    capsys.readouterr()
    assert main([*asked, *(words if "--total" in words else ["--total", "60", *words])]) == 2
    assert text in capsys.readouterr().err
    assert out.read_text() == before


def test_texts_of_other_prompts_are_not_gone_on_with_and_a_smaller_n_is(
    model: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "g.jsonl", shutil.copy(texts, tmp_path / "other.jsonl")
    words = ["--ruler", "bytes", "--cut", "--total", "60", "--system", f"ours={model}", "--seeds", "1"]
    words += ["--generations", str(out), "--device", "cpu"]
    assert main(["eval", "continuation", str(texts), *words, "--n", "2"]) == 0
    before = out.read_text()
    assert main(["eval", "continuation", str(texts), *words, "--n", "1"]) == 0
    assert main(["eval", "continuation", str(other), *words, "--n", "2"]) == 2
    assert "its texts of system ours continue other prompts, such as texts.jsonl:1; give" in capsys.readouterr().err
    assert out.read_text() == before


def test_a_retrained_model_does_not_go_on_with_the_texts_of_the_old_one(
    model: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(model, tmp_path / "copy")
    words = ["eval", "continuation", str(texts), "--ruler", "bytes", "--cut", "--system", f"ours={folder}"]
    words += ["--generations", str(tmp_path / "g.jsonl"), "--device", "cpu", "--n", "1", "--seeds", "1"]
    assert main(words) == 0
    torch.manual_seed(1)
    shutil.rmtree(folder)
    save_pretrained(Transformer(read_config(model).model), folder, BYTES)
    assert main(words) == 2
    assert "give another file, or give the system another name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "file.txt/inside.json"])
def test_a_result_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written .*; give another file"):
        write_result({"kind": "odd"}, tmp_path / name)
    with pytest.raises(ConfigError, match=r"cannot be written .*; give another file"):
        GenerationFile(tmp_path / "file.txt" / "g.jsonl").add([])
    assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]


def test_orders_of_systems_stand_beside_them(
    model: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "g.jsonl"
    words = ["eval", "continuation", str(texts), "--ruler", "bytes", "--cut", "--total", "60", "--n", "2"]
    words += ["--system", f"a={model}", "--system", f"b={model}", "--seeds", "1", "--device", "cpu"]
    assert main([*words, "--generations", str(out)]) == 0
    capsys.readouterr()
    words = ["eval", "trajectories", str(out), "--json", "--order", "random-walk"]
    assert main([*words, "--order", "b=runs:jump=0.3"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["system"], row["order"]) for row in rows] == [("a", "random-walk"), ("b", "runs:jump=0.3")]
    # Which tokens end a sentence only a tokenizer knows.
    cut = ["eval", "trajectories", str(out), "--json", "--order", "sentences"]
    assert main([*cut, "--system", f"b={model}"]) == 0
    printed, noted = capsys.readouterr()
    rows = json.loads(printed)["rows"]
    assert [(row["order"], row["null"] is None) for row in rows] == [("sentences", True), ("sentences", False)]
    assert "a: nothing beside its statistics, for its order cuts at the ends of sentences; --system a=MODEL" in noted
    assert "b: nothing" not in noted
    assert rows[1]["null"]["trajectories"] == rows[1]["n"]
    assert main([*cut, "--system", "b=shipped"]) == 2
    assert "has 8192 tokens, but what b wrote has 257; give the model that wrote it" in capsys.readouterr().err
    assert main([*words, "--order", "c=runs"]) == 2
    assert "random-walk is already the order of all systems; name one of them: a, b" in capsys.readouterr().err
    assert main(["eval", "trajectories", str(out), "--plot", str(tmp_path / "paths.odd")]) == 2
    assert "give a file such as paths.png" in capsys.readouterr().err


def test_infilling_and_trajectories_run_from_the_command_line(
    model: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / "gaps.jsonl", tmp_path / "paths.png"
    words = ["--ruler", "bytes", "--context", "20", "--longest", "30", "--seeds", "1", "--device", "cpu"]
    assert main(["eval", "infill", str(texts), *words, "--system", f"ours={model}", "--generations", str(out)]) == 0
    assert "ours" in capsys.readouterr().out
    words = ["eval", "trajectories", str(out), "--order", "random-walk", "--plot", str(picture)]
    assert main([*words, "--out", str(tmp_path / "r.json")]) == 0
    assert "random-walk alone" in capsys.readouterr().out
    assert picture.stat().st_size > 1000
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["rows"][0]["null"]["trajectories"] == result["rows"][0]["n"] == 5


def test_lines_that_are_no_generations_are_named(tmp_path: Path) -> None:
    file = tmp_path / "g.jsonl"
    file.write_text('{"system": "a"}\n')
    with pytest.raises(DataError, match=r"g.jsonl, line 1: not a generation \(it lacks prompt_id, .*num_actions\)"):
        read_generations(file)
    one = asdict(Generation("a", "p:1", 3, "", "text", "", "ref", True, 4, 5))
    file.write_text(f"{json.dumps(one)}\n{json.dumps(one | {'text': 7})}\n")
    with pytest.raises(DataError, match=r"line 2: not a generation \(its text is 7, which is not of type str\)"):
        read_generations(file)
    file.write_text("3\n")
    with pytest.raises(DataError, match=r"line 1: not a generation \(it is not an object\); remove the line"):
        read_generations(file)
    with pytest.raises(DataError, match="cannot be read"):
        read_generations(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("seed", True, r"its seed is True, which is not of type int"),
        ("is_stopped", 1, r"its is_stopped is 1, which is not of type bool"),
        ("record", 7, r"its record is 7, which is not a JSON object"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_file_and_line(
    field: str, value: object, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "g.jsonl"
    file.write_text(json.dumps(asdict(Generation("a", "p:1", 3, "", "x", "", "y", True, 4, 5)) | {field: value}))
    with pytest.raises(DataError, match=rf"g.jsonl, line 1: not a generation \({message}\); remove the line"):
        read_generations(file)


def test_a_record_that_does_not_replay_is_named_with_its_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "g.jsonl"
    file.write_text(json.dumps(asdict(Generation("a", "p:1", 3, "", "x", "", "y", True, 4, 5, {"num_text": 7}))))
    assert main(["eval", "trajectories", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: system a, prompt p:1, seed 3: its record is not a trajectory (")
    assert said.endswith("; generate it again\n")


def test_a_file_keeps_every_field(tmp_path: Path) -> None:
    one = Generation("a", "p:1", 3, "före", "text\n", "", "ref", True, 4, 5, {"actions": [1]})
    GenerationFile(tmp_path / "g.jsonl").add([one])
    assert read_generations(tmp_path / "g.jsonl") == [one]


@given(st.lists(st.text(), max_size=4), st.integers(0, 200))
def test_a_file_cut_anywhere_keeps_its_whole_lines(texts: list[str], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.jsonl"
        made = [Generation("a", f"p:{n}", 1, "", text, "", "", True, 1, 1) for n, text in enumerate(texts)]
        GenerationFile(path).add(made)
        assert read_generations(path) == made
        whole = path.read_bytes()
        path.write_bytes(whole[:cut])
        left = GenerationFile(path).generations
        assert left == made[: whole[:cut].count(b"\n")]
        GenerationFile(path).add(made[len(left) :])
        assert path.read_bytes() == whole


@pytest.fixture
def causal(tmp_path: Path) -> Path:
    """A tiny random GPT-2 with a tokenizer of bytes, as transformers saves them."""
    transformers = pytest.importorskip("transformers")
    import tokenizers

    inner = tokenizers.Tokenizer.from_str(load("default").serialised)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>")
    fast.save_pretrained(tmp_path / "hf")
    torch.manual_seed(0)
    shape = transformers.GPT2Config(vocab_size=len(fast), n_embd=16, n_layer=1, n_head=2, n_positions=200)
    transformers.GPT2LMHeadModel(shape).save_pretrained(tmp_path / "hf")
    return tmp_path / "hf"


def test_a_causal_model_continues_by_the_same_seed_and_never_sees_the_suffix(causal: Path) -> None:
    system = open_system(f"gpt2=hf:{causal}")
    prompt = Prompt("p:1", "The old lighthouse", " stood empty.", "")
    [one] = system.generate([prompt], 1)
    [again] = system.generate([prompt], 1)
    [other] = system.generate([prompt], 2)
    assert one == again
    assert one.text != other.text
    assert one.record is None
    [gap] = system.generate([Prompt("p:1", prompt.prefix, prompt.reference, " until morning.")], 1)
    assert gap.text == one.text


def test_a_causal_model_that_is_none_is_said(tmp_path: Path, causal: Path) -> None:
    with pytest.raises(ReviserError, match="system x: no causal model"):
        open_system(f"x=hf:{tmp_path}")
    from reviser.decoding.sampling import GREEDY

    with pytest.raises(ConfigError, match="takes temperature, top_k, top_p and min_p alone"):
        CausalSystem("x", str(causal), GREEDY, Budget(), "cpu")
