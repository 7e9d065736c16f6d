"""Convolution in three directions by kernels of ours: what serves where cuDNN is missing or has no plan.

Groups of one channel go one by one (`depthwise.py`); all others are matrix products over pixels and the window's taps,
whose operands are found in the images as they are needed.
"""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels import depthwise
from singa_lite.kernels.cuda_kernels.elementwise import activation_number
from singa_lite.kernels.cuda_kernels.images import (
    MOST_POSITIONS,
    divisor,
    groups_of,
    images,
    in_packs,
    struct,
    window_of,
    windows,
)
from singa_lite.kernels.cuda_kernels.libraries.filter_sums import splits_for, sum_of_splits
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.source import are_floats, may_hold
from singa_lite.kernels.cuda_kernels.walk import Struct, step
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "convolution.cu"

ACTIVATIONS = ("", "relu", "sigmoid")

#: QUAD in tile.cuh.
QUAD = 4
#: (rows, columns) of the tiles in convolution.cu, by whether they are for few columns (in the gradient, rows).
TILES = {False: (64, 64), True: (256, 16)}
#: Columns up to which the narrow tiles are better.
NARROW = 16
MOST_GROUPS = 65535


def _forward(call: Call) -> Routine | None:
    """Forward, and the activation before the result is stored."""
    x, weight, bias, y = call["x"], call["weight"], call.optional("bias"), call["y"]
    number, groups = activation_number(call, ACTIVATIONS), groups_of(call)
    if number is None or not _fit(groups, *call.operands.values()):
        return None
    offset = bias, np.int64(0) if bias is None else step(bias)
    if depthwise.is_better(weight, groups):
        return depthwise.forward(call, offset, number)
    settings = _settings(call, x, weight, y, y, weight.shape[1])
    filters = weight.shape[0] // groups
    narrow = filters <= NARROW
    grid = _tiles(_pixels(y), filters, narrow), 1, groups
    operands = settings, np.int32(narrow), x, weight, *offset, y, number
    return Routine().launch(FILE, "conv2d", *operands, types={"T": y.dtype}, grid=grid)


def _derivative(call: Call) -> Routine | None:
    """Each element of dx sums over the windows that it lies in."""
    dy, weight, dx = call.all("dy", "weight", "dx")
    groups = groups_of(call)
    if not _fit(groups, dy, weight, dx):
        return None
    if depthwise.is_better(weight, groups):
        return depthwise.derivative(call)
    settings = _settings(call, dx, weight, dy, dx, weight.shape[0] // groups)
    narrow = weight.shape[1] <= NARROW
    grid = _tiles(_pixels(dx), weight.shape[1], narrow), 1, groups
    operands = settings, np.int32(narrow), dy, weight, dx
    return Routine().launch(FILE, "conv2d_derivative", *operands, types={"T": dx.dtype}, grid=grid)


def _gradient(call: Call) -> Routine | None:
    """The pixels of dy are split, so that many blocks work; then the sums of the splits are added up."""
    x, dy, dweight = call.all("x", "dy", "dweight")
    groups = groups_of(call)
    if not _fit(groups, x, dy) or dweight.size >= MOST_POSITIONS or not may_hold(dweight.dtype, x.dtype):
        return None
    if depthwise.is_better(dweight, groups):
        return depthwise.gradient(call)
    settings = _settings(call, x, dweight, dy, dy, dweight.shape[1])
    filters, terms = dweight.shape[0] // groups, prod(dweight.shape[1:])
    narrow = filters <= NARROW
    tiles = _tiles(terms, filters, narrow)
    splits = splits_for(_pixels(dy), tiles * groups, dweight)
    routine = Routine()
    partials = splits.temporary(routine, dweight)
    operands = settings, np.int32(narrow), np.int32(splits.each), x, dy, partials
    grid = tiles, splits.number, groups
    routine.launch(FILE, "conv2d_gradient", *operands, types={"T": x.dtype}, grid=grid)
    return sum_of_splits(routine, splits, partials, dweight)


def _fit(groups: int, *specs: TensorSpec) -> bool:
    """Whether the kernels can count the elements, and have their one dtype."""
    small = all(spec.size < MOST_POSITIONS for spec in specs) and groups <= MOST_GROUPS
    return small and are_floats(*specs)


def _settings(call: Call, x: TensorSpec, weight: TensorSpec, y: TensorSpec, counted: TensorSpec, summed: int) -> Struct:
    """The struct `Convolution` of convolution.cuh. counted: whose pixels; summed: numbers that are summed at a tap."""
    filters, channels, window = weight.shape[0] // groups_of(call), weight.shape[1], window_of(call)
    return struct(
        x=images(x),
        y=images(y),
        weight=images(weight),
        window=windows(window),
        channels=channels,
        filters=filters,
        x_quads=int(in_packs(QUAD, x) and channels % QUAD == 0),
        y_quads=int(in_packs(QUAD, y) and filters % QUAD == 0),
        weight_quads=int(in_packs(QUAD, weight)),
        pixels=_pixels(counted),
        columns=divisor(counted.shape[3]),
        rows=divisor(counted.shape[2]),
        of_tap=divisor(summed),
        across=divisor(weight.shape[3]),
        stride_h=divisor(window.stride[0]),
        stride_w=divisor(window.stride[1]),
    )


def _pixels(spec: TensorSpec) -> int:
    n, _, h, w = spec.shape
    return n * h * w


def _tiles(rows: int, columns: int, narrow: bool) -> int:
    """Tiles of one group."""
    height, width = TILES[narrow]
    return -(-rows // height) * -(-columns // width)


KERNELS: dict[str, CallBuilder[Routine]] = {
    "conv2d": _forward,
    "conv2d_derivative": _derivative,
    "conv2d_gradient": _gradient,
}
