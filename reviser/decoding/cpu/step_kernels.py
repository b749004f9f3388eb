"""One action's way through the Transformer as two numba kernels, `advance` and `score`; step.py calls them.

Weights and cache are read where torch keeps them, by address, so nothing is copied and no shape is compiled in. Every
member of a team (threads.py) runs the same kernel and does its share of each matrix's rows; members meet where one
needs what the others wrote, four times a layer:

    norm, q k v, attention of its heads | its rows of out | norm, its units | its rows of down |

Norms are cheaper done by every member than waited for. A matrix is float32 [rows, columns], or int8 with a scale for
each row; then what it is multiplied with is rounded to int8 as well, with one scale a vector, and sums are int32.
Slices that fill arrays compile messages, literal numbers a callee again: there are neither. N rows, d width, D head
width, F units.
"""

from __future__ import annotations

import math
import platform
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.np.numpy_support import carray

from reviser import compiled
from reviser.machine_code import (
    CHUNK,
    arrive,
    arrived,
    bits_of,
    byte_pointer,
    float_pointer,
    of_bits,
    offer_core,
    sum_products,
)

Array = npt.NDArray[Any]

# Where a layer's addresses stand in its row of the table, then those of no layer; 0: there is none. A matrix is
# followed by its scales.
ATTENTION_NORM, ATTENTION_NORM_BIAS, QKV, QKV_SCALES, Q_NORM, K_NORM, OUT, OUT_SCALES = range(8)
MLP_NORM, MLP_NORM_BIAS, UP, UP_SCALES, UP_BIAS, DOWN, DOWN_SCALES, DOWN_BIAS = range(8, 16)
EMBEDDING, POSITIONS, TABLE, PROJECTION, PROJECTION_SCALES, NORM, NORM_BIAS, HEAD, HEAD_SCALES = range(9)
GELU, RELU2, SWIGLU = range(3)

ROUNDED = np.int16 if platform.machine().lower() in ("x86_64", "amd64") else np.int8
"""What rounded vectors are held in: ARM multiplies bytes with bytes, x86 would widen each vector for every row."""
SPINS = 2000
"""Looks at the others before the core is offered to somebody else."""


class KernelShape(NamedTuple):
    """What a kernel knows of a model beside the addresses; all numbers."""

    width: int
    num_heads: int
    ff_width: int
    activation: int
    slots: int
    """Tokens in a window; 0: the model sees no canvas."""
    slot_width: int
    num_tokens: int
    """Rows of the window's table."""
    has_layer_norm: int


class Buffers(NamedTuple):
    """What the members of a team write for one another, float32 each, N rows."""

    x: Array
    """[N, d]: the sums between layers."""
    qkv: Array
    heads: Array
    units: Array
    product: Array


class Scratch(NamedTuple):
    """A member's own: a matrix's input, as floats and rounded."""

    floats: Array
    bytes: Array
    scales: Array


# Sums may be taken in any order, which vectorised ones need; NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
jit = compiled.jit(fastmath=_FAST)
# A callee becomes part of its caller: the process that compiles it would run a copy of its own, whose sums may be in
# another order than those of the caller that others load.
part = compiled.jit(fastmath=_FAST, forceinline=True)


@part
def _meet(arrivals: Array, size: int, target: int) -> int:
    """Wait until `target` arrivals were counted, this one included; the target of the next meeting."""
    if size > 1:
        arrive(arrivals)
        spins = 0
        while arrived(arrivals) < target:
            spins += 1
            if spins > SPINS:
                offer_core()
    return target + size


@part
def _vector(address: int, size: int) -> Array:
    return carray(float_pointer(address), (size,))


@part
def _share(count: int, member: int, size: int) -> tuple[int, int]:
    return count * member // size, count * (member + 1) // size


