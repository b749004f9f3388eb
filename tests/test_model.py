"""The Transformer: every conditioning, parallel = cached = packed, causal; attention twins; sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from reviser.config import CanvasConfig, ModelConfig
from reviser.model import attention
from reviser.model.attention import Layout
from reviser.model.cache import Cache
from reviser.model.conditioning import CanvasInput, CrossPool, IndexedWindow, Pool
from reviser.model.transformer import ROW_MULTIPLE, Transformer, flops_per_position, num_multiplied, num_parameters

TINY = ModelConfig(num_text=20, pad=19, num_layers=3, width=32, num_heads=4, ff_width=48, context=24, max_length=10)
AUTHOR: dict[str, Any] = {"norm": "layer", "qk_norm": False, "activation": "gelu"}
VARIANTS = {
    "modern": TINY,
    "author": replace(TINY, **AUTHOR),
    "absolute": replace(TINY, positions="absolute", activation="swiglu", qk_norm=False),
    "untied": replace(TINY, tied=False),
    "window": replace(TINY, canvas=CanvasConfig("window", window=2, slot_width=8)),
    "window-index": replace(TINY, canvas=CanvasConfig("window-index", window=2, slot_width=8)),
    "pool": replace(TINY, canvas=CanvasConfig("pool"), **AUTHOR),
    "pool projected": replace(TINY, canvas=CanvasConfig("pool", projection=True)),
    "cross": replace(TINY, canvas=CanvasConfig("cross")),
    "cross in the last layer, scalar gate": replace(TINY, canvas=CanvasConfig("cross", layers=1, gate="scalar")),
    "cross, mlp gate": replace(TINY, canvas=CanvasConfig("cross", layers=2, gate="mlp")),
    "cross-window": replace(TINY, canvas=CanvasConfig("cross-window", window=2, slot_width=8)),
    "cross-window, scalar gate": replace(TINY, canvas=CanvasConfig("cross-window", layers=2, gate="scalar")),
}
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=list(VARIANTS))


def random_model(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model whose branches all speak: fresh ones of the modern family start at zero."""
    torch.manual_seed(seed)
    model = Transformer(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3) if parameter.ndim else nn.init.ones_(parameter)
    return model


def random_input(config: ModelConfig, B: int, T: int, seed: int = 0) -> tuple[Tensor, CanvasInput]:
    """Actions, and canvases that need not follow from them."""
    torch.manual_seed(seed)
    windows = torch.randint(0, config.num_text + 1, (B, T, 2 * config.canvas.window))
    windows[:, 0] = config.alphabet.none
    rows = torch.randint(0, config.num_text + 1, (B, T, config.max_length + 1))
    rows[torch.arange(config.max_length + 1) >= torch.randint(1, config.max_length + 2, (B, T, 1))] = -1
    cursors = torch.randint(0, config.max_length + 5, (B, T))
    return torch.randint(0, config.alphabet.size, (B, T)), CanvasInput(windows, rows, cursors)


def parts_of(canvas: CanvasInput) -> tuple[Tensor, Tensor, Tensor]:
    assert canvas.windows is not None
    assert canvas.rows is not None
    assert canvas.cursors is not None
    return canvas.windows, canvas.rows, canvas.cursors


def take(canvas: CanvasInput, *index: Any) -> CanvasInput:
    return CanvasInput(*(part[index] for part in parts_of(canvas)))


def assert_close(one: Tensor, other: Tensor, atol: float = 2e-5) -> None:
    torch.testing.assert_close(one, other, atol=atol, rtol=0)


@every_variant
def test_cached_steps_give_the_parallel_logits(config: ModelConfig) -> None:
    model, (actions, canvas) = random_model(config), random_input(config, 2, 12)
    cache = Cache.empty(config, 2)
    steps = [model.step(actions[:, t : t + 1], take(canvas, slice(None), slice(t, t + 1)), cache) for t in range(12)]
    assert_close(model.logits(torch.cat(steps, dim=1)), model(actions, canvas))


@every_variant
def test_prompts_of_different_length_prefill_together(config: ModelConfig) -> None:
    model, (actions, canvas) = random_model(config), random_input(config, 3, 12)
    lengths = torch.tensor([7, 1, 4])
    cache, rows = Cache.empty(config, 3), torch.arange(3)
    prefilled = model.step(actions[:, :7], take(canvas, slice(None), slice(7)), cache, counts=lengths)
    wanted = model.hidden(actions, canvas)
    assert_close(prefilled[rows, lengths - 1], wanted[rows, lengths - 1])
    for t in range(3):
        one = actions[rows, lengths + t][:, None], take(canvas, rows[:, None], (lengths + t)[:, None])
        assert_close(model.step(*one, cache, span=16)[:, 0], wanted[rows, lengths + t])
    assert cache.lengths.tolist() == [10, 4, 7]


