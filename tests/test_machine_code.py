"""Sums of products of bytes are what plain integers add up to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviser.compiled import jit
from reviser.machine_code import CHUNK, bits_of, of_bits, sum_products


@jit()
def add_up(weights: Any, x: Any, count: int) -> Any:
    return sum_products(weights.ctypes.data, x.ctypes.data, count)


@jit()
def there_and_back(value: Any) -> Any:
    return of_bits(bits_of(value))


@given(st.integers(0, 40), st.integers(0, 3), st.integers(0, 1 << 30))
def test_products_of_bytes_add_up(num_chunks: int, shift: int, seed: int) -> None:
    """Wherever the bytes begin: no address needs to be a multiple of anything."""
    draw, count = np.random.default_rng(seed), CHUNK * num_chunks
    weights = draw.integers(-128, 128, count + 8, np.int8)[shift:]
    x = draw.integers(-127, 128, count + 8).astype(np.int16)[shift:]
    expected = int(weights[:count].astype(np.int64) @ x[:count].astype(np.int64))
    assert int(add_up(weights, x, count)) == expected


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sum_fits(sign: int) -> None:
    """8,192 columns, as wide as no shipped model is."""
    weights, x = np.full(8192, 127, np.int8), np.full(8192, sign * 127, np.int16)
    assert int(add_up(weights, x, 8192)) == sign * 127 * 127 * 8192


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -3e-38, np.inf])
def test_bits_are_those_of_the_number(value: float) -> None:
    number = np.float32(value)
    assert there_and_back(number) == number
    assert np.signbit(there_and_back(number)) == np.signbit(number)
