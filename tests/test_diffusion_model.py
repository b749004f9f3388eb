"""Denoisers: who sees whom, what a place costs, rows of canvases, and writing with real networks."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Numbered
from tiny import settings as tiny_settings

from reviser.config import CanvasConfig, ModelConfig
from reviser.data.examples import Gap, JobConfig
from reviser.data.slots import Slots
from reviser.diffusion.bound import CanvasBatch, bound_nats, place_nats
from reviser.diffusion.canvases import CanvasPacker
from reviser.diffusion.denoiser import FAMILIES, Mdlm, Sedd, score_entropy
from reviser.diffusion.denoising_loss import DenoisingObjective, noisy_inputs
from reviser.diffusion.sampler import RoomRequest, fill
from reviser.errors import ConfigError
from reviser.model.attention import Layout
from reviser.orders.rng import Random

CONFIG = ModelConfig(num_text=257, pad=256, num_layers=2, width=32, num_heads=2, ff_width=64, context=64)
MASK, PAD = CONFIG.alphabet.none, CONFIG.pad
JOBS = JobConfig(prefix=(0, 12), length=(4, 20), suffix=(2, 6), gap=(1, 9), infill=0.5)
BOTH = pytest.mark.parametrize("family", FAMILIES)


def make(family, seed=0, std=0.2):
    """A denoiser whose branches all speak: fresh ones start at zero."""
    torch.manual_seed(seed)
    model = FAMILIES[family](CONFIG).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model


def slots(*lengths):
    return Slots(Numbered(*lengths), JOBS, np.zeros(257, np.uint8))


def packer(row=96, context=48):
    return CanvasPacker.of(tiny_settings().model.alphabet, JOBS, row, context)


def packed(count=40, row=96, context=48):
    source = slots(*[60] * count)
    return packer(row, context).pack(source.examples(np.arange(len(source)), 0, 0))


def inputs_of(rows, model, stream=1):
    return noisy_inputs(rows, MASK, 48, stream, model.is_timed)


@BOTH
def test_a_place_sees_what_is_behind_it_and_before_it(family):
    model, canvas = make(family), torch.tensor([[1, 2, MASK, 4, 5]])
    before = model.hidden(canvas, levels=torch.tensor([0.5]))
    for place in (0, 4):
        changed = canvas.clone()
        changed[0, place] = 9
        after = model.hidden(changed, levels=torch.tensor([0.5]))
        assert (after - before).abs().amax(dim=-1).min() > 1e-4, "every place notices"


@BOTH
def test_canvases_of_one_row_do_not_see_each_other(family):
    model, levels = make(family), torch.tensor([0.5])
    first, second = torch.tensor([[1, MASK, 3]]), torch.tensor([[4, 5, MASK, 7]])
    layout = Layout.of(torch.tensor([[0, 0, 0, 1, 1, 1, 1]]))
    together = model.hidden(torch.cat([first, second], dim=1), layout=layout, levels=levels)
    apart = torch.cat([model.hidden(each, levels=levels) for each in (first, second)], dim=1)
    assert torch.allclose(together, apart, atol=1e-5)


def test_sedd_reads_the_level_and_a_fresh_one_does_not_yet():
    canvas, fresh = torch.tensor([[1, MASK, 3]]), Sedd(CONFIG)
    for model, is_same in ((fresh, True), (make("sedd"), False)):
        early, late = (model.hidden(canvas, levels=torch.tensor([level])) for level in (0.1, 1.0))
        assert torch.allclose(early, late) == is_same
    with pytest.raises(ValueError, match="give levels"):
        fresh.hidden(canvas)


def test_levels_belong_to_their_rows():
    model, canvas = make("sedd"), torch.tensor([[1, MASK, 3], [4, MASK, 6]])
    both = model.hidden(canvas, levels=torch.tensor([0.2, 0.9]))
    alone = model.hidden(canvas[1:], levels=torch.tensor([0.9]))
    assert torch.allclose(both[1:], alone, atol=1e-5)


def test_mdlm_sums_to_one_over_text_tokens_alone():
    model, canvas = make("mdlm"), torch.tensor([[1, MASK, 3]])
    log_m = model.log_scores(canvas, torch.ones(1), Layout.of(torch.zeros(1, 3)), torch.tensor([1]))
    assert log_m.shape == (1, 257)
    assert log_m.exp().sum().item() == pytest.approx(1, abs=1e-5)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_the_score_entropy_and_its_gradient_are_what_is_written(seed):
    rng, num_text = np.random.default_rng(seed), 37
    logits = torch.tensor(rng.normal(size=(4, num_text + 5)), requires_grad=True)
    labels, weights = torch.tensor([3, 0, -1, 5]), torch.tensor([1.5, 0.2, 0.0, 3.0])
    values, gradient = score_entropy(logits.detach(), labels, None, weights, num_text)
    log_m = logits[:, :num_text] - np.log(num_text)
    wanted = log_m.exp().sum(-1) - log_m.gather(1, labels.clamp(min=0)[:, None])[:, 0] - 1
    (wanted * weights).sum().backward()
    is_label = labels >= 0
    assert torch.allclose(values[is_label].double(), wanted[is_label].detach(), atol=1e-5)
    assert values[~is_label].item() == 0
    assert torch.allclose(gradient.double(), logits.grad, atol=1e-5)
    assert (
        values[is_label] >= -log_m.log_softmax(-1).gather(1, labels.clamp(min=0)[:, None])[is_label, 0] - 1e-5
    ).all()


@BOTH
def test_a_model_that_knows_nothing_pays_log_v_for_every_free_place(family):
    """By hand: k masked places of L, each log V, times L / k."""
    model, rows = make(family, std=0.0), packed()
    inputs = inputs_of(rows, model)
    total = DenoisingObjective(model, fuse=False)(inputs)
    assert inputs.count == (rows.labels >= 0).sum()
    assert total.item() == pytest.approx(inputs.count * np.log(257), rel=1e-4)


@BOTH
def test_the_loss_is_the_weighted_cost_of_masked_places_and_so_is_its_gradient(family):
    model, rows = make(family, std=0.1), packed(12)
    inputs = inputs_of(rows, model)
    total = DenoisingObjective(model, fuse=False)(inputs)
    total.backward()
    found = model.embedding.weight.grad.clone()
    model.zero_grad()
    hidden = model.hidden(inputs.tokens.long(), layout=inputs.layout, levels=inputs.levels).flatten(0, 1)
    real = inputs.labels >= 0
    log_m = model.log_shares(model.logits(hidden[inputs.chosen[real]])[:, :257])
    nats = log_m.logsumexp(-1).expm1() - log_m.gather(1, inputs.labels[real].long()[:, None])[:, 0]
    wanted = (nats * inputs.weights[real]).sum()
    wanted.backward()
    assert total.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert torch.allclose(found, model.embedding.weight.grad, rtol=1e-3, atol=1e-3)


@BOTH
def test_noise_masks_free_places_alone_and_weighs_them_by_their_group(family):
    model, rows = make(family), packed()
    inputs = inputs_of(rows, model)
    tokens, free = inputs.tokens.numpy(), rows.labels >= 0
    is_masked = tokens == MASK
    assert not (is_masked & ~free).any()
    assert (tokens[~is_masked] == rows.actions[~is_masked]).all()
    real = inputs.labels >= 0
    assert (inputs.labels[real].numpy() == rows.labels.reshape(-1)[inputs.chosen[real].numpy()]).all()
    names = np.arange(len(tokens))[:, None] * 1000 + (0 if model.is_timed else rows.segments)
    names = np.broadcast_to(names, tokens.shape).reshape(-1)[inputs.chosen[real].numpy()]
    for name in np.unique(names):
        weights = inputs.weights[real][names == name]
        row, segment = divmod(name, 1000)
        size = free[row].sum() if model.is_timed else (free[row] & (rows.segments[row] == segment)).sum()
        assert weights.numpy() == pytest.approx(np.full(len(weights), size / len(weights)))
    again, other = inputs_of(rows, model), inputs_of(rows, model, stream=2)
    assert torch.equal(again.tokens, inputs.tokens)
    assert not torch.equal(other.tokens, inputs.tokens)


@BOTH
def test_every_canvas_counts_its_places_in_expectation_whoever_shares_its_level(family):
    rows, model = packed(8), make(family)
    names = (np.arange(len(rows.labels))[:, None] * 1000 + rows.segments).reshape(-1)
    sums = {name: [] for name in np.unique(names[rows.labels.reshape(-1) >= 0])}
    for stream in range(600):
        inputs = inputs_of(rows, model, stream)
        counted = np.bincount(names[inputs.chosen.numpy()], inputs.weights.numpy(), names.max() + 1)
        for name, values in sums.items():
            values.append(counted[name])
    for name, values in sums.items():
        size = ((names == name) & (rows.labels.reshape(-1) >= 0)).sum()
        assert np.mean(values) == pytest.approx(size, abs=4.5 * np.std(values) / 600**0.5 + 1e-6)


@given(st.integers(0, 10**6), st.integers(30, 90))
@settings(max_examples=15)
def test_rows_hold_every_example_between_what_is_given(seed, length):
    source = slots(*[length] * 12)
    examples = source.examples(np.arange(len(source)), seed, 0)
    one = packer()
    rows = one.pack(examples)
    drawn = one.draw(examples)
    for i, (row, col, size) in enumerate(rows.places.tolist()):
        prefix, suffix = int(examples.prefix[i]), int(examples.suffix[i])
        room, target = size - prefix - suffix, drawn.examples.target(i).tolist()
        text = examples.tokens[examples.first[i] :]
        end = [PAD] * (room - len(target))
        behind = text[prefix + len(target) : prefix + len(target) + suffix].tolist()
        assert rows.actions[row, col : col + size].tolist() == [*text[:prefix].tolist(), *target, *end, *behind]
        labels = rows.labels[row, col : col + size]
        assert labels.tolist() == [-1] * prefix + [*target, *end] + [-1] * suffix
        assert rows.positions[row, col : col + size].tolist() == list(range(size))
        assert len(set(rows.segments[row, col : col + size].tolist())) == 1
        assert len(target) <= room <= (one.longest_gap if suffix else one.longest_room)
        assert size <= 48
    assert (rows.labels >= 0).sum() == sum(drawn.sizes - examples.prefix - examples.suffix)


def test_half_of_the_rooms_end_with_their_text_and_the_others_anywhere():
    source = slots(*[60] * 800)
    drawn = packer(context=64).draw(source.examples(np.arange(len(source)), 0, 0))
    spare = drawn.sizes - drawn.examples.prefix - drawn.examples.suffix - drawn.examples.length
    assert np.mean(spare == 0) == pytest.approx(0.5, abs=0.05)
    assert len(set(spare.tolist())) > 15


def test_a_prompt_that_leaves_no_room_is_refused():
    source = slots(60)
    with pytest.raises(ConfigError, match=r"prompt tokens does not fit 4 places; raise model\.context"):
        packer(context=4).draw(source.examples(np.zeros(8, np.int64), 0, np.arange(8)))


class Watched:
    """A denoiser that notes every canvas it is shown."""

    def __init__(self, model):
        self.model, self.alphabet, self.is_timed, self.seen = model, model.alphabet, model.is_timed, []

    def log_scores(self, tokens, levels, layout, chosen):
        self.seen.append(tokens.clone())
        return self.model.log_scores(tokens, levels, layout, chosen)


@BOTH
@pytest.mark.parametrize("steps", [1, 3, 40])
def test_what_is_given_never_changes_and_what_is_shown_stays(family, steps):
    model, request = Watched(make(family)), RoomRequest(8, 5, prefix=(1, 2, 3), suffix=(4, 5))
    filled = fill(model, [request], steps)[0]
    boards = [*model.seen, torch.tensor([[1, 2, 3, *filled.tokens, 4, 5]])]
    assert (model.seen[0][0, 3:11] == MASK).all()
    for before, after in itertools.pairwise(boards):
        assert after[0, :3].tolist() == [1, 2, 3]
        assert after[0, 11:].tolist() == [4, 5]
        is_shown = before != MASK
        assert torch.equal(before[is_shown], after[is_shown])
    assert MASK not in filled.tokens


@BOTH
def test_what_is_written_depends_on_the_own_seed_alone(family):
    model = make(family, std=0.1)
    requests = [
        RoomRequest(5 + i, Random.of(7, i).state, prefix=tuple(range(i)), suffix=(9,) * (i % 3)) for i in range(6)
    ]
    together, alone = fill(model, requests, 4), [fill(model, [each], 4)[0] for each in requests]
    assert together == alone
    assert fill(model, requests, 4, num_rows=2) == alone
    assert len({each.tokens for each in fill(model, [RoomRequest(9, seed) for seed in range(5)], 4)}) == 5


@BOTH
def test_bounds_depend_on_the_own_number_alone_and_not_on_padding(family):
    model = make(family, std=0.1)
    gaps = [Gap([1, 2, 3], [4] * i, [5] * (i % 2)) for i in range(5)]
    together = bound_nats(model, gaps, 6, samples=3, seed=2)
    alone = [bound_nats(model, [gap], 6, 3, seed=2, numbers=[i])[0] for i, gap in enumerate(gaps)]
    assert together == pytest.approx(alone, rel=1e-5)


@BOTH
def test_a_bound_is_the_cost_of_places_when_all_are_masked(family):
    """With one place there is one level to mask it at, and MDLM's bound is exact."""
    model = make(family, std=0.1)
    board = CanvasBatch.of([Gap([7], [1, 2], [3])], [1], PAD)
    masked = torch.where(board.is_free, MASK, board.tokens)
    draws = [bound_nats(model, [Gap([7], [1, 2], [3])], 1, seed=seed)[0] for seed in range(3)]
    exact = place_nats(model, masked, torch.ones(1), board.layout, torch.tensor([2]), torch.tensor([7])).item()
    if family == "mdlm":
        assert draws == pytest.approx([exact] * 3, rel=1e-5)
    else:
        assert len(set(draws)) == 3, "SEDD reads the level, which is drawn"


def test_configs_that_no_denoiser_can_have_are_refused():
    with pytest.raises(ConfigError, match="a denoiser sees the canvas anyway; set none"):
        Mdlm(ModelConfig(**{**vars(CONFIG), "canvas": CanvasConfig(kind="window")}))


@BOTH
def test_a_small_vocabulary_will_do(family):
    model = FAMILIES[family](ModelConfig(**{**vars(CONFIG), "num_text": 5, "pad": 0}))
    canvas = torch.tensor([[1, 5, 3]])
    log_m = model.log_scores(canvas, torch.ones(1), Layout.of(torch.zeros(1, 3)), torch.tensor([1]))
    assert log_m.exp().sum().item() == pytest.approx(1, abs=0.2)
