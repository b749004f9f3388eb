"""The Triton kernels for training, run by Triton's interpreter on a CPU, against the plain lines they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reviser.actions import NUM_SPECIAL, Alphabet
from reviser.config import ModelConfig
from reviser.model import attention
from reviser.model.attention import Layout
from reviser.model.layers import rotation, turned
from reviser.model.loss import EVERYTHING, score_chunk

pytest.importorskip("triton", reason="Triton comes with the `kernels` extra and with torch for CUDA")
from reviser.model import triton_kernels as fused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CONFIG = ModelConfig(num_text=20, pad=19, num_layers=1, width=32, num_heads=2, ff_width=32, context=128)


@st.composite
def layouts(draw: Any) -> Layout:
    """Two rows of 64 places, cut into examples anywhere."""
    cuts = draw(st.lists(st.booleans(), min_size=128, max_size=128))
    return Layout.of(torch.tensor(cuts, device=DEVICE).view(2, 64).long().cumsum(dim=1))


def packed(qkv: Tensor, layout: Layout, is_turned: bool, dropout: float = 0.0, seed: int = 0) -> Tensor:
    """The Triton kernel on [2, 64, 3, H, D]."""
    nothing = qkv.new_empty(0, 0)
    turn = rotation(layout.positions, CONFIG) if is_turned else (nothing, nothing)
    cos, sin = (each.flatten(0, -2) for each in turn) if is_turned else turn
    number = torch.tensor([seed], device=qkv.device)
    return fused.packed_attention(qkv.flatten(0, 1), cos, sin, *attention.bounds(layout), dropout, number)[0]


@settings(max_examples=5, deadline=None)
@given(layout=layouts(), is_turned=st.booleans(), seed=st.integers(0, 99))
def test_packed_attention_and_its_gradient_are_the_references(layout: Layout, is_turned: bool, seed: int) -> None:
    torch.manual_seed(seed)
    qkv = torch.randn(2, 64, 3, 2, 16, device=DEVICE)
    one, other = qkv.clone().requires_grad_(), qkv.clone().requires_grad_()
    fast = packed(one, layout, is_turned)
    plain = attention.reference(*turned(other, rotation(layout.positions, CONFIG) if is_turned else None), layout)
    close(fast, plain.flatten(0, 1))
    weights = torch.randn(fast.shape, device=DEVICE)
    (fast * weights).sum().backward()
    (plain.flatten(0, 1) * weights).sum().backward()
    close(one.grad, other.grad)


@pytest.mark.slow
def test_dropout_keeps_its_share_and_its_gradient_is_that_of_what_it_kept() -> None:
    torch.manual_seed(0)
    layout = Layout.of(torch.zeros(2, 64, dtype=torch.int64, device=DEVICE))
    qkv = torch.randn(2, 64, 3, 2, 16, device=DEVICE, dtype=torch.float32)
    # Equal scores: what comes out of values of one is the share that was kept.
    even = qkv.clone()
    even[:, :, 0], even[:, :, 2] = 0.0, 1.0
    assert packed(even, layout, False, 0.3, seed=1).mean().item() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(packed(qkv, layout, True, 0.3, seed=1), packed(qkv, layout, True, 0.3, seed=1))
    assert not torch.equal(packed(qkv, layout, True, 0.3, seed=1), packed(qkv, layout, True, 0.3, seed=2))
    # The output is linear in the values; along queries and keys, finite differences.
    leaf = qkv.clone().requires_grad_()
    weights = torch.randn(128, 2, 16, device=DEVICE)
    (packed(leaf, layout, True, 0.3, seed=1) * weights).sum().backward()
    assert leaf.grad is not None
    for part in range(3):
        step = torch.zeros_like(qkv)
        step[:, :, part] = torch.randn_like(step[:, :, part])
        ends = [(packed(qkv + h * step, layout, True, 0.3, seed=1) * weights).sum() for h in (-1e-2, 1e-2)]
        assert ((ends[1] - ends[0]) / 2e-2).item() == pytest.approx((leaf.grad * step).sum().item(), rel=2e-2)


@pytest.mark.parametrize("shape", [(3, 7, 40), (1, 300, 257)])
def test_gelu_with_a_bias_and_its_gradients_are_torchs(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=DEVICE) * 3, torch.randn(shape[-1], device=DEVICE)]
    fast_in, plain_in = ([each.clone().requires_grad_() for each in inputs] for _ in range(2))
    fast, plain = fused.biased_gelu(*fast_in), F.gelu(plain_in[0] + plain_in[1])
    close(fast, plain, atol=1e-6)
    weights = torch.randn(shape, device=DEVICE)
    (fast * weights).sum().backward()
    (plain * weights).sum().backward()
    for one, other in zip(fast_in, plain_in, strict=True):
        close(one.grad, other.grad, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), is_masked=st.booleans())
def test_scores_are_the_plain_ones(seed: int, is_masked: bool) -> None:
    torch.manual_seed(seed)
    alphabet, C = Alphabet(num_text=3001, pad=7), 6
    logits = torch.randn(C, 3072, device=DEVICE) * 4
    labels = torch.randint(-1, alphabet.size, (C,), device=DEVICE)
    labels[labels == alphabet.pad] = 0
    bits = torch.where(labels < alphabet.num_text, NUM_SPECIAL, labels - alphabet.num_text)
    valid = torch.randint(0, EVERYTHING, (C,), device=DEVICE) | (1 << bits)
    weights = torch.rand(C, device=DEVICE).where(labels >= 0, 0.0)
    arguments = labels, valid if is_masked else None, weights, alphabet
    wanted = score_chunk(logits.clone(), *arguments)
    for got, plain in zip(fused.score(logits.clone(), *arguments), wanted, strict=True):
        close(got, plain, atol=1e-4)


def test_an_invalid_label_costs_infinitely_much() -> None:
    alphabet = Alphabet(num_text=11, pad=4)
    nats, _ = fused.score(
        torch.zeros(2, 128, device=DEVICE), torch.tensor([0, alphabet.pad], device=DEVICE),
        torch.tensor([1 << 3, EVERYTHING], device=DEVICE), torch.ones(2, device=DEVICE), alphabet,
    )  # fmt: skip
    assert nats.tolist() == [torch.inf, torch.inf]


def close(one: Tensor | None, other: Tensor | None, atol: float = 1e-4) -> None:
    assert one is not None
    assert other is not None
    # A GPU multiplies float32 with ten bits.
    torch.testing.assert_close(one, other, atol=max(atol, 2e-2 if DEVICE == "cuda" else 0), rtol=1e-4)
