"""Rows are filled alike by the kernel and by the executor, and what an order draws wrongly is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import scramble  # noqa: F401 - registers an order without a kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reviser.actions import Alphabet
from reviser.canvas import Rules
from reviser.config import CanvasConfig
from reviser.data.examples import JobConfig
from reviser.data.filling import RowArrays, fill_by_executor, fill_by_kernel
from reviser.data.packing import Drawn, Packer, example_table, fit
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.errors import DataError, TrajectoryError
from reviser.orders.record import Draft, Trajectory
from reviser.orders.registry import parse_order
from reviser.orders.replay import KERNEL_OPERATORS
from reviser.orders.rng import Random

RULES = Rules(Alphabet(257, 256), frozenset(KERNEL_OPERATORS), max_length=96)
ORDERS = (
    "left-to-right",
    "runs:jump=0.3",
    "runs:noise=0.3",
    "random-walk:delete=0.5",
    "random-walk:noise=0.2,noise_from=document",
    "runs:jump=0.3,by=pointer",
    "diff:by=pointer",
    "scramble:edit=0.3",
    "runs:jump=0.3,start=end,by=pointer",
)


@pytest.fixture(scope="module")
def slots(data: Path) -> Slots:
    jobs = JobConfig(prefix=(0, 12), length=(1, 28), gap=(1, 28), suffix=(1, 40), infill=0.5)
    return Slots.of(Shards.open(data, "train"), jobs)


def fill_both(
    drawn: Drawn, rules: Rules, row: int, width: int, num_cells: int = 0
) -> tuple[RowArrays, np.ndarray[tuple[int, int], np.dtype[np.bool_]]]:
    """What the kernel fills, which is what the executor fills, and where examples stand in it."""
    places, num_rows = fit(drawn.sizes, row)
    one, other = (RowArrays.blank(num_rows, row, rules, width, num_cells, has_cursors=True) for _ in range(2))
    table = example_table(drawn.examples, places)
    for fill, arrays in ((fill_by_kernel, one), (fill_by_executor, other)):
        assert fill(table, drawn.examples, drawn.rows, rules, arrays) == -1
    # The kernel writes one column past an example's end, which the next example or padding covers.
    is_used = np.zeros((num_rows, row + 1), bool)
    for line, col, size in places.tolist():
        is_used[line, col : col + size] = True
    for name in RowArrays.__slots__:
        assert np.array_equal(getattr(one, name)[is_used], getattr(other, name)[is_used]), name
    return one, is_used


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(ORDERS),
    st.integers(0, 1 << 20),
    st.integers(1, 12),
    st.sampled_from([0, 1, 4, 6]),
    st.sampled_from([0, 10, 97]),
)
def test_the_kernel_and_the_executor_fill_the_same_arrays(
    slots: Slots, order: str, seed: int, count: int, width: int, num_cells: int
) -> None:
    drawn = Packer(parse_order(order), RULES, CanvasConfig(), row=400).draw(
        slots.examples(slots.shuffle(seed, 0)[:count], seed, 0)
    )
    one, is_used = fill_both(drawn, RULES, 400, width, num_cells)
    assert (one.labels[is_used] >= 0).any()
    assert (one.cursors[is_used] > 0).any()
    assert not one.cursors[~is_used].any()


@dataclass(frozen=True)
class Wrong:
    """Left to right, with a mistake of the test's choice."""

    mistake: str = "none"
    has_likelihood: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset()

    def draw(self, draft: Draft, target: Sequence[int], rng: Random) -> Trajectory:
        text, alphabet = draft.editable(target), draft.rules.alphabet
        actions = {
            "none": (*text, alphabet.stop),
            "no stop": text,
            "nothing": (),
            "other text": (*text, 5, alphabet.stop),
            "same length": (*text[:-1], (text[-1] + 1) % 256, alphabet.stop),
            "invalid": (alphabet.move(512), *text, alphabet.stop),
            "early stop": (alphabet.stop, *text, alphabet.stop),
            "unknown": (alphabet.size, *text, alphabet.stop),
            "far": (alphabet.jump(draft.rules.max_length + 1), *text, alphabet.stop),
            "no landing": (*text, alphabet.size - 1, alphabet.stop),
            "negative": (-1, *text, alphabet.stop),
            "padding": (alphabet.pad, *text, alphabet.stop),
            "few": (*text, alphabet.stop),
        }[self.mistake]
        num_losses = len(actions) - (self.mistake == "few")
        return Trajectory(draft, actions, (True,) * num_losses, 0.0)

    def log_q(self, trajectory: Trajectory) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        ("no stop", r"^order Wrong: its trajectory does not end in STOP \(260\); fix its draw$"),
        ("nothing", "^order Wrong: its trajectory does not end in STOP"),
        ("few", r"^order Wrong: it drew \d+ actions and \d+ entries of has_loss; each needs one; fix its draw$"),
        ("far", r"^order Wrong: it drew the action 388; actions are 0 to 387, without padding \(256\)"),
        ("negative", "^order Wrong: it drew the action -1; actions are"),
        ("padding", "^order Wrong: it drew the action 256; actions are"),
    ],
)
def test_what_cannot_stand_in_a_row_is_refused(mistake: str, text: str, slots: Slots) -> None:
    with pytest.raises(TrajectoryError, match=text):
        Packer(Wrong(mistake), RULES, CanvasConfig(), row=256).pack(slots.examples(np.arange(4), 0, 0))


def test_without_jumps_there_are_no_actions_behind_the_rows(slots: Slots) -> None:
    rules = replace(RULES, operators=frozenset({"move"}), has_jumps=False)
    with pytest.raises(TrajectoryError, match=r"^order Wrong: it drew the action 291; actions are 0 to 290, without"):
        Packer(Wrong("unknown"), rules, CanvasConfig(), row=256).pack(slots.examples(np.arange(4), 0, 0))


@pytest.mark.parametrize("operators", [KERNEL_OPERATORS, ("move", "cut")], ids=["kernel", "executor"])
@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (
            "other text",
            r"its trajectory ends with \d+ tokens, not with the \d+ of the text; they differ from token \d+ on; fix",
        ),
        (
            "same length",
            r"its trajectory ends with (\d+) tokens, not with the \1 of the text; they differ from token \d+ on",
        ),
        ("invalid", r"action 0: MOVE \+512 at cursor"),
        ("no landing", r"action \d+: JUMP .*: it is never emitted"),
        ("early stop", "action 1: INSERT .* the trajectory has stopped"),
    ],
)
def test_what_does_not_lead_to_its_target_is_refused(
    mistake: str, text: str, operators: tuple[str, ...], slots: Slots
) -> None:
    rules = replace(RULES, operators=frozenset(operators))
    Packer(Wrong(), rules, CanvasConfig(), row=256).pack(slots.examples(np.arange(4), 0, 0))
    with pytest.raises(DataError, match=rf"^order Wrong: an example of document \d+ does not replay: {text}"):
        Packer(Wrong(mistake), rules, CanvasConfig(), row=256).pack(slots.examples(np.arange(4), 0, 0))


def test_a_canvas_of_an_unknown_order_is_shown_whole(slots: Slots) -> None:
    examples = slots.examples(np.arange(4), 0, 0)
    short = {"row": 256, "longest_canvas": 3}
    unknown, known = (
        Packer(order, RULES, CanvasConfig("pool"), **short).pack(examples).canvases
        for order in (Wrong(), parse_order("left-to-right"))
    )
    assert unknown is not None
    assert known is not None
    assert (unknown.shape[2], known.shape[2]) == (97, 4)
