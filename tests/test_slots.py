"""Slots: documents with mistakes and pairs become drafts and targets, in any mixture, edited or written anew."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_filling import fill_both
from test_mistakes import PROSE, prose_table
from tiny import make_trainer, settings, write_prose

from reviser.actions import NUM_SPECIAL, Alphabet
from reviser.canvas import Rules
from reviser.config import CanvasConfig
from reviser.data.corpus import prepare
from reviser.data.drawing import EDITS
from reviser.data.examples import Examples, JobConfig, heldout_examples
from reviser.data.filling import EVERY_TOKEN, learn_kept
from reviser.data.packing import Packed, Packer
from reviser.data.shards import Shards
from reviser.data.slots import Slots, heldout_drafts
from reviser.errors import ConfigError, DataError
from reviser.evaluation.prompts import read_named
from reviser.mistakes.mistake_kinds import MistakeConfig
from reviser.mistakes.table_file import save_table
from reviser.orders.registry import parse_order
from reviser.orders.rng import Random
from reviser.tokenizer import load
from reviser.training.api import _note_pairs

RULES = Rules(Alphabet(257, 256), frozenset({"jump", "delete", "replace"}), max_length=400)
JOBS = JobConfig((0, 12), (4, 28), (4, 28), (1, 9), infill=0.5, edit=0.5, pairs=0.25, draft=(4, 60), around=(1, 20))
MANY = MistakeConfig(clean=0.2, keyboard=0.2, comma_dropped=1.0, article=0.5)
PACKER = Packer(parse_order("runs:jump=0.2,by=pointer"), RULES, CanvasConfig(), row=1024)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents, pairs and a table of mistakes."""
    import random

    home, draw = tmp_path_factory.mktemp("slots"), random.Random(1)
    texts = [{"text": " ".join(PROSE.split()[k:])} for k in range(0, 90, 3)]
    pairs = [
        {"before": write_prose(draw)[: 12 + k], "after": write_prose(draw)[: 13 + k], "message": str(k)}
        for k in range(40)
    ]
    (home / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*texts, *pairs]))
    prepare([home / "all.jsonl"], home / "data", load("bytes"), holdout=0.2, pair_holdout=0.3)
    save_table(prose_table("bytes"), home / "data" / "errors.npz")
    return home / "data"


def open_slots(folder: Path, jobs: JobConfig = JOBS, split: str = "train") -> Slots:
    return Slots.of(Shards.open(folder, split), jobs, mistakes=MANY)


def test_examples_come_in_the_shares_that_were_asked_for(folder: Path) -> None:
    slots = open_slots(folder)
    examples = slots.examples(np.arange(len(slots)), 3, 0)
    is_pair, is_edit = slots.cuts[examples.document] > 0, examples.drafted > 0
    assert is_pair.mean() == pytest.approx(0.25, abs=0.01)
    assert is_edit[is_pair].all()
    more = [slots.examples(np.arange(slots.num_plain), 3, epoch) for epoch in range(40)]
    assert np.mean([(each.drafted > 0).mean() for each in more]) == pytest.approx(0.5, abs=0.05)
    writes = np.concatenate([each.suffix[each.drafted == 0] > 0 for each in more])
    assert writes.mean() == pytest.approx(0.5, abs=0.06)
    # All pairs come before any comes again.
    seen = [slots.examples(np.arange(slots.num_plain, len(slots)), 3, epoch).document for epoch in range(20)]
    counts = np.bincount(np.concatenate(seen), minlength=len(slots.cuts))[slots.pairs]
    assert counts.max() - counts.min() <= 1


def test_an_example_depends_on_its_slot_alone(folder: Path) -> None:
    slots = open_slots(folder)
    some = slots.shuffle(1, 0)[:25]
    together, alone = slots.examples(some, 1, 2), [slots.examples(some[k : k + 1], 1, 2) for k in range(25)]
    for i, one in enumerate(alone):
        assert together.text(i) == one.text(0)
        assert together.draft(i, RULES) == one.draft(0, RULES)
        assert together.states[i] == one.states[0]


def _cuts_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1 : place + 1].isalnum()


def test_what_is_edited_begins_and_ends_with_a_word(folder: Path) -> None:
    slots = open_slots(folder, replace(JOBS, edit=1.0, pairs=0.0, draft=(1, 60)))
    decode, num_short = load("bytes").decode, 0
    for epoch in range(8):
        examples = slots.examples(np.arange(len(slots)), 1, epoch)
        for i, document in enumerate(examples.document.tolist()):
            text, target = decode(slots.documents[document].tolist()), decode(examples.target(i).tolist())  # type: ignore[index]
            given = decode(examples.text(i)[: examples.prefix[i]])
            places = [found.start() + len(given) for found in re.finditer(re.escape(given + target), text)]
            assert any(not _cuts_word(text, p) and not _cuts_word(text, p + len(target)) for p in places), target
            num_short += len(target) < 8
    assert num_short > 10


