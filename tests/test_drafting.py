"""Pairs out of a model's own writing: which spans, what becomes of them, and files that are resumed."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_proofread import random_writer
from tiny import WORDS

from reviser.cli import main
from reviser.data.sources import find_sources, read_records
from reviser.decoding.writer import Writer
from reviser.drafting.draft_pairs import Drafting, make_pairs, plan_texts, read_sources, write_drafts
from reviser.drafting.draft_spans import SPAN_KINDS, choose_spans, cut_sentences, cut_stretch
from reviser.errors import ConfigError
from reviser.model.checkpoint import save_pretrained
from reviser.orders.rng import Random
from reviser.tokenizer import load

TOKENIZER = load("default")
SENTENCES = st.lists(st.sampled_from([*WORDS, "Dr. Bell", "well,"]), min_size=1, max_size=9).map(
    lambda words: " ".join(words).capitalize() + "."
)
DOCUMENTS = st.lists(st.tuples(SENTENCES, st.sampled_from([" ", "\n", "\n\n"])), max_size=14).map(
    lambda parts: "".join(map("".join, parts))
)
PROSE = "The boats lay still, and the gulls were asleep. A child came down the steps. Nobody saw her go. " * 12


@given(DOCUMENTS, st.integers(0, 9), st.integers(16, 80))
def test_a_stretch_is_whole_sentences_that_fit(document: str, seed: int, most: int) -> None:
    text = cut_stretch(document, TOKENIZER, most, Random.of(seed))
    assert text in document
    assert len(TOKENIZER.encode(text)) <= most
    assert text == text.strip()
    assert not text or text.endswith(".")


@given(DOCUMENTS, st.integers(0, 99), st.integers(1, 3), st.integers(0, 2))
def test_spans_do_not_meet_and_leave_half_of_the_text(document: str, seed: int, low: int, more: int) -> None:
    spans = choose_spans(document, Random.of(seed), (low, low + more))
    assert len(spans) <= low + more
    assert all(one.end < two.start for one, two in pairwise(spans))
    assert 2 * sum(each.end - each.start for each in spans) <= len(document)
    assert all(each.kind in SPAN_KINDS and document[each.start : each.end].strip() for each in spans)


def test_every_kind_of_span_is_drawn() -> None:
    drawn = {each.kind for seed in range(60) for each in choose_spans(PROSE, Random.of(seed))}
    assert drawn == set(SPAN_KINDS)


def test_a_continuation_is_cut_to_as_many_sentences() -> None:
    assert (
        cut_sentences(" It rained all day. We slept. And", " One sentence here. Two.")
        == " It rained all day. We slept."
    )
    assert cut_sentences(" It rained all day", " One sentence here.") == ""


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 999), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([None, -1000.0]))
def test_a_pair_is_the_text_with_spans_replaced(seed: int, blind: float, min_gain: float | None) -> None:
    writer = random_writer()
    how = Drafting(seed=seed, tokens=40, blind=blind, min_gain=min_gain, per_document=3)
    plans = [plan for plan in plan_texts([("a:1", PROSE), ("b:1", "No.")], TOKENIZER, how) if plan.spans]
    for pair in make_pairs(writer, plans, how):
        plan = next(each for each in plans if each.number == pair["number"])
        assert pair["after"] == plan.text != pair["before"]
        assert plan.text in PROSE
        # What stands between the spans is the same on both sides.
        places = [
            0,
            *(place for span in pair["spans"] for place in (span["start"], span["end"])),
            len(pair["before"]),
        ]
        rest = pair["after"]
        for start, end in zip(places[::2], places[1::2], strict=True):
            assert pair["before"][start:end] in rest
            rest = rest[rest.index(pair["before"][start:end]) + end - start :]
        assert all(("nats" in span) == (min_gain is not None) for span in pair["spans"])
        assert all(span["sees"] == "both" or span["kind"].startswith("sentence") for span in pair["spans"])


class Eager(Writer):
    """Fills every gap with the same words, and counts its calls."""

    calls = 0

    def write(self, requests: Any, *_: Any) -> Any:
        type(self).calls += 1
        texts = super().write(requests, *_)
        return [_Filled(text, " It was a quiet day.") for text in texts]


class _Filled:
    def __init__(self, text: Any, new: str) -> None:
        self.new, self.has_stopped = new, True


def eager() -> Writer:
    writer = random_writer()
    return Eager(writer.model, writer.tokenizer, num_rows=1)


def test_a_file_that_was_broken_off_becomes_what_it_would_have_become(tmp_path: Path) -> None:
    how, documents = Drafting(tokens=40), [(f"d:{number}", PROSE) for number in range(3)]
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "new" / "broken.jsonl"
    count = write_drafts(eager(), documents, whole, how, "m")
    assert count == len(whole.read_text("utf8").splitlines()) > 7
    write_drafts(eager(), documents, broken, how, "m", most=7)
    assert len(broken.read_text("utf8").splitlines()) == 7
    broken.write_bytes(broken.read_bytes()[:-9])
    assert write_drafts(eager(), documents, broken, how, "m") == count
    assert broken.read_bytes() == whole.read_bytes()
    with pytest.raises(ConfigError, match="its pairs were made with another model or other settings"):
        write_drafts(eager(), documents, whole, Drafting(tokens=41), "m")
    [source] = find_sources([whole])
    records = list(read_records(source, "text"))
    assert all(record.before != record.text and record.problem is None for record in records)
    assert {record.group for record in records} == {name for name, _ in documents}


def test_the_command_makes_pairs_that_are_prepared_as_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = random_writer()
    folder = str(save_pretrained(writer.model, tmp_path / "model", writer.tokenizer))
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"text": PROSE}) + "\n" for _ in range(2)))
    out = str(tmp_path / "drafts.jsonl")
    # A random model never stops by itself, so sentences alone are filled, and cut.
    words = ["data", "drafts", folder, str(tmp_path / "docs.jsonl"), "--out", out, "--tokens", "60", "--blind", "1"]
    assert main([*words, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["num_pairs"] == len(Path(out).read_text("utf8").splitlines())
    assert main([*words, "--seed", "1"]) == (2 if done["num_pairs"] else 0)
    for wrong, error in (
        (["--spans", "3,1"], "--spans 3,1 must be two whole numbers from 1 up, as 1,3"),
        (["--spans", "3"], "--spans 3 is not a list of 2 whole numbers"),
        (["--blind", "2"], "--blind 2.0 must be a share between 0 and 1"),
        (["--tokens", "3"], "--tokens 3 must be at least 16"),
        (["--per-document", "0"], "--per-document 0 must be at least 1"),
        (["--n", "0"], "--n"),
    ):
        capsys.readouterr()
        assert main([*words, *wrong]) == 2
        assert error in capsys.readouterr().err


def test_something_that_is_no_file_of_pairs_is_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"text": "mine"}\n')
    with pytest.raises(Exception, match="line 1: not a pair of drafts; give another --out"):
        write_drafts(eager(), [("d:1", PROSE)], notes, Drafting(tokens=40))
    assert notes.read_text() == '{"text": "mine"}\n'


def test_documents_are_named_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n{"text": "Two."}\n')
    assert list(read_sources([str(tmp_path / "a.jsonl")])) == [("a.jsonl:1", "One."), ("a.jsonl:2", "Two.")]
