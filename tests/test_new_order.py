"""An order of somebody's own, in a file of their own: drawn, packed, measured and drawn in other processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import SETTINGS, make_trainer, random_model, start

from reviser import plugins
from reviser.bench.draw_speed import measure
from reviser.canvas import Rules
from reviser.config import CanvasConfig
from reviser.data.batches import Batches
from reviser.data.examples import JobConfig, Slots, heldout_examples
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.errors import ConfigError
from reviser.evaluation.metrics.likelihood import rules_of
from reviser.orders.draw import draw
from reviser.orders.policies import LeftToRight, has_kernel
from reviser.orders.record import Draft
from reviser.orders.registry import ORDERS, format_order, order_name, parse_order, register_order
from reviser.orders.rng import Random
from reviser.training.heldout import Sampled

CPU = torch.device("cpu")
FILE = '''
"""Two orders: one writes a text from its end to its front, one from left to right as the built-in one does."""
import math
from dataclasses import dataclass
from typing import ClassVar

from reviser.orders.record import Trajectory
from reviser.orders.registry import register_order
from reviser.orders.rng import threshold


@dataclass(frozen=True)
class Backwards:
    """Writes the last token first, or with some probability from left to right."""

    plain: float = 0.25
    has_likelihood: ClassVar[bool] = True
    needs: ClassVar[frozenset] = frozenset({"move"})

    def draw(self, draft, target, rng):
        text, alphabet = draft.editable(target), draft.rules.alphabet
        is_plain = rng.chance(threshold(self.plain))
        steps = text if is_plain else [each for token in reversed(text) for each in (token, alphabet.move(-1))][:-1]
        actions = (*steps, alphabet.stop)
        return Trajectory(draft, actions, (True,) * len(actions))

    def log_q(self, trajectory):
        if len(trajectory.actions) == 2:
            return 0.0
        has_moves = any(map(trajectory.draft.rules.alphabet.is_move, trajectory.actions))
        return math.log(1 - self.plain if has_moves else self.plain)


@dataclass(frozen=True)
class Forwards:
    has_likelihood: ClassVar[bool] = True
    needs: ClassVar[frozenset] = frozenset()

    def draw(self, draft, target, rng):
        actions = (*draft.editable(target), draft.rules.alphabet.stop)
        return Trajectory(draft, actions, (True,) * len(actions), 0.0)

    def log_q(self, trajectory):
        return 0.0


register_order("backwards", Backwards)
register_order("forwards", Forwards)
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file, loaded; what it has registered goes with the test."""
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(ORDERS, "_entries", dict(ORDERS._entries))
    modules = set(sys.modules)
    plugins.load_plugin(file)
    yield file
    for name in set(sys.modules) - modules:
        if name.startswith("reviser_plugin_"):
            del sys.modules[name]


@pytest.mark.usefixtures("plugin")
def test_a_new_order_draws_what_its_name_says() -> None:
    order, rules = parse_order("backwards:plain=0.0"), SETTINGS.rules
    assert format_order(order) == order_name(order) == "backwards:plain=0.0"
    assert not has_kernel(order)
    drawn = draw(order, Draft.continuation([7], rules), [7, 1, 2, 3], Random.of(0))
    assert drawn.final.tokens == (7, 1, 2, 3)
    assert drawn.actions[0] == 3
    speed = measure(num_tokens=9, seconds=0.01, orders={"mine": order})["orders"]["mine"]
    assert speed["actions_per_s"] > 0
    assert speed["actions_per_token"] == pytest.approx(17 / 9)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("order", ["backwards", "0.5*backwards+0.5*runs:jump=0.2"])
