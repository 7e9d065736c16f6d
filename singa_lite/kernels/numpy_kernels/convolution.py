"""Two-dimensional convolution by matrix products.

Output positions are cut into tiles of a few images, or of a few rows of one image. For each tile the elements
under the window are copied into columns (im2col), so that BLAS does the sums; scratch holds one tile, never a
padded copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels.boxes import box_extents, boxes, shaped
from singa_lite.kernels.numpy_kernels.elementwise import activate, activation_bytes
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.windows import taps

#: Bytes of a tile's columns and outputs.
TILE = 2 * 1024 * 1024

#: Bytes where scratch only serves tensors whose strides BLAS cannot take as they are.
SMALL = 64 * 1024

#: Bytes of the product that `conv2d_gradient` adds to dweight.
PRODUCT = 1024 * 1024

#: Positions of an image from which on a 1 x 1 convolution is one product an image, without columns.
DIRECT = 32


class Layout(NamedTuple):
    """How a convolution is cut: image rows of a tile, filters of each group of a product, scratch."""

    groups: int
    rows: int
    filters: int
    buffers: tuple[BufferSpec, ...]


class Tile(NamedTuple):
    """Images of x and their rows of y, channels first, with the buffers for as many positions.

    x: (groups, c / groups, images, h, w); y, outputs: (groups, k / groups, images, rows, ow);
    columns: (groups, c / groups, kh * kw, images, rows, ow); rows: the rows of y that the tile has.
    """

    x: Array
    y: Array
    rows: slice
    columns: Array
    outputs: Array


def _layout(weight: Shaped, y: Shaped, groups: int, tile: int, product: int = SMALL) -> Layout:
    """Layout from shapes alone. tile: bytes of columns and outputs; product: bytes of a block of filters."""
    images, k, height, width = y.shape
    taken = prod(weight.shape[1:])
    itemsize = np.dtype(y.dtype).itemsize
    rows = tile // max(1, (groups * taken + k) * width * itemsize)
    positions = width * prod(box_extents((images, height), rows))
    (filters,) = box_extents((k // groups,), product // max(1, groups * taken * itemsize))
    sizes = groups * taken * positions, k * positions, groups * filters * taken
    return Layout(groups, rows, filters, tuple(((size,), y.dtype) for size in sizes))


def _is_direct(y: Shaped, window: Window) -> bool:
    """Whether y is weight @ x, position by position, with enough positions for a product an image."""
    return window.is_pixel and prod(y.shape[2:]) >= DIRECT


def _product_layout(weight: Shaped, y: Shaped, window: Window, groups: int) -> Layout:
    """Layout of `conv2d` and its derivative."""
    return _layout(weight, y, groups, SMALL if _is_direct(y, window) else TILE)


def _conv2d_bytes(
    x: Shaped, weight: Shaped, bias: Shaped | None, y: Shaped, *, activation: str = "", **settings: Any
) -> int:
    own = bytes_for(*_product_layout(weight, y, **settings).buffers)
    return max(own, activation_bytes(y, activation))


@scratch(_conv2d_bytes)
def conv2d(
    x: Array,
    weight: Array,
    bias: Array | None,
    y: Array,
    *,
    window: Window,
    groups: int,
    activation: str = "",
    scratch: Bytes,
) -> None:
    """y = weight @ columns of x, plus bias, then the activation in place."""
    if _is_direct(y, window) and _are_plain(weight, x, y):
        _product(_matrices(weight, groups), _pixels(x, groups), _pixels(y, groups))
        if bias is not None:
            np.add(y, bias[:, None, None], out=y)
    else:
        layout = _product_layout(weight, y, window, groups)
        *buffers, block = carve(scratch, *layout.buffers)
        for tile in _tiles(x, y, window, layout, buffers):
            _gather(tile, window)
            for filters, matrices in _filter_blocks(weight, layout, block):
                _product(matrices, _flat(tile.columns, 3), _flat(tile.outputs, 2)[:, filters])
            if bias is None:
                np.copyto(tile.y, tile.outputs)
            else:
                np.add(tile.outputs, bias.reshape(groups, -1, 1, 1, 1), out=tile.y)
    activate(y, activation, scratch)


@scratch(lambda dy, weight, dx, **settings: bytes_for(*_product_layout(weight, dy, **settings).buffers))
def conv2d_derivative(dy: Array, weight: Array, dx: Array, *, window: Window, groups: int, scratch: Bytes) -> None:
    """Columns = transposed weight @ dy, added to dx where they were taken from."""
    if _is_direct(dy, window) and _are_plain(weight, dy, dx):
        _product(_matrices(weight, groups).transpose(0, 2, 1), _pixels(dy, groups), _pixels(dx, groups))
        return
    layout = _product_layout(weight, dy, window, groups)
    *buffers, block = carve(scratch, *layout.buffers)
    dx.fill(0)
    for tile in _tiles(dx, dy, window, layout, buffers):
        np.copyto(tile.outputs, tile.y)
        for filters, matrices in _filter_blocks(weight, layout, block):
            _product(matrices.transpose(0, 2, 1), _flat(tile.outputs, 2)[:, filters], _flat(tile.columns, 3))
            _scatter_add(tile, window)


@scratch(lambda x, dy, dweight, *, groups, **_: bytes_for(*_layout(dweight, dy, groups, TILE, PRODUCT).buffers))
def conv2d_gradient(x: Array, dy: Array, dweight: Array, *, window: Window, groups: int, scratch: Bytes) -> None:
    """dweight = sum over the tiles, in order, of dy @ transposed columns of x."""
    layout = _layout(dweight, dy, groups, TILE, PRODUCT)
    *buffers, block = carve(scratch, *layout.buffers)
    dweight.fill(0)
    targets = dweight.reshape(groups, -1, *dweight.shape[1:])
    for tile in _tiles(x, dy, window, layout, buffers):
        _gather(tile, window)
        np.copyto(tile.outputs, tile.y)
        for (filters,) in boxes((targets.shape[1],), layout.filters):
            target = targets[:, filters]
            product = shaped(block, target.shape)
            transposed = _flat(tile.columns, 3).transpose(0, 2, 1)
            _product(_flat(tile.outputs, 2)[:, filters], transposed, product.reshape(*target.shape[:2], -1))
            np.add(target, product, out=target)


def _tiles(x: Array, y: Array, window: Window, layout: Layout, buffers: list[Array]) -> Iterator[Tile]:
    """The tiles of a convolution of x to y in order. buffers: of columns and of outputs, for all tiles."""
    columns, outputs = buffers
    x, y = _channels_first(x, layout.groups), _channels_first(y, layout.groups)
    for images, rows in boxes(y.shape[2:4], layout.rows):
        y_rows = y[:, :, images, rows]
        shape = (*x.shape[:2], window.taps, *y_rows.shape[2:])
        yield Tile(x[:, :, images], y_rows, rows, shaped(columns, shape), shaped(outputs, y_rows.shape))


def _gather(tile: Tile, window: Window) -> None:
    """columns = the elements of x under each tap of the window, 0 outside (im2col)."""
    for number, (rows, columns), inputs in taps(window, tile.x.shape[3:], tile.y.shape[4], tile.rows):
        target = tile.columns[:, :, number]
        target[..., rows, columns] = tile.x[..., *inputs]
        target[..., : rows.start, :] = 0
        target[..., rows.stop :, :] = 0
        target[..., : columns.start] = 0
        target[..., columns.stop :] = 0


def _scatter_add(tile: Tile, window: Window) -> None:
    """x += columns, each where `_gather` takes it from (col2im)."""
    for number, outputs, inputs in taps(window, tile.x.shape[3:], tile.y.shape[4], tile.rows):
        target = tile.x[..., *inputs]
        np.add(target, tile.columns[:, :, number, ..., *outputs], out=target)


def _filter_blocks(weight: Array, layout: Layout, block: Array) -> Iterator[tuple[slice, Array]]:
    """Filters with their weights (groups, filters, c / groups * kh * kw): all in place, or a few copied."""
    if weight.flags.c_contiguous:
        yield slice(None), _matrices(weight, layout.groups)
        return
    grouped = weight.reshape(layout.groups, -1, *weight.shape[1:])
    for (filters,) in boxes((grouped.shape[1],), layout.filters):
        copy = shaped(block, grouped[:, filters].shape)
        np.copyto(copy, grouped[:, filters])
        yield filters, copy.reshape(*copy.shape[:2], -1)


def _matrices(weight: Array, groups: int) -> Array:
    """A contiguous weight as (groups, k / groups, c / groups * kh * kw)."""
    return weight.reshape(groups, len(weight) // groups, prod(weight.shape[1:]))


def _channels_first(images: Array, groups: int) -> Array:
    """A view (groups, c / groups, n, h, w) of (n, c, h, w)."""
    n, c, h, w = images.shape
    return images.reshape(n, groups, c // groups, h, w).transpose(1, 2, 0, 3, 4)


def _are_plain(weight: Array, *images: Array) -> bool:
    """Whether BLAS can take the weight and the channels of the images as they lie in memory."""
    plain = [a.strides[2:] == (a.shape[3] * a.itemsize, a.itemsize) for a in images]
    return weight.flags.c_contiguous and all(plain)


def _pixels(images: Array, groups: int) -> Array:
    """A view (n, groups, c / groups, h * w) of (n, c, h, w)."""
    n, c, h, w = images.shape
    return images.reshape(n, groups, c // groups, h * w)


def _flat(buffer: Array, axes: int) -> Array:
    """A contiguous buffer as stacked matrices: one axis, those up to `axes`, and the rest."""
    return buffer.reshape(buffer.shape[0], prod(buffer.shape[1:axes]), prod(buffer.shape[axes:]))


def _product(a: Array, b: Array, out: Array) -> None:
    """out = a @ b. Sums of one term (depthwise derivatives) are faster multiplied: NumPy has no BLAS call."""
    if a.shape[-1] == 1:
        np.multiply(a, b, out=out)
    else:
        np.matmul(a, b, out=out)
