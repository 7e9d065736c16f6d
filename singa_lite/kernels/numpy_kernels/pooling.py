"""Two-dimensional pooling: one pass for each tap of the window, over tiles of y that stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels.boxes import box_extents, boxes, shaped
from singa_lite.kernels.numpy_kernels.ordering import select
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.windows import Tap, inside, taps

Patch = tuple[slice, slice]


class Tile(NamedTuple):
    """Some images, channels and rows of y, and all rows of x in those images and channels, four axes each."""

    piece: tuple[slice, slice, slice]
    x: Array
    y: Array


def _tiles(x: Array, y: Array) -> Iterator[Tile]:
    """The tiles of a pooling of x to y in order."""
    for images, channels, rows in boxes(y.shape[:3], BLOCK // max(1, y.shape[3])):
        yield Tile((images, channels, rows), x[images, channels], y[images, channels, rows])


def _tile_size(y: Shaped) -> int:
    """Elements of y in the largest tile."""
    return int(y.shape[3]) * prod(box_extents(y.shape[:3], BLOCK // max(1, y.shape[3])))


def _taps(tile: Tile, window: Window) -> Iterator[Tap]:
    return taps(window, (tile.x.shape[2], tile.x.shape[3]), tile.y.shape[3], tile.piece[2])


def _max_buffers(y: Shaped, index: Shaped | None) -> list[BufferSpec]:
    size = (_tile_size(y),)
    return [(size, np.bool_), (size, index.dtype)] if index is not None else []


@scratch(lambda x, y, index, **_: bytes_for(*_max_buffers(y, index)))
def max_pool2d(x: Array, y: Array, index: Array | None, *, window: Window, scratch: Bytes) -> None:
    """y by np.maximum, which lets NaN win; index beside it where asked for."""
    buffers = carve(scratch, *_max_buffers(y, index))
    for tile in _tiles(x, y):
        tile.y.fill(-np.inf)
        if index is not None:
            _maximum_with_index(tile, index[tile.piece], window, *buffers)
            continue
        for _, outputs, inputs in _taps(tile, window):
            target = tile.y[..., *outputs]
            np.maximum(tile.x[..., *inputs], target, out=target)


def _maximum_with_index(tile: Tile, index: Array, window: Window, flags: Array, numbers: Array) -> None:
    """y and index of one tile. flags (bool), numbers (index's dtype): buffers of the tile's elements.

    Going from the last tap of the window to the first, the winner is the smallest number that did not lose:
    no mask needed, and on ties the first tap stays.
    """
    from_last = list(_taps(tile, window))[::-1]
    largest = index.dtype.type(np.iinfo(index.dtype).max)
    index.fill(largest)
    for number, outputs, inputs in from_last:
        source, target, target_index = tile.x[..., *inputs], tile.y[..., *outputs], index[..., *outputs]
        loses = np.less(source, target, out=shaped(flags, target.shape))
        candidates = np.multiply(loses, largest, out=shaped(numbers, target.shape))
        np.bitwise_or(candidates, number, out=candidates)
        np.minimum(candidates, target_index, out=target_index)
        np.maximum(source, target, out=target)
    if not np.isnan(tile.y, out=shaped(flags, tile.y.shape)).any():
        return
    # No comparison with NaN holds, so the windows that have one find their first one here.
    for number, outputs, inputs in from_last:
        source = tile.x[..., *inputs]
        is_nan = np.isnan(source, out=shaped(flags, source.shape))
        np.copyto(index[..., *outputs], number, where=is_nan)


def _max_derivative_buffers(dy: Shaped) -> list[BufferSpec]:
    size = (_tile_size(dy),)
    return [(size, np.bool_), (size, dy.dtype)]


@scratch(lambda dy, *_, **__: bytes_for(*_max_derivative_buffers(dy)))
def max_pool2d_derivative(dy: Array, index: Array, dx: Array, *, window: Window, scratch: Bytes) -> None:
    """Each tap of the window adds dy where it won."""
    flags, picked = carve(scratch, *_max_derivative_buffers(dy))
    dx.fill(0)
    for tile in _tiles(dx, dy):
        for number, outputs, inputs in _taps(tile, window):
            source, target = tile.y[..., *outputs], tile.x[..., *inputs]
            wins = np.equal(index[tile.piece][..., *outputs], number, out=shaped(flags, source.shape))
            np.add(target, select(wins, source, shaped(picked, source.shape)), out=target)


def _avg_buffers(y: Shaped, count_pad: bool) -> list[BufferSpec]:
    return [] if count_pad else [((_tile_size(y),), y.dtype)]


@scratch(lambda x, y, *, count_pad, **_: bytes_for(*_avg_buffers(y, count_pad)))
def avg_pool2d(x: Array, y: Array, *, window: Window, count_pad: bool, scratch: Bytes) -> None:
    """Sums tap by tap, or window by window where there are fewer (global pooling); then one division."""
    buffers = carve(scratch, *_avg_buffers(y, count_pad))
    for tile in _tiles(x, y):
        if _has_few_windows(y, window):
            for outputs, inputs in _single_windows(tile, window):
                np.add.reduce(tile.x[..., *inputs], axis=(2, 3), keepdims=True, out=tile.y[..., *outputs])
        else:
            tile.y.fill(0)
            for _, outputs, inputs in _taps(tile, window):
                target = tile.y[..., *outputs]
                np.add(target, tile.x[..., *inputs], out=target)
        np.divide(tile.y, _counts(tile, window, buffers), out=tile.y)


def _avg_derivative_buffers(dy: Shaped, count_pad: bool) -> list[BufferSpec]:
    return [((_tile_size(dy),), dy.dtype), *_avg_buffers(dy, count_pad)]


@scratch(lambda dy, dx, *, count_pad, **_: bytes_for(*_avg_derivative_buffers(dy, count_pad)))
def avg_pool2d_derivative(dy: Array, dx: Array, *, window: Window, count_pad: bool, scratch: Bytes) -> None:
    """One division, then additions tap by tap, or window by window where there are fewer."""
    shares, *buffers = carve(scratch, *_avg_derivative_buffers(dy, count_pad))
    dx.fill(0)
    for tile in _tiles(dx, dy):
        share = shaped(shares, tile.y.shape)
        np.divide(tile.y, _counts(tile, window, buffers), out=share)
        few = _has_few_windows(dy, window)
        patches = _single_windows(tile, window) if few else (tap[1:] for tap in _taps(tile, window))
        for outputs, inputs in patches:
            target = tile.x[..., *inputs]
            np.add(target, share[..., *outputs], out=target)


def _has_few_windows(y: Shaped, window: Window) -> bool:
    return bool(prod(y.shape[2:]) < window.taps)


def _spans(tile: Tile, window: Window) -> tuple[list[slice], list[slice]]:
    """Rows of x in the windows of each row of the tile, and columns of x in those of each column."""
    (kh, kw), (stride_h, stride_w), (top, left) = window.kernel, window.stride, window.pad_before
    _, _, height, width = tile.x.shape
    rows, columns = tile.piece[2], range(tile.y.shape[3])
    return (
        [inside(row * stride_h - top, kh, height) for row in range(rows.start, rows.stop)],
        [inside(column * stride_w - left, kw, width) for column in columns],
    )


def _single_windows(tile: Tile, window: Window) -> Iterator[tuple[Patch, Patch]]:
    """Each element of y as a (row, column) index, and the rows and columns of x in its window."""
    rows, columns = (list(enumerate(spans)) for spans in _spans(tile, window))
    for (row, in_rows), (column, in_columns) in product(rows, columns):
        yield (slice(row, row + 1), slice(column, column + 1)), (in_rows, in_columns)


def _counts(tile: Tile, window: Window, buffers: list[Array]) -> Array | int:
    """What to divide by: the size of a window or, given a buffer, the elements of x in each window."""
    if not buffers:
        return window.taps
    heights, widths = (
        np.array([span.stop - span.start for span in spans], tile.y.dtype) for spans in _spans(tile, window)
    )
    counts = shaped(buffers[0], tile.y.shape[2:])
    np.multiply(heights[:, None], widths, out=counts)
    return counts