def test_a_finished_row_may_wait_in_a_full_cache() -> None:
    config = replace(TINY, context=4)
    model, (actions, canvas) = random_model(config), random_input(config, 2, 4)
    cache = Cache.empty(config, 2)
    model.step(actions, canvas, cache, counts=torch.tensor([4, 2]))
    kept = [keys[0, :, :4].clone() for keys in cache.keys]
    hidden = model.step(actions[:, 2:3], canvas, cache, counts=torch.tensor([0, 1]))
    assert all(torch.equal(keys[0, :, :4], was) for keys, was in zip(cache.keys, kept, strict=True))
    assert_close(hidden[1, 0], model.hidden(actions)[1, 2])
    cache.reset()
    assert_close(model.step(actions, canvas, cache), model.hidden(actions))


@every_variant
def test_packed_rows_give_what_each_example_gives_alone(config: ModelConfig) -> None:
    model, (actions, canvas) = random_model(config), random_input(config, 2, 14)
    ends = [[5, 6, 14], [9, 14]]
    segments = torch.tensor([[sum(t >= end for end in row) for t in range(14)] for row in ends])
    packed = model.hidden(actions, canvas, Layout.of(segments))
    for row, stops in enumerate(ends):
        for start, stop in zip([0, *stops], stops, strict=False):
            part = slice(row, row + 1), slice(start, stop)
            assert_close(packed[part], model.hidden(actions[part], take(canvas, *part)))


@every_variant
def test_the_future_never_changes_a_past_logit(config: ModelConfig) -> None:
    model, (actions, canvas) = random_model(config), random_input(config, 1, 12)
    other_actions, other_canvas = random_input(config, 1, 12, seed=1)
    for t in (1, 6, 11):
        mixed = torch.cat([actions[:, :t], other_actions[:, t:]], dim=1)
        past, future = take(canvas, slice(None), slice(t)), take(other_canvas, slice(None), slice(t, None))
        parts = zip(parts_of(past), parts_of(future), strict=True)
        view = CanvasInput(*(torch.cat(both, dim=1) for both in parts))
        assert_close(model(mixed, view)[:, :t], model(actions, canvas)[:, :t], atol=1e-6)


@every_variant
def test_only_the_chosen_conditioning_sees_the_canvas_and_it_does(config: ModelConfig) -> None:
    model, (actions, canvas) = random_model(config), random_input(config, 1, 6)
    _, other = random_input(config, 1, 6, seed=1)
    difference = (model(actions, canvas) - model(actions, other)).abs().max().item()
    assert (difference > 1e-3) == (config.canvas.kind != "none")
    if config.canvas.kind != "none":
        with pytest.raises(ValueError, match=r"needs CanvasInput\.(windows|rows|cursors)"):
            model(actions)


def test_the_index_of_the_cursor_is_a_row_of_a_table_beside_the_window() -> None:
    config = VARIANTS["window-index"]
    model, (actions, canvas) = random_model(config), random_input(config, 2, 8)
    windows, _, cursors = parts_of(canvas)
    assert isinstance(model.canvas, IndexedWindow)
    table = model.canvas.boundaries.weight
    assert table.shape == (config.max_length + 1, config.width)
    plain = random_model(VARIANTS["window"])
    plain.load_state_dict({name: each for name, each in model.state_dict().items() if "boundaries" not in name})
    assert plain.canvas is not None
    shown, wanted = (each.canvas(canvas, each.embedding.weight).vectors for each in (model, plain))
    assert (cursors > config.max_length).any()
    assert_close(shown, wanted + table[cursors.clamp(max=config.max_length)])
    with pytest.raises(ValueError, match=r"needs CanvasInput\.cursors"):
        model(actions, CanvasInput(windows))
    fresh = Transformer(config).canvas
    assert isinstance(fresh, IndexedWindow)
    assert fresh.boundaries.weight.std().item() == pytest.approx(0.02, rel=0.2)


