"""The GPU's chooser, run by Triton's interpreter on a CPU, chooses what the plain one chooses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reviser.actions import NUM_SPECIAL, STOP, Alphabet
from reviser.decoding.sampling import Chooser, Sampling

pytest.importorskip("triton", reason="Triton comes with the `kernels` extra and with torch for CUDA")
from reviser.decoding.gpu.sampling import GpuChooser

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ALPHABET = Alphabet(num_text=130, pad=7)


@st.composite
def samplings(draw: Any) -> Sampling:
    return Sampling(
        temperature=draw(st.sampled_from([0.0, 0.3, 0.9, 2.0])),
        top_k=draw(st.sampled_from([0, 1, 5, 50, 160])),
        top_p=draw(st.sampled_from([1.0, 0.9, 0.3])),
        min_p=draw(st.sampled_from([0.0, 0.05, 1.0])),
        stop_bias=draw(st.sampled_from([0.0, -3.0])),
    )


@settings(max_examples=35, deadline=None)
@given(samplings(), st.integers(0, 10**6), st.booleans())
def test_the_fused_chooser_chooses_what_the_plain_one_does(sampling: Sampling, seed: int, has_ties: bool) -> None:
    torch.manual_seed(seed)
    B = 4
    logits = torch.randn(B, 256, device=DEVICE)[:, : ALPHABET.size] * 3
    if has_ties:
        logits = logits.round()
    valid = torch.randint(0, 1 << (NUM_SPECIAL + 1), (B,), device=DEVICE) | 1 << STOP
    uniforms = torch.rand(B, device=DEVICE, dtype=torch.float64)
    plain, fused = (kind(sampling, ALPHABET, DEVICE) for kind in (Chooser, GpuChooser))
    wanted, got = (each.log_probabilities(logits.clone(), valid) for each in (plain, fused))
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(fused.draw(wanted, valid, uniforms), plain.draw(wanted, valid, uniforms))


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 5), st.integers(1800, 2100), st.integers(0, 10**6), st.booleans())
def test_the_highest_are_found_in_the_highest_groups(count: int, size: int, seed: int, has_ties: bool) -> None:
    torch.manual_seed(seed)
    scores = torch.randn(3, size, device=DEVICE) * 3
    scores = scores.round() if has_ties else scores
    scores[0, count - 1 :] = -torch.inf
    values, ids = GpuChooser(Sampling(), ALPHABET, DEVICE)._highest(scores, count)
    torch.testing.assert_close(values, scores.topk(count).values, atol=0, rtol=0)
    found = values > -torch.inf
    assert torch.equal(scores.gather(1, ids.clamp(max=size - 1))[found], values[found])
    assert all(len(set(row.tolist())) == count for row in ids)
