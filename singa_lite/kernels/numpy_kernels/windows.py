"""Sliding windows over the last two axes: which elements of x each tap of the window meets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from singa_lite.kernels.interface.window import Window


class Tap(NamedTuple):
    """One element of the window: its number, row * kw + column, and the outputs for which it lies inside x.

    outputs: rows and columns of y, rows counted from the first of the tile; inputs: the rows and columns of x
    that it meets there. So y[..., *outputs] and x[..., *inputs] have one shape.
    """

    number: int
    outputs: tuple[slice, slice]
    inputs: tuple[slice, slice]


def taps(window: Window, extents: tuple[int, int], columns: int, rows: slice) -> Iterator[Tap]:
    """Every tap of the window in order. extents: (h, w) of x; columns: of y; rows: of y in the tile."""
    (kh, kw), (stride_h, stride_w), (top, left) = window.kernel, window.stride, window.pad_before
    dilation_h, dilation_w = window.dilation
    across = [_valid_range(j * dilation_w - left, stride_w, extents[1], slice(0, columns)) for j in range(kw)]
    for i in range(kh):
        out_rows, in_rows = _valid_range(i * dilation_h - top, stride_h, extents[0], rows)
        for j, (out_columns, in_columns) in enumerate(across):
            yield Tap(i * kw + j, (out_rows, out_columns), (in_rows, in_columns))


def inside(start: int, size: int, extent: int) -> slice:
    """The part of a window of `size` elements from `start` on that lies in [0, extent)."""
    return slice(max(0, start), min(extent, start + size))


def _valid_range(offset: int, stride: int, extent: int, outputs: slice) -> tuple[slice, slice]:
    """Those outputs p with p * stride + offset in [0, extent), counted from the first; and those elements."""
    first = min(max(outputs.start, -(offset // stride)), outputs.stop)
    last = max(min(outputs.stop, (extent - 1 - offset) // stride + 1), first)
    met = slice(first - outputs.start, last - outputs.start)
    if first == last:
        return met, slice(0, 0)
    return met, slice(first * stride + offset, (last - 1) * stride + offset + 1, stride)
