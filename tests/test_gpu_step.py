"""The Triton step for GPUs, run by Triton's interpreter on a CPU, against the model's own step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_model import TINY, random_input, random_model, take
from torch import Tensor

from reviser.canvas import Rules
from reviser.config import CanvasConfig, ModelConfig
from reviser.decoding.drafts import draft_inputs
from reviser.model.cache import Cache
from reviser.orders.record import Draft

pytest.importorskip("triton", reason="Triton comes with the `kernels` extra and with torch for CUDA")
from reviser.decoding.gpu.step import GpuStep

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NUM_STEPS, NUM_READINGS = (8, 3) if torch.cuda.is_available() else (2, 1)
"""The interpreter takes seconds for every step."""
SMALL = replace(TINY, num_layers=2, num_heads=2)
AUTHOR: dict[str, Any] = {"norm": "layer", "qk_norm": False, "activation": "gelu"}
POINTER: dict[str, Any] = {"operators": ("move", "jump"), "pointer_width": 11}
MODELS = {
    "modern": SMALL,
    "author": replace(SMALL, **AUTHOR),
    "absolute": replace(SMALL, positions="absolute", activation="swiglu", qk_norm=False),
    "window, pointer ahead": replace(
        SMALL, canvas=CanvasConfig("window", window=2, slot_width=8), **POINTER, pointer_ahead=2
    ),
    "swiglu, untied, pointer": replace(SMALL, activation="swiglu", tied=False, **POINTER),
}


SLOW_WITH_FEW_ROWS = ("modern", "absolute")
"""Models whose kernels for few rows others have too."""
CASES = [
    pytest.param(
        config, few, id=f"{name}-{'few' if few else 'many'} rows",
        marks=[pytest.mark.slow] if few and name in SLOW_WITH_FEW_ROWS else [],
    )
    for name, config in MODELS.items()
    for few in (0, 8)
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("config", "few_rows"), CASES)
def test_fused_steps_are_the_models_steps_for_ragged_rows(config: ModelConfig, few_rows: int) -> None:
    model = random_model(config).to(DEVICE)
    actions, canvas = random_input(config, 3, 6 + NUM_STEPS)
    actions, canvas = actions.to(DEVICE), take(canvas, slice(None))
    if config.has_jumps:
        actions = actions + (actions == config.alphabet.size - 1) * 7
        actions[:, -1] = config.alphabet.jump(3)
    assert canvas.windows is not None
    canvas = replace(canvas, windows=canvas.windows.to(DEVICE))
    fused, caches = GpuStep(model, few_rows), [Cache.empty(config, 3, DEVICE) for _ in range(2)]
    assert GpuStep.knows(model)
    # Both read a ragged beginning the same way; then rows go on or stand still as they like.
    shown = replace(canvas, windows=canvas.windows[:, :6])
    for cache in caches:
        model.step(actions[:, :6], shown, cache, torch.tensor([6, 1, 4], device=DEVICE))
    torch.manual_seed(1)
    for t in range(6, 6 + NUM_STEPS):
        counts = torch.randint(0, 2, (3,), device=DEVICE)
        one = replace(canvas, windows=canvas.windows[:, t : t + 1])
        wanted = model.step(actions[:, t : t + 1], one, caches[0], counts)
        got = fused.step(actions[:, t : t + 1], one, caches[1], counts)
        close(got[counts > 0], wanted[counts > 0])
        assert torch.equal(caches[0].lengths, caches[1].lengths)
    if config.has_jumps:
        for row, length in enumerate(caches[0].lengths.tolist()):
            close(*(cache.pointers[row, :length] for cache in caches))  # type: ignore[index]


READINGS = [
    pytest.param(config, id=name, marks=[pytest.mark.slow] if name in SLOW_WITH_FEW_ROWS else [])
    for name, config in MODELS.items()
]


@pytest.mark.slow
@pytest.mark.parametrize("config", READINGS)
def test_fused_reading_of_seeds_is_the_models(config: ModelConfig) -> None:
    model = random_model(config).to(DEVICE)
    rules = Rules(config.alphabet, frozenset(config.operators), max_length=config.max_length)
    seeds = [Draft.infill([1, 2, 3], [4, 5], rules), Draft.continuation([6], rules), Draft.continuation([], rules)]
    inputs, rows = draft_inputs(seeds, config, DEVICE), torch.tensor([3, 0, 2], device=DEVICE)
    wanted_cache, cache = Cache.empty(config, 3, DEVICE), Cache.empty(config, 4, DEVICE)
    wanted = model.step(inputs.actions, inputs.canvas, wanted_cache, inputs.counts)
    fused, others = (
        GpuStep(model),
        draft_inputs([Draft.continuation([n + 1], rules) for n in range(3)], config, DEVICE),
    )
    # Again and again, with other seeds between, until a GPU reads them as a graph.
    for _ in range(NUM_READINGS):
        fused.read(others, rows, cache)
        got = fused.read(inputs, rows, cache)
    for n, count in enumerate(inputs.counts.tolist()):
        close(got[n], wanted[n, count - 1])
        assert cache.lengths[rows[n]] == count
        for layer in range(config.num_layers):
            close(cache.keys[layer][rows[n], :, :count], wanted_cache.keys[layer][n, :, :count])
            close(cache.values[layer][rows[n], :, :count], wanted_cache.values[layer][n, :, :count])
        if cache.pointers is not None and wanted_cache.pointers is not None:
            close(cache.pointers[rows[n], :count], wanted_cache.pointers[n, :count])


def close(one: Tensor, other: Tensor) -> None:
    # A GPU multiplies float32 with ten bits.
    torch.testing.assert_close(one, other, atol=2e-2 if DEVICE == "cuda" else 2e-4, rtol=1e-4)
