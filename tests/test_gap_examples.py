"""Examples with several gaps, or with a few words given: how they are cut, drawn and packed."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_filling import fill_both
from tiny import make_data, settings

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.config import CanvasConfig
from reviser.data.batches import Batches
from reviser.data.examples import Examples, JobConfig
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.data.slots import Slots, find_breaks
from reviser.errors import ConfigError
from reviser.orders.align import fill_gaps
from reviser.orders.draw import allocate_rows
from reviser.orders.kernels import TOO_LONG
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.script_kernels import write_fillings
from reviser.tokenizer import load

RULES = Rules(Alphabet(257, 256), frozenset({"jump"}), max_length=400)
JOBS = JobConfig((0, 12), (12, 60), (1, 15), (1, 15), infill=1.0, gaps=(1, 6), sparse=0.3)
PACKER = Packer(parse_order("runs:jump=0.1,by=pointer"), RULES, CanvasConfig("window", window=3), row=1024)
sizes = st.integers(0, 6)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("gaps"))


@pytest.fixture(scope="session")
def slots(folder: Path) -> Slots:
    return Slots.of(Shards.open(folder, "train"), JOBS)


def some(slots: Slots, count: int, seed: int = 3) -> Examples:
    return slots.examples(slots.shuffle(seed, 0)[:count], seed, 0)


@given(sizes, st.lists(st.tuples(sizes, st.integers(1, 5)), max_size=5), sizes, sizes, st.integers(1, 60))
def test_the_kernel_fills_gaps_as_the_reference_does(prefix, inner, last, suffix, capacity):
    length = sum(map(sum, inner)) + last
    text = np.arange(prefix + length + suffix, dtype=np.int32)
    given_sizes = np.zeros((1, 6, 2), np.int64)
    given_sizes[0, : len(inner)] = np.array(inner, np.int64).reshape(-1, 2)
    one, number = (np.array([each], np.int64) for each in (prefix, length))
    zero = np.zeros(1, np.int64)
    states = np.zeros(1, np.uint64)
    examples = Examples(text, zero, one, number, np.array([suffix]), states, zero, inner=given_sizes)
    parts, fillings = examples.split(0)
    draft = Draft.gaps(parts, RULES)
    wanted = fill_gaps(draft, fillings)
    rows = allocate_rows(1, capacity)
    write_fillings(text, one, number, given_sizes, one, 257, rows.actions, rows.has_loss, rows.begins)
    if len(wanted) > capacity:
        assert rows.begins[0] == TOO_LONG
    else:
        assert tuple(rows[0].tolist()) == wanted
        assert rows.has_loss[0, rows.begins[0] :].all()
    assert Trajectory(draft, wanted, (True,) * len(wanted)).final.tokens == tuple(text.tolist())
    if inner:
        assert examples.draft(0, RULES) == draft


def test_fillings_without_their_gap_are_refused():
    with pytest.raises(ConfigError, match=r"^1 fillings for a draft with 2 gaps$"):
        fill_gaps(Draft.gaps([[1], [2], [3]], RULES), [[4]])


def test_examples_have_as_many_gaps_as_was_asked_for_and_lead_to_their_texts(slots: Slots) -> None:
    examples = some(slots, 600)
    texts = [examples.text(i) for i in range(600)]
    drawn = PACKER.draw(examples)
    counts = [len(examples.split(i)[1]) for i in range(600)]
    assert set(counts) == {1, 2, 3, 4, 5, 6, 7}
    for i in range(600):
        draft, actions = examples.draft(i, RULES), tuple(drawn.rows[i].tolist())
        assert examples.text(i) == texts[i]
        assert Trajectory(draft, actions, (True,) * len(actions)).final.tokens == texts[i]
        assert drawn.sizes[i] == len(draft.actions) + len(actions)
        if counts[i] > 1:
            assert drawn.rows.log_q[i] == 0
            assert actions == fill_gaps(draft, examples.split(i)[1])


def test_the_number_of_gaps_is_uniform(folder: Path) -> None:
    slots = Slots.of(Shards.open(folder, "train"), replace(JOBS, sparse=0.0, gaps=(2, 5)))
    examples = [slots.examples(np.arange(len(slots)), 1, epoch) for epoch in range(4)]
    counts = np.concatenate([(each.inner[:, :, 1] > 0).sum(axis=1) + 1 for each in examples])
    shares = np.bincount(counts, minlength=6)[2:] / len(counts)
    assert shares == pytest.approx([0.25] * 4, abs=0.05)


def test_gaps_begin_and_end_where_words_do(folder: Path) -> None:
    slots = Slots.of(Shards.open(folder, "train"), replace(JOBS, sparse=0.0, gaps=(2, 4), gap=(4, 15)))
    examples, breaks = some(slots, 300), find_breaks(load("bytes"))
    cuts = np.cumsum(np.stack([examples.prefix, examples.inner[:, 0, 0]], axis=1), axis=1)
    at = (examples.first[:, None] + cuts)[examples.prefix > 0].ravel()
    is_break = np.maximum(breaks[examples.tokens[at - 1], 0], breaks[examples.tokens[at], 1]) > 0
    assert is_break.mean() > 0.75


def test_sparse_examples_give_one_to_six_whole_words_and_nothing_else(folder: Path) -> None:
    slots = Slots.of(Shards.open(folder, "train"), replace(JOBS, sparse=1.0))
    examples, tokenizer, counts = some(slots, 200), load("bytes"), []
    for i in range(200):
        parts, fillings = examples.split(i)
        assert parts[0] == parts[-1] == ()
        words = [tokenizer.decode(part) for part in parts[1:-1]]
        assert all(map(str.isalpha, words))
        whole = re.findall(r"(?s)[^\W\d_]{4,}\b(?=.)", tokenizer.decode(examples.text(i)))
        assert not whole or all(len(word) >= 4 for word in words)
        for word, before, after in zip(words, fillings, fillings[1:], strict=False):
            assert not before or not tokenizer.decode(before)[-1].isalpha(), word
            assert not after or not tokenizer.decode(after)[0].isalpha(), word
        counts.append(len(words))
    assert set(counts) - {0} == {1, 2, 3, 4, 5, 6}
    assert np.mean(counts) > 1.5


def test_the_kernel_and_the_executor_fill_the_same_rows(slots: Slots) -> None:
    drawn = PACKER.draw(some(slots, 60))
    one, is_used = fill_both(drawn, RULES, 1024, 3)
    assert (one.labels[is_used] >= 0).any()


def test_what_does_not_fit_loses_its_last_gaps(slots: Slots) -> None:
    examples = some(slots, 300)
    before = (examples.inner[:, :, 1] > 0).sum(axis=1)
    drawn = replace(PACKER, context=40).draw(examples)
    now = (examples.inner[:, :, 1] > 0).sum(axis=1)
    assert drawn.sizes.max() <= 40
    assert (now <= before).all()
    assert (now < before).any()
    for i in range(300):
        actions = tuple(drawn.rows[i].tolist())
        assert Trajectory(examples.draft(i, RULES), actions, (True,) * len(actions)).final.tokens == examples.text(i)


def test_an_example_depends_on_its_slot_alone(slots: Slots) -> None:
    numbers = slots.shuffle(1, 0)[:25]
    together, alone = slots.examples(numbers, 1, 2), [slots.examples(numbers[k : k + 1], 1, 2) for k in range(25)]
    for i, one in enumerate(alone):
        assert (together.text(i), together.draft(i, RULES)) == (one.text(0), one.draft(0, RULES))


def test_rows_are_the_same_with_any_number_of_workers(slots: Slots) -> None:
    drawn = []
    for workers in (1, 3):
        with closing(Batches(slots, PACKER, 2, seed=5, workers=workers)) as batches:
            drawn.append([batch.rows for batch in islice(batches, 3)])
    for one, other in zip(*drawn, strict=True):
        assert np.array_equal(one.actions, other.actions)
        assert np.array_equal(one.labels, other.labels)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (["data.jobs.gaps=0,2"], "jobs.gaps=0,2 is not a range of 1 to 14 gaps (half of jobs.length); "
         "write it as low,high"),
        (["data.jobs.sparse=2"], "jobs.sparse=2.0 is not a share between 0 and 1"),
        (["data.jobs.infill=0.5", "data.jobs.gaps=1,3"], "data.jobs.gaps takes the operator jump, which goes from "
         "one gap to the next; model.operators is move"),
        (["data.jobs.infill=0.5", "data.jobs.sparse=0.5", "family=mdlm"], "data.jobs.sparse is for models that edit; "
         "family=mdlm fills one gap"),
    ],
)  # fmt: skip
def test_settings_of_gaps_that_cannot_be_used_are_named(changes: list[str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(*changes)
    assert str(caught.value) == text
