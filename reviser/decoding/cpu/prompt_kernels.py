"""Whole prompts' way through the Transformer as one numba kernel, `read`; step.py calls it.

Time to the first action in milliseconds, with this kernel and with the model's own prefill by torch in its place (two
Neoverse-N1 cores, one process, medians of 9 or 11 runs in alternating order):

    tokens of the prompt                 16            64            256
    shipped model (30M)    float32    39 | 133     103 | 300     392 |  745
                           int8       33 | 180      88 | 363     269 | 1169
    paper_100m, 50k tokens float32   175 | 622     511 | 1099   1288 | 2050
                           int8       56 | 391     297 | 1233    936 | 3220

With int8 weights torch would compute in float32 besides, so a prompt would be read by another model than the one that
continues it, and the texts under a seed would change.

The layers are those of `kernels.advance`, but many positions go through them together, so that a weight is fetched
once and used for all; prompt_tiles.py has the products and draws how positions lie in panels. Members of a team meet
more often than in a step, since here a norm is worth dividing:

    norm of its lanes | q k v, attention of its heads | its rows of out | norm | its units | its rows of down |

with a meeting more where an int8 matrix's input is rounded. Behind the last layer's attention only the last position
of each prompt is needed: those lanes move to the front, and the rest is left. A model with a pointer needs them all.

Of all here only `read` is kept on the disk (see compiled.py); what it calls is part of it.
Shape letters: N positions, n prompts, d width, D head width, F MLP units, G panels, W lanes of a panel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.np.numpy_support import carray

from reviser.decoding.cpu import step_kernels as kernels
from reviser.decoding.cpu.prompt_tiles import LANES, helper, multiply_bytes, multiply_floats, stay_apart
from reviser.decoding.cpu.step_kernels import Array, KernelShape
from reviser.machine_code import bits_of, float_pointer, of_bits


class Prompts(NamedTuple):
    """Positions of all prompts in one row, one prompt after the other."""

    actions: Array
    windows: Array
    """[N, slots]."""
    rows: Array
    """[N]: the row of the cache."""
    places: Array
    """[N]: the place in the prompt."""
    is_last: Array
    """[N]: whether the prompt ends there."""
    lasts: Array
    """[n]: where each prompt's last position stands."""


class Panels(NamedTuple):
    """What the members of a team write for one another, float32 [G, features, W]."""

    x: Array
    """The sums between layers."""
    normed: Array
    """Or the windows' slots, before the first layer."""
    qkv: Array
    heads: Array
    units: Array
    flat: Array
    """[G, features W]: the units again."""
    points: Array
    """What positions give to their own keys of the model's pointer; no features where there is none."""
    ahead: Array
    """What they give to the keys of positions before them."""
    bytes: Array
    """[G W, columns]: the input of an int8 matrix, a position a row."""
    scales: Array
    """[G W]: of those rows."""


@helper
def _multiply(
    matrix: Array, rows: int, band: int, columns: int, x: Array, panels: Panels, lanes: int, out: Array, adds: Any,
    share: tuple[int, int],
) -> None:  # fmt: skip
    """out = or += matrix @ x for a share of the matrix's rows: the same share of each `band` of them."""
    stay_apart()
    for start in range(0, rows, band):
        first, last = start + share[0], start + share[1]
        if matrix[1]:
            x_bytes = panels.bytes, panels.scales
            multiply_bytes(matrix[0], matrix[1], columns, *x_bytes, lanes, out, adds, first, last)
        else:
            multiply_floats(matrix[0], columns, x, lanes, out, adds, first, last)


@helper
def _own(share: tuple[int, int], start: int, W: int) -> tuple[Any, Any]:
    """Which lanes of a panel are in a share; unsigned, or numba asks of each index whether it is negative."""
    return np.uint64(min(max(share[0] - start, 0), W)), np.uint64(min(max(share[1] - start, 0), W))


