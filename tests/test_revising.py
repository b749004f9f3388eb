"""A model goes over its own drafts: what is given stays, one trajectory holds both, and the command tells all."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from screen import Screen
from scripted import ScriptedWriter
from test_cli_live import Terminal, flat
from test_cli_write import run
from test_proofread import random_writer
from tiny import WORDS, random_model

from reviser.actions import Alphabet
from reviser.canvas import Rules, replay
from reviser.cli import main
from reviser.config import ModelConfig
from reviser.decoding.presets import PAPER, Sampling
from reviser.decoding.requests import Decoded
from reviser.decoding.writer import Text, Writer
from reviser.errors import ConfigError
from reviser.model.checkpoint import save_pretrained
from reviser.orders.record import Draft, from_record, to_record
from reviser.proofreading.choices import REVISING, Proofreading, revising
from reviser.proofreading.edits import Edit, find_edits
from reviser.proofreading.proofread import proofread_all
from reviser.proofreading.rereading import find_gains, scan_for
from reviser.tokenizer import Tokenizer, load

BRIEF = Sampling(1.2, 0, stop_bias=5.0, jump_bias=6.0)
"""Jumps about, changes a little here and there, and stops."""
PROMPTS = st.lists(st.sampled_from([*WORDS, "Grünau", "“naïve”", "\n"]), max_size=8).map(" ".join)


@settings(max_examples=12, deadline=None)
@given(PROMPTS, st.integers(0, 99), st.integers(1, 2), st.sampled_from([6, 24, None]))
def test_what_is_given_stays_and_one_trajectory_holds_draft_and_revision(
    prompt: str, seed: int, passes: int, max_tokens: int | None
) -> None:
    writer = random_writer()
    how = Proofreading(min_probability=0.0, passes=passes, weighing=REVISING, max_actions=40)
    asked: dict[str, Any] = {"max_actions": 40, "max_tokens": max_tokens, "seed": seed, "sampling": PAPER}
    drafts = writer.generate([prompt, "The sea"], **asked)
    revised = writer.revise(drafts, how, partial(writer.propose, seed=seed, sampling=BRIEF, max_actions=40))
    for draft, text in zip(drafts, revised, strict=True):
        revision = text.revision
        assert revision is not None
        assert (revision.original, revision.text) == (draft.text, text.text)
        assert all(draft.text[each.start : each.end] == each.before != each.after for each in revision.edits)
        assert all(left.end <= right.start for left, right in pairwise(revision.edits))
        given_tokens = draft.draft.tokens
        assert text.decoded.canvas.tokens[: len(given_tokens)] == given_tokens
        assert len(text.decoded.canvas.tokens) <= draft.draft.rules.max_length
        kept = draft.decoded.actions[: len(draft.decoded.actions) - draft.decoded.canvas.is_stopped]
        assert text.decoded.actions[: len(kept)] == kept
        assert len(text.decoded.actions) == len(text.decoded.log_probabilities)
        assert from_record(to_record(text.trajectory)).final.tokens == text.decoded.canvas.tokens
        assert text.log_probability == draft.log_probability
        assert text.ended_by == draft.ended_by


def test_a_random_model_does_revise() -> None:
    writer = random_writer()
    how = Proofreading(min_probability=0.0, passes=1, weighing=REVISING)
    drafts = writer.generate(["The boat lay still"] * 3, max_actions=30, sampling=PAPER)
    revised = writer.revise(drafts, how, partial(writer.propose, sampling=BRIEF, max_actions=40))
    assert any(text.revision is not None and text.revision.edits for text in revised)


def write_by_hand(writer: Writer, prompt: str, written: str) -> Text:
    """A draft of just these words."""
    draft = writer.continuation(prompt)
    actions = (*writer.tokenizer.encode(written), draft.rules.alphabet.stop)
    canvas = replay(draft.canvas, actions, draft.rules)
    return writer._read(draft, Decoded(actions, (-1.0,) * len(actions), canvas, "model"))


def test_the_same_word_is_changed_in_the_draft_and_not_in_the_prompt() -> None:
    writer = ScriptedWriter()
    draft = write_by_hand(writer, "I saw teh boat", " and teh gull. We recieve it.")
    how = replace(Proofreading(min_probability=0.0, passes=2, reread=False), weighing=REVISING)
    [text] = writer.revise([draft], how)
    assert text.text == "I saw teh boat and the gull. We receive it."
    assert text.revision is not None
    assert [(each.before, each.after) for each in text.revision.edits] == [("teh", "the"), ("recieve", "receive")]
    assert text.revision.num_actions >= len(text.revision.actions)
    assert text.trajectory.final.is_stopped
    assert text.fillings == (" and the gull. We receive it.",)


def test_a_word_that_begins_in_the_prompt_is_changed_behind_it_alone() -> None:
    writer = ScriptedWriter(lambda text: text.replace("houze", "house"))
    [text] = writer.revise(
        [write_by_hand(writer, "The light", "houze.")], Proofreading(min_probability=0.0, reread=False)
    )
    assert text.decoded.canvas.tokens[: len(text.draft.tokens)] == text.draft.tokens
    assert text.revision is not None
    assert all(each.start >= len("The light") for each in text.revision.edits)


def test_several_texts_are_edited_as_each_alone() -> None:
    writer = ScriptedWriter()
    texts = ["See teh boat.", "All is well.", "I dont know.\r\nWe recieve alot."]
    how = Proofreading(min_probability=0.0, reread=False)
    about = writer.tokenizer, writer.config, how
    together = proofread_all(texts, writer.propose, *about)
    assert together == [proofread_all([text], writer.propose, *about)[0] for text in texts]
    assert [each.text for each in together] == ["See the boat.", "All is well.", "I don't know.\r\nWe receive a lot."]
    assert all(each.num_actions > 0 for each in together)
    closed = [[(0, len(text))] for text in texts[:2]] + [[(0, texts[2].index("We"))]]
    kept = proofread_all(texts, writer.propose, *about, closed=closed)
    assert [each.text for each in kept] == [*texts[:2], "I dont know.\r\nWe receive a lot."]


@given(st.lists(st.floats(-5, -0.1), min_size=4, max_size=4))
def test_where_stretches_are_written_anew_only_the_way_counts(scores: list[float]) -> None:
    tokenizer = load("bytes")
    rules = Rules(Alphabet(tokenizer.num_text, tokenizer.pad), frozenset(["jump", "delete"]))
    draft, alphabet = Draft.edit(tokenizer.encode("abc"), rules), rules.alphabet
    actions = (alphabet.jump(2), alphabet.delete, ord("x"), ord("y"), alphabet.stop)
    attempt = Decoded(actions, (*scores, -0.3), replay(draft.canvas, actions, rules), "model")
    [whole], [way] = (find_edits(draft, attempt, tokenizer, rewrites) for rewrites in (False, True))
    assert math.log(whole.probability) == pytest.approx(sum(scores))
    assert math.log(way.probability) == pytest.approx(scores[0] + scores[1])
    assert (whole.before, whole.after) == (way.before, way.after) == ("b", "xy")


@given(st.text("ab ", min_size=1, max_size=12), st.text("ab ", max_size=12), st.text("ab ", max_size=12))
def test_a_shorter_text_gains_nothing_by_being_shorter(left: str, before: str, after: str) -> None:
    def read(texts: Any, begins: Any) -> list[list[float]]:
        return [[-2.0] * (len(text) - begin) for text, begin in zip(texts, begins, strict=True)]

    if before == after:
        return
    edit = Edit(len(left), len(left + before), before, after, 0.5)
    shown = [("", f"{left}{before}c", "", [edit])]
    bytewise: Tokenizer = load("bytes")
    [[plain]], [[level]] = (find_gains(shown, bytewise, read, equal) for equal in (False, True))
    assert plain == pytest.approx(2.0 * (len(before) - len(after)))
    assert level == pytest.approx(0.0)


def test_the_scan_follows_from_the_least_probability_that_can_matter() -> None:
    how = revising(1, 0.5)
    assert how is not None
    assert scan_for(how) == pytest.approx(max(1 / (1 + math.exp(4)), 0.02))
    assert scan_for(replace(how, min_probability=0.99)) > scan_for(how)
    assert revising(0) is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"revise": -1}, "revise=-1 must be a whole number of passes, 0 or more"),
        ({"revise": 1.5}, "revise=1.5 must be a whole number of passes, 0 or more"),
        ({"revise": 1, "revise_probability": 2}, "revise_probability=2 must be a number between 0 and 1"),
    ],
)
def test_what_is_no_way_to_revise_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        random_writer().generate("The", **options)


def test_a_model_that_cannot_delete_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ModelConfig(num_text=257, pad=256, num_layers=1, width=32, num_heads=2, ff_width=32, context=60)
    folder = str(save_pretrained(random_model(config), tmp_path / "still", load("bytes")))
    with pytest.raises(ConfigError, match="this model cannot edit: it has the operators move"):
        Writer.from_pretrained(folder).generate("The", revise=1)
    assert main(["generate", "The", "--model", folder, "--revise", "1"]) == 2
    assert "still cannot edit: it has the operators move, and editing needs delete" in capsys.readouterr().err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    writer = random_writer()
    return str(save_pretrained(writer.model, tmp_path_factory.mktemp("models") / "tiny", writer.tokenizer))


def test_a_draft_with_a_zero_byte_is_left_as_it_is() -> None:
    writer = ScriptedWriter(tokenizer=load("bytes"))
    drafts = [write_by_hand(writer, "Teh", each) for each in (" a\0 teh", " teh")]
    how = Proofreading(min_probability=0.0, passes=1, reread=False)
    assert [text.text for text in writer.revise(drafts, how)] == ["Teh a\0 teh", "Teh the"]


def test_the_command_tells_draft_edits_and_one_trajectory(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    propose = Writer.propose
    # A random model that scans never comes to an end.
    monkeypatch.setattr(Writer, "propose", lambda self, drafts, **_: propose(self, drafts, 7, BRIEF))
    words = ["generate", "The old", "--model", folder, "--seed", "5", "--max-actions", "30", "--n", "3"]
    drafts = json.loads(run(capsys, *words, "--json")[0])["texts"]
    revise = [*words, "--revise", "1", "--revise-probability", "0", "--revise-by", "scan"]
    found = json.loads(run(capsys, *revise, "--json")[0])
    assert (found["revise"], found["revise_probability"]) == (1, 0.0)
    assert [each["draft"] for each in found["texts"]] == [each["text"] for each in drafts]
    assert any(each["edits"] for each in found["texts"])
    for each in found["texts"]:
        text = each["draft"]
        for edit in reversed(each["edits"]):
            assert 0 <= edit["probability"] <= 1
            text = text[: edit["start"]] + edit["after"] + text[edit["end"] :]
        assert text == each["text"]
        assert each["revising_actions"] > 0
    out, err = run(capsys, *revise, "--out", tmp_path / "t.jsonl")
    assert out.count("---") >= 2
    assert " of the draft, in " in err
    assert '" -> "' in err
    run(capsys, "trajectory", "check", tmp_path / "t.jsonl")


@pytest.mark.parametrize("by", ["scan", "reading"])
def test_live_shows_the_revision_too_and_leaves_the_same_text(
    by: str, folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["generate", "The old", "--model", folder, "--seed", "5", "--max-actions", "30"]
    words += ["--revise", "1", "--revise-probability", "0", "--revise-by", by]
    [wanted] = json.loads(run(capsys, *words, "--json")[0])["texts"]
    terminal = Terminal(monkeypatch, 100, 30)
    assert main([*words, "--live", "--pace", "0"]) == 0
    written = terminal.close()
    screen: Screen = terminal.screen(written)
    assert flat(wanted["text"])[:12] in flat(screen.text)
    assert written.count("actions/s") > 1