# A CPU without bf16 instructions is slower, not wrong, and torch warns about it once.
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@every_variant
def test_half_precision_comes_close_mixed_and_pure(config: ModelConfig) -> None:
    model, (actions, canvas) = random_model(config), random_input(config, 2, 8)
    layout = Layout.of(torch.tensor([[0] * 3 + [1] * 5, [0] * 8]))
    exact = model(actions, canvas, layout)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(actions, canvas, layout)
    pure = model.bfloat16()(actions, canvas, layout)
    for half in (mixed, pure):
        assert (half - exact).abs().mean() < 0.05 * exact.abs().mean()


@every_variant
def test_every_weight_that_matters_gets_a_gradient(config: ModelConfig) -> None:
    model, (actions, canvas) = random_model(config).train(), random_input(config, 2, 8)
    model(actions, canvas).square().sum().backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert silent == []


def test_a_padded_step_without_any_canvas_is_finite() -> None:
    config = VARIANTS["pool"]
    model, (actions, canvas) = random_model(config), random_input(config, 1, 4)
    assert canvas.rows is not None
    canvas.rows[:, 2:] = -1
    assert model(actions, canvas).isfinite().all()


def test_pooling_by_lookup_is_the_papers_formula() -> None:
    config = VARIANTS["pool projected"]
    model, (_, canvas) = random_model(config), random_input(config, 2, 5)
    pool, E = model.canvas, model.embedding.weight
    assert isinstance(pool, Pool)
    assert pool.projection is not None
    assert canvas.rows is not None
    got = pool(canvas, E).vectors
    for b in range(2):
        for t in range(5):
            tokens = canvas.rows[b, t][canvas.rows[b, t] >= 0]
            z = E[tokens] + pool.positions.weight[: len(tokens)]
            mu = (z @ pool.query).softmax(dim=0) @ z
            assert_close(got[b, t], pool.projection(mu), atol=1e-4)


@pytest.mark.parametrize("copies", [1, 3])
def test_cross_attention_to_copies_of_one_vector_is_its_value_alone(copies: int) -> None:
    config = VARIANTS["cross"]
    model, (actions, canvas) = random_model(config), random_input(config, 1, 6)
    cross = next(module for module in model.modules() if isinstance(module, CrossPool))
    assert model.canvas is not None
    memory, h = model.canvas(canvas, model.embedding.weight), model.embedding(actions)
    D = config.head_width

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (config.num_heads, D)).transpose(-2, -3)

    M = memory.vectors[0, :, None, :].expand(-1, copies, -1)
    W_Q, W_K = torch.randn(2, config.width, config.width)
    Q, K, V = heads(h[0, :, None, :] @ W_Q), heads(M @ W_K), heads(cross.value(M))
    literal = ((Q @ K.transpose(-1, -2)) / D**0.5).softmax(dim=-1) @ V
    assert_close(h + literal.transpose(-2, -3).flatten(-2).transpose(0, 1), cross(h, memory), atol=1e-4)


def test_cross_sits_in_the_last_layers_only() -> None:
    names = Transformer(VARIANTS["cross in the last layer, scalar gate"]).state_dict()
    assert [name for name in names if "cross" in name] == [
        "blocks.2.cross.value.weight",
        "blocks.2.cross.gate.scale",
    ]


segment_rows = st.integers(1, 24).flatmap(
    lambda T: st.lists(st.lists(st.booleans(), min_size=T, max_size=T), min_size=1, max_size=3)
)


