"""The chunked loss and its plain twin: same values, same gradients, same masks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reviser.actions import EVERYTHING, Alphabet
from reviser.model.loss import INSERT_BIT, allowed, loss, nats, reference_nats

ALPHABET = Alphabet(num_text=11, pad=4)
ROWS = 64


def random_batch(seed: int, is_masked: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
    """hidden, weight, labels, valid, weights; every label is valid, some positions have none."""
    torch.manual_seed(seed)
    hidden, weight = torch.randn(2, 9, 6), torch.randn(ROWS, 6)
    valid = torch.randint(0, EVERYTHING + 1, (2, 9))
    labels = torch.randint(0, ALPHABET.size, (2, 9))
    labels[labels == ALPHABET.pad] = 0
    bits = torch.where(labels < ALPHABET.num_text, INSERT_BIT, labels - ALPHABET.num_text)
    valid |= 1 << bits
    is_ignored = torch.rand(2, 9) < 0.3
    labels[is_ignored], valid[is_ignored] = -1, 0
    return hidden, weight, labels, valid if is_masked else None, torch.rand(2, 9) + 0.5


def gradients(total: Tensor, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(total, leaves))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**16), st.booleans(), st.integers(1, 20))
def test_the_chunked_loss_is_the_reference_in_value_and_gradient(seed: int, is_masked: bool, chunk: int) -> None:
    hidden, weight, labels, valid, weights = random_batch(seed, is_masked)
    hidden.requires_grad_(), weight.requires_grad_()
    plain = reference_nats(hidden, weight, labels, valid, ALPHABET)
    total, count = loss(hidden, weight, labels, valid, ALPHABET, weights, chunk)
    torch.testing.assert_close(total, (plain * weights).sum(), atol=1e-4, rtol=1e-6)
    torch.testing.assert_close(count, weights[labels >= 0].sum())
    wanted = gradients(3 * (plain * weights).sum(), hidden, weight)
    for got, want in zip(gradients(3 * total, hidden, weight), wanted, strict=True):
        torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(nats(hidden, weight, labels, valid, ALPHABET, chunk), plain.detach())


def test_without_weights_every_label_counts_once() -> None:
    hidden, weight, labels, valid, _ = random_batch(0)
    total, count = loss(hidden, weight, labels, valid, ALPHABET)
    assert count.item() == (labels >= 0).sum().item()
    torch.testing.assert_close(total, nats(hidden, weight, labels, valid, ALPHABET).sum())


def test_sums_of_two_halves_are_the_sums_of_the_whole() -> None:
    hidden, weight, labels, valid, weights = random_batch(1)
    assert valid is not None
    whole = loss(hidden, weight, labels, valid, ALPHABET, weights)
    halves = [loss(hidden[i], weight, labels[i], valid[i], ALPHABET, weights[i]) for i in range(2)]
    for k in range(2):
        torch.testing.assert_close(halves[0][k] + halves[1][k], whole[k])


def test_the_mask_reads_one_bit_for_each_special_action_and_one_for_all_inserts() -> None:
    stop_only = allowed(torch.tensor(1 << 3), ALPHABET)
    assert stop_only.nonzero().flatten().tolist() == [ALPHABET.stop]
    inserts = allowed(torch.tensor(1 << INSERT_BIT), ALPHABET)
    assert inserts.nonzero().flatten().tolist() == [i for i in range(11) if i != ALPHABET.pad]


def test_probability_is_shared_among_valid_actions_alone() -> None:
    hidden, weight = torch.zeros(3, 6), torch.randn(ROWS, 6)
    valid = torch.tensor([1 << 3, 1 << INSERT_BIT, 1 << INSERT_BIT | 1 << 3])
    labels = torch.tensor([ALPHABET.stop, 0, ALPHABET.stop])
    got = nats(hidden, weight, labels, valid, ALPHABET)
    assert got.tolist() == pytest.approx([0.0, math.log(10), math.log(11)])


def test_without_a_mask_every_row_of_the_alphabet_takes_part_and_no_other() -> None:
    got = nats(torch.zeros(1, 6), torch.randn(ROWS, 6), torch.tensor([0]), None, ALPHABET)
    assert got.item() == pytest.approx(math.log(ALPHABET.size))


def test_an_invalid_label_costs_infinitely_much() -> None:
    got = nats(torch.zeros(1, 6), torch.randn(ROWS, 6), torch.tensor([0]), torch.tensor([1 << 3]), ALPHABET)
    assert got.item() == math.inf


def test_rows_behind_the_alphabet_get_no_gradient() -> None:
    hidden, weight, labels, valid, weights = random_batch(2)
    weight.requires_grad_()
    total, _ = loss(hidden, weight, labels, valid, ALPHABET, weights)
    (grad,) = gradients(total, weight)
    assert not grad[ALPHABET.size :].any()


def test_under_autocast_the_loss_stays_close_and_gradients_keep_their_dtype() -> None:
    hidden, weight, labels, valid, weights = random_batch(3)
    hidden.requires_grad_(), weight.requires_grad_()
    exact, _ = loss(hidden, weight, labels, valid, ALPHABET, weights)
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = loss(hidden, weight, labels, valid, ALPHABET, weights)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(exact.item(), rel=0.02)
    assert [g.dtype for g in gradients(total, hidden, weight)] == [torch.float32] * 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_the_fused_kernel_agrees_with_the_plain_one_on_cuda() -> None:
    batch = [None if x is None else x.cuda() for x in random_batch(4)]
    hidden, weight, labels, valid, weights = batch
    assert hidden is not None and weight is not None and labels is not None and weights is not None  # noqa: PT018
    hidden.requires_grad_(), weight.requires_grad_()
    results = []
    for fuse in (False, True):
        total, _ = loss(hidden, weight, labels, valid, ALPHABET, weights, fuse=fuse)
        results.append([total.detach(), *gradients(total, hidden, weight)])
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-4)


def test_a_number_of_columns_is_enough_without_a_mask() -> None:
    hidden, weight, _, _, weights = random_batch(3)
    labels = torch.randint(-1, 7, (2, 9))
    hidden.requires_grad_(), weight.requires_grad_()
    plain = -(hidden @ weight[:7].T).log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    wanted = (plain.where(labels >= 0, 0.0) * weights).sum()
    total, _ = loss(hidden, weight, labels, None, 7, weights)
    torch.testing.assert_close(total, wanted, atol=1e-4, rtol=1e-6)
    for got, want in zip(gradients(total, hidden, weight), gradients(wanted, hidden, weight), strict=True):
        torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(nats(hidden, weight, labels, None, 7), plain.detach().where(labels >= 0, 0.0))
    with pytest.raises(ValueError, match=r"^a mask needs an alphabet, not 7 columns: its bits are special actions$"):
        loss(hidden, weight, labels, torch.full((2, 9), EVERYTHING), 7)