def test_rows_of_a_new_order_come_with_its_log_q(order: str, data: Path) -> None:
    slots = Slots.of(Shards.open(data, "train"), JobConfig((0, 12), (4, 28), infill=0.4, suffix=(1, 9), gap=(4, 28)))
    examples, policy = slots.examples(np.arange(40), 3, 0), parse_order(order)
    before = examples.states.copy()
    packed = Packer(policy, SETTINGS.rules, CanvasConfig("window"), row=256).pack(examples)
    for i, (row, col, size) in enumerate(packed.places.tolist()):
        rng = Random(int(before[i]))
        drawn = policy.draw(examples.draft(i, SETTINGS.rules), examples.text(i), rng)
        labels = packed.labels[row, col : col + size]
        assert tuple(labels[labels >= 0].tolist()) == drawn.actions
        assert packed.log_q[i] == pytest.approx(policy.log_q(drawn))
        assert examples.states[i] == rng.state
    assert len(set(packed.log_q.round(6).tolist())) > 1


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("rules", [rules_of(SETTINGS.model, LeftToRight()), SETTINGS.rules], ids=["append", "all"])
def test_the_bound_of_left_to_right_registered_anew_is_the_exact_number(rules: Rules, data: Path) -> None:
    examples = heldout_examples(Shards.open(data, "heldout"), 12, 6, 12, infill=True)
    model = random_model(replace(SETTINGS.model, canvas=CanvasConfig("window", window=3)))
    found, exact = (
        Sampled(examples, parse_order(name), rules, model.config.canvas) for name in ("forwards", "left-to-right")
    )
    assert found.score(model, CPU).tolist() == exact.score(model, CPU).tolist()
    assert found.packed.log_q.tolist() == exact.packed.log_q.tolist() == [0.0] * 12


@pytest.mark.usefixtures("plugin")
def test_a_bound_with_a_new_order_pays_for_the_choice_it_made(data: Path) -> None:
    examples = heldout_examples(Shards.open(data, "heldout"), 30, 6, 12)
    model = random_model(SETTINGS.model)
    names = ("backwards:plain=0.25", "backwards:plain=0.0", "left-to-right")
    mixed, back, plain = (Sampled(examples, parse_order(name), SETTINGS.rules, CanvasConfig()) for name in names)
    scores = [each.score(model, CPU) for each in (mixed, back, plain)]
    is_plain = np.isclose(mixed.packed.log_q, np.log(0.25))
    assert 0 < is_plain.sum() < 30
    assert np.allclose(mixed.packed.log_q[~is_plain], np.log(0.75))
    np.testing.assert_allclose(scores[0], np.where(is_plain, scores[2], scores[1]), rtol=1e-5)


@pytest.mark.usefixtures("plugin")
def test_processes_draw_an_order_of_a_plugin_file(data: Path) -> None:
    slots = Slots.of(Shards.open(data, "train"), SETTINGS.data.jobs)
    source = Batches(slots, Packer(parse_order("forwards"), SETTINGS.rules, CanvasConfig(), 128, 64), 8)
    assert source._workers is not None
    plain = Batches(slots, Packer(LeftToRight(), SETTINGS.rules, CanvasConfig(), 128, 64), 8)
    try:
        for one, other in zip(islice(source, 3), islice(plain, 3), strict=True):
            assert np.array_equal(one.rows.actions, other.rows.actions)
            assert np.array_equal(one.rows.labels, other.rows.labels)
    finally:
        source.close()
        plain.close()


@pytest.mark.usefixtures("plugin")
def test_a_new_order_trains_and_is_measured(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = []
    for order in ("forwards", "left-to-right"):
        trainer = make_trainer(data, f"data.order={order}", "train.steps=2", "data.workers=1")
        bounds.append(trainer.train()["continue"].nats_per_token)
    assert bounds[0] == bounds[1]
    assert start(data, tmp_path / "run", "data.order=forwards", "train.steps=2", "data.workers=1") == 0
    assert "order forwards has no kernel: " in capsys.readouterr().err


def test_an_order_must_be_a_dataclass_and_a_mixture_is_measured_by_its_parts() -> None:
    with pytest.raises(ConfigError, match=r"^order 'mine' is no dataclass; decorate Plain with @dataclass"):
        register_order("mine", type("Plain", (), {}))
    with pytest.raises(ConfigError, match=r"^1\.0\*runs\+1\.0\*diff is a mixture; measure its orders one by one$"):
        measure(seconds=0.01, orders={"both": parse_order("1*runs+1*diff")})


def test_an_order_that_is_not_registered_is_called_by_its_class() -> None:
    assert order_name(type("Mine", (LeftToRight,), {})()) == "Mine"