def test_a_share_of_the_pairs_is_corrected_already(folder: Path) -> None:
    plain, mixed = open_slots(folder), open_slots(folder, replace(JOBS, corrected=0.4))
    numbers = np.tile(np.arange(plain.num_plain, len(plain)), 40)
    epochs = np.repeat(np.arange(40), len(plain) - plain.num_plain)
    before, now = plain.examples(numbers, 2, epochs), mixed.examples(numbers, 2, epochs)
    is_corrected = np.zeros(len(numbers), bool)
    for i in range(len(numbers)):
        draft = now.draft(i, RULES)
        assert now.text(i) == before.text(i)
        is_corrected[i] = draft.tokens == now.text(i)
        assert is_corrected[i] or draft == before.draft(i, RULES)
    assert is_corrected.mean() == pytest.approx(0.4, abs=0.06)


def test_drafts_are_edited_into_their_targets_by_the_order_of_edits(folder: Path) -> None:
    slots = open_slots(folder)
    examples = slots.examples(slots.shuffle(5, 1)[:150], 5, 1)
    drawn = PACKER.draw(examples)
    is_edit = np.flatnonzero(examples.drafted)
    num_clean = 0
    for i in is_edit.tolist():
        draft, text, actions = examples.draft(i, RULES), examples.text(i), tuple(drawn.rows[i].tolist())
        wanted = EDITS.draw(draft, text, Random.of(0))
        assert actions == wanted.actions
        assert (wanted.final.tokens, drawn.rows.log_q[i]) == (text, 0.0)
        assert drawn.sizes[i] == len(draft.actions) + len(actions)
        num_clean += len(actions) == 1
    assert 0 < num_clean < len(is_edit)


def test_the_kernel_and_the_executor_fill_the_same_rows(folder: Path) -> None:
    slots = open_slots(folder)
    drawn = PACKER.draw(slots.examples(slots.shuffle(0, 0)[:60], 0, 0))
    one, is_used = fill_both(drawn, RULES, 1024, 3)
    assert (one.labels[is_used] >= 0).any()


def test_what_does_not_fit_becomes_a_shorter_text_without_mistakes(folder: Path) -> None:
    slots = open_slots(folder, replace(JOBS, pairs=0.9))
    examples = slots.examples(np.arange(len(slots)), 2, 0)
    drafted = examples.drafted.copy()
    drawn = replace(PACKER, context=90).draw(examples)
    assert drawn.sizes.max() <= 90
    changed = np.flatnonzero((examples.drafted != drafted) & (drafted > 0))
    assert len(changed)
    for i in changed.tolist():
        assert examples.draft(i, RULES).tokens == examples.text(i)
        assert drawn.rows[i].tolist() == [RULES.alphabet.stop]


def test_a_rewriting_is_the_draft_a_separator_and_the_target(folder: Path) -> None:
    jobs = replace(JOBS, infill=0.0)
    plain, rewriting = open_slots(folder, jobs), open_slots(folder, replace(jobs, rewrites=True))
    numbers = np.arange(len(plain))
    drafts, texts = plain.examples(numbers, 4, 0), rewriting.examples(numbers, 4, 0)
    assert not texts.drafted.any()
    assert (texts.prefix + texts.length).max() <= replace(jobs, rewrites=True).longest_edit == 2 * 95 + 1
    for i in range(len(plain)):
        if not drafts.drafted[i]:
            assert texts.text(i) == drafts.text(i)
            continue
        start, count = int(drafts.drafts[i]), int(drafts.drafted[i])
        draft, target = drafts.tokens[start : start + count].tolist(), drafts.target(i).tolist()
        assert texts.text(i) == (*draft, 0x1E, *target)
        assert texts.target(i).tolist() == target


def test_held_out_documents_are_no_pairs(folder: Path) -> None:
    shards = Shards.open(folder, "heldout")
    assert 0 < len(shards.plain) < len(shards)
    texts = [text for _, text in read_named([folder])]
    assert texts == [shards.tokenizer.decode(shards[i].tolist()) for i in range(len(shards)) if not shards.cuts[i]]


def test_held_out_drafts_are_the_same_every_time_and_documents_exclude_pairs(folder: Path) -> None:
    shards = Shards.open(folder, "heldout")
    one, other = (heldout_drafts(shards, JOBS, 12, mistakes=MANY) for _ in range(2))
    assert [one.draft(i, RULES) for i in range(12)] == [other.draft(i, RULES) for i in range(12)]
    assert (one.drafted > 0).all()
    assert not shards.cuts[heldout_examples(shards, 99, 2, 6).document].any()


