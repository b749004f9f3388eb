"""Examples become rows and batches: what is drawn replays, and nothing depends on who draws it."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import scramble  # noqa: F401 - registers an order that uses every operator
from tiny import Numbered, Shifted

from reviser.actions import OPERATORS, Alphabet
from reviser.canvas import Canvas, Rules, apply, valid_mask
from reviser.config import CanvasConfig
from reviser.data import batches
from reviser.data.batches import Batches, Position
from reviser.data.examples import Examples, JobConfig, shorten
from reviser.data.packing import Packed, Packer, fit
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.data.workers import can_send
from reviser.errors import ConfigError, DataError
from reviser.orders.policies import LeftToRight
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.replay import KERNEL_OPERATORS
from reviser.orders.rng import Random
from reviser.training.recipes import RECIPES

RULES = Rules(Alphabet(257, 256), frozenset(KERNEL_OPERATORS), max_length=96, ends=frozenset(b".!?,\n"))
ALL = replace(RULES, operators=frozenset(OPERATORS))
JOBS = JobConfig(prefix=(0, 12), length=(4, 28), gap=(4, 28), suffix=(1, 9), infill=0.4)
ARRAYS = (
    "actions", "labels", "valid", "positions", "segments", "windows", "canvases", "lives", "cursors", "num_actions",
)  # fmt: skip
ORDERS = (
    "left-to-right",
    "runs:jump=0.2",
    "runs:jump=0.1,start=end,noise=0.2",
    "random-walk",
    "random-walk:start=front,noise=0.1,noise_from=document",
    "scramble:edit=0.3",
    "diff",
    "0.5*runs:jump=0.3+0.3*left-to-right+0.2*random-walk",
    "0.4*runs:jump=0.3+0.3*scramble+0.3*left-to-right",
    "0.5*diff+0.5*runs:jump=0.3",
    "0.5*sentences+0.3*outline+0.2*runs:jump=0.2,by=pointer",
)


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


# rows


def cells(canvas: Canvas, size: int) -> list[int]:
    """The canvas as `pool` and `cross` read it."""
    row = [*canvas.tokens[: canvas.cursor], RULES.alphabet.none, *canvas.tokens[canvas.cursor :]]
    return row + [-1] * (size - len(row))


def check_example(
    packed: Packed, i: int, draft: Draft, actions: tuple[int, ...], has_loss: tuple[bool, ...]
) -> Canvas:
    """Example i of packed rows is this trajectory, shown and masked as the executor has it; its final canvas."""
    row, col, size = packed.places[i].tolist()
    here = slice(col, col + size)
    history = draft.actions + actions
    learned = [-1] * len(draft.actions) + [
        a if is_learned else -1 for a, is_learned in zip(actions, has_loss, strict=True)
    ]
    assert packed.actions[row, here].tolist() == [RULES.alphabet.start, *history[:-1]]
    assert packed.labels[row, here].tolist() == learned
    assert packed.labels[row, col + size - 1] == RULES.alphabet.stop
    assert packed.positions[row, here].tolist() == list(range(size))
    assert len(set(packed.segments[row, here].tolist())) == 1
    canvas = Canvas()
    for j, action in enumerate(history):
        if j == len(draft.actions):
            canvas = draft.canvas
        rules = draft.rules if j >= len(draft.actions) else draft.rules.for_draft()
        if packed.windows is not None:
            width = packed.windows.shape[2] // 2
            assert tuple(packed.windows[row, col + j]) == canvas.window(width, RULES.alphabet.none)
        if packed.canvases is not None:
            assert packed.canvases[row, col + j].tolist() == cells(canvas, packed.canvases.shape[2])
        assert packed.cursors is None or packed.cursors[row, col + j] == canvas.cursor
        assert packed.valid[row, col + j] == valid_mask(canvas, rules)
        canvas = apply(canvas, action, rules)
    return canvas


def draft_of(examples: Examples, i: int, rules: Rules = RULES) -> tuple[Draft, tuple[int, ...]]:
    """The draft and the target canvas of an example."""
    first, prefix, suffix = int(examples.first[i]), int(examples.prefix[i]), int(examples.suffix[i])
    stretch = examples.tokens[first : first + prefix + int(examples.length[i]) + suffix].tolist()
    return Draft.infill(stretch[:prefix], stretch[len(stretch) - suffix :], rules), tuple(stretch)


@pytest.mark.parametrize("rules", [RULES, ALL], ids=["kernel", "executor"])
@pytest.mark.parametrize(
    "canvas", [CanvasConfig(kind, window=3) for kind in ("window", "pool", "window-index")], ids=lambda c: c.kind
)
@pytest.mark.parametrize("order", ORDERS)
def test_packed_rows_are_the_trajectories_that_the_order_draws(
    order: str, canvas: CanvasConfig, rules: Rules, slots: Slots
) -> None:
    examples = some(slots, 24)
    assert examples.suffix.any()
    packed = Packer(parse_order(order), rules, canvas, row=256, longest_canvas=96).pack(copy(examples))
    assert (packed.windows is None, packed.canvases is None) == (canvas.kind == "pool", canvas.kind != "pool")
    assert (packed.cursors is None) == (canvas.kind != "window-index")
    for i in range(len(examples)):
        draft, target = draft_of(examples, i, rules)
        drawn = parse_order(order).draw(draft, target, Random(int(examples.states[i])))
        assert check_example(packed, i, draft, drawn.actions, drawn.has_loss).tokens == target
        if drawn.log_q is not None:
            assert packed.log_q[i] == pytest.approx(drawn.log_q, abs=1e-9)


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
        draft, target = draft_of(examples, i)
        actions = packed.actions[row, col + 1 : col + size].tolist()[len(draft.actions) :]
        canvas = draft.canvas
        for action in [*actions, RULES.alphabet.stop]:
            canvas = apply(canvas, action, draft.rules)
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
    text = (
        r"^order runs:noise=0.3: an example of document \d+ does not replay: action \d+: DELETE at .* is not enabled"
    )
    for unlike in (rules, replace(rules, operators=frozenset({"move", "swap"}))):
        with pytest.raises(DataError, match=text):
            Packer(parse_order("runs:noise=0.3"), unlike, CanvasConfig(), row=256).pack(some(slots, 40))


def test_the_error_names_the_document_whose_example_does_not_replay(slots: Slots) -> None:
    examples, packer = some(slots, 40), Packer(parse_order("runs"), RULES, CanvasConfig(), row=256)
    drawn = packer.draw(examples)
    drawn.rows.actions[17, drawn.rows.begins[17]] = RULES.alphabet.move(512)
    with pytest.raises(
        DataError, match=rf"^order runs: an example of document {examples.document[17]} does not replay: action 0: "
    ):
        packer.fill(drawn, *fit(drawn.sizes, 256))


def test_from_a_blank_draft_diff_writes_from_left_to_right(slots: Slots) -> None:
    diff, plain = (
        Packer(parse_order(name), RULES, CanvasConfig("window"), row=256).pack(some(slots, 60))
        for name in ("diff", "left-to-right")
    )
    assert_equal(diff, plain)
    assert diff.log_q.tolist() == plain.log_q.tolist() == [0.0] * 60


def test_a_target_is_never_shortened_to_nothing() -> None:
    slots = Slots(Numbered(50), JobConfig((0, 0), (1, 1)), np.zeros(200, np.uint8))
    assert shorten(slots.examples(np.arange(4), 0, 0)).length.tolist() == [1] * 4


# batches


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 30 examples, so that a few batches cross blocks and epochs."""
    monkeypatch.setattr(batches, "BLOCK", 30)


