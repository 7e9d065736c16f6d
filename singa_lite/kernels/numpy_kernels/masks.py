"""Selecting elements by flags, without where=, which runs element by element on flags without pattern."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array


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