def test_what_is_missing_is_said(folder: Path, data: Path) -> None:
    bare = Shards.open(data, "train")
    with pytest.raises(
        DataError, match=r"errors.npz: no such table, and data.jobs.edit makes mistakes; build one with"
    ):
        Slots.of(bare, replace(JOBS, pairs=0.0))
    with pytest.raises(DataError, match=r"jobs.pairs=0.25 and no pair of at most 60 tokens a side"):
        Slots.of(bare, replace(JOBS, edit=0.0))
    for change, text in (
        ("data.jobs.edit=0.5", "data.jobs.edit takes the operators jump and delete; model.operators is move"),
        ("data.jobs.pairs=0.5", "data.jobs.pairs takes the operators jump and delete; model.operators is move"),
        ("train.eval_edit=4", "train.eval_edit=4 needs drafts; set data.jobs.edit or data.jobs.pairs"),
        (
            "model.operators=move,jump,delete data.jobs.edit=1 data.jobs.draft=4,64",
            "of up to 196 tokens, model.context is 64",
        ),
        ("data.jobs.pairs=1.5", "jobs.pairs=1.5 is not a share between 0 and 1"),
        ("data.jobs.corrected=-1", "jobs.corrected=-1.0 is not a share between 0 and 1"),
    ):
        with pytest.raises(ConfigError, match=text):
            settings(*change.split())


EDITING = (
    "model.operators=jump,delete,replace",
    "model.context=96",
    "model.canvas.kind=window",
    "data.order=runs:jump=0.1,by=pointer",
    "data.jobs.edit=0.6",
    "data.jobs.pairs=0.2",
    "data.jobs.draft=4,20",
    "data.jobs.around=0,8",
    "train.eval_edit=8",
)


@pytest.mark.parametrize(
    "more", [(), ("data.jobs.rewrites=true", "data.order=left-to-right")], ids=["edits", "rewrites"]
)
def test_a_model_learns_to_edit_or_to_rewrite(folder: Path, more: tuple[str, ...]) -> None:
    trainer = make_trainer(folder, *EDITING, *more, "train.steps=30", "train.eval_every=15", "model.max_length=256")
    heldout = trainer.heldout["edit"]
    before = heldout.summarise(heldout.score(trainer.model, torch.device("cpu")))
    after = trainer.train()["edit"]
    assert after.nats_per_token < before.nats_per_token
    assert before.num_examples == after.num_examples == 8


def label_plainly(packed: Packed, examples: Examples) -> npt.NDArray[np.int32]:
    """The labels of rows where all that is given and that a finished text has is learned too."""
    labels = packed.labels.copy()
    for i, (row, col, _) in enumerate(packed.places.tolist()):
        text, prefix, target = examples.text(i), int(examples.prefix[i]), int(examples.length[i])
        given = list(examples.draft(i, RULES).canvas.tokens)
        is_learned = [True] * prefix
        missed = 1
        if examples.drafted[i]:
            count = int(examples.drafted[i])
            kept, missed = kept_of(given[prefix : prefix + count], text[prefix:][:target])
            is_learned += [token >= 0 for token in kept]
        for part in examples.split(i)[0][1:]:
            is_learned += [place >= missed for place in range(len(part))]
        for step, (token, is_so) in enumerate(zip(given, is_learned, strict=True)):
            labels[row, col + step] = token if is_so else -1
    return labels


def kept_of(draft: Sequence[int], text: Sequence[int]) -> tuple[list[int], int]:
    """The labels of a draft, and how many tokens behind it are not learned."""
    labels = np.full(len(draft), -1, np.int32)
    missed = learn_kept(np.array(draft, np.int32), np.array(text, np.int32), labels)
    return labels.tolist(), missed


@given(st.lists(st.integers(0, 30), max_size=40), st.data())
def test_nothing_is_learned_of_a_draft_but_what_its_text_keeps(text: list[int], data: st.DataObject) -> None:
    draft = list(text)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(draft)))
        draft[place : place + data.draw(st.integers(0, 3))] = data.draw(st.lists(st.integers(31, 40), max_size=3))
    kept, missed = kept_of(draft, text)
    assert all(label in (-1, token) for label, token in zip(kept, draft, strict=True))
    assert not [label for label in kept if label > 30]
    rest = iter(text)
    assert all(label in rest for label in kept if label >= 0), "what is learned comes in the text's own order"
    if draft == text:
        assert (kept, missed) == (text, 0)
    if draft[-1:] != text[-1:]:
        assert missed


