"""What numba has no words for, in LLVM's own: addresses as pointers, a float's bits, a counter that threads share,
and sums of products of bytes. Kernels call these like functions; addresses are int64.

>>> CHUNK % LANES
0
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import core, extending

types: Any = core.types
cgutils: Any = core.cgutils

LANES, CHUNK = 32, 128
"""Products that x86 takes at once where it can, and how many `sum_products` takes at once."""
INT32, INT64 = ir.IntType(32), ir.IntType(64)


def intrinsic(emit: Callable[..., Any]) -> Any:
    return extending.intrinsic(emit)


@intrinsic
def float_pointer(typing: Any, address: Any) -> Any:
    return types.CPointer(types.float32)(types.int64), _to_pointer


@intrinsic
def byte_pointer(typing: Any, address: Any) -> Any:
    return types.CPointer(types.int8)(types.int64), _to_pointer


def _to_pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))


@intrinsic
def bits_of(typing: Any, value: Any) -> Any:
    """A float32's bits as int32."""
    return types.int32(types.float32), _to_bits


@intrinsic
def of_bits(typing: Any, bits: Any) -> Any:
    return types.float32(types.int32), _to_bits


def _to_bits(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


@intrinsic
def arrive(typing: Any, arrivals: Any) -> Any:
    """Add 1 to the first of an int64 array, whoever else does so at the same time."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", data, context.get_constant(types.int64, 1), "seq_cst")

    return types.int64(arrivals), emit


@intrinsic
def arrived(typing: Any, arrivals: Any) -> Any:
    """The first of an int64 array, read anew; what its writers wrote before is seen afterwards."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.load_atomic(data, "seq_cst", 8)

    return types.int64(arrivals), emit


if os.name == "posix":
    offer_core: Any = types.ExternalFunction("sched_yield", types.intc())
else:

    @intrinsic
    def offer_core(typing: Any) -> Any:
        return types.intc(), lambda context, *_: context.get_constant(types.intc, 0)


@intrinsic
def sum_products(typing: Any, weights: Any, x: Any, count: Any) -> Any:
    """The sum of `count` products of int8 with int16, a multiple of CHUNK, by the addresses of both.

    numba's loops become sums of 8 products at a time on x86. Here 32 are taken at once, as sums of neighbours, which
    LLVM knows as one instruction.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (weights, x, count), wide = arguments, ir.VectorType(INT32, LANES)
        zero = ir.Constant(ir.VectorType(INT32, LANES // 2), [0] * (LANES // 2))
        sums = [cgutils.alloca_once(builder, zero.type) for _ in range(CHUNK // LANES)]
        for each in sums:
            builder.store(zero, each)

        def load(size: int, address: Any, place: Any) -> Any:
            kind = ir.VectorType(ir.IntType(8 * size), LANES)
            at = builder.add(address, builder.mul(place, INT64(size)))
            return builder.sext(builder.load(builder.inttoptr(at, kind.as_pointer()), align=1), wide)

        def pick(values: Any, places: range) -> Any:
            return builder.shuffle_vector(values, values, ir.Constant(ir.VectorType(INT32, len(places)), [*places]))

        chunks = cgutils.for_range_slice(builder, INT64(0), count, INT64(CHUNK), intp=INT64, inc=True)
        with chunks as (start, _):
            for number, each in enumerate(sums):
                place = builder.add(start, INT64(LANES * number))
                products = builder.mul(load(1, weights, place), load(2, x, place))
                neighbours = builder.add(pick(products, range(0, LANES, 2)), pick(products, range(1, LANES, 2)))
                builder.store(builder.add(builder.load(each), neighbours), each)
        total = builder.load(sums[0])
        for each in sums[1:]:
            total = builder.add(total, builder.load(each))
        while total.type.count > 1:
            half = total.type.count // 2
            total = builder.add(pick(total, range(half)), pick(total, range(half, 2 * half)))
        return builder.extract_element(total, INT32(0))

    return types.int32(types.int64, types.int64, types.int64), emit