@part
def _multiply(
    matrix: Array, rows: int, band: int, columns: int, x: Array, scratch: Scratch, out: Array, share: tuple[int, int]
) -> None:
    """out = x @ matrix.T for a share of the matrix's rows: the same share of each `band` of them.

    `matrix` begins with its address and that of its scales.
    """
    if matrix[1]:
        _round_rows(x, columns, scratch.bytes, scratch.scales)
    for start in range(0, rows, band):
        first, last = start + share[0], start + share[1]
        if matrix[1]:
            scales = _vector(matrix[1], rows)
            _multiply_bytes(carray(byte_pointer(matrix[0]), (rows, columns)), scales, scratch, out, first, last)
        else:
            _multiply_floats(carray(float_pointer(matrix[0]), (rows, columns)), x, out, first, last)


@part
def _multiply_floats(weights: Array, x: Array, out: Array, first: int, last: int) -> None:
    """Four rows of x for one look at the weights."""
    N, columns, zero = len(x), weights.shape[1], np.float32(0)
    for r in range(first, last):
        for n in range(0, N - N % 4, 4):
            a, b, c, d = zero, zero, zero, zero
            for j in range(columns):
                a += weights[r, j] * x[n, j]
                b += weights[r, j] * x[n + 1, j]
                c += weights[r, j] * x[n + 2, j]
                d += weights[r, j] * x[n + 3, j]
            out[n, r], out[n + 1, r], out[n + 2, r], out[n + 3, r] = a, b, c, d
        for n in range(N - N % 4, N):
            a = zero
            for j in range(columns):
                a += weights[r, j] * x[n, j]
            out[n, r] = a


@part
def _multiply_bytes(weights: Array, scales: Array, x: Scratch, out: Array, first: int, last: int) -> None:
    for r in range(first, last):
        for n in range(len(out)):
            out[n, r] = np.float32(_sum_bytes(weights[r], x.bytes[n])) * scales[r] * x.scales[n]


if ROUNDED is np.int16:

    @part
    def _sum_bytes(weights: Array, x: Array) -> Any:
        whole = len(weights) - len(weights) % CHUNK
        total = sum_products(weights.ctypes.data, x.ctypes.data, whole)
        for j in range(whole, len(weights)):
            total = np.int32(total + np.int32(weights[j]) * np.int32(x[j]))
        return total

else:

    @part
    def _sum_bytes(weights: Array, x: Array) -> Any:
        """Written so that LLVM finds the instructions for products of bytes."""
        total = np.int32(0)
        for j in range(len(weights)):
            total = np.int32(total + np.int32(weights[j]) * np.int32(x[j]))
        return total


@part
def _round_rows(x: Array, columns: int, out: Array, scales: Array) -> None:
    """Each row as int8, and the scale that gives it back."""
    for n in range(len(x)):
        # Magnitudes are ordered as their bits are, and a vector of integers has a maximum where NaN needs no care.
        bits = np.int32(0)
        for j in range(columns):
            bits = max(bits, bits_of(x[n, j]) & np.int32(0x7FFFFFFF))
        top = of_bits(bits)
        scales[n] = top / np.float32(127)
        inverse = np.float32(127) / top if top > 0 else np.float32(0)
        for j in range(columns):
            out[n, j] = ROUNDED(_nearest(x[n, j] * inverse))


@part
def _nearest(value: Any) -> Any:
    return np.int32(value + (np.float32(0.5) if value > 0 else np.float32(-0.5)))


@part
def _exp(value: Any) -> Any:
    """e to a power, to 1e-6 of it; unlike the library's it can be vectorised. 2^n is made of bits."""
    power = min(max(value, np.float32(-87)), np.float32(88)) * np.float32(1.44269504)
    whole = _nearest(power)
    x = (power - np.float32(whole)) * np.float32(0.69314718)
    series = np.float32(1 / 720)
    for term in (120, 24, 6, 2, 1, 1):
        series = series * x + np.float32(1 / term)
    return series * of_bits(np.int32((whole + np.int32(127)) << np.int32(23)))


