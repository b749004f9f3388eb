"""Documents become examples, rows and batches: what is drawn replays, and nothing depends on who draws it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules, apply, valid_mask
from reviser.config import CanvasConfig
from reviser.data import batches
from reviser.data.batches import Batches, Position
from reviser.data.examples import NEAR, Examples, JobConfig, Slots, heldout_examples, sentence_ends, shorten
from reviser.data.packing import Packed, Packer
from reviser.data.shards import Shards
from reviser.errors import ConfigError, DataError
from reviser.tokenizer import load
from reviser.training.recipes import RECIPES
from reviser.trajectory.names import parse_order
from reviser.trajectory.record import Seed
from reviser.trajectory.rng import Random

RULES = Rules(Alphabet(257, 256), frozenset(OPERATORS), max_length=96)
JOBS = JobConfig(prefix=(0, 12), length=(4, 28), suffix=(1, 9), infill=0.4)
ARRAYS = ("actions", "labels", "valid", "positions", "segments", "windows", "canvases", "num_actions")
ORDERS = (
    "left-to-right",
    "runs:jump=0.2",
    "runs:jump=0.1,start=end,noise=0.2",
    "random-walk",
    "random-walk:start=front,noise=0.1,noise_from=document",
    "scramble:edit=0.3",
    "0.5*runs:jump=0.3+0.3*left-to-right+0.2*random-walk",
)


class Numbered:
    """Documents whose tokens are their own places, so that a stretch tells where it was cut."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = np.array(lengths, np.int64)

    def __getitem__(self, document: int) -> npt.NDArray[Any]:
        return np.arange(self.lengths[document], dtype=np.uint16)

    def gather(
        self, documents: npt.NDArray[Any], starts: npt.NDArray[Any], sizes: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        parts = [self[d][s : s + n] for d, s, n in zip(documents, starts, sizes, strict=True)]
        return np.concatenate([np.empty(0, np.int32), *parts]).astype(np.int32)


class Shifted(Numbered):
    """The same with tokens that begin elsewhere in each document, so that sentences end elsewhere."""

    def __getitem__(self, document: int) -> npt.NDArray[Any]:
        return (super().__getitem__(document) + 37 * document) % 2000


@pytest.fixture(scope="session")
def shards(data: Path) -> Shards:
    return Shards.open(data, "train")


@pytest.fixture(scope="session")
def slots(shards: Shards) -> Slots:
    return Slots.of(shards, JOBS)


def copy(examples: Examples) -> Examples:
    """Packing moves streams on and shortens targets in place."""
    return replace(examples, length=examples.length.copy(), states=examples.states.copy())


def some(slots: Slots, count: int) -> Examples:
    return slots.examples(slots.shuffle(3, 0)[:count], 3, 0)


# examples


@st.composite
def corpora(draw: st.DrawFn) -> tuple[Slots, npt.NDArray[np.uint8]]:
    lengths = draw(st.lists(st.integers(1, 200), min_size=1, max_size=6).filter(lambda sizes: max(sizes) > 1))
    is_end = np.zeros(200, np.uint8)
    is_end[draw(st.lists(st.integers(0, 199), max_size=12))] = 1
    low, more = draw(st.integers(0, 20)), draw(st.integers(0, 20))
    jobs = JobConfig(
        prefix=(low, low + more),
        length=(1 + draw(st.integers(0, 30)), 31 + draw(st.integers(0, 40))),
        suffix=(0, draw(st.integers(0, 20))),
        infill=draw(st.sampled_from([0.0, 0.5, 1.0])),
        from_start=draw(st.sampled_from([0.0, 0.3, 1.0])),
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
        assert target <= jobs.length[1] + NEAR
        assert prefix + target + suffix <= jobs.longest
        if size >= jobs.longest + 2 * NEAR:
            assert prefix >= jobs.prefix[0]
            assert target >= jobs.length[0] - NEAR


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
        ({"prefix": (5, 4)}, "jobs.prefix=5,4 is no range of lengths; write it as low,high"),
        ({"length": (0, 4)}, "jobs.length=0,4 is no range of lengths; write it as low,high"),
        ({"suffix": (-1, 4)}, "jobs.suffix=-1,4 is no range of lengths; write it as low,high"),
        ({"infill": 1.5}, "jobs.infill=1.5 is no share between 0 and 1"),
        ({"from_start": -0.1}, "jobs.from_start=-0.1 is no share between 0 and 1"),
    ],
)
def test_jobs_that_make_no_sense_are_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        JobConfig(**change)
    assert str(caught.value) == text


