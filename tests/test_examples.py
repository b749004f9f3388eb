"""Documents become examples: each is one stretch of its document, cut where sentences end when it can be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Numbered

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.data.drawing import Orders, draw_examples
from reviser.data.examples import (
    ANYWHERE,
    CUT,
    FINISHED,
    NEAR,
    Examples,
    JobConfig,
    heldout_examples,
    shorten,
)
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.errors import ConfigError, DataError
from reviser.evaluation.metrics.likelihood import _Encoded as Encoded
from reviser.orders.policies import LeftToRight
from reviser.token_marks import sentence_ends, text_marks
from reviser.tokenizer import load

NO_ENDS = np.zeros(200, np.uint8)
JOBS = JobConfig(prefix=(0, 12), length=(4, 28), gap=(4, 28), suffix=(1, 9), infill=0.4)


@pytest.fixture(scope="session")
def slots(data: Path) -> Slots:
    return Slots.of(Shards.open(data, "train"), JOBS)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[Slots, npt.NDArray[np.uint8]]:
    lengths = draw(st.lists(st.integers(1, 200), min_size=1, max_size=6).filter(lambda sizes: max(sizes) > 1))
    is_end = np.zeros(200, np.uint8)
    is_end[draw(st.lists(st.integers(0, 199), max_size=12))] = 1
    low, more = draw(st.integers(0, 20)), draw(st.integers(0, 20))
    jobs = JobConfig(
        prefix=(low, low + more),
        length=(1 + draw(st.integers(0, 30)), 31 + draw(st.integers(0, 40))),
        gap=(1 + draw(st.integers(0, 10)), 11 + draw(st.integers(0, 50))),
        suffix=(0, draw(st.integers(0, 20))),
        infill=draw(st.sampled_from([0.0, 0.5, 1.0])),
        from_start=draw(st.sampled_from([0.0, 0.3, 1.0])),
        cut_stops=draw(st.booleans()),
    )
    return Slots(Numbered(*lengths), jobs, is_end), is_end


def stretches(slots: Slots, examples: Examples) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each example: where it begins in its document, prefix, target, suffix, and the document's length."""
    for i in range(len(examples)):
        prefix, target, suffix = (int(part[i]) for part in (examples.prefix, examples.length, examples.suffix))
        total, first = prefix + target + suffix, int(examples.first[i])
        begin = int(examples.tokens[first])
        assert examples.tokens[first : first + total].tolist() == list(range(begin, begin + total))
        yield begin, prefix, target, suffix, int(slots.documents.lengths[examples.document[i]])


@given(corpora(), st.integers(0, 2**40), st.integers(0, 5))
@settings(max_examples=60)
def test_an_example_is_one_stretch_of_its_document(
    corpus: tuple[Slots, npt.NDArray[np.uint8]], seed: int, epoch: int
) -> None:
    slots, _ = corpus
    jobs = slots.jobs
    for begin, prefix, target, suffix, size in stretches(slots, slots.examples(np.arange(len(slots)), seed, epoch)):
        assert target >= 1
        assert begin + prefix + target + suffix <= size
        assert prefix <= jobs.prefix[1]
        assert suffix <= (jobs.suffix[1] if jobs.infill else 0)
        assert target <= (jobs.gap[1] if suffix else max(jobs.length[1], jobs.gap[1]) + NEAR)
        assert prefix + target + suffix <= jobs.longest
        if size >= jobs.longest + 2 * NEAR:
            assert prefix >= jobs.prefix[0]
            assert target >= (jobs.gap[0] if suffix else min(jobs.length[0], jobs.gap[0]) - NEAR)


@given(corpora(), st.integers(0, 2**40))
@settings(max_examples=60)
def test_stretches_begin_and_end_with_sentences_when_they_can(
    corpus: tuple[Slots, npt.NDArray[np.uint8]], seed: int
) -> None:
    slots, is_end = corpus
    for begin, prefix, target, suffix, size in stretches(slots, slots.examples(np.arange(len(slots)), seed, 0)):
        if begin and not is_end[begin - 1] and size - begin >= slots.jobs.longest + NEAR:
            assert not is_end[begin : begin + NEAR].any()
        first, end = begin + prefix, begin + prefix + target
        if suffix or end == size or is_end[end - 1]:
            continue
        near = range(max(end - NEAR, first + 1), min(end + NEAR, size) + 1)
        assert not any(is_end[place - 1] for place in near)
        assert size - end > NEAR


@given(corpora(), st.integers(0, 2**40))
@settings(max_examples=60)
def test_where_a_text_is_cut_nobody_learns_to_stop(corpus: tuple[Slots, npt.NDArray[np.uint8]], seed: int) -> None:
    slots, _ = corpus
    examples = slots.examples(np.arange(len(slots)), seed, 0)
    rules = Rules(Alphabet(200, 0), frozenset(), 300)
    drawn = draw_examples(Orders(LeftToRight()), rules, examples, 300, 300)
    for i, (begin, prefix, target, suffix, size) in enumerate(stretches(slots, examples)):
        is_cut = not slots.jobs.cut_stops and not suffix and begin + prefix + target < size
        assert (examples.ending[i] == CUT) == is_cut
        assert drawn.has_loss[i, -1] == (not is_cut)
        assert drawn.has_loss[i, drawn.begins[i] : -1].all()
    shorter = shorten(examples)
    assert ((shorter.ending == ANYWHERE) == (examples.ending == ANYWHERE)).all()
    assert not (shorter.ending == FINISHED).any()


