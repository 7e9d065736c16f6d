"""Derivatives of extremes and bounds, and the choice by a mask, element by element.

Choices are made by bits: NumPy's masked copies, and where=, take five times as long, and a factor of 0 would make NaN
of infinity.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, blocks, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.temporaries import Temporaries, by_blocks

FLOAT_AND_MASK = Temporaries(floats=1, masks=1)


def select(flags: Array, source: Array, out: Array) -> Array:
    """out = source where flags, else 0. Bits are masked: a factor 0 would make NaN of infinity.

    Equal shapes; source and out have one dtype and out is contiguous; flags are bool.
    """
    unsigned = np.dtype(f"u{source.itemsize}")
    ones = unsigned.type(np.iinfo(unsigned).max)
    bits = np.multiply(flags, ones, out=out.view(unsigned))
    np.bitwise_and(bits, source.view(unsigned), out=bits)
    return out


def keep(dy: Array, mask: Array, dx: Array) -> None:
    """dx = dy where mask, else 0, whatever dy holds (inf * 0 would be NaN). The mask is used up."""
    integer = np.dtype(f"i{dy.dtype.itemsize}")
    bits = mask.view(np.int8)
    np.negative(bits, out=bits)  # True becomes -1, all bits set, in every width
    np.bitwise_and(dy.view(integer), bits, out=dx.view(integer))


@by_blocks(floats=1, masks=1)
@np.errstate(invalid="ignore")
def absolute_derivative(dy: Array, x: Array, dx: Array, sign: Array, negative: Array) -> None:
    """dx = dy * sign(x)."""
    np.greater(x, 0, out=sign)
    np.less(x, 0, out=negative)
    np.subtract(sign, negative, out=sign)
    np.multiply(dy, sign, out=dx)


@by_blocks(masks=2)
def clip_derivative(dy: Array, x: Array, dx: Array, mask: Array, below: Array, *, low: float, high: float) -> None:
    """dx = dy where low <= x <= high, else 0."""
    np.greater_equal(x, low, out=mask)
    np.less_equal(x, high, out=below)
    np.logical_and(mask, below, out=mask)
    keep(dy, mask, dx)


@scratch(FLOAT_AND_MASK.bytes)
def maximum_derivative(dy: Array, a: Array, b: Array, da: Array, *, scratch: Bytes) -> None:
    """da = dy, a half of it where a = b, and 0 where a < b."""
    wide = (np.broadcast_to(given, da.shape) for given in (a, b))
    for dyb, ab, bb, dab, factor, mask in FLOAT_AND_MASK.blocks(scratch, dy, *wide, da):
        np.equal(ab, bb, out=factor)
        np.multiply(factor, -0.5, out=factor)
        np.add(factor, 1, out=factor)
        np.less(ab, bb, out=mask)
        np.logical_not(mask, out=mask)
        np.multiply(dyb, factor, out=dab)
        keep(dab, mask, dab)


def _where_buffers(y: Shaped) -> list[BufferSpec]:
    """What is taken of a block of a, and the mask."""
    shape = (min(y.size, BLOCK),)
    return [(shape, y.dtype), (shape, np.bool_)]


@scratch(lambda condition, a, b, y: bytes_for(*_where_buffers(y)))
def where(condition: Array, a: Array, b: Array, y: Array, *, scratch: Bytes) -> None:
    """y = a where the condition holds, else b: each with the bits cleared where it is the other's turn."""
    buffers = carve(scratch, *_where_buffers(y))
    integer = np.dtype(f"i{y.dtype.itemsize}")
    wide = (np.broadcast_to(given, y.shape) for given in (condition, a, b))
    for yb, cb, ab, bb in blocks(y, *wide):
        chosen, mask = (shaped(buffer, yb.shape) for buffer in buffers)
        np.copyto(mask, cb)
        keep(ab, mask, chosen)
        np.logical_not(cb, out=mask)
        keep(bb, mask, yb)
        np.bitwise_or(yb.view(integer), chosen.view(integer), out=yb.view(integer))