# rows


def cells(canvas: Canvas, size: int) -> list[int]:
    """The canvas as `pool` and `cross` read it."""
    row = [*canvas.tokens[: canvas.cursor], RULES.alphabet.none, *canvas.tokens[canvas.cursor :]]
    return row + [-1] * (size - len(row))


def check_example(packed: Packed, i: int, seed: Seed, actions: tuple[int, ...], has_loss: tuple[bool, ...]) -> Canvas:
    """Example i of packed rows is this trajectory, shown and masked as the executor has it; its final canvas."""
    row, col, size = packed.places[i].tolist()
    here = slice(col, col + size)
    history = seed.actions + actions
    learned = [-1] * len(seed.actions) + [
        a if is_learned else -1 for a, is_learned in zip(actions, has_loss, strict=True)
    ]
    assert packed.actions[row, here].tolist() == [RULES.alphabet.start, *history[:-1]]
    assert packed.labels[row, here].tolist() == learned
    assert packed.labels[row, col + size - 1] == RULES.alphabet.stop
    assert packed.positions[row, here].tolist() == list(range(size))
    assert len(set(packed.segments[row, here].tolist())) == 1
    canvas = Canvas()
    for j, action in enumerate(history):
        rules = seed.rules if j >= len(seed.actions) else seed.rules.for_seeding()
        if packed.windows is not None:
            width = packed.windows.shape[2] // 2
            assert tuple(packed.windows[row, col + j]) == canvas.window(width, RULES.alphabet.none)
        if packed.canvases is not None:
            assert packed.canvases[row, col + j].tolist() == cells(canvas, packed.canvases.shape[2])
        assert packed.valid[row, col + j] == valid_mask(canvas, rules)
        canvas = apply(canvas, action, rules)
    return canvas


def seed_of(examples: Examples, i: int) -> tuple[Seed, tuple[int, ...]]:
    """The seed and the target canvas of an example."""
    first, prefix, suffix = int(examples.first[i]), int(examples.prefix[i]), int(examples.suffix[i])
    stretch = examples.tokens[first : first + prefix + int(examples.length[i]) + suffix].tolist()
    return Seed.infill(stretch[:prefix], stretch[len(stretch) - suffix :], RULES), tuple(stretch)


@pytest.mark.parametrize("canvas", [CanvasConfig("window", window=3), CanvasConfig("pool")], ids=lambda c: c.kind)
@pytest.mark.parametrize("order", ORDERS)
def test_packed_rows_are_the_trajectories_that_the_order_draws(
    order: str, canvas: CanvasConfig, slots: Slots
) -> None:
    examples = some(slots, 24)
    assert examples.suffix.any()
    packed = Packer(parse_order(order), RULES, canvas, row=256, longest_canvas=96).pack(copy(examples))
    assert (packed.windows is None, packed.canvases is None) == (canvas.kind != "window", canvas.kind != "pool")
    for i in range(len(examples)):
        seed, target = seed_of(examples, i)
        drawn = parse_order(order).draw(seed, target, Random(int(examples.states[i])))
        assert check_example(packed, i, seed, drawn.actions, drawn.has_loss).tokens == target
        if drawn.log_q is not None and "*" not in order:
            assert packed.log_q[i] == pytest.approx(drawn.log_q)


def test_noise_is_shown_and_never_learned(slots: Slots) -> None:
    packed = Packer(parse_order("runs:noise=0.3"), RULES, CanvasConfig(), row=256).pack(some(slots, 60))
    generated = packed.labels >= 0
    assert (packed.labels == RULES.alphabet.delete).sum() > 50
    assert generated.sum() < packed.num_actions.sum() - 50


@pytest.mark.parametrize("order", ["left-to-right", "random-walk"])
def test_every_position_belongs_to_one_example_or_to_padding(order: str, slots: Slots) -> None:
    packer = Packer(parse_order(order), RULES, CanvasConfig("pool"), row=256, context=64, longest_canvas=96)
    packed = packer.pack(some(slots, 61))
    carried = np.zeros(packed.actions.shape, int)
    for row, col, size in packed.places.tolist():
        carried[row, col : col + size] += 1
    assert set(carried.flatten().tolist()) <= {0, 1}
    assert carried.sum(axis=1).tolist() == packed.num_actions.tolist()
    assert packed.fill == carried.mean()
    empty = carried == 0
    assert empty.any()
    assert (packed.actions[empty] == RULES.alphabet.pad).all()
    assert (packed.labels[empty] == -1).all()
    assert packed.canvases is not None
    assert (packed.canvases[empty] == -1).all()
    for row, last in enumerate(packed.num_actions.tolist()):
        segments = packed.segments[row].tolist()
        assert segments == sorted(segments)
        assert last == 256 or segments[last] == segments[last - 1] + 1
        assert packed.positions[row, last:].tolist() == [place % 64 for place in range(256 - last)]