@part
def _erf(value: Any) -> Any:
    """To 4e-7: a rational function, fitted between the points behind which erf is 1 and -1 to a float32."""
    x = min(max(value, np.float32(-3.95)), np.float32(3.95))
    z, above, below = x * x, np.float32(2.0117443e-06), np.float32(3.7839734e-05)
    for term in (2.8760070e-04, 3.9173149e-03, 5.3207050e-02, 1.9403560e-01, 1.1283790):
        above = above * z + np.float32(term)
    for term in (1.1982004e-03, 1.5270695e-02, 1.1559072e-01, 5.0529106e-01, 1.0):
        below = below * z + np.float32(term)
    return x * above / below


@part
def _normalise(x: Array, shape: KernelShape, weight: int, bias: int, out: Array) -> None:
    """LayerNorm or RMSNorm of every row, by addresses of its weight and bias."""
    d, gains = shape.width, _vector(weight, shape.width)
    for n in range(len(x)):
        mean, power = np.float32(0), np.float32(0)
        if shape.has_layer_norm:
            for j in range(d):
                mean += x[n, j]
            mean /= np.float32(d)
        for j in range(d):
            power += (x[n, j] - mean) * (x[n, j] - mean)
        gain = np.float32(1) / np.sqrt(power / np.float32(d) + np.float32(1e-5 if shape.has_layer_norm else 1e-6))
        for j in range(d):
            out[n, j] = (x[n, j] - mean) * gain * gains[j]
        if bias:
            _add(out[n], _vector(bias, d), np.int64(0), d)


@part
def _add(out: Array, values: Array, first: Any, last: int) -> None:
    own, added = out[first:last], values[first:last]
    for j in range(len(own)):
        own[j] += added[j]