@helper
def _round(x: Array, columns: int, panels: Panels, share: tuple[int, int]) -> None:
    """A share of the lanes as rows of bytes, and their scales."""
    stay_apart()
    W, tops = x.shape[2], np.empty(x.shape[2], np.int32)
    for start in range(0, len(x) * W, W):
        panel, (low, high) = x[start // W], _own(share, start, W)
        for lane in range(low, high):
            tops[lane] = 0
        for j in range(columns):
            for lane in range(low, high):
                tops[lane] = max(tops[lane], bits_of(panel[j, lane]) & np.int32(0x7FFFFFFF))
        for lane in range(low, high):
            top, place = of_bits(tops[lane]), start + np.int64(lane)
            row, panels.scales[place] = panels.bytes[place], top / np.float32(127)
            inverse = np.float32(127) / top if top > 0 else np.float32(0)
            for j in range(columns):
                row[j] = np.int8(kernels._nearest(panel[j, lane] * inverse))
            for j in range(columns, len(row)):
                row[j] = 0


@helper
def _normalise(x: Array, shape: KernelShape, weight: int, bias: int, out: Array, share: tuple[int, int]) -> None:
    """LayerNorm or RMSNorm of a share of the lanes."""
    stay_apart()
    d, W, gains = shape.width, x.shape[2], kernels._vector(weight, shape.width)
    means, powers = np.empty(W, np.float32), np.empty(W, np.float32)
    for start in range(0, len(x) * W, W):
        panel, normed, (low, high) = x[start // W], out[start // W], _own(share, start, W)
        for lane in range(low, high):
            means[lane], powers[lane] = 0, 0
        if shape.has_layer_norm:
            for j in range(d):
                for lane in range(low, high):
                    means[lane] += panel[j, lane]
            for lane in range(low, high):
                means[lane] /= np.float32(d)
        for j in range(d):
            for lane in range(low, high):
                powers[lane] += (panel[j, lane] - means[lane]) * (panel[j, lane] - means[lane])
        for lane in range(low, high):
            power = powers[lane] / np.float32(d) + np.float32(1e-5 if shape.has_layer_norm else 1e-6)
            powers[lane] = np.float32(1) / np.sqrt(power)
        shifts = kernels._vector(bias if bias else weight, d)
        for j in range(d):
            shift = shifts[j] if bias else np.float32(0)
            for lane in range(low, high):
                normed[j, lane] = (panel[j, lane] - means[lane]) * powers[lane] * gains[j] + shift


@helper
def _show(prompts: Prompts, shape: KernelShape, trunk: Array, panels: Panels, share: tuple[int, int]) -> None:
    """The windows of a share of the lanes, as the input of their projection."""
    stay_apart()
    e, W = shape.slot_width, panels.x.shape[2]
    table = carray(float_pointer(trunk[kernels.TABLE]), (shape.num_tokens, e))
    for n in range(share[0], min(share[1], len(prompts.rows))):
        for j in range(shape.slots * e):
            panels.normed[n // W, j, n % W] = table[prompts.windows[n, j // e], j % e]
    if trunk[kernels.PROJECTION + 1]:
        _round(panels.normed, shape.slots * e, panels, share)


@helper
def _embed(prompts: Prompts, shape: KernelShape, trunk: Array, panels: Panels, share: tuple[int, int]) -> None:
    """Add a share of the columns of every action's embedding, and its position's, to what x begins with."""
    stay_apart()
    d, W = shape.width, panels.x.shape[2]
    for n in range(len(prompts.rows)):
        panel, lane = panels.x[n // W], n % W
        vector = kernels._vector(trunk[kernels.EMBEDDING] + 4 * d * prompts.actions[n], d)
        for j in range(share[0], share[1]):
            panel[j, lane] += vector[j]
        if trunk[kernels.POSITIONS]:
            vector = kernels._vector(trunk[kernels.POSITIONS] + 4 * d * prompts.places[n], d)
            for j in range(share[0], share[1]):
                panel[j, lane] += vector[j]


@helper
def _add_bias(out: Array, bias: int, share: tuple[int, int]) -> None:
    values = kernels._vector(bias, out.shape[1])
    for panel in out:
        for j in range(share[0], share[1]):
            for lane in range(out.shape[2]):
                panel[j, lane] += values[j]


@helper
def _attend_heads(
    prompts: Prompts, table: Array, memory: Array, context: int, shape: KernelShape, turns: Array, panels: Panels,
    share: tuple[int, int], only_lasts: bool,
) -> None:  # fmt: skip
    """Write keys and values of a share of the heads to the cache, and attend to those so far."""
    stay_apart()
    qkv, out, d, H, places = panels.qkv, panels.heads, shape.width, shape.num_heads, context + 1
    D, W, shares = d // H, qkv.shape[2], np.empty(places, np.float32)
    own, mixed = np.empty((3, D), np.float32), np.empty(D, np.float32)
    for head in range(share[0], share[1]):
        for n in range(len(prompts.rows)):
            lane, place = n % W, min(prompts.places[n], context - 1)
            for part in range(3):
                rows = qkv[n // W, part * d + head * D : part * d + (head + 1) * D]
                for j in range(D):
                    own[part, j] = rows[j, lane]
            start = 4 * D * places * (prompts.rows[n] * H + head)
            keys = carray(float_pointer(memory[0] + start), (places, D))
            values = carray(float_pointer(memory[1] + start), (places, D))
            kernels._turn(own[0], table[kernels.Q_NORM], turns[place])
            kernels._turn(own[1], table[kernels.K_NORM], turns[place])
            for j in range(D):
                keys[place, j], values[place, j] = own[1, j], own[2, j]
            if prompts.is_last[n] or not only_lasts:
                kernels._attend(own[0], keys[: place + 1], values[: place + 1], shares, mixed)
                rows = out[n // W, head * D : (head + 1) * D]
                for j in range(D):
                    rows[j, lane] = mixed[j]


@helper
def _bring_forward(lasts: Array, panels: Array, share: tuple[int, int]) -> None:
    """Move the lanes of last positions to the front; none of them stands before where it goes."""
    stay_apart()
    W = panels.shape[2]
    for n in range(len(lasts)):
        for j in range(share[0], share[1]):
            panels[n // W, j, n % W] = panels[lasts[n] // W, j, lasts[n] % W]


@helper
def _prepare(
    x: Array, shape: KernelShape, norm: Array, is_rounded: int, panels: Panels, share: tuple[int, int]
) -> None:
    """A matrix's input: the norm of x, rounded where the matrix is; `norm` begins with its weight and bias."""
    _normalise(x, shape, norm[0], norm[1], panels.normed, share)
    if is_rounded:
        _round(panels.normed, shape.width, panels, share)


@helper
def _round_together(
    is_rounded: int, x: Array, columns: int, panels: Panels, share: tuple[int, int], arrivals: Array, size: int,
    target: int,
) -> int:  # fmt: skip
    """Each member its lanes, which all of them need."""
    if is_rounded:
        _round(x, columns, panels, share)
        return kernels._meet(arrivals, size, target)
    return target


@helper
def _own_lanes(num_positions: int, member: int, size: int) -> tuple[int, int]:
    """A member's share of the positions, in whole strips."""
    first, last = kernels._share((num_positions + LANES - 1) // LANES, member, size)
    return LANES * first, LANES * last


@kernels.jit
def read(
    member: int, size: int, arrivals: Array,
    shape: KernelShape, layers: Array, trunk: Array, turns: Array, memory: Array, context: int,
    prompts: Prompts, panels: Panels, point: Array, hidden: Array,
) -> None:  # fmt: skip
    """Put prompts into rows of a cache, and what stands behind their last positions into hidden [n, d].

    `memory` [L, 2] holds the addresses of the cache's keys and values. Where hidden has a row for every position,
    all of them are taken to the end. `point` holds the addresses of the pointer's two matrices for keys.
    """
    d, F, x, zero, one = shape.width, shape.ff_width, panels.x, np.int64(0), np.int64(1)
    N, W, P, Q = len(prompts.rows), panels.x.shape[2], panels.points.shape[1], panels.ahead.shape[1]
    last_layer = len(layers) - 1 if len(hidden) < N else len(layers)
    slots, bands = shape.slots * shape.slot_width, 2 if shape.activation == kernels.SWIGLU else 1
    columns, heads = kernels._share(d, member, size), kernels._share(shape.num_heads, member, size)
    own_units, lanes = kernels._share(F, member, size), _own_lanes(N, member, size)
    head_columns = heads[0] * (d // shape.num_heads), heads[1] * (d // shape.num_heads)
    # A panel's units lie one after the other, so all of its lanes are activated as if they were one position.
    wide_units = own_units[0] * W, own_units[1] * W
    wide = KernelShape(
        d, shape.num_heads, F * W, shape.activation, shape.slots, shape.slot_width, shape.num_tokens,
        shape.has_layer_norm,
    )  # fmt: skip
    no_bias: Any = zero
    target = size
    if slots:
        _show(prompts, shape, trunk, panels, lanes)
        target = kernels._meet(arrivals, size, target)
        _multiply(trunk[kernels.PROJECTION :], d, d, slots, panels.normed, panels, N, x, zero, columns)
    _embed(prompts, shape, trunk, panels, columns)
    target = kernels._meet(arrivals, size, target)
    for layer in range(len(layers)):
        table = layers[layer]
        _prepare(x, shape, table[kernels.ATTENTION_NORM :], table[kernels.QKV + 1], panels, lanes)
        target = kernels._meet(arrivals, size, target)
        _multiply(table[kernels.QKV :], 3 * d, d, d, panels.normed, panels, N, panels.qkv, zero, head_columns)
        _attend_heads(prompts, table, memory[layer], context, shape, turns, panels, heads, layer == last_layer)
        if layer == last_layer:
            _bring_forward(prompts.lasts, panels.heads, head_columns)
            _bring_forward(prompts.lasts, x, columns)
            N, lanes = len(hidden), _own_lanes(len(hidden), member, size)
        target = kernels._meet(arrivals, size, target)
        target = _round_together(table[kernels.OUT + 1], panels.heads, d, panels, lanes, arrivals, size, target)
        _multiply(table[kernels.OUT :], d, d, d, panels.heads, panels, N, x, one, columns)
        target = kernels._meet(arrivals, size, target)
        _prepare(x, shape, table[kernels.MLP_NORM :], table[kernels.UP + 1], panels, lanes)
        target = kernels._meet(arrivals, size, target)
        _multiply(table[kernels.UP :], bands * F, F, d, panels.normed, panels, N, panels.units, zero, own_units)
        if table[kernels.UP_BIAS]:
            for band in range(bands):
                part = band * F + own_units[0], band * F + own_units[1]
                _add_bias(panels.units, table[kernels.UP_BIAS], part)
        kernels._activate(panels.flat, wide, no_bias, wide_units)
        target = kernels._meet(arrivals, size, target)
        target = _round_together(table[kernels.DOWN + 1], panels.units, F, panels, lanes, arrivals, size, target)
        _multiply(table[kernels.DOWN :], d, d, F, panels.units, panels, N, x, one, columns)
        if table[kernels.DOWN_BIAS]:
            _add_bias(x, table[kernels.DOWN_BIAS], columns)
        target = kernels._meet(arrivals, size, target)
    _normalise(x, shape, trunk[kernels.NORM], trunk[kernels.NORM_BIAS], panels.normed, lanes)
    for n in range(lanes[0], min(lanes[1], N)):
        for j in range(d):
            hidden[n, j] = panels.normed[n // W, j, n % W]
    if P:
        target = kernels._meet(arrivals, size, target)
        target = _round_together(point[1], panels.normed, d, panels, lanes, arrivals, size, target)
        own = kernels._share(P, member, size)
        _multiply(point, P, P, d, panels.normed, panels, N, panels.points, zero, own)
    if Q:
        own = kernels._share(Q, member, size)
        _multiply(point[2:], Q, Q, d, panels.normed, panels, N, panels.ahead, zero, own)
    kernels._meet(arrivals, size, target)
