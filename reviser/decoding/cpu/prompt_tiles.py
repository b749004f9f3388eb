"""Products of a matrix with many positions, in registers; prompt_kernels.py takes whole layers of them.

Positions lie side by side, in panels that a product reads from one end to the other:

    panel 0  feature 0  | a a a a | b b b b | c c c c |     lanes: positions 0..11, in strips of a vector each
             feature 1  | a a a a | b b b b | c c c c |
    panel 1  feature 0  | d d d d | . . . . | . . . . |     lanes 12..23, of which the last may be empty

A tile is what four rows of the matrix and one panel's lanes sum up to: it stays in registers until all columns were
seen. A product goes through some of the matrix's rows (`BAND`) for one panel after the other, so that the panel stays
in the first cache and those rows in the second, and asks for the next four rows ahead. A Neoverse-N1 core does 38 of
its 40 GFLOP/s so where a row has 512 columns, and 35 where it has 2,048: those rows share their places in the cache.

Int8 matrices meet positions as rows of bytes, with sums over 16 products at a time; those are the sums of the step.
Tiles are written in LLVM's own terms, since no loop of numba's becomes these instructions.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import config, njit

from reviser.decoding.cpu.step_kernels import Array
from reviser.machine_code import INT32, INT64, cgutils, intrinsic, types

settings: Any = config

IS_ARM = platform.machine() in ("aarch64", "arm64")
LANES = 4 if IS_ARM else 8
"""Floats of a vector: a strip."""
MOST_STRIPS = 4 if IS_ARM else 3
"""Of a panel; with four rows' sums each they fill 32 registers or 16."""
ROWS = 4
"""Of a matrix, taken together."""
BAND, BLOCK = 64, 512
"""Rows of a matrix that stay in the second cache, and columns that are taken at once where there are many more."""
BYTES, POSITIONS_OF_TILE = 16, 4
"""Columns of int8 that are multiplied at once, and positions; rows of bytes end in zeros up to a multiple of 16."""

DOT = """
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define i32 @dot(<16 x i8> %a, <16 x i8> %b) {
  %c = sext <16 x i8> %a to <16 x i32>
  %d = sext <16 x i8> %b to <16 x i32>
  %e = mul <16 x i32> %c, %d
  %f = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %e)
  ret i32 %f
}
"""


def _has_dots() -> bool:
    """Whether there is an instruction for four sums of four products of bytes; LLVM ends the process without it."""
    if not IS_ARM:
        return False
    name, features = settings.CPU_NAME or binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    machine = binding.Target.from_default_triple().create_target_machine(cpu=name, features=features)
    return "sdot" in machine.emit_assembly(binding.parse_assembly(DOT))


HAS_DOTS = _has_dots()

Function = TypeVar("Function", bound=Callable[..., Any])


def helper(function: Function) -> Function:
    """Compile a callee: part of what is kept of its caller, and without what Python would call.

    Sums are not reordered as in a step: how that is done may differ from lane to lane, and what is made of a prompt
    must not depend on those beside it.
    """
    ways = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "fastmath": {"contract", "nsz"}}
    compiled: Any = njit(nogil=True, error_model="numpy", **ways)  # type: ignore[call-overload]
    return cast(Function, compiled(function))


FLOAT = ir.FloatType()
STRIP, FOUR = ir.VectorType(FLOAT, LANES), ir.VectorType(FLOAT, 4)
CHUNK, SUMS = ir.VectorType(ir.IntType(8), BYTES), ir.VectorType(INT32, 4 if HAS_DOTS else 8)


