"""Several gaps are filled at once or in turn: what is given stays, limits hold, and every result replays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli_write import document, make_folder, run
from tiny import random_model

from reviser.canvas import FIXED
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.gap_filling import FILLED, GapLimits, find_fillings, knows_gaps, split_gaps, usual_best_of
from reviser.decoding.presets import DEFAULT, GREEDY, LONGEST_GAP, Sampling
from reviser.decoding.writer import Text, Writer
from reviser.errors import ConfigError
from reviser.evaluation.generations import Prompt
from reviser.evaluation.specs import SystemSpec
from reviser.evaluation.systems import Budget, ReviserSystem
from reviser.orders.record import from_record, to_record
from reviser.tokenizer import load

LIVELY = Sampling(1.0, 0, stop_bias=1.0, jump_bias=2.0)
PARTS = ["The", " lighthouse", " until ", ""]
plain = st.text(st.characters(exclude_characters="_"))


def make_writer(*operators: str, has_gaps: bool = False) -> Writer:
    config = ModelConfig(
        num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=240, max_length=160,
        operators=operators, canvas=CanvasConfig(kind="window", slot_width=8),
    )  # fmt: skip
    jobs = "infill=0.5 gaps=1,6" if has_gaps else "infill=0.5"
    return Writer(random_model(config, seed=1), load("bytes"), jobs=jobs)


MOVING, JUMPING = make_writer("move", "delete"), make_writer("jump", "delete", "replace", has_gaps=True)
STILL = make_writer()
writers = pytest.mark.parametrize("writer", [MOVING, JUMPING, STILL], ids=["moves", "jumps", "only inserts"])


def gap_sizes(text: Text) -> list[int]:
    return [len(filling) for filling in find_fillings(text.draft, text.decoded.canvas)]


def check_text(text: Text, parts: list[str]) -> None:
    """What is given stands around the fillings, and the trajectory leads there."""
    assert len(text.fillings) == len(parts) - 1
    assert text.text == "".join(a + b for a, b in zip(parts, [*text.fillings, ""], strict=True))
    assert text.num_tokens == sum(gap_sizes(text))
    again = from_record(to_record(text.trajectory))
    assert again.final.tokens == text.decoded.canvas.tokens
    assert len(text.decoded.log_probabilities) == text.num_actions


@given(plain, plain, st.integers(3, 9))
def test_a_gap_splits_a_text_and_takes_one_space(before: str, after: str, size: int) -> None:
    prefix, suffix = split_gaps(f"{before}{'_' * size}{after}")
    assert (before, after) in ((prefix, suffix), (f"{prefix} ", suffix))
    assert split_gaps(f"{before} ___{after}") == [before, after]


def test_texts_without_a_gap_or_with_two_beside_each_other_are_refused() -> None:
    assert split_gaps("___ a ___ b____") == ["", " a", " b", ""]
    for text in ("nothing", "a __ b"):
        with pytest.raises(ConfigError, match=r"^the text has no gap; write ___ where something is to be filled in$"):
            split_gaps(text)
    with pytest.raises(ConfigError, match=r"^two gaps have nothing between them; write one ___ for both$"):
        split_gaps("a ___ ___ b")


@writers
def test_several_gaps_are_filled_and_what_is_given_stays(writer: Writer) -> None:
    texts = writer.infill(*PARTS, n=12, max_actions=120, sampling=LIVELY, seed=3)
    for text in texts:
        check_text(text, PARTS)
    assert len({text.text for text in texts}) == len(texts) == 12
    assert [text.score for text in texts] == sorted((text.score for text in texts), reverse=True)
    assert any(sum(map(bool, text.fillings)) > 1 for text in texts)
    assert texts == writer.infill("The ___ lighthouse ___ until  ___", n=12, max_actions=120, sampling=LIVELY, seed=3)


@writers
def test_fillings_are_compared_by_what_follows_them_and_a_little_by_themselves(writer: Writer) -> None:
    parts = ["The old", " lighthouse", " until morning."]
    for text in writer.infill(*parts, n=4, best_of=1, max_actions=120, sampling=LIVELY, seed=3):
        tokens, marks = text.decoded.canvas.tokens, text.decoded.canvas.marks
        [scores] = writer.read([tokens])
        behind = range(len(writer.tokenizer.encode(parts[0])), len(tokens))
        given = [place for place in behind if marks[place + 1] & FIXED]
        assert writer.tokenizer.decode([tokens[place] for place in given]) == "".join(parts[1:])
        weights = [1.0 if place in given else FILLED for place in behind]
        total = sum(weight * scores[place] for weight, place in zip(weights, behind, strict=True))
        assert text.fit == text.score == pytest.approx(total / len(given), abs=1e-4)
    assert writer.infill("The old", "", n=2, max_actions=30, sampling=LIVELY)[0].fit is None  # nothing follows


@writers
@pytest.mark.parametrize("parts", [["The old", " until"], PARTS], ids=["one gap", "three"])
def test_every_gap_has_the_length_asked_for(writer: Writer, parts: list[str]) -> None:
    limits = {"min_length": 3, "max_length": 5, "max_actions": 200}
    for text in writer.infill(*parts, n=10, sampling=replace(LIVELY, stop_bias=0.0), **limits):  # type: ignore[arg-type]
        check_text(text, parts)
        assert text.ended_by in ("model", "length")
        assert all(3 <= size <= 5 for size in gap_sizes(text))


def test_of_four_fillings_the_best_is_kept_unless_there_is_but_one_way() -> None:
    asked = {"max_actions": 30, "seed": 5}
    [text] = MOVING.infill("The old", " until", sampling=LIVELY, **asked)  # type: ignore[arg-type]
    all_four = MOVING.infill("The old", " until", n=4, best_of=1, sampling=LIVELY, **asked)  # type: ignore[arg-type]
    assert len(all_four) == 4
    assert text.fit is not None
    assert text == all_four[0] == max(all_four, key=lambda each: each.score)
    [greedy] = MOVING.infill("The old", " until", sampling=GREEDY, **asked)  # type: ignore[arg-type]
    assert greedy.fit is None, "nothing was compared"


def test_different_fillings_are_found_among_all_that_were_tried() -> None:
    tried = MOVING.infill(
        "The old", " until", n=64, best_of=1, max_actions=30, sampling=replace(LIVELY, stop_bias=8.0)
    )
    asked = MOVING.infill("The old", " until", n=4, max_actions=30, sampling=replace(LIVELY, stop_bias=8.0))
    assert 4 <= len(tried) < 64, "most are the same"
    assert len({text.text for text in asked}) == 4
    assert asked == sorted(asked, key=lambda text: -text.score)


def test_a_gap_behind_which_nothing_stands_is_filled_too() -> None:
    assert JUMPING.has_gaps
    assert JUMPING.fills_at_once(["The", " old", " man"], GapLimits())
    assert not JUMPING.fills_at_once(["The", " old", ""], GapLimits()), "models leave such a gap empty"
    assert usual_best_of(["The", ""], LIVELY) == usual_best_of(["a", "b"], GREEDY) == 1
    lively = replace(LIVELY, stop_bias=6.0, min_tokens=2)
    [text] = JUMPING.infill("The", " old", "", max_actions=150, sampling=lively)
    assert all(text.fillings)


def test_one_gap_is_filled_as_ever() -> None:
    [text] = MOVING.infill("The old", " until", best_of=1, max_actions=30, seed=2)
    [same] = MOVING.write_drafts([MOVING.gap("The old", " until", LONGEST_GAP)], max_actions=30, seed=2)
    assert text == same
    assert text.fillings == (text.new,)
    assert MOVING.infill(prefix="The old", suffix=" until", best_of=1, max_actions=30, seed=2) == [text]


def test_a_text_whose_actions_are_spent_leaves_its_last_gaps_empty() -> None:
    [text] = MOVING.infill(*PARTS, max_actions=6, sampling=replace(LIVELY, stop_bias=-9.0))
    check_text(text, PARTS)
    assert (text.fillings[1:], text.ended_by, text.num_actions) == (("", ""), "actions", 6)


def test_the_same_text_is_not_given_twice() -> None:
    assert len(MOVING.infill(*PARTS, n=3, max_actions=60, sampling=GREEDY)) == 1
    with pytest.raises(ConfigError, match=r"^n=0 and best_of=1 must be at least 1$"):
        MOVING.infill(*PARTS, n=0)
    with pytest.raises(ConfigError, match=r"^max_actions=0 must be at least 1$"):
        MOVING.infill("a", "b", "c", max_actions=0)


def test_alternatives_go_with_their_actions() -> None:
    for text in MOVING.fill(PARTS, n=2, max_actions=60, sampling=LIVELY, num_alternatives=3):
        assert len(text.decoded.alternatives) == text.num_actions


def test_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^max_tokens=2 must be at least 3 \(min_length\)$"):
        GapLimits(max_tokens=2, min_length=3)
    with pytest.raises(ConfigError, match=r"^min_length=9999999999 must be at most 2147483647$"):
        GapLimits(max_tokens=None, min_length=9_999_999_999)
    with pytest.raises(ConfigError, match=r"^min_length='a' must be a whole number$"):
        GapLimits(min_length="a")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^a prompt of 300 tokens leaves no room in a context of 240 positions"):
        MOVING.infill("a" * 150, "b" * 100, "c" * 50)


def test_a_model_knows_several_gaps_if_it_was_trained_on_some() -> None:
    assert knows_gaps("prefix=0,64 gaps=1,6 sparse=0.0")
    assert knows_gaps("prefix=0,64 gaps=1,1 sparse=0.1")
    assert not knows_gaps("prefix=0,64 gaps=1,1 sparse=0.0")
    assert not knows_gaps("prefix=0,64 infill=0.4")
    assert not make_writer("move", has_gaps=True).has_gaps


def test_the_command_fills_all_gaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, path = make_folder(tmp_path), tmp_path / "written.jsonl"
    asked = ["infill", "The ___ old ___.", "--n", 2, "--max-tokens", 6, "--model", model]
    found = document(capsys, *asked, "--out", path, "--html", tmp_path / "page.html")
    wanted = Writer.from_pretrained(model).infill("The ___ old ___.", n=2, max_tokens=6, sampling=DEFAULT)
    assert [entry["text"] for entry in found["texts"]] == [text.text for text in wanted]
    assert [entry["fit"] for entry in found["texts"]] == [text.fit for text in wanted]
    for entry in found["texts"]:
        first, second = entry["fillings"]
        assert entry["text"] == f"The{first} old{second}."
    assert [json.loads(line)["text"] for line in path.read_text("utf-8").splitlines()] == [
        entry["text"] for entry in found["texts"]
    ]
    assert run(capsys, "trajectory", "check", path)[0] == "2 trajectories replay\n"
    never = ["--stop-bias", "-20", "--max-length", 2]
    assert "ended by --max-length 2 in a gap" in run(capsys, *asked[:2], "--model", model, *never)[1]
    assert run(capsys, *asked, "--greedy")[1].splitlines()[-1] == (
        "note: --n 2 texts were asked for, and 1 that differ were found"
    )


def test_an_evaluated_system_may_keep_the_best_of_several() -> None:
    spec = SystemSpec.parse("four=runs/mine,best_of=4,temperature=0.5")
    assert (spec.best_of, spec.sampling) == (4, ["temperature=0.5"])
    with pytest.raises(ConfigError, match=r"best_of=0 must be a whole number of at least 1$"):
        SystemSpec.parse("four=runs/mine,best_of=0")
    prompts = [Prompt("a", "The old", " light", " until morning."), Prompt("b", "It", " was", " dark.")]
    one, four = (ReviserSystem("x", MOVING, LIVELY, Budget(), best_of=k) for k in (1, 4))
    first, best = (list(each.generate(prompts, 3)) for each in (one, four))
    for prompt, kept, single in zip(prompts, best, first, strict=True):
        tried = MOVING.compare(MOVING.write([four.request(prompt, 3, number) for number in range(4)], LIVELY))
        assert tried[0].new == single.text, "the first is the only one of a system that writes one"
        assert kept.text == max(tried, key=lambda text: text.score).new
        assert kept.num_actions == sum(text.num_actions for text in tried)