def test_no_text_ends_behind_a_title() -> None:
    tokenizer = load("default")
    text = " ".join(
        f"They saw Mrs. Ramsay and Dr. J. Bell for the {i}th time that year, or so it is said." for i in range(9)
    )
    documents = Encoded([tokenizer.encode(text)] * 60, tokenizer)
    slots = Slots(documents, JobConfig((0, 40), (16, 60), from_start=0.0), text_marks(tokenizer))
    examples = slots.examples(np.arange(len(slots)), 0, 0)
    ends = [tokenizer.decode(examples.target(i).tolist())[-4:] for i in range(len(examples))]
    assert set(ends) == {"aid."}


def test_a_share_of_stretches_begins_where_the_document_does() -> None:
    slots = Slots(Numbered(*[190] * 400), JobConfig((0, 4), (8, 9), from_start=0.5), np.zeros(200, np.uint8))
    begins = [begin for begin, *_ in stretches(slots, slots.examples(np.arange(len(slots)), 0, 0))]
    assert 0.45 < np.mean([begin == 0 for begin in begins]) < 0.56
    assert max(begins) > 170


def test_an_example_depends_on_its_slot_alone(slots: Slots) -> None:
    chosen = slots.shuffle(3, 2)[:50]
    together = slots.examples(chosen, 3, 2)
    for i in (0, 7, 49):
        alone = slots.examples(chosen[i : i + 1], 3, 2)
        assert alone.target(0).tolist() == together.target(i).tolist()
        assert alone.states[0] == together.states[i]


def test_epochs_and_seeds_give_other_examples_of_all_slots(slots: Slots) -> None:
    assert sorted(slots.shuffle(0, 0)) == list(range(len(slots)))
    orders = [slots.shuffle(seed, epoch).tolist() for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    assert all(one != other for one, other in pairwise(orders))
    one, other = slots.examples(np.arange(50), 0, 0), slots.examples(np.arange(50), 0, 1)
    assert one.length.tolist() != other.length.tolist()


def test_sentences_end_with_a_mark_or_a_line() -> None:
    table = sentence_ends(load("bytes"))
    assert {chr(token) for token in np.flatnonzero(table)} == set(".!?\n")


def test_held_out_examples_are_the_same_every_time(data: Path) -> None:
    shards = Shards.open(data, "heldout")
    one, other = heldout_examples(shards, 9, 8, 20), heldout_examples(shards, 9, 8, 20)
    assert all(one.target(i).tolist() == other.target(i).tolist() for i in range(9))
    assert one.prefix.tolist() == [8] * 9
    assert not one.suffix.any()
    begin = int(one.first[3])
    assert one.tokens[begin : begin + 28].tolist() == shards[int(one.document[3])][:28].tolist()
    filling = heldout_examples(shards, 9, 8, 20, infill=True)
    assert (filling.suffix.tolist(), filling.length.tolist()) == ([8] * 9, [20] * 9)


def test_documents_too_short_to_measure_are_named(data: Path) -> None:
    with pytest.raises(ConfigError, match="no held-out document has 9024 tokens; hold more out or measure shorter"):
        heldout_examples(Shards.open(data, "heldout"), 4, 8, 9000)


def test_documents_too_short_to_learn_from_are_named() -> None:
    with pytest.raises(DataError, match="no document has the 2 tokens that an example takes; prepare longer texts"):
        Slots(Numbered(1, 1, 0), JOBS, np.zeros(9, np.uint8))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"prefix": (5, 4)}, "jobs.prefix=5,4 is not a range of lengths; write it as low,high"),
        ({"length": (0, 4)}, "jobs.length=0,4 is not a range of lengths; write it as low,high"),
        ({"gap": (0, 4)}, "jobs.gap=0,4 is not a range of lengths; write it as low,high"),
        ({"suffix": (-1, 4)}, "jobs.suffix=-1,4 is not a range of lengths; write it as low,high"),
        ({"infill": 1.5}, "jobs.infill=1.5 is not a share between 0 and 1"),
        ({"from_start": -0.1}, "jobs.from_start=-0.1 is not a share between 0 and 1"),
    ],
)
def test_jobs_that_make_no_sense_are_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        JobConfig(**change)
    assert str(caught.value) == text


def test_short_gaps_are_as_usual_as_long_ones() -> None:
    slots = Slots(Numbered(*[190] * 4000), JobConfig((4, 4), gap=(1, 63), suffix=(1, 63), infill=1.0), NO_ENDS)
    examples = slots.examples(np.arange(len(slots)), seed=0, epoch=0)
    for lengths in (examples.length, examples.suffix):
        digits = np.bincount([int(length).bit_length() for length in lengths])
        assert digits[0] == 0
        assert len(digits) == 7
        np.testing.assert_allclose(digits[1:] / len(slots), 1 / 6, atol=0.03)
        assert {32, 63} <= set(lengths.tolist())