def test_what_comes_first_behind_a_mistake_is_not_learned() -> None:
    cases: list[tuple[list[int], list[int], list[int], int]] = [
        ([1, 2, 9, 4, 5, 6], [1, 2, 3, 4, 5, 6], [1, 2, -1, -1, 5, 6], 0),  # another word
        ([1, 2, 4, 5, 6], [1, 2, 3, 4, 5, 6], [1, 2, -1, 5, 6], 0),  # a word is missing
        ([1, 2, 2, 3, 4], [1, 2, 3, 4], [1, 2, -1, -1, 4], 0),  # a word is there twice
        ([1, 9, 3], [1, 2, 3], [1, -1, -1], 0),
        ([1, 9], [1, 2], [1, -1], 1),
        ([1], [1, 2], [1], 1),  # the last word is missing
        ([1, 2], [1], [1, -1], 1),
        (
            [1, 2, *range(50, 70), 3, 4],
            [1, 2, 3, 4],
            [1, 2, *[-1] * 22],
            EVERY_TOKEN,
        ),  # too much to find the way back
        ([1, *range(50, 70)], [1], [1, *[-1] * 20], EVERY_TOKEN),
    ]
    for draft, text, wanted, missed in cases:
        assert kept_of(draft, text) == (wanted, missed)


@pytest.mark.parametrize("jobs", [JOBS, replace(JOBS, gaps=(1, 3), sparse=0.2, corrected=0.5, cut_stops=False)])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_given_is_learned_where_asked(folder: Path, jobs: JobConfig, seed: int) -> None:
    slots, packed = open_slots(folder, jobs), []
    for packer in (PACKER, replace(PACKER, learn_given=1.0)):
        examples = slots.examples(slots.shuffle(seed, 0)[:60], seed, 0)
        packed.append(packer.pack(examples))
    without, learned = packed
    assert np.array_equal(learned.actions, without.actions)
    assert np.array_equal(learned.labels, label_plainly(without, examples))
    is_more = (learned.labels >= 0) & (without.labels < 0)
    assert is_more.sum() > 100
    assert (learned.valid[is_more] >> NUM_SPECIAL & 1).all()
    half = replace(PACKER, learn_given=0.5).pack(slots.examples(slots.shuffle(seed, 0)[:60], seed, 0))
    is_like = []
    for row, col, size in half.places:
        here = row, slice(col, col + size)
        is_like.append([np.array_equal(half.labels[here], each.labels[here]) for each in packed])
    assert all(any(pair) for pair in is_like)
    assert 0.25 < np.mean([like for like, other in is_like if like != other]) < 0.75
    # Some of a draft with a mistake, or of what stands behind it, is not learned.
    for i in np.flatnonzero(examples.drafted):
        given, text, (row, col, _) = examples.draft(i, RULES).canvas.tokens, examples.text(i), learned.places[i]
        if given != text[: len(given)]:
            assert (learned.labels[row, col : col + len(given)] < 0).any()


def test_who_writes_drafts_anew_does_not_learn_them() -> None:
    with pytest.raises(
        ConfigError, match=r"^jobs.learn_given with jobs.rewrites learns to make mistakes; set learn_given to 0$"
    ):
        JobConfig(edit=0.5, rewrites=True, learn_given=0.5)


def test_pairs_that_would_be_learned_by_heart_are_noted(folder: Path) -> None:
    trainer = make_trainer(folder, *EDITING, "train.steps=3000", "model.max_length=256")
    note = _note_pairs(trainer)
    found = re.fullmatch(
        r"note: each of (\d+) pairs will be read about (\d+) times and learned by heart; with "
        r"--set data.jobs.pairs=([\d.]+) it is read about 16 times",
        note,
    )
    assert found
    assert int(found[1]) == len(trainer.slots.pairs)
    # As a run of its own counts them.
    num, counts = 0, np.zeros(len(trainer.slots.cuts), np.int64)
    for epoch in range(40):
        examples = trainer.slots.examples(trainer.slots.shuffle(1, epoch), 1, epoch)
        num += int(trainer.packer.draw(examples).sizes.sum())
        counts += np.bincount(examples.document[trainer.slots.cuts[examples.document] > 0], minlength=len(counts))
    positions = 3000 * trainer.settings.train.rows * trainer.settings.data.row
    assert int(found[2]) == pytest.approx(counts[trainer.slots.pairs].mean() * positions / num, rel=0.2)
    assert _note_pairs(make_trainer(folder, *EDITING, "train.steps=3", "model.max_length=256")) == ""
    assert _note_pairs(make_trainer(folder)) == ""
