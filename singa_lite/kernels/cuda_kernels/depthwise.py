"""Convolution in three directions with groups of one channel, for which libraries have no good engines."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import bound_number
from singa_lite.kernels.cuda_kernels.images import (
    MOST_POSITIONS,
    divisor,
    groups_of,
    images,
    in_packs,
    positions,
    struct,
    vector,
    window_of,
    windows,
)
from singa_lite.kernels.cuda_kernels.libraries.filter_sums import splits_for, sum_of_splits
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import are_floats, may_hold
from singa_lite.kernels.cuda_kernels.walk import Struct, axis_spec, dense, step, walk
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

FILE = "depthwise.cu"

#: Filters of a channel up to which these kernels are better than matrix products.
MOST_FILTERS = 4
#: Taps whose gradients a thread sums, TAPS in depthwise.cu: of packs of 8 channels, and of smaller ones.
TAPS_OF_HALVES, TAPS = 5, 9
#: Packs of channels whose gradients a block works on: enough for wide reads.
MOST_SLOTS = 32


def is_depthwise(weight: TensorSpec, groups: int) -> bool:
    """Whether each group has one channel, and few enough filters for these kernels."""
    return weight.shape[1] == 1 and groups > 1 and weight.shape[0] <= MOST_FILTERS * groups


def _forward(call: Call) -> Routine | None:
    """A thread for each pack of y. The activation is done before the result is stored."""
    x, weight, bias, y = call["x"], call["weight"], call.optional("bias"), call["y"]
    bound = bound_number(call)
    if bound is None or not _fit(call, weight, *call.operands.values()):
        return None
    pack, routine = _pack(x, y), Routine()
    turned = _packed_filters(routine, weight)
    if turned is None:
        return None
    offset = bias, np.int64(0) if bias is None else step(bias)
    operands = _settings(call, x, y, positions(y, pack)), x, turned, *offset, y, bound
    return routine.launch(FILE, "depthwise_conv2d", *operands, types={"T": y.dtype}, grid=blocks(y.size // pack))


def _derivative(call: Call) -> Routine | None:
    """A thread for each pack of dx."""
    dy, weight, dx = call.all("dy", "weight", "dx")
    if not _fit(call, weight, dy, weight, dx):
        return None
    pack, routine = _pack(dx, dy), Routine()
    turned = _packed_filters(routine, weight)
    if turned is None:
        return None
    operands, grid = (_settings(call, dx, dy, positions(dx, pack)), dy, turned, dx), blocks(dx.size // pack)
    return routine.launch(FILE, "depthwise_conv2d_derivative", *operands, types={"T": dx.dtype}, grid=grid)


def _gradient(call: Call) -> Routine | None:
    """A block for some packs of channels, some taps of the window and a split of the pixels."""
    x, dy, dweight = call.all("x", "dy", "dweight")
    if not _fit(call, dweight, x, dy) or dweight.size >= MOST_POSITIONS or not may_hold(dweight.dtype, x.dtype):
        return None
    n, k, h, w = dy.shape
    pack = _pack(x, dy)
    slots = _slots(k // vector(x))
    taps = prod(dweight.shape[2:])
    groups_of_taps = -(-taps // (TAPS_OF_HALVES if vector(x) == 8 else TAPS))
    splits = splits_for(n * h * w, -(-k // (vector(x) * slots)) * groups_of_taps, dweight)
    routine = Routine()
    partials = splits.temporary(routine, dweight)
    order = positions(TensorSpec((n, 1, h, w), dy.dtype, dy.strides), inside=False)
    counts = map(np.int32, (pack, slots, splits.each))
    operands: tuple[Argument, ...] = _settings(call, x, dy, order), *counts, x, dy, partials
    grid = -(-k // (pack * slots)), groups_of_taps, splits.number
    routine.launch(FILE, "depthwise_conv2d_gradient", *operands, types={"T": x.dtype}, grid=grid)
    return sum_of_splits(routine, splits, partials, dweight)


def _fit(call: Call, weight: TensorSpec, *specs: TensorSpec) -> bool:
    """Whether the call is depthwise, and the kernels can count the elements, which have one dtype."""
    small = all(spec.size < MOST_POSITIONS for spec in specs)
    return is_depthwise(weight, groups_of(call)) and small and are_floats(*specs)


def _pack(x: TensorSpec, y: TensorSpec) -> int:
    """Channels that a thread takes at a time."""
    return vector(x) if x.shape[1] == y.shape[1] and in_packs(vector(x), x, y) else 1


def _slots(packs: int) -> int:
    """The power of two next to the packs of channels, as far as a block has them. By shapes alone, as are splits."""
    return min(1 << max(packs - 1, 0).bit_length(), MOST_SLOTS)


def _packed_filters(routine: Routine, weight: TensorSpec) -> Temporary | None:
    """Adds a copy of the filters as (kh, kw, k), which kernels read in packs."""
    source = axis_spec((2, 3, 0), weight)
    target = dense(source.shape, weight.dtype)
    found = walk(target.shape, (target, source))
    if found is None:
        return None
    turned = routine.temporary(target.shape, weight.dtype)
    types = {"T": weight.dtype, "S": weight.dtype}
    routine.launch("copy.cu", "copy", found, weight, turned, types=types, grid=blocks(weight.size))
    return turned


def _settings(call: Call, x: TensorSpec, y: TensorSpec, order: Struct) -> Struct:
    """The struct `Depthwise` of depthwise.cu."""
    window = window_of(call)
    return struct(
        x=images(x),
        y=images(y),
        window=windows(window),
        positions=order,
        multiplier=y.shape[1] // x.shape[1],
        stride_h=divisor(window.stride[0]),
        stride_w=divisor(window.stride[1]),
    )


KERNELS: dict[str, CallBuilder[Routine]] = {
    "conv2d": _forward,
    "conv2d_derivative": _derivative,
    "conv2d_gradient": _gradient,
}
