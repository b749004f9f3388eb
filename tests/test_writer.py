"""Texts in, texts out: the three jobs and the stream, on a tiny model folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import reviser
from reviser.actions import OPERATORS
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.presets import DEFAULT, GREEDY, LONGEST_GAP, Sampling
from reviser.decoding.reference import decode
from reviser.decoding.writer import Writer
from reviser.errors import CheckpointError, ConfigError, TokenizerError
from reviser.files import hash_file
from reviser.model import folder as folders
from reviser.model.checkpoint import pack_folder, save_pretrained
from reviser.model.transformer import Transformer
from reviser.orders.record import from_record, to_record
from reviser.orders.rng import Random
from reviser.tokenizer import load

DOCS = Path(__file__).parents[1] / "docs" / "decoding.md"


JUMPING = tuple(name for name in OPERATORS if name not in ("copy", "paste"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    config = ModelConfig(
        num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=120, max_length=64,
        operators=JUMPING, canvas=CanvasConfig(kind="window", slot_width=8),
    )  # fmt: skip
    model = Transformer(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    path = tmp_path_factory.mktemp("models") / "runs" / "debug" / "model"
    path.parent.mkdir(parents=True)
    save_pretrained(model, path, load("bytes"))
    return path


@pytest.fixture(scope="module")
def writer(folder: Path) -> Writer:
    return Writer.from_pretrained(folder)


def test_generate_keeps_the_prompt_and_the_order_of_prompts(writer: Writer) -> None:
    texts = writer.generate(["abc", "", "xyz"], n=2, max_actions=30, seed=4)
    assert len(texts) == 6
    assert [text.text[:3] for text in texts[:2] + texts[4:]] == ["abc", "abc", "xyz", "xyz"]
    assert all(text.text.endswith(text.new) for text in texts)
    assert texts[0].decoded != texts[1].decoded
    assert writer.generate([]) == []
    others = {text.decoded for text in writer.generate("abc", n=3, max_actions=30, seed=5)}
    assert not others & {text.decoded for text in writer.generate("abc", n=3, max_actions=30, seed=4)}
    assert writer.generate("abc", n=2, max_actions=30, seed=4) == texts[:2]


def test_infill_keeps_both_sides(writer: Writer) -> None:
    for text in writer.infill("left ", " right", n=3, max_actions=20):
        assert text.text == f"left {text.new} right"


def test_what_is_written_replays(writer: Writer) -> None:
    [text] = writer.generate("some text", max_actions=12, sampling=Sampling(stop_bias=-5.0))
    assert text.draft.tokens == tuple(b"some text")
    again = from_record(to_record(text.trajectory))
    assert again.final.tokens == text.decoded.canvas.tokens


def test_edit_gives_the_text_and_its_edits(writer: Writer) -> None:
    text, lively = "some text, of words", Sampling(stop_bias=4.0)
    several = [writer.edit(text, seed=seed, passes=1, sampling=lively, min_probability=0.0) for seed in range(20)]
    assert all(edited.original == text and str(edited) == edited.text for edited in several)
    assert all((edited.text != text) == bool(edited.edits) for edited in several)
    assert len({edited.text for edited in several}) > 1
    assert several[3] == writer.edit(text, seed=3, passes=1, sampling=lively, min_probability=0.0)


def test_the_plain_decoder_agrees(writer: Writer) -> None:
    [text] = writer.generate("abc", max_actions=25, seed=9)
    plain = decode(writer.model, text.draft, DEFAULT, 25, Random.of(9, 0, 0).state)
    assert text.decoded.actions == plain.actions
    assert text.log_probability == pytest.approx(sum(plain.log_probabilities), abs=1e-3)


def test_an_engine_that_is_kept_writes_as_a_new_one(folder: Path) -> None:
    keeping, single = (Writer.from_pretrained(folder) for _ in range(2))
    keeping._has_graphs = True
    for prompts in (["abc", "d"], ["x", "yz"], ["abc"], ["q"], ["x", "yz"]):
        texts, *others = (
            each.generate(prompts, max_actions=25, seed=3)
            for each in (Writer.from_pretrained(folder), keeping, single)
        )
        for again in others:
            assert [text.decoded.actions for text in texts] == [text.decoded.actions for text in again]
    [kept] = keeping._idle.values()
    keeping.generate(["q", "r"], max_actions=5)
    assert list(keeping._idle.values()) == [kept]
    assert [num_rows for _, _, num_rows, _ in single._idle] == [1]


def test_auto_is_int8_where_the_folder_is(folder: Path, tmp_path: Path) -> None:
    rounded = pack_folder(folder, tmp_path / "rounded", "int8")
    precisions = {
        (source.name, weights): Writer.from_pretrained(source, weights=weights).precision
        for source in (folder, rounded)
        for weights in ("auto", "int8", "float32")
    }
    assert precisions == {
        ("model", "auto"): "float32", ("model", "int8"): "int8", ("model", "float32"): "float32",
        ("rounded", "auto"): "int8", ("rounded", "int8"): "int8", ("rounded", "float32"): "float32",
    }  # fmt: skip


@pytest.mark.parametrize("weights", ["float32", "bf16", "int8"])
def test_a_writer_comes_back_from_the_folder_it_wrote(
    weights: Literal["float32", "bf16", "int8"], folder: Path, tmp_path: Path
) -> None:
    source = pack_folder(folder, tmp_path / "source", weights)
    first = Writer.from_pretrained(source)
    again = Writer.from_pretrained(first.save_pretrained(tmp_path / "again"))
    for file in ("config.json", "model.safetensors", "tokenizer.json", "README.md"):
        assert (tmp_path / "again" / file).read_bytes() == (source / file).read_bytes()
    assert (again.precision, again.order, again.jobs, again.notes) == (
        first.precision, first.order, first.jobs, first.notes,
    )  # fmt: skip
    asked: dict[str, Any] = {"n": 2, "seed": 5, "max_actions": 12}
    assert [text.text for text in again.generate("ab", **asked)] == [
        text.text for text in first.generate("ab", **asked)
    ]
    with pytest.raises(CheckpointError, match="again already exists; give another folder, or remove it first"):
        again.save_pretrained(tmp_path / "again")


def test_a_writer_of_a_model_in_memory_writes_a_folder_too(writer: Writer, tmp_path: Path) -> None:
    bare = Writer(writer.model, writer.tokenizer, notes="Made here.")
    again = Writer.from_pretrained(bare.save_pretrained(tmp_path / "bare"))
    assert again.notes == "Made here."
    for name, tensor in writer.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])


def test_the_shipped_model_is_saved_as_it_was_shipped(tmp_path: Path) -> None:
    Writer.from_pretrained().save_pretrained(tmp_path / "copy")
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        assert hash_file(tmp_path / "copy" / file) == hash_file(folders.SHIPPED / file)


def test_auto_is_float32_for_an_int8_folder_that_the_kernels_do_not_know(tmp_path: Path) -> None:
    config = ModelConfig(
        num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=40, max_length=32,
        canvas=CanvasConfig(kind="pool"),
    )  # fmt: skip
    path = save_pretrained(Transformer(config), tmp_path / "pool", load("bytes"), weights="int8")
    assert Writer.from_pretrained(path).precision == "float32"
    with pytest.raises(ConfigError, match=r"no CPU kernels for torch\.float32 on cpu with canvas pool; they need"):
        Writer.from_pretrained(path, weights="int8")


def test_no_name_and_shipped_are_the_shipped_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "SHIPPED", folder)
    wanted = Writer.from_pretrained(folder).generate("abc", max_actions=20)
    for spec in (None, "shipped"):
        assert Writer.from_pretrained(spec).generate("abc", max_actions=20) == wanted


def test_a_text_prints_as_what_was_written_and_shows_a_few_facts(writer: Writer) -> None:
    [text] = writer.generate("abc", max_actions=9, sampling=Sampling(stop_bias=-99.0))
    facts = f"9 actions for {text.num_tokens} tokens, log-probability {text.log_probability:.2f}, ended by actions"
    assert repr(text) == f"Text({text.text!r}, {facts})"
    assert str(text) == text.text


def test_a_writer_shows_its_model_device_and_weights(writer: Writer, folder: Path) -> None:
    assert repr(writer) == f"Writer({folder}, cpu, float32)"
    assert repr(Writer(writer.model, writer.tokenizer, weights="int8")) == "Writer(unnamed, cpu, int8)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": 3}, r"prompts is 3, of type int; give a text \(str\) or a list of texts"),
        ({"prompts": ["a", 3]}, r"prompt is 3, of type int; give a text \(str\)"),
        ({"n": "a"}, "n='a' must be a whole number"),
        ({"n": 2.5}, "n=2.5 must be a whole number"),
        ({"best_of": None}, "best_of=None must be a whole number"),
        ({"seed": "a"}, "seed='a' must be a whole number"),
        ({"seed": 1.5}, "seed=1.5 must be a whole number"),
        ({"max_tokens": "a"}, "max_tokens='a' must be a whole number"),
        ({"max_actions": 9.0}, "max_actions=9.0 must be a whole number"),
        ({"sampling": "paper"}, r"sampling='paper' must be a reviser.Sampling, such as Sampling\(temperature=0.9, "),
    ],
)
def test_an_argument_of_another_type_is_refused_in_one_line(
    arguments: dict[str, Any], message: str, writer: Writer
) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as caught:
        writer.generate(**{"prompts": "abc", **arguments})
    assert "\n" not in str(caught.value)


def test_other_jobs_refuse_what_is_no_text(writer: Writer) -> None:
    with pytest.raises(ConfigError, match=r"^start is 3, of type int; give a prompt \(str\) or a Draft"):
        writer.stream(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sampling='paper' must be"):
        writer.stream("abc", sampling="paper")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="suffix is 3, of type int; give a text"):
        writer.infill("abc", 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the text has no gap; write ___ where something is to be filled in"):
        writer.infill("abc")
    with pytest.raises(ConfigError, match="text is b'abc', of type bytes; give a text"):
        writer.edit(b"abc")  # type: ignore[arg-type]


def test_numpys_whole_numbers_are_whole_numbers(writer: Writer) -> None:
    five: Any = np.int64(5)
    given = {"n": five, "seed": five, "max_actions": five, "max_tokens": np.uint8(5)}
    assert writer.generate("abc", **given) == writer.generate("abc", n=5, seed=5, max_actions=5, max_tokens=5)
    assert next(iter(writer.stream("abc", seed=five, max_actions=five))).step == 0


def test_load_says_which_devices_and_models_there_are(folder: Path) -> None:
    with pytest.raises(ConfigError, match="device gpu is not usable here; write cpu, or cuda where there is a GPU"):
        reviser.load(folder, device="gpu")
    with pytest.raises(ConfigError, match="device None is not usable here"):
        reviser.load(folder, device=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="3, of type int, names no model; give a folder, a hub id like name/model"):
        reviser.load(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", "a", "a number"),
        ("move_temperature", "a", "a number"),
        ("top_p", None, "a number"),
        ("top_k", 1.5, "a whole number"),
        ("min_tokens", "3", "a whole number"),
        ("calm", "no", "True or False"),
    ],
)
def test_a_sampling_setting_of_another_type_is_refused(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}={value!r} must be {allowed}$"):
        Sampling(**{name: value})


def test_a_sampling_takes_numpys_numbers() -> None:
    numbers: Any = {"top_k": np.int32(7), "temperature": np.float32(0.5)}
    made = Sampling(**numbers)
    assert made == Sampling(top_k=7, temperature=0.5)
    assert type(made.top_k) is int


def test_a_text_says_what_ended_it(writer: Writer) -> None:
    never, at_once = Sampling(stop_bias=-99.0), Sampling(stop_bias=99.0)
    assert writer.generate("abc", sampling=at_once)[0].ended_by == "model"
    assert writer.generate("abc", max_actions=5, sampling=never)[0].ended_by == "actions"
    context = writer.config.context
    assert writer.generate("abc", max_actions=context, sampling=never)[0].ended_by == "context"
    start = writer.continuation("abc")
    events = list(writer.stream(start, max_actions=9, sampling=never))
    assert [writer.collect(start, events[:count], 9).ended_by for count in (0, 5, 9)] == [
        "interrupt", "interrupt", "actions",
    ]  # fmt: skip


def test_a_stop_on_a_full_canvas_is_not_the_models_own(writer: Writer) -> None:
    sampling = Sampling(temperature=1.0, top_k=0, stop_bias=2.5)
    texts = writer.generate("abc", n=24, max_tokens=2, max_actions=100, sampling=sampling)
    stopped = [text for text in texts if text.decoded.canvas.is_stopped]
    assert {text.num_tokens == 2 for text in stopped} == {True, False}
    for text in stopped:
        assert text.ended_by == ("length" if text.num_tokens == 2 else "model")
        assert text.has_stopped == (text.num_tokens < 2)
        assert text.trajectory.actions == text.decoded.actions


def test_a_gap_takes_no_more_tokens_than_the_command_allows(tmp_path: Path) -> None:
    config = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=200)
    writer = Writer(Transformer(config).eval(), load("bytes"))
    never = Sampling(stop_bias=-99.0, move_temperature=0.01, jump_bias=-99.0)
    [text], [longer] = (
        writer.infill("a", "b", max_actions=150, sampling=never, **limit) for limit in ({}, {"max_tokens": None})
    )
    assert text.num_tokens == LONGEST_GAP == 128
    assert longer.num_tokens > 64


def test_the_stream_is_the_same_text(writer: Writer) -> None:
    [text] = writer.generate("abc", max_actions=25, seed=9)
    events = list(writer.stream("abc", max_actions=25, seed=9))
    assert tuple(event.action for event in events) == text.decoded.actions
    assert events[-1].canvas == text.decoded.canvas
    for event in events:
        scores = [score for _, score in event.alternatives]
        assert scores == sorted(scores, reverse=True)
        assert max(scores) >= event.log_probability - 1e-6
    greedy = list(writer.stream("abc", max_actions=5, sampling=GREEDY))
    assert all(event.action == event.alternatives[0][0] for event in greedy)


def test_best_of_keeps_the_most_probable(writer: Writer) -> None:
    every = writer.generate("abc", n=6, max_actions=15, seed=2)
    [best] = writer.generate("abc", best_of=6, max_actions=15, seed=2)
    assert best == max(every, key=lambda text: text.log_probability / text.num_actions)


def test_max_tokens_bounds_what_is_written(writer: Writer) -> None:
    [text] = writer.generate("abc", max_tokens=4, max_actions=60, sampling=Sampling(stop_bias=-50.0))
    assert len(text.decoded.canvas.tokens) <= 7


def test_limits_are_clear_errors(writer: Writer) -> None:
    with pytest.raises(ConfigError, match="a prompt of 200 tokens leaves no room in a context of 120 positions"):
        writer.generate("x" * 200)
    with pytest.raises(ConfigError, match="a prompt of 80 tokens does not fit a canvas of 64; shorten it"):
        writer.generate("x" * 80)
    with pytest.raises(ConfigError, match="n=0 and best_of=1 must be at least 1"):
        writer.generate("x", n=0)
    with pytest.raises(ConfigError, match="max_tokens=0 must be at least 1"):
        writer.generate("x", max_tokens=0)
    with pytest.raises(ConfigError, match="max_actions=0 must be at least 1"):
        writer.generate("x", max_actions=0)
    with pytest.raises(TokenizerError, match="surrogate"):
        writer.generate("\ud800")


def test_the_example_in_the_docs_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf8"), re.S)
    monkeypatch.chdir(folder.parents[2])
    exec(compile(code, str(DOCS), "exec"), {})
    assert re.search(r"^  0 .* p=\d\.\d\d cursor \d+$", capsys.readouterr().out, re.M)