@part
def _embed(
    rows: Array, actions: Array, windows: Array, positions: Array, shape: KernelShape, trunk: Array, scratch: Scratch,
    out: Array, share: tuple[int, int],
) -> None:  # fmt: skip
    """A share of the columns of the action's embedding, with its position's and its window's where there are any."""
    d, e, columns = shape.width, shape.slot_width, shape.slots * shape.slot_width
    if shape.slots:
        table = carray(float_pointer(trunk[TABLE]), (shape.num_tokens, e))
        for n in range(len(rows)):
            for j in range(columns):
                scratch.floats[n, j] = table[windows[rows[n], 0, j // e], j % e]
        _multiply(trunk[PROJECTION:], d, d, columns, scratch.floats, scratch, out, share)
    for n in range(len(rows)):
        for j in range(share[0], 0 if shape.slots else share[1]):
            out[n, j] = 0
        _add(out[n], _vector(trunk[EMBEDDING] + 4 * d * actions[rows[n], 0], d), share[0], share[1])
        if trunk[POSITIONS]:
            _add(out[n], _vector(trunk[POSITIONS] + 4 * d * positions[n], d), share[0], share[1])


@part
def _turn(x: Array, norm: int, turns: Array) -> None:
    """QK-norm and rotary position of one head's query or key, in place, where the model has them."""
    D = len(x)
    if norm:
        gains, power = _vector(norm, D), np.float32(0)
        for j in range(D):
            power += x[j] * x[j]
        gain = np.float32(1) / np.sqrt(power / np.float32(D) + np.float32(1e-6))
        for j in range(D):
            x[j] *= gain * gains[j]
    for j in range(turns.shape[1]):
        cos, sin, a, b = turns[0, j], turns[1, j], x[j], x[j + D // 2]
        x[j], x[j + D // 2] = a * cos - b * sin, b * cos + a * sin


@part
def _attend(query: Array, keys: Array, values: Array, shares: Array, out: Array) -> None:
    """One head of one row: softmax of the query's products with all keys, and the values in those shares."""
    T, D = keys.shape
    scale, zero, top = np.float32(1 / math.sqrt(D)), np.float32(0), np.float32(-np.inf)
    # Four at a time, so that the query and `out` are read and written less; the first T % 4 alone.
    for t in range(T % 4):
        shares[t] = zero
        for j in range(D):
            shares[t] += query[j] * keys[t, j]
    for t in range(T % 4, T, 4):
        a, b, c, d = zero, zero, zero, zero
        for j in range(D):
            a += query[j] * keys[t, j]
            b += query[j] * keys[t + 1, j]
            c += query[j] * keys[t + 2, j]
            d += query[j] * keys[t + 3, j]
        shares[t], shares[t + 1], shares[t + 2], shares[t + 3] = a, b, c, d
    for t in range(T):
        shares[t] *= scale
        top = max(top, shares[t])
    total = zero
    for t in range(T):
        shares[t] = _exp(shares[t] - top)
        total += shares[t]
    for j in range(D):
        out[j] = 0
    for t in range(T % 4):
        for j in range(D):
            out[j] += shares[t] * values[t, j]
    for t in range(T % 4, T, 4):
        a, b, c, d = shares[t], shares[t + 1], shares[t + 2], shares[t + 3]
        for j in range(D):
            out[j] += a * values[t, j] + b * values[t + 1, j] + c * values[t + 2, j] + d * values[t + 3, j]
    for j in range(D):
        out[j] /= total


@part
def _attend_heads(
    rows: Array, positions: Array, table: Array, memory: Array, context: int, shape: KernelShape, turns: Array,
    qkv: Array, out: Array, share: tuple[int, int],
) -> None:  # fmt: skip
    """Write keys and values of a share of the heads to the cache, and attend to all that is there."""
    d, H, places = shape.width, shape.num_heads, context + 1
    D, shares = d // H, np.empty(places, np.float32)
    for n in range(len(rows)):
        slot, seen, turn = min(positions[n], context), min(positions[n] + 1, context), turns[positions[n]]
        for head in range(share[0], share[1]):
            first, last = head * D, (head + 1) * D
            q, k, v = qkv[n, first:last], qkv[n, d + first : d + last], qkv[n, 2 * d + first : 2 * d + last]
            start = 4 * D * places * (rows[n] * H + head)
            keys = carray(float_pointer(memory[0] + start), (places, D))
            values = carray(float_pointer(memory[1] + start), (places, D))
            _turn(q, table[Q_NORM], turn)
            _turn(k, table[K_NORM], turn)
            for j in range(D):
                keys[slot, j], values[slot, j] = k[j], v[j]
            _attend(q, keys[:seen], values[:seen], shares, out[n, first:last])


@part
def _activate(units: Array, shape: KernelShape, bias: int, share: tuple[int, int]) -> None:
    """The MLP's activation of a share of its units, in place."""
    half, one, first, second = np.float32(0.5), np.float32(1), share[0], share[0] + shape.ff_width
    for n in range(len(units)):
        if bias:
            _add(units[n], _vector(bias, units.shape[1]), first, share[1])
            _add(units[n], _vector(bias, units.shape[1]), second, share[1] + shape.ff_width)
        # No choice in a loop and no index that numba must ask whether it is negative, or it would not be vectorised.
        own, gated = units[n, first : share[1]], units[n, second:]
        if shape.activation == GELU:
            for j in range(len(own)):
                own[j] *= half + half * _erf(own[j] * np.float32(math.sqrt(0.5)))
        elif shape.activation == RELU2:
            for j in range(len(own)):
                own[j] *= max(own[j], np.float32(0))
        else:
            for j in range(len(own)):
                own[j] *= gated[j] / (one + _exp(-own[j]))


@part
def _add_product(
    matrix: Array, columns: int, x: Array, bias: Any, scratch: Scratch, product: Array, out: Array,
    share: tuple[int, int],
) -> None:  # fmt: skip
    """Add a share of x @ matrix.T and of a bias to the sums between layers."""
    d = out.shape[1]
    _multiply(matrix, d, d, columns, x, scratch, product, share)
    for n in range(len(out)):
        _add(out[n], product[n], share[0], share[1])
        if bias:
            _add(out[n], _vector(bias, d), share[0], share[1])


@jit
def advance(
    member: int, size: int, arrivals: Array,
    shape: KernelShape, layers: Array, trunk: Array, turns: Array,
    memory: Array, context: int, lengths: Array,
    rows: Array, actions: Array, windows: Array,
    buffers: Buffers, hidden: Array,
) -> None:  # fmt: skip
    """Append an action to some rows of a cache.

    `memory` [L, 2] holds the addresses of its keys and values. actions [B, 1], windows [B, 1, slots] and lengths [B]
    are of all its rows, and `rows` [N] says which are meant: hidden [B, 1, d] is written for those.
    """
    d, F, x = shape.width, shape.ff_width, buffers.x
    scratch = _scratch(len(x), max(d, F, shape.slots * shape.slot_width))
    positions = np.empty(len(x), np.int64)
    for n in range(len(x)):
        positions[n] = min(lengths[rows[n]], len(turns) - 1)
    columns, heads = _share(d, member, size), _share(shape.num_heads, member, size)
    own_units, bands = _share(F, member, size), 2 if shape.activation == SWIGLU else 1
    head_columns = heads[0] * (d // shape.num_heads), heads[1] * (d // shape.num_heads)
    _embed(rows, actions, windows, positions, shape, trunk, scratch, x, columns)
    target = _meet(arrivals, size, size)
    for layer in range(len(layers)):
        table = layers[layer]
        _normalise(x, shape, table[ATTENTION_NORM], table[ATTENTION_NORM_BIAS], scratch.floats)
        _multiply(table[QKV:], 3 * d, d, d, scratch.floats, scratch, buffers.qkv, head_columns)
        _attend_heads(rows, positions, table, memory[layer], context, shape, turns, buffers.qkv, buffers.heads, heads)
        target = _meet(arrivals, size, target)
        _add_product(table[OUT:], d, buffers.heads, np.int64(0), scratch, buffers.product, x, columns)
        target = _meet(arrivals, size, target)
        _normalise(x, shape, table[MLP_NORM], table[MLP_NORM_BIAS], scratch.floats)
        _multiply(table[UP:], bands * F, F, d, scratch.floats, scratch, buffers.units, own_units)
        _activate(buffers.units, shape, table[UP_BIAS], own_units)
        target = _meet(arrivals, size, target)
        _add_product(table[DOWN:], F, buffers.units, table[DOWN_BIAS], scratch, buffers.product, x, columns)
        target = _meet(arrivals, size, target)
    if member == 0:
        _normalise(x, shape, trunk[NORM], trunk[NORM_BIAS], scratch.floats)
        for n in range(len(x)):
            lengths[rows[n]] += 1
            for j in range(d):
                hidden[rows[n], 0, j] = scratch.floats[n, j]


@jit
def score(member: int, size: int, arrivals: Array, matrix: Array, hidden: Array, out: Array) -> None:
    """out = hidden @ matrix.T; `matrix` holds the address of the head and that of its scales."""
    rows, scratch = out.shape[1], _scratch(len(hidden), hidden.shape[1])
    _multiply(matrix, rows, rows, hidden.shape[1], hidden, scratch, out, _share(rows, member, size))
    _meet(arrivals, size, size)


@jit
def keep_keys(rows: Array, lengths: Array, context: int, keys: Array, more: Array, pointers: Array) -> None:
    """Put the pointer's keys of steps that were just taken into pointers [B, S, P], and add to those before what each
    gives them: `more` is [N, ahead P], the nearest first."""
    P = keys.shape[1]
    for n in range(len(rows)):
        kept, slot = pointers[rows[n]], min(lengths[rows[n]] - 1, context)
        for j in range(P):
            kept[slot, j] = keys[n, j]
        # What goes beyond the context is kept in the place of the last, which no other step looks at.
        num_ahead = min(more.shape[1] // P, slot) if slot < context else 0
        for back in range(num_ahead):
            for j in range(P):
                kept[slot - 1 - back, j] += more[n, back * P + j]


@part
def _scratch(rows: int, columns: int) -> Scratch:
    floats, scales = np.empty((rows, columns), np.float32), np.empty(rows, np.float32)
    return Scratch(floats, np.empty((rows, columns), ROUNDED), scales)