def test_rows_come_in_the_order_that_is_asked_for(slots: Slots) -> None:
    packer = Packer(parse_order("runs"), RULES, CanvasConfig(), row=128)
    plain, mixed = packer.pack(some(slots, 60)), packer.pack(some(slots, 60), Random.of(7))
    assert plain.actions.tolist() != mixed.actions.tolist()
    assert sorted(plain.actions.tolist()) == sorted(mixed.actions.tolist())


@pytest.mark.parametrize("name", RECIPES)
def test_nearly_all_positions_of_a_block_carry_actions(name: str) -> None:
    config, draw = RECIPES[name](Alphabet(2001, 2000)), np.random.default_rng(0)
    documents = Shifted(*draw.integers(250, 2000, 600))
    slots = Slots(documents, config.data.jobs, (draw.random(2000) < 0.04).astype(np.uint8))
    order = parse_order(config.data.order)
    packer = Packer(order, config.rules, CanvasConfig(), config.data.row, config.model.context)
    for epoch in range(2):
        chosen = slots.shuffle(0, epoch)[: batches.BLOCK]
        assert len(chosen) == batches.BLOCK
        assert packer.pack(slots.examples(chosen, 0, epoch)).fill >= 0.95


@pytest.mark.parametrize("order", ["random-walk", "runs:jump=0.3,noise=0.2"])
def test_an_example_too_long_for_the_context_gets_a_shorter_target(order: str, slots: Slots) -> None:
    examples = some(slots, 200)
    before = copy(examples)
    packed = Packer(parse_order(order), RULES, CanvasConfig(), row=256, context=40).pack(examples)
    assert packed.places[:, 2].max() <= 40
    is_shorter = packed.num_tokens < before.length
    assert 0 < is_shorter.sum() < 200
    assert packed.num_tokens.min() >= 1
    for i in np.flatnonzero(is_shorter):
        row, col, size = packed.places[i]
        seed, target = seed_of(examples, i)
        actions = packed.actions[row, col + 1 : col + size].tolist()[len(seed.actions) :]
        canvas = seed.canvas
        for action in [*actions, RULES.alphabet.stop]:
            canvas = apply(canvas, action, seed.rules)
        assert canvas.tokens == target
        assert packed.labels[row, col + size - 1] == RULES.alphabet.stop


def test_a_canvas_too_small_for_an_example_gets_a_shorter_target(slots: Slots) -> None:
    packed = Packer(parse_order("runs"), replace(RULES, max_length=24), CanvasConfig(), row=128).pack(some(slots, 80))
    assert (packed.num_tokens <= 24).all()


def test_a_prompt_that_fills_the_context_is_named(shards: Shards) -> None:
    examples = some(Slots.of(shards, JobConfig((30, 30), (4, 8), from_start=1.0)), 40)
    text = "an example of 30 prompt tokens does not fit 24 positions; raise model.context or shorten jobs.prefix"
    with pytest.raises(ConfigError, match=text):
        Packer(parse_order("runs"), RULES, CanvasConfig(), row=128, context=24).pack(examples)


def test_an_order_without_its_operators_does_not_replay(slots: Slots) -> None:
    rules = replace(RULES, operators=frozenset({"move"}))
    with pytest.raises(DataError, match=r"^an example of document \d+ does not replay$"):
        Packer(parse_order("runs:noise=0.3"), rules, CanvasConfig(), row=256).pack(some(slots, 40))


def test_an_order_without_a_kernel_is_refused(slots: Slots) -> None:
    with pytest.raises(ConfigError, match="Diff has no kernel"):
        Packer(parse_order("diff"), RULES, CanvasConfig(), row=256).pack(some(slots, 4))


def test_a_target_is_never_shortened_to_nothing() -> None:
    slots = Slots(Numbered(50), JobConfig((0, 0), (1, 1)), np.zeros(200, np.uint8))
    assert shorten(slots.examples(np.arange(4), 0, 0)).length.tolist() == [1] * 4