@settings(max_examples=25, deadline=None)
@given(segment_rows, st.integers(0, 2**16))
def test_packed_attention_agrees_with_the_reference(breaks: list[list[bool]], seed: int) -> None:
    torch.manual_seed(seed)
    layout = Layout.of(torch.tensor(breaks).long().cumsum(dim=1))
    q, k, v = torch.randn(3, *layout.segments.shape, 2, 4)
    for packed in (layout, None):
        kernel = attention.choose(packed, q.device, q.dtype, dropout=0.0)
        wanted = attention.reference(q, k, v, packed)
        assert_close(kernel(torch.stack([q, k, v], dim=-3), None), wanted, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(segment_rows)
def test_a_layout_counts_positions_and_starts_from_its_segments(breaks: list[list[bool]]) -> None:
    segments = torch.tensor(breaks).long().cumsum(dim=1)
    layout, (B, T) = Layout.of(segments, num_starts=100), segments.shape
    places = [b * T + t for b in range(B) for t in range(T) if t == 0 or segments[b, t] != segments[b, t - 1]]
    assert layout.starts.tolist() == places + [B * T] * (100 - len(places))
    flat = layout.positions.flatten().tolist()
    assert all(flat[place] == (0 if place in places else flat[place - 1] + 1) for place in range(B * T))


def test_dropout_runs_in_packed_training_and_not_in_evaluation() -> None:
    config = replace(TINY, dropout=0.5)
    model, (actions, _) = random_model(config), random_input(config, 1, 8)
    layout = Layout.of(torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]]))
    assert torch.equal(model(actions, layout=layout), model(actions, layout=layout))
    model.train()
    assert not torch.equal(model(actions, layout=layout), model(actions, layout=layout))


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@cuda
@pytest.mark.parametrize("kernel", ["varlen", "documents"])
def test_the_cuda_kernels_agree_with_the_reference_forward_and_backward(kernel: str) -> None:
    torch.manual_seed(0)
    segments = (torch.rand(4, 256) < 0.03).long().cumsum(dim=1).cuda()
    layout = Layout.of(segments, num_starts=200)
    inputs = torch.randn(3, 4, 256, 8, 64, device="cuda").bfloat16()
    run = {
        "varlen": lambda q, k, v: attention.varlen(q, k, v, layout),
        "documents": lambda q, k, v: attention.documents(q, k, v, attention.block_mask(layout)),
    }[kernel]
    got, wanted = inputs.clone().requires_grad_(), inputs.float().requires_grad_()
    fast, plain = run(*got), attention.reference(*wanted, layout)
    assert_close(fast.float(), plain, atol=3e-2)
    weights = torch.randn_like(plain)
    (fast * weights).sum().backward()
    (plain * weights).sum().backward()
    assert got.grad is not None
    assert wanted.grad is not None
    assert_close(got.grad.float(), wanted.grad, atol=0.15)


@cuda
@pytest.mark.parametrize("kind", ["none", "window", "pool", "cross", "cross-window", "window-index"])
def test_the_packed_forward_compiles_whole_on_cuda(kind: Any) -> None:
    config = replace(TINY, width=128, num_heads=2, canvas=CanvasConfig(kind))
    model, (actions, canvas) = random_model(config).cuda(), random_input(config, 2, 16)
    layout = Layout.of(torch.tensor([[0] * 5 + [1] * 11, [0] * 16]).cuda(), num_starts=8)
    inputs = actions.cuda(), CanvasInput(*(part.cuda() for part in parts_of(canvas))), layout
    with torch.autocast("cuda", torch.bfloat16):
        fused = torch.compile(model.hidden, fullgraph=True)(*inputs)
        fused.float().sum().backward()
        plain = model.hidden(*inputs)
    assert (fused.float() - plain.float()).abs().mean() < 0.05


@pytest.mark.parametrize(
    ("shape", "count"),
    [((24, 512, 8, 2048), 101_358_080), ((26, 896, 14, 3584), 295_750_784)],
)
def test_the_published_shapes_have_the_published_sizes(shape: tuple[int, int, int, int], count: int) -> None:
    L, d, H, ff = shape
    config = ModelConfig(50257, 50256, L, d, H, ff, context=256, **AUTHOR)
    assert num_parameters(config) == count


@every_variant
def test_parameters_are_counted_without_the_padding_rows(config: ModelConfig) -> None:
    sizes = [
        p[: config.alphabet.size] if len(p.shape) and len(p) == ROW_MULTIPLE else p
        for p in Transformer(config).parameters()
    ]
    assert num_parameters(config) == sum(p.numel() for p in sizes)


def test_operations_count_every_multiplied_weight_six_times() -> None:
    config = ModelConfig(50257, 50256, 24, 512, 8, 2048, context=256, **AUTHOR)
    assert flops_per_position(config, 256) == 6 * 101_358_080 + 12 * 24 * 512 * 256
    untied = replace(config, tied=False, positions="absolute", canvas=CanvasConfig("window"))
    assert num_multiplied(untied) == num_multiplied(config) + 8 * 64 * 512


def test_padding_rows_never_show() -> None:
    model, (actions, _) = random_model(TINY), random_input(TINY, 1, 4)
    assert len(model.embedding.weight) == ROW_MULTIPLE
    assert model(actions).shape == (1, 4, TINY.alphabet.size)
    assert not Transformer(TINY).embedding.weight[TINY.alphabet.size :].any()


def test_a_fresh_modern_model_scores_by_its_embedding_alone() -> None:
    torch.manual_seed(0)
    model, (actions, _) = Transformer(TINY).eval(), random_input(TINY, 1, 4)
    assert_close(model.hidden(actions), model.norm(model.embedding(actions)))


def test_more_positions_than_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match="25 positions, but the model's context is 24"):
        Transformer(TINY)(torch.zeros(1, 25, dtype=torch.long))