def panels_for(num_positions: int) -> tuple[int, int]:
    """How many panels there are, and how wide."""
    strips = -(-num_positions // LANES)
    count = -(-strips // MOST_STRIPS)
    return count, LANES * -(-strips // count)


class _Code:
    """What both tiles need of LLVM's builder: addresses are int64, offsets are counted in bytes."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def at(self, base: Any, *offsets: Any) -> Any:
        for offset in offsets:
            base = self.builder.add(base, _constant(offset))
        return base

    def times(self, one: Any, other: Any) -> Any:
        return self.builder.mul(_constant(one), _constant(other))

    def load(self, kind: Any, address: Any) -> Any:
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=1 if kind == CHUNK else 4)

    def store(self, value: Any, address: Any) -> None:
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer()), align=4)

    def pick(self, one: Any, other: Any, places: list[int]) -> Any:
        return self.builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(INT32, len(places)), places))

    def spread(self, values: Any, place: int, size: int) -> Any:
        """One of a vector's values in every lane."""
        return self.pick(values, ir.Constant(values.type, ir.Undefined), [place] * size)

    def ask_ahead(self, address: Any) -> None:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, INT32, INT32, INT32])
        prefetch = self.builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        to_read, to_all_caches, data = (ir.Constant(INT32, each) for each in (0, 3, 1))
        self.builder.call(prefetch, [self.builder.inttoptr(address, pointer), to_read, to_all_caches, data])

    def loop(self, start: Any, stop: Any, step: int) -> Any:
        return cgutils.for_range_slice(self.builder, start, stop, INT64(step), intp=INT64, inc=True)


def _constant(value: Any) -> Any:
    return INT64(value) if isinstance(value, int) else value


@intrinsic
def stay_apart(typing: Any) -> Any:
    """Keep the function this stands in from being copied to where it is called, which takes long to compile."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), emit


def _make_tile(num_rows: int, num_strips: int) -> Any:
    """out[rows, lanes] = or += weights[rows, columns] x[columns, lanes], for sums that fit into registers.

    Addresses; `stride` of the weights' rows and `lanes` of x and out are in floats. `pace` is how many bytes behind
    `ahead` are asked for with each column.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code, (weights, stride, x, lanes, out, columns, adds, ahead, pace) = _Code(builder), arguments
        wide, places = code.times(lanes, 4), [(r, s) for r in range(num_rows) for s in range(num_strips)]
        sums = {place: cgutils.alloca_once(builder, STRIP) for place in places}
        outs = {(r, s): code.at(out, code.times(wide, r), 4 * LANES * s) for r, s in places}
        rows = [code.at(weights, code.times(stride, 4 * r)) for r in range(num_rows)]

        def fold(values: list[Any], column: Any, count: int) -> None:
            for i in range(count):
                first = code.at(x, code.times(code.at(column, i), wide))
                strips = [code.load(STRIP, code.at(first, 4 * LANES * s)) for s in range(num_strips)]
                for r, s in places:
                    product = builder.fmul(code.spread(values[r], i, LANES), strips[s], flags=("contract",))
                    builder.store(builder.fadd(builder.load(sums[r, s]), product, flags=("contract",)), sums[r, s])

        with builder.if_else(builder.icmp_signed("!=", adds, INT64(0))) as (does_add, begins):
            with does_add:
                for place in places:
                    builder.store(code.load(STRIP, outs[place]), sums[place])
            with begins:
                for place in places:
                    builder.store(ir.Constant(STRIP, [0.0] * LANES), sums[place])
        whole = builder.and_(columns, INT64(-4))
        with code.loop(INT64(0), whole, 4) as (column, _):
            values = [code.load(FOUR, code.at(row, code.times(column, 4))) for row in rows]
            code.ask_ahead(code.at(ahead, code.times(column, pace)))
            fold(values, column, 4)
        with code.loop(whole, columns, 1) as (column, _):
            singles = [code.load(FLOAT, code.at(row, code.times(column, 4))) for row in rows]
            empty = ir.Constant(FOUR, ir.Undefined)
            fold([builder.insert_element(empty, single, INT32(0)) for single in singles], column, 1)
        for place in places:
            code.store(builder.load(sums[place]), outs[place])
        return context.get_dummy_value()

    def tile(
        typing: Any, weights: Any, stride: Any, x: Any, lanes: Any, out: Any, columns: Any, adds: Any, ahead: Any,
        pace: Any,
    ) -> Any:  # fmt: skip
        return types.void(*[types.int64] * 9), emit

    return intrinsic(tile)


_tile_of_one, _tile_of_two, _tile_of_three, _tile_of_four = (_make_tile(ROWS, strips) for strips in (1, 2, 3, 4))
_strip_of_row = _make_tile(1, 1)


def _dot(code: _Code, total: Any, one: Any, other: Any) -> Any:
    """Add the products of 16 bytes to a vector of int32 sums."""
    builder = code.builder
    if HAS_DOTS:
        kind = ir.FunctionType(SUMS, [SUMS, CHUNK, CHUNK])
        sdot = cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.neon.sdot.v4i32.v16i8")
        return builder.call(sdot, [total, one, other])
    wide = ir.VectorType(INT32, BYTES)
    products = builder.mul(builder.sext(one, wide), builder.sext(other, wide))
    # Decoded as x86's sums of neighbours are.
    even, odd = (code.pick(products, products, list(range(half, BYTES, 2))) for half in (0, 1))
    return builder.add(total, builder.add(even, odd))


def _make_byte_tile(num_rows: int) -> Any:
    """As `_make_tile` for int8 rows and four positions; strides are in bytes, scales are of rows and positions."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code, (weights, stride, scales, x, x_stride, x_scales, out, lanes, adds, ahead) = _Code(builder), arguments
        places = [(r, p) for r in range(num_rows) for p in range(POSITIONS_OF_TILE)]
        sums = {place: cgutils.alloca_once(builder, SUMS) for place in places}
        for total in sums.values():
            builder.store(ir.Constant(SUMS, [0] * SUMS.count), total)
        with code.loop(INT64(0), stride, BYTES) as (column, _):
            code.ask_ahead(code.at(ahead, code.times(column, 4)))
            rows = [code.load(CHUNK, code.at(weights, column, code.times(stride, r))) for r in range(num_rows)]
            for p in range(POSITIONS_OF_TILE):
                vector = code.load(CHUNK, code.at(x, column, code.times(x_stride, p)))
                for r, row in enumerate(rows):
                    builder.store(_dot(code, builder.load(sums[r, p]), row, vector), sums[r, p])
        ends = code.load(FOUR, x_scales)
        is_adding = builder.icmp_signed("!=", adds, INT64(0))
        for r in range(num_rows):
            total = _totals(code, [builder.load(sums[r, p]) for p in range(POSITIONS_OF_TILE)])
            scale = builder.insert_element(
                ir.Constant(FOUR, ir.Undefined), code.load(FLOAT, code.at(scales, 4 * r)), INT32(0)
            )
            value = builder.fmul(builder.fmul(builder.sitofp(total, FOUR), code.spread(scale, 0, 4)), ends)
            here = code.at(out, code.times(lanes, 4 * r))
            before = builder.select(is_adding, code.load(FOUR, here), ir.Constant(FOUR, [0.0] * 4))
            code.store(builder.fadd(before, value), here)
        return context.get_dummy_value()

    def tile(
        typing: Any, weights: Any, stride: Any, scales: Any, x: Any, x_stride: Any, x_scales: Any, out: Any,
        lanes: Any, adds: Any, ahead: Any,
    ) -> Any:  # fmt: skip
        return types.void(*[types.int64] * 10), emit

    return intrinsic(tile)


def _totals(code: _Code, sums: list[Any]) -> Any:
    """One vector's total after the other, as a vector: neighbours are added until each has one number left."""
    while sums[0].type.count * len(sums) > POSITIONS_OF_TILE:
        pairs = list(zip(sums[::2], sums[1::2], strict=True)) if len(sums) > 1 else [(sums[0], None)]
        sums = [_neighbours(code, one, other) for one, other in pairs]
    return sums[0]


def _neighbours(code: _Code, one: Any, other: Any) -> Any:
    count = one.type.count * (1 if other is None else 2)
    even, odd = (code.pick(one, one if other is None else other, list(range(half, count, 2))) for half in (0, 1))
    return code.builder.add(even, odd)


_byte_tile, _byte_row = _make_byte_tile(ROWS), _make_byte_tile(1)


@helper
def multiply_floats(
    matrix: int, columns: int, x: Array, lanes: int, out: Array, adds: int, first: int, last: int
) -> None:
    """Rows `first` to `last` of out = or += matrix @ x, for the first lanes of panels."""
    stay_apart()
    W, source, target = x.shape[2], x.ctypes.data, out.ctypes.data
    block = columns if columns <= 2 * BLOCK else BLOCK
    # Four rows are one stretch of memory where they are taken whole.
    pace = 4 * ROWS if block == columns else 0
    for band in range(first, last, BAND):
        for column in range(0, columns, block):
            count = min(block, columns - column)
            for start in range(0, lanes, W):
                strips = (min(W, lanes - start) + LANES - 1) // LANES
                panel = source + 4 * (start * x.shape[1] + W * column)
                for row in range(band, min(band + BAND, last), ROWS):
                    weights = matrix + 4 * (row * columns + column)
                    sums = target + 4 * (start * out.shape[1] + W * row)
                    given = columns, panel, W, sums, count, adds + column, weights + 4 * ROWS * columns, pace
                    if row + ROWS > last:
                        _multiply_rows(weights, columns, panel, W, sums, count, adds + column, last - row, strips)
                    elif strips == 4:
                        _tile_of_four(weights, *given)
                    elif strips == 3:
                        _tile_of_three(weights, *given)
                    elif strips == 2:
                        _tile_of_two(weights, *given)
                    else:
                        _tile_of_one(weights, *given)


@helper
def _multiply_rows(
    weights: int, columns: int, panel: int, W: int, sums: int, count: int, adds: int, rows: int, strips: int
) -> None:
    """The rows that are left over, one at a time."""
    stay_apart()
    for row in range(rows):
        for strip in range(strips):
            shift, start = 4 * LANES * strip, weights + 4 * columns * row
            _strip_of_row(
                start, columns, panel + shift, W, sums + 4 * W * row + shift, count, adds, start, np.int64(0)
            )


@helper
def multiply_bytes(
    matrix: int, scales: int, columns: int, x: Array, x_scales: Array, lanes: int, out: Array, adds: int, first: int,
    last: int,
) -> None:  # fmt: skip
    """As `multiply_floats` for int8, with rows of bytes for x."""
    stay_apart()
    W, wide, target = out.shape[2], x.shape[1], out.ctypes.data
    for band in range(first, last, BAND):
        for lane in range(0, lanes, POSITIONS_OF_TILE):
            given = x.ctypes.data + lane * wide, wide, x_scales.ctypes.data + 4 * lane
            place = target + 4 * (lane // W * W * out.shape[1] + lane % W)
            for row in range(band, min(band + BAND, last), ROWS):
                weights, ahead = matrix + row * columns, matrix + (row + ROWS) * columns
                if row + ROWS <= last:
                    _byte_tile(weights, columns, scales + 4 * row, *given, place + 4 * W * row, W, adds, ahead)
                else:
                    for one in range(row, last):
                        start = matrix + one * columns
                        _byte_row(start, columns, scales + 4 * one, *given, place + 4 * W * one, W, adds, start)