# batches


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 30 examples, so that a few batches cross blocks and epochs."""
    monkeypatch.setattr(batches, "BLOCK", 30)


def stream(slots: Slots, **changes: Any) -> Batches:
    packer = Packer(
        parse_order("0.7*runs+0.3*left-to-right"), RULES, CanvasConfig("window", window=2), row=128, context=64
    )
    return Batches(slots, packer, **{"num_rows": 8, "seed": 5} | changes)


def take(source: Batches, count: int) -> list[batches.Batch]:
    try:
        return list(islice(source, count))
    finally:
        source.close()


def assert_equal(one: Packed, other: Packed) -> None:
    for name in ARRAYS:
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None)
        assert first is None or np.array_equal(first, second)


def few(slots: Slots) -> Slots:
    """The slots of the first documents alone: two blocks of 30 are an epoch."""
    documents = Numbered(*[40] * 20)
    return Slots(documents, JobConfig((0, 4), (4, 20)), slots.is_end)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("workers", [2, 5])
def test_any_number_of_workers_gives_the_same_batches(workers: int, slots: Slots) -> None:
    for source in (slots, few(slots)):
        one, other = take(stream(source), 25), take(stream(source, workers=workers), 25)
        assert [batch.after for batch in one] == [batch.after for batch in other]
        for first, second in zip(one, other, strict=True):
            assert_equal(first.rows, second.rows)


@pytest.mark.usefixtures("small_blocks")
def test_a_stream_continues_from_any_position(slots: Slots) -> None:
    source = few(slots)
    whole = take(stream(source), 20)
    assert whole[-1].after.epoch >= 2
    for k in (1, 2, 5, 11, 17):
        rest = take(stream(source, position=whole[k - 1].after, workers=3), 20 - k)
        for first, second in zip(whole[k:], rest, strict=True):
            assert_equal(first.rows, second.rows)
            assert first.after == second.after


@pytest.mark.usefixtures("small_blocks")
def test_processes_share_the_rows_of_each_batch(slots: Slots) -> None:
    whole = take(stream(slots), 6)
    shares = [take(stream(slots, rank=rank, world=4), 6) for rank in range(4)]
    for number, batch in enumerate(whole):
        for rank in range(4):
            share = shares[rank][number]
            assert share.after == batch.after
            for name in ARRAYS:
                full, part = getattr(batch.rows, name), getattr(share.rows, name)
                assert full is None or np.array_equal(full[rank::4], part)


@pytest.mark.usefixtures("small_blocks")
def test_an_epoch_gives_every_slot_once(slots: Slots) -> None:
    source = few(slots)
    stops, found = 0, {}
    for batch in take(stream(source, num_rows=1), 80):
        stops += int((batch.rows.labels == RULES.alphabet.stop).sum())
        if batch.after.row == 0 and batch.after.block == 0:
            found[batch.after.epoch] = stops
    assert found[1] == len(source)
    assert found[2] == 2 * len(source)


@pytest.mark.parametrize("position", [Position(0, 0, 10**6), Position(0, 10**6, 0)])
def test_a_position_behind_the_end_goes_on_with_what_follows(slots: Slots, position: Position) -> None:
    batch = take(stream(slots, position=position), 1)[0]
    assert batch.rows.actions.shape == (8, 128)
    assert (batch.after.epoch, batch.after.block) != (0, 0)


def test_a_batch_says_where_the_next_begins(slots: Slots) -> None:
    batch = take(stream(slots), 1)[0]
    assert batch.after == Position(0, 0, 8)
    assert batch.rows.actions.shape == (8, 128)


def test_rows_that_do_not_divide_over_the_processes_are_named(slots: Slots) -> None:
    with pytest.raises(ConfigError, match="8 rows do not divide over 3 processes; choose a multiple of 3"):
        stream(slots, world=3)


def test_an_error_of_a_worker_reaches_the_reader(slots: Slots) -> None:
    source = stream(slots)
    source.packer = replace(source.packer, context=8)
    with pytest.raises(ConfigError, match="does not fit 8 positions"):
        take(source, 1)


def test_a_mixture_draws_each_order_by_its_weight(slots: Slots) -> None:
    packed = Packer(parse_order("0.75*runs:jump=0.9+0.25*left-to-right"), RULES, CanvasConfig(), row=256).pack(
        some(slots, 1000)
    )
    is_moved = [
        (packed.labels[row, col : col + size] >= 261).any() for row, col, size in packed.places[packed.num_tokens > 4]
    ]
    assert 0.7 < np.mean(is_moved) < 0.8
