"""The objective, the optimizers, the held-out bound, the recipes, and a loop that learns."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scramble  # noqa: F401 - registers an order that uses every operator
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import SETTINGS, make_trainer, random_model, settings
from torch import Tensor, nn

from reviser.actions import Alphabet
from reviser.config import CanvasConfig
from reviser.data.packing import Packed, Packer
from reviser.data.shards import Shards
from reviser.data.slots import Slots
from reviser.errors import CheckpointError, ConfigError
from reviser.model.attention import Layout
from reviser.model.checkpoint import save_pretrained, weights
from reviser.model.transformer import Transformer, flops_per_position, num_parameters
from reviser.orders.registry import parse_order
from reviser.training.api import _note_repeats
from reviser.training.distributed import gather_optimizers, set_optimizers
from reviser.training.objective import Objective, label_nats, to_inputs
from reviser.training.optimizer import CpuMuon, build_optimizers, lr_factor, set_lr
from reviser.training.progress import Speed, step_flops
from reviser.training.recipes import RECIPES, debug, find_recipe
from reviser.training.settings import OptimizerConfig, TrainConfig

CPU = torch.device("cpu")
GPT2 = Alphabet(50257, 50256)
KINDS = ("none", "window", "pool", "cross", "cross-window", "window-index")


def pack(data: Path, order: str, canvas: CanvasConfig, count: int = 30) -> Packed:
    slots = Slots.of(Shards.open(data, "train"), SETTINGS.data.jobs)
    packer = Packer(parse_order(order), SETTINGS.rules, canvas, row=128, context=64, longest_canvas=96)
    return packer.pack(slots.examples(np.arange(count), 0, 0))


def some_rows(packed: Packed, rows: slice) -> Packed:
    names = ("actions", "labels", "valid", "positions", "segments", "windows", "canvases", "cursors", "num_actions")
    cut: dict[str, Any] = {
        name: None if getattr(packed, name) is None else getattr(packed, name)[rows] for name in names
    }
    return replace(packed, **cut)


# the objective


def test_accumulated_gradients_are_those_of_one_big_batch(data: Path) -> None:
    packed = pack(data, "random-walk", CanvasConfig("window"))
    config = replace(SETTINGS.model, canvas=CanvasConfig("window"))
    objective = Objective(random_model(config), fuse=False)

    def gradients(parts: list[slice]) -> tuple[float, list[Tensor]]:
        inputs = [to_inputs(some_rows(packed, part), 64, CPU) for part in parts]
        count, total = sum(each.num_labels for each in inputs), 0.0
        objective.zero_grad()
        for each in inputs:
            nats = objective(each)
            (nats / count).backward()
            total += nats.item()
        return total / count, [p.grad.clone() for p in objective.parameters() if p.grad is not None]

    last = len(packed.actions)
    whole, wanted = gradients([slice(0, last)])
    parts, found = gradients([slice(0, 1), slice(1, 2), slice(2, last)])
    assert whole == pytest.approx(parts, rel=1e-6)
    assert len(wanted) == len(list(objective.parameters()))
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("masked", [True, False])
def test_the_loss_is_the_sum_of_the_nats_of_its_labels(masked: bool, data: Path) -> None:
    packed = pack(data, "random-walk", CanvasConfig("pool"))
    model = random_model(replace(SETTINGS.model, canvas=CanvasConfig("pool")))
    inputs = to_inputs(packed, 64, CPU, masked)
    nats = label_nats(model, inputs)
    assert nats.shape == packed.labels.shape
    assert ((nats > 0) == torch.from_numpy(packed.labels >= 0)).all()
    assert Objective(model, fuse=False)(inputs).item() == pytest.approx(float(nats.sum()), rel=1e-5)
    assert inputs.num_labels == (packed.labels >= 0).sum()
    assert (inputs.valid is None) == (not masked)


def test_the_mask_only_takes_probability_from_what_is_invalid(data: Path) -> None:
    packed = pack(data, "random-walk", CanvasConfig())
    model = random_model(SETTINGS.model)
    masked, plain = (label_nats(model, to_inputs(packed, 64, CPU, flag)) for flag in (True, False))
    assert (masked <= plain + 1e-5).all()
    assert masked.sum() < plain.sum()


def test_examples_lie_in_the_layout_where_they_were_packed(data: Path) -> None:
    packed = pack(data, "runs", CanvasConfig())
    layout = to_inputs(packed, 64, CPU).layout
    starts = layout.starts[layout.starts < packed.actions.size].tolist()
    wanted = Layout.of(torch.from_numpy(packed.segments))
    assert starts[0] == 0
    assert set(wanted.starts.tolist()) - {packed.actions.size} <= set(starts)
    assert {row * 128 + col for row, col, _ in packed.places.tolist()} <= set(starts)
    assert max(np.diff([*starts, packed.actions.size])) <= layout.longest == 64
    assert layout.starts[-1] == packed.actions.size


def test_the_operations_of_a_step_are_six_for_each_weight_and_position() -> None:
    config = replace(SETTINGS.model, canvas=CanvasConfig("window"))
    speed = Speed(actions=990, positions=1000, labels=1000, span_sum=1000 * 40.0, waited_s=0.0)
    assert step_flops(config, speed) == pytest.approx(1000 * flops_per_position(config, 40.0))
    assert step_flops(config, replace(speed, labels=500)) < step_flops(config, speed)


# optimizers


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("cosine", [0.5, 1.0, 1.0, 0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2, 0.55, 0.1]),
        ("linear", [0.5, 1.0, 1.0, 0.1 + 0.9 * 0.75, 0.55, 0.1]),
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_learning_rate_warms_up_and_falls(schedule: Any, wanted: list[float]) -> None:
    config = OptimizerConfig(lr=1e-2, min_lr=1e-3, warmup=2, schedule=schedule)
    found = [lr_factor(step, 10, config) for step in (0, 1, 2, 4, 6, 10)]
    assert found == pytest.approx(wanted)
    assert lr_factor(99, 10, config) == pytest.approx(wanted[-1])
    assert lr_factor(0, 10, replace(config, warmup=0)) == 1.0


def test_matrices_and_tables_decay_and_nothing_else() -> None:
    model = Transformer(replace(SETTINGS.model, norm="layer", canvas=CanvasConfig("window")))
    (optimizer,) = build_optimizers(model, OptimizerConfig(weight_decay=0.3, beta1=0.8, beta2=0.9, eps=1e-7))
    decayed, plain = optimizer.param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.3, 0.0)
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in plain["params"]} == {1}
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))
    assert (decayed["betas"], decayed["eps"]) == ((0.8, 0.9), 1e-7)


def test_muon_takes_the_matrices_of_the_blocks() -> None:
    model = Transformer(replace(SETTINGS.model, canvas=CanvasConfig("window")))
    config = OptimizerConfig(name="muon", lr=1e-2, muon_lr=2e-2)
    muon, adamw = build_optimizers(model, config)
    matrices = {p for p in model.blocks.parameters() if p.ndim == 2}
    assert set(muon.param_groups[0]["params"]) == matrices
    others = {p for group in adamw.param_groups for p in group["params"]}
    assert others == set(model.parameters()) - matrices
    set_lr([muon, adamw], 0.5, config)
    assert [each.param_groups[0]["lr"] for each in (muon, adamw)] == [1e-2, 5e-3]


def test_an_old_torch_without_muon_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(
        ConfigError, match=r"^optimizer.name=muon needs torch 2.9 or later on a GPU, this is .*; use adamw$"
    ):
        build_optimizers(Transformer(SETTINGS.model).to("meta"), OptimizerConfig(name="muon"))


@given(st.integers(1, 24), st.integers(1, 24), st.integers(0, 99))
def test_muon_on_a_cpu_is_torchs_but_for_its_rounding(rows: int, columns: int, seed: int) -> None:
    torch.manual_seed(seed)
    ours, theirs = (nn.Parameter(start.clone()) for start in [torch.randn(rows, columns)] * 2)
    optimizers = (
        CpuMuon([ours], 0.1, 0.2),
        torch.optim.Muon([theirs], lr=0.1, weight_decay=0.2, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(2):
        ours.grad = theirs.grad = torch.randn(rows, columns)
        with mock.patch.object(Tensor, "bfloat16", Tensor.float):
            for each in optimizers:
                each.step()
    size = 0.1 * 0.2 * math.sqrt(max(rows, columns))
    assert torch.allclose(ours, theirs, atol=1e-3 * size)
    states = [each.state_dict() for each in optimizers]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    assert torch.equal(*(each["state"][0]["momentum_buffer"] for each in states))
    for each, state in zip(optimizers, reversed(states), strict=True):
        each.load_state_dict(state)


# the loop


@pytest.mark.parametrize(("optimizer", "steps"), [("adamw", 60), ("muon", 30)])
def test_one_batch_can_be_overfitted(optimizer: str, steps: int, data: Path) -> None:
    packed = some_rows(pack(data, "runs", CanvasConfig("window")), slice(0, 1))
    chosen = settings(f"optimizer.name={optimizer}", "optimizer.lr=1e-2", "optimizer.muon_lr=2e-2").optimizer
    torch.manual_seed(0)
    objective = Objective(Transformer(replace(SETTINGS.model, canvas=CanvasConfig("window"))), fuse=False)
    optimizers, inputs = build_optimizers(objective.model, chosen), to_inputs(packed, 64, CPU)
    found = []
    for _ in range(steps):
        nats = objective(inputs) / inputs.num_labels
        nats.backward()
        for each in optimizers:
            each.step()
            each.zero_grad()
        found.append(nats.item())
    assert found[0] > 4
    assert found[-1] < 0.1 * found[0]


def test_training_brings_the_bound_down(data: Path) -> None:
    trainer = make_trainer(data, "train.steps=30", "train.rows=6")
    before = trainer.heldout["continue"].measure(trainer.model, CPU)
    after = trainer.train()["continue"]
    assert after.nats_per_token < 0.7 * before.nats_per_token


@pytest.mark.parametrize("kind", KINDS)
def test_every_canvas_kind_trains(kind: str, data: Path) -> None:
    changes = [
        f"model.canvas.kind={kind}",
        "model.canvas.slot_width=8",
        "train.steps=4",
        "data.jobs.infill=0.5",
        "data.jobs.gap=4,28",
        "data.jobs.suffix=1,9",
    ]
    trainer = make_trainer(data, *changes, "model.canvas.gate=scalar", "model.dropout=0.1")
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    assert trainer.train()
    changed = [not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True)]
    assert all(changed)


@pytest.mark.parametrize(
    "change",
    ["train.masked=false", "model.positions=absolute", "model.norm=layer", "model.tied=false", "optimizer.name=muon",
     "data.order=0.5*runs+0.5*left-to-right", "data.order=left-to-right"],
)  # fmt: skip
def test_every_way_to_train_trains(change: str, data: Path) -> None:
    trainer = make_trainer(data, change, "train.steps=3", "train.eval_length=8", "data.row=256")
    assert trainer.train()


def test_training_begins_with_the_weights_it_is_given(data: Path, tmp_path: Path) -> None:
    given = random_model(SETTINGS.model)
    save_pretrained(given, tmp_path / "given", Shards.open(data, "train").tokenizer)
    trainer = make_trainer(data, f"train.init={tmp_path / 'given'}")
    trainer.begin()
    assert all(map(torch.equal, weights(trainer.model).values(), weights(given).values()))
    wider = make_trainer(data, f"train.init={tmp_path / 'given'}", "model.ff_width=96")
    with pytest.raises(CheckpointError, match=r"given: tensor blocks.0.mlp.up.weight has the shape"):
        wider.begin()
    with pytest.raises(
        CheckpointError, match=r"^no model folder nowhere; give a folder, or a hub id like name/model$"
    ):
        make_trainer(data, "train.init=nowhere").begin()


@pytest.mark.parametrize("operators", ["move", "jump"])
def test_what_is_missing_of_a_pointer_is_fresh_at_first(operators: str, data: Path, tmp_path: Path) -> None:
    given = random_model(replace(SETTINGS.model, operators=(operators,)))
    save_pretrained(given, tmp_path / "given", Shards.open(data, "train").tokenizer)
    jumping = "model.operators=jump", "model.pointer_ahead=2", "data.order=runs:jump=0.1,by=pointer"
    trainer = make_trainer(data, f"train.init={tmp_path / 'given'}", *jumping)
    fresh = {name: tensor.clone() for name, tensor in weights(trainer.model).items()}
    trainer.begin()
    begun = weights(trainer.model)
    assert begun["pointer.ahead_matrix.weight"].shape == (2 * 64, 32)
    for name, tensor in begun.items():
        assert torch.equal(tensor, weights(given).get(name, fresh[name])), name


# Some CPUs have no bf16 and say so.
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_half_precision_trains(data: Path) -> None:
    # One row: a CPU without half precision takes its time.
    few = ["train.steps=1", "train.rows=1", "data.row=64", "train.eval_examples=1", "train.eval_length=4"]
    bound = make_trainer(data, "train.precision=bf16", *few).train()["continue"]
    wanted = make_trainer(data, "train.precision=float32", *few).train()["continue"]
    assert bound.nats_per_token == pytest.approx(wanted.nats_per_token, rel=0.02)


SLOW_ORDER = pytest.param("scramble:edit=0.3", marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["runs:noise=0.3,start=end", SLOW_ORDER])
def test_noise_may_fill_a_canvas_beyond_its_final_text(order: str, data: Path) -> None:
    operators = "model.operators=move,delete,replace,swap,cut,copy,paste"
    trainer = make_trainer(data, operators, f"data.order={order}", "model.canvas.kind=pool", "train.steps=2")
    assert not trainer.heldout
    assert trainer.packer.longest_canvas == 96
    assert not trainer.train()


def test_parts_of_a_step_make_no_difference(data: Path) -> None:
    weights = []
    for accumulate in (1, 4):
        trainer = make_trainer(data, "train.steps=3", f"train.accumulate={accumulate}")
        trainer.train()
        weights.append([parameter.detach().clone() for parameter in trainer.model.parameters()])
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)


def test_gradients_are_clipped(data: Path) -> None:
    changes = ["train.steps=1", "optimizer.weight_decay=0", "optimizer.warmup=0", "optimizer.eps=1"]
    small, large = (make_trainer(data, *changes, f"optimizer.clip={clip}") for clip in (1e-3, 1e3))
    moves = []
    for trainer in (small, large):
        before = trainer.model.embedding.weight.detach().clone()
        trainer.train()
        moves.append((trainer.model.embedding.weight - before).norm().item())
    # With so large an eps AdamW's step is as large as the gradient.
    assert moves[0] < 0.1 * moves[1]


def test_a_model_in_pieces_is_gathered_once_a_step(data: Path) -> None:
    trainer = make_trainer(data, "train.parallel=fsdp")
    alone, two = trainer.team, replace(trainer.team, world=2)
    assert trainer._gathered() is trainer.model
    trainer.team = two
    first = trainer._gathered()
    assert first is not trainer.model
    assert trainer._gathered() is first
    trainer.team = alone
    trainer.train(1)
    trainer.team = two
    second = trainer._gathered()
    for mine, theirs in zip(second.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert not torch.equal(first.embedding.weight, second.embedding.weight)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_state_of_optimizers_comes_back(name: str, data: Path) -> None:
    one, other = (make_trainer(data, f"optimizer.name={name}", "optimizer.beta1=0.8") for _ in range(2))
    one.train(2)
    state = gather_optimizers(one.model, one.optimizers)
    assert {path.rpartition("/")[0] for path in state} == dict(one.model.named_parameters()).keys()
    set_optimizers(other.model, other.optimizers, state)
    again = gather_optimizers(other.model, other.optimizers)
    assert again.keys() == state.keys()
    assert all(torch.equal(again[path], state[path]) for path in state)
    assert other.optimizers[-1].param_groups[0]["betas"][0] == 0.8
    with pytest.raises(CheckpointError, match=r"^the optimizer's state names new, which this model does not have$"):
        set_optimizers(other.model, other.optimizers, {"new/exp_avg": torch.zeros(1)})


# recipes and settings


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("alphabet", [Alphabet(257, 256), GPT2], ids=["bytes", "gpt2"])
def test_every_recipe_builds(name: str, alphabet: Alphabet) -> None:
    config = find_recipe(name.replace("_", "-"))(alphabet)
    assert config.model.alphabet == alphabet
    with torch.device("meta"):
        Transformer(config.model)


@pytest.mark.parametrize(
    ("name", "shape", "context", "rates", "positions", "accumulate", "count"),
    [
        ("paper_100m", (24, 512, 8, 2048), 256, (1e-4, 2e-5), 64 * 256, 1, 101_358_080),
        ("paper_300m", (26, 896, 14, 3584), 512, (1e-5, 1e-6), 16 * 4 * 512, 4, 295_750_784),
    ],
)
def test_the_paper_recipes_are_those_of_its_reproducibility_section(
    name: str,
    shape: tuple[int, ...],
    context: int,
    rates: tuple[float, float],
    positions: int,
    accumulate: int,
    count: int,
) -> None:
    config = find_recipe(name)(GPT2)
    model, optimizer, train = config.model, config.optimizer, config.train
    assert (model.num_layers, model.width, model.num_heads, model.ff_width) == shape
    assert (model.positions, model.tied, model.dropout) == ("rope", True, 0.1)
    assert (model.context, model.max_length) == (context, 512)
    assert (model.norm, model.qk_norm, model.activation) == ("layer", False, "gelu")
    assert model.canvas.kind == "none"
    assert num_parameters(model) == count
    assert (optimizer.name, optimizer.beta1, optimizer.beta2, optimizer.eps) == ("adamw", 0.9, 0.95, 1e-8)
    assert (optimizer.weight_decay, optimizer.clip, optimizer.warmup, optimizer.schedule) == (
        0.1,
        1.0,
        2000,
        "cosine",
    )
    assert (optimizer.lr, optimizer.min_lr) == rates
    assert (train.rows * config.data.row, train.accumulate, train.masked) == (positions, accumulate, False)
    assert train.steps * positions == pytest.approx(30e9, rel=1e-4)
    assert parse_order(config.data.order) == parse_order("random-walk:delete=0.8")
    baseline = find_recipe(name.replace("paper", "ar"))(GPT2)
    assert baseline == replace(config, data=replace(config.data, order="left-to-right"))


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        find_recipe("papr_100m")
    assert str(caught.value) == f"no recipe 'papr_100m'; recipes are {', '.join(RECIPES)}"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("optimizer.lr=0", "optimizer.lr=0.0 must be above 0"),
        ("optimizer.clip=-1", "optimizer.clip=-1.0 must be above 0"),
        ("optimizer.min_lr=1", "optimizer.min_lr=1.0 must lie between 0 and lr=0.005"),
        ("optimizer.beta2=1", "optimizer.beta2=1.0 must be at least 0 and below 1"),
        ("optimizer.warmup=-1", "optimizer.warmup=-1 must be 0 or more"),
        ("optimizer.weight_decay=-0.1", "optimizer.weight_decay=-0.1 must be 0 or more"),
        ("data.workers=0", "data.workers=0 must be at least 1"),
        ("train.steps=0", "train.steps=0 must be at least 1"),
        ("train.eval_examples=0", "train.eval_examples=0 must be at least 1"),
        ("train.eval_prefix=-1", "train.eval_prefix=-1 must be 0 or more"),
        ("train.eval_infill=-1", "train.eval_infill=-1 must be 0 or more"),
        ("train.accumulate=3", "train.rows=4 does not divide into accumulate=3 parts"),
        ("data.row=32", "data.row=32 is shorter than model.context=64"),
        ("data.order=runs:noise=0.1", "data.order=runs:noise=0.1 uses delete, which is not in model.operators"),
        ("model.max_length=40", "data.jobs make canvases of up to 56 tokens, model.max_length is 40"),
    ],
)
def test_settings_that_cannot_be_used_are_named(change: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(change)
    assert str(caught.value) == text


def test_gaps_without_text_around_them_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        settings("train.eval_infill=9", "train.eval_prefix=0")
    assert str(caught.value) == (
        "train.eval_infill=9 needs text on both sides of a gap; set train.eval_prefix to 1 or more"
    )


def test_the_debug_recipe_stays_a_minute_long() -> None:
    config = debug(Alphabet(257, 256))
    assert config.train.steps * config.train.rows * config.data.row <= 400_000
    assert num_parameters(config.model) < 300_000


def test_the_fill_in_the_middle_rival_is_small_from_left_to_right_with_twice_the_gaps() -> None:
    ours, rival = (find_recipe(name)(GPT2) for name in ("small", "fim_small"))
    assert (rival.model, rival.optimizer, rival.train) == (ours.model, ours.optimizer, ours.train)
    assert (rival.data.order, rival.data.jobs.infill, ours.data.jobs.infill) == ("left-to-right", 0.5, 0.25)


def test_beginnings_that_are_read_over_and_over_are_noted() -> None:
    """216 million positions over 230 thousand beginnings of 162 tokens, in a text of 129 million."""
    paper = replace(find_recipe("paper_100m")(Alphabet(257, 256)), train=TrainConfig(steps=2197, rows=24))
    note = _note_repeats(paper, 230_000, 129_000_000)
    assert note.startswith(
        "note: 100% of the stretches begin a document, so the same 37,260,000 tokens are read about 6"
    )
    assert _note_repeats(paper, 2_300_000, 1_290_000_000) == ""
    assert _note_repeats(paper, 230_000, 40_000_000) == ""
    assert _note_repeats(find_recipe("small")(Alphabet(257, 256)), 1000, 10**6) == ""
