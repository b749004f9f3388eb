"""An order of somebody's own, in a file of their own: drawn, packed, measured and drawn in other processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from tiny import SETTINGS, make_trainer, random_model, start

from reviser import plugins
from reviser.bench.draw_speed import measure
from reviser.canvas import Rules
from reviser.config import CanvasConfig
from reviser.data.batches import Batches
from reviser.data.examples import JobConfig, heldout_examples
from reviser.data.packing import Packer
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.errors import ConfigError, DataError
from reviser.evaluation.metrics.likelihood import rules_of
from reviser.orders.checked import draw_by_method
from reviser.orders.draw import draw
from reviser.orders.policies import LeftToRight, has_kernel
from reviser.orders.record import Draft, Trajectory
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


@dataclass(frozen=True)
class Settled:
    """Left to right, with settings of every type and, where a test asks, a mistake."""

    mistake: str = ""
    b: bool = False
    share: float = 1
    size: int = 3
    name: str | None = None
    side: Literal["left", "right"] = "left"
    table: dict[str, int] = field(default_factory=dict)
    has_likelihood: ClassVar[Any] = True
    needs: ClassVar[Any] = frozenset()

    def __post_init__(self) -> None:
        if self.size == 0:
            raise ValueError("size is\nnothing")

    def draw(self, draft: Draft, target: Any, rng: Random) -> Any:
        text, alphabet = draft.editable(target), draft.rules.alphabet
        actions: Any = (*text, alphabet.stop)
        log_q: Any = 0.0
        match self.mistake:
            case "none":
                return None
            case "raises":
                return 1 // 0
            case "short":
                actions = (*text[:-1], alphabet.stop)
            case "no stop":
                actions = text
            case "large":
                actions = (10**9, *text, alphabet.stop)
            case "text":
                actions = ("a", *text, alphabet.stop)
            case "far":
                actions = (alphabet.move(512), *text, alphabet.stop)
            case "no tuple":
                actions = 3
            case "numpy":
                actions = np.array(actions)
            case "log_q":
                log_q = float("nan")
            case "no log_q":
                log_q = None
            case "other draft":
                draft = replace(draft, cursor=0, tokens=(), marks=())
        count = 3 if self.mistake == "no tuple" else len(actions)
        return Trajectory(draft, actions, (True,) * (count - (self.mistake == "few")), log_q)

    def log_q(self, trajectory: Trajectory) -> float:
        return float("-inf")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ORDERS, "_entries", dict(ORDERS._entries))
    register_order("settled", Settled)


MISTAKES = {
    "none": "draw gave None, not a Trajectory; fix its draw",
    "raises": r"draw failed \(ZeroDivisionError: .*by zero\); fix it",
    "no stop": r"its trajectory does not end in STOP \(260\); fix its draw",
    "large": r"it drew the action 1000000000; actions are 0 to 290, without padding \(256\); fix its draw",
    "text": "it drew the action 'a', which is not a whole number; fix its draw",
    "few": r"it drew \d+ actions and \d+ entries of has_loss; each needs one; fix its draw",
    "no tuple": "the actions of its trajectory are 3, not a tuple; fix its draw",
    "log_q": "its trajectory has the log_q nan, which is not the log of a probability; fix its draw",
    "other draft": "its trajectory has another draft than the one that draw was given; fix its draw",
}
REPLAYED = {
    "short": r"its trajectory ends with \d+ tokens, not with the \d+ of the text; they differ from token \d+ on",
    "far": r"action 0: MOVE \+512 at cursor .*",
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("mistake", [*MISTAKES, *REPLAYED])
@pytest.mark.parametrize("before", ["", "1*runs+1000000*"])
def test_a_wrong_draw_is_refused_by_the_name_of_its_order(mistake: str, before: str) -> None:
    order, draft = parse_order(f"{before}settled:mistake={mistake}"), Draft.continuation([7], SETTINGS.rules)
    text = MISTAKES.get(mistake) or REPLAYED[mistake] + "; fix its draw"
    for function in (draw, draw_by_method):
        with pytest.raises((ConfigError, DataError), match=rf"^order settled:mistake={mistake}: {text}$"):
            function(order, draft, [7, 1, 2, 3], Random.of(0))


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("mistake", [*MISTAKES, *REPLAYED])
def test_training_and_likelihood_refuse_a_wrong_draw_by_the_name_of_its_order(mistake: str, data: Path) -> None:
    examples = heldout_examples(Shards.open(data, "heldout"), 4, 6, 12)
    replayed = rf"an example of document \d+ does not replay: {REPLAYED.get(mistake)}; fix its draw"
    with pytest.raises(
        (ConfigError, DataError), match=rf"^order settled:mistake={mistake}: {MISTAKES.get(mistake) or replayed}$"
    ):
        Sampled(examples, parse_order(f"settled:mistake={mistake}"), SETTINGS.rules, CanvasConfig())


@pytest.mark.usefixtures("settled")
def test_a_log_q_that_is_none_of_a_drawn_trajectory_is_refused(data: Path) -> None:
    examples = heldout_examples(Shards.open(data, "heldout"), 4, 6, 12)
    text = "^order settled:mistake=no log_q: log_q gave -inf for a trajectory that it drew; it must be the log of"
    with pytest.raises(ConfigError, match=text):
        Sampled(examples, parse_order("settled:mistake=no log_q"), SETTINGS.rules, CanvasConfig())


def test_a_jump_is_an_action_where_it_is_enabled_and_lands_on_the_canvas() -> None:
    @dataclass(frozen=True)
    class Jumping:
        places: tuple[int, ...] = ()
        has_likelihood: ClassVar[bool] = True
        needs: ClassVar[frozenset[str]] = frozenset({"jump"})

        def draw(self, draft: Draft, target: Any, rng: Random) -> Trajectory:
            alphabet = draft.rules.alphabet
            actions = (*target, *map(alphabet.jump, self.places), alphabet.stop)
            return Trajectory(draft, actions, (True,) * len(actions), 0.0)

        def log_q(self, trajectory: Trajectory) -> float:
            return 0.0

    rules = replace(SETTINGS.rules, operators=frozenset({"jump"}), max_length=20)
    draft = Draft.continuation([], rules)
    assert draw(Jumping((1, 0)), draft, [7, 8], Random.of(0)).actions == (7, 8, 292, 291, 260)
    with pytest.raises(DataError, match=r"JUMP 20 at cursor 2 of 2 tokens: it leads to 20, outside 0..2"):
        draw(Jumping((20,)), draft, [7, 8], Random.of(0))
    with pytest.raises(DataError, match=r"it drew the action 312; actions are 0 to 311, without padding \(256\)"):
        draw(Jumping((21,)), draft, [7, 8], Random.of(0))


@pytest.mark.usefixtures("settled")
def test_numbers_of_numpy_become_plain_ones() -> None:
    drawn = draw(parse_order("settled:mistake=numpy"), Draft.continuation([], SETTINGS.rules), [1, 2], Random.of(0))
    assert drawn.actions == (1, 2, SETTINGS.rules.alphabet.stop)
    assert set(map(type, drawn.actions)) == {int}


@pytest.mark.usefixtures("settled")
def test_settings_of_an_order_are_read_by_their_types() -> None:
    text = "settled:b=true,share=0.5,size=4,name=mine,side=right"
    assert parse_order(text) == Settled("", True, 0.5, 4, "mine", "right")
    assert parse_order(format_order(parse_order(text))) == parse_order(text)
    assert parse_order("settled:name=none") == Settled()


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("b=yes", "order settled: b is 'yes'; it must be true or false"),
        ("size=0.5", "order settled: size is '0.5'; it must be a whole number"),
        ("side=up", "order settled: side is 'up'; it must be one of left, right"),
        ("size=1,size=2", "order settled: the setting size is given twice; give it once"),
        ("size", "'size' after order settled is not a setting; write settled:SETTING=VALUE"),
        ("table=1", "order settled: table is '1'; it must be an object"),
        ("length=1", "settled has no setting 'length'; it has mistake, b, share, size, name, side, table"),
        ("size=0", r"order settled:size=0 cannot be made \(ValueError: size is nothing\); fix Settled"),
    ],
)
def test_a_setting_that_an_order_cannot_have_is_named(settings: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{text}$"):
        parse_order(f"settled:{settings}")


def without(member: str) -> type[Any]:
    members = {name: getattr(LeftToRight, name) for name in ("draw", "log_q", "needs", "has_likelihood")}
    return make_dataclass("Bare", [], namespace={name: members[name] for name in members if name != member})


class Inheriting(Settled): ...


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (3, "order 'mine' is 3; register a class, which must be a frozen dataclass"),
        (LeftToRight(), r"order 'mine' is LeftToRight\(\); register its class LeftToRight, which must be a frozen"),
        (Inheriting, "order 'mine' is not a dataclass; decorate Inheriting with @dataclass"),
        (without("draw"), "order 'mine': Bare has no draw; an order must define it"),
        (without("log_q"), "order 'mine': Bare has no log_q; an order must define it"),
        (without("needs"), "order 'mine': Bare has no needs; an order must define it"),
        (without("has_likelihood"), "order 'mine': Bare has no has_likelihood; an order must define it"),
        (
            make_dataclass("Bare", [("size", int)], bases=(LeftToRight,), frozen=True),
            "order 'mine': give the setting size of Bare a",
        ),
        (
            make_dataclass("Bare", [], bases=(Settled,), frozen=True, namespace={"draw": 3}),
            "order 'mine': Bare.draw is not a method",
        ),
        (
            make_dataclass("Bare", [], bases=(Settled,), frozen=True, namespace={"pick": 3}),
            "order 'mine': Bare has no components",
        ),
    ],
)
def test_a_class_that_is_no_order_is_refused_when_it_is_registered(order: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{text}"):
        register_order("mine", order)
    assert "mine" not in ORDERS


def test_a_name_of_an_order_must_be_a_text() -> None:
    with pytest.raises(
        ConfigError, match=r"^an order is called 3; its name must be a text, and come before its class$"
    ):
        register_order(3, Settled)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("member", "value", "text"),
    [
        ("needs", None, r"needs is None; it must be a frozenset of operators, e\.g\. \{'move'\}"),
        ("needs", frozenset({"fly"}), "needs has an unknown operator 'fly'; operators are "),
        ("has_likelihood", 3, "has_likelihood is 3; it must be True or False"),
    ],
)
def test_a_member_of_an_order_that_is_of_the_wrong_type_is_named(
    member: str, value: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ORDERS, "_entries", dict(ORDERS._entries))
    bases = (Settled,)
    register_order("mine", make_dataclass("Mine", [], bases=bases, frozen=True, namespace={member: value}))
    with pytest.raises(ConfigError, match=rf"^order mine: {text}"):
        parse_order("mine")


def test_an_entry_point_of_something_else_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value = "mine", "package:three"

        def load(self) -> int:
            return 3

    monkeypatch.setattr(ORDERS, "_has_packages", False)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Point()] if "orders" in group else [])
    with pytest.raises(
        ConfigError, match=r"package:three cannot be loaded \(ConfigError: order 'mine' is 3; register a"
    ):
        parse_order("mine")


def test_an_order_must_be_a_dataclass_and_a_mixture_is_measured_by_its_parts() -> None:
    with pytest.raises(ConfigError, match=r"^order 'mine' is not a dataclass; decorate Plain with @dataclass"):
        register_order("mine", type("Plain", (), {}))
    with pytest.raises(ConfigError, match=r"^1\.0\*runs\+1\.0\*diff is a mixture; measure its orders one by one$"):
        measure(seconds=0.01, orders={"both": parse_order("1*runs+1*diff")})


def test_an_order_that_is_not_registered_is_called_by_its_class() -> None:
    assert order_name(type("Mine", (LeftToRight,), {})()) == "Mine"