def stream(slots: Slots, order: str = "0.7*runs+0.3*left-to-right", rules: Rules = RULES, **changes: Any) -> Batches:
    packer = Packer(parse_order(order), rules, CanvasConfig("window", window=2), row=128, context=64)
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
    return Slots(documents, JobConfig((0, 4), (4, 20)), slots.marks)


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
    assert whole[-1].after.epoch(len(source)) >= 2
    assert all(batch.after.carried for batch in whole)
    for k in (1, 2, 5, 11, 17):
        position = Position.from_json(json.loads(json.dumps(whole[k - 1].after.as_json())))
        rest = take(stream(source, position=position, workers=3), 20 - k)
        for first, second in zip(whole[k:], rest, strict=True):
            assert_equal(first.rows, second.rows)
            assert first.after == second.after


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("order", "rules", "wanted"),
    [
        ("scramble:edit=0.2", ALL, ["order scramble:edit=0.2", "operator swap, cut, copy, paste"]),
        pytest.param("0.5*diff+0.5*runs", RULES, ["order 0.5*diff+0.5*runs"], marks=pytest.mark.slow),
    ],
)
def test_what_has_no_kernel_is_the_same_in_processes_and_its_speed_is_noted_once(
    order: str, rules: Rules, wanted: list[str], slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PART", 7)
    source, notes = few(slots), list[str]()
    apart = stream(source, order, rules, workers=2, note=notes.append)
    assert apart._workers is not None
    given = take(apart, 8)
    monkeypatch.setattr(Packer, "can_be_sent", lambda _: False)
    for start, position in ((0, Position()), (3, given[2].after)):
        alone = stream(source, order, rules, position=position)
        assert alone._workers is None
        for first, second in zip(given[start:], take(alone, 8 - start), strict=True):
            assert_equal(first.rows, second.rows)
            assert first.after == second.after
    assert given[-1].after.block > 1
    assert len(notes) == len(wanted)
    for note, what in zip(notes, wanted, strict=True):
        assert re.fullmatch(rf"{re.escape(what)} has no kernel: [1-9][\d,]* actions/s per worker", note)


def test_what_has_a_kernel_is_not_noted(slots: Slots) -> None:
    notes: list[str] = []
    source = stream(slots, note=notes.append)
    assert source._workers is None
    take(source, 2)
    assert notes == []


@dataclass(frozen=True)
class Ending:
    """Left to right, but the process that draws ends."""

    has_likelihood: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset()

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        os._exit(1)

    def log_q(self, trajectory: Trajectory) -> float:
        return 0.0


@pytest.mark.slow
def test_a_worker_that_ends_is_named(slots: Slots) -> None:
    source = Batches(slots, Packer(Ending(), RULES, CanvasConfig(), row=256), 8)
    text = "a process that draws trajectories ended, perhaps for lack of memory; lower data.workers; a script that"
    with pytest.raises(DataError, match=text):
        take(source, 1)


def test_an_order_that_no_process_can_import_is_drawn_here(slots: Slots) -> None:
    @dataclass(frozen=True)
    class Local(LeftToRight):
        pass

    here = Packer(Local(), RULES, CanvasConfig(), row=128, context=64)
    source = Batches(slots, here, 8, 5)
    assert source._workers is None
    wanted = take(stream(slots, "left-to-right"), 3)
    for one, other in zip(take(source, 3), wanted, strict=True):
        assert one.rows.actions.tolist() == other.rows.actions.tolist()
    assert can_send(here, LeftToRight) is False
    assert can_send(0, type("Mine", (), {"__module__": "__main__"})) is False


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


def histories(rows: Packed) -> Counter[tuple[int, ...]]:
    """The examples of rows, each by its actions."""
    found: Counter[tuple[int, ...]] = Counter()
    for actions, segments, last in zip(rows.actions, rows.segments, rows.num_actions.tolist(), strict=True):
        found.update(
            tuple(actions[:last][segments[:last] == each].tolist()) for each in range(segments[last - 1] + 1)
        )
    return found


def all_of(source: Batches, epoch: int, chosen: npt.NDArray[np.int64]) -> Counter[tuple[int, ...]]:
    """Some slots of an epoch, packed by themselves."""
    if not len(chosen):
        return Counter()
    return histories(source.packer.pack(source.slots.examples(chosen, source.seed, epoch)))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("lengths", [[40] * 20, [3, 9], [250]])
def test_every_example_is_given_out_once_or_is_still_carried(lengths: list[int]) -> None:
    slots = Slots(Numbered(*lengths), JobConfig((0, 4), (4, 20)), np.zeros(250, np.uint8))
    source, given, num_checked = stream(slots, num_rows=1), Counter[tuple[int, ...]](), 0
    for batch in take(source, 24):
        given += histories(batch.rows)
        after = batch.after
        if after.row:
            continue
        epoch, begun = divmod(30 * after.block, len(slots))
        assert after.epoch(len(slots)) == epoch
        wanted = all_of(source, epoch, slots.shuffle(source.seed, epoch)[:begun])
        for past in range(epoch):
            wanted += all_of(source, past, np.arange(len(slots)))
        for number in after.carried:
            wanted -= all_of(source, number // len(slots), np.array([number % len(slots)]))
        assert given == wanted
        num_checked += 1
    assert num_checked > 2


ALIKE = {"edit_small", "dagger_edit", "dagger_small", "ppo_small", "revise_small"} | {
    f"{name}_300m" for name in ("ar", "ours", "mdlm", "sedd")
}
"""Recipes that cut and pack documents as others do."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in RECIPES]
)
def test_nearly_all_positions_of_every_batch_carry_actions(name: str) -> None:
    config, draw = RECIPES[name](Alphabet(2001, 2000)), np.random.default_rng(0)
    documents = Shifted(*draw.integers(250, 2000, 600))
    # Without drafts and gaps at words, which numbers instead of text can't have.
    jobs = replace(config.data.jobs, edit=0.0, pairs=0.0, gaps=(1, 1), sparse=0.0)
    marks = (draw.random(2000) < 0.04).astype(np.uint8)
    slots, order = Slots(documents, jobs, marks), parse_order(config.data.order)
    rules = replace(config.rules, ends=frozenset(np.flatnonzero(marks).tolist()))
    packer = Packer(order, rules, CanvasConfig(), config.data.row, config.model.context)
    found = take(Batches(slots, packer, config.train.rows // config.train.accumulate), 100)
    assert found[-1].after.block
    assert min(batch.rows.fill for batch in found) >= 0.97
    assert max(len(batch.after.carried) for batch in found) < 100


def test_a_position_behind_the_end_of_its_block_goes_on_with_the_next(slots: Slots) -> None:
    batch = take(stream(slots, position=Position(3, 10**6, (1, 2))), 1)[0]
    assert batch.rows.actions.shape == (8, 128)
    assert batch.after.block == 4


def test_a_batch_says_where_the_next_begins(slots: Slots) -> None:
    batch = take(stream(slots), 1)[0]
    assert batch.after == Position(0, 8)
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
