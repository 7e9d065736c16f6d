"""Two-dimensional pooling. The workspace of the library's maximum is our index: the winner's place in its window."""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from singa_lite.kernels.kernel_set import Form
from singa_lite.kernels.onednn_kernels import forms
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Routine
from singa_lite.kernels.routine import Temporary

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]
Pad = tuple[int, int, int, int]

# dnnl_pooling_max, dnnl_pooling_avg_include_padding, dnnl_pooling_avg_exclude_padding
_MAXIMUM, _AVERAGE_OF_ALL, _AVERAGE = 0x1FF, 0x2FF, 0x3FF


class _Window(NamedTuple):
    kernel: Pair
    stride: Pair
    pad: Pad

    def forward(
        self, images: Images, algorithm: int, x: p.Form, y: p.Form, kind: int = f.FORWARD_TRAINING
    ) -> Primitive:
        return images.make("pooling_forward", kind, algorithm, x, y, *self._geometry)

    def backward(self, images: Images, algorithm: int, dx: p.Form, dy: p.Form) -> Primitive:
        hint = self.forward(images, algorithm, dx, dy)
        return images.make("pooling_backward", algorithm, dx, dy, *self._geometry, forward=hint)

    @property
    def _geometry(self) -> tuple[object, ...]:
        top, bottom, left, right = self.pad
        return tuple(map(p.dims, (self.stride, self.kernel, (0, 0), (top, left), (bottom, right))))


def max_pool2d(x: Form, y: Form, index: Form | None, *, kernel: Pair, stride: Pair, pad: Pad) -> Routine | None:
    """The library's maximum passes over NaN and is never below the least finite number.

    So the mean of each channel is taken as well, which reads x at the speed of memory; channels whose mean is NaN or
    infinite are done again on the host.
    """
    window = _Window(kernel, stride, pad)
    tensors = (x, y) if index is None else (x, y, index)
    if not forms.are_floats(x, y) or not Images.fit(*tensors):
        return None
    images = Images(*tensors)
    kind = f.FORWARD_INFERENCE if index is None else f.FORWARD_TRAINING
    maximum = window.forward(images, _MAXIMUM, images.form(x), images.form(y), kind)
    if _is_slow(maximum) or (index is not None and maximum.form(f.WORKSPACE) != images.form(index)):
        return None
    source = images.read(x)
    means = _means(images, x, source)
    if means is None:
        return None
    if index is None:
        with images.written(y) as target:
            images.run(maximum, {f.SRC: source, f.DST: target})
    else:
        with images.written(y) as target, images.written(index) as places:
            images.run(maximum, {f.SRC: source, f.DST: target, f.WORKSPACE: places})

    def repair(x: Array, means: Array, y: Array, index: Array | None = None) -> None:
        _repair(x, y, index, means, window)

    images.call(repair, x, means, y, index)
    return images


def _means(images: Images, x: Form, source: Any) -> Temporary | None:
    """Adds a step: the mean of each channel of each image. None if the library has but plain loops for it."""
    n, c, *extents = x.shape
    whole = _Window((extents[0], extents[1]), (1, 1), (0, 0, 0, 0))
    result = forms.dense((n, c, 1, 1), axes=images.axes)
    primitive = whole.forward(images, _AVERAGE_OF_ALL, images.form(x), result, f.FORWARD_INFERENCE)
    if _is_slow(primitive):
        return None
    means = images.temporary((n, c), "float32")
    images.run(primitive, {f.SRC: source, f.DST: means})
    return means


def _repair(x: Array, y: Array, index: Array | None, means: Array, window: _Window) -> None:
    """Do channels again whose mean is not finite."""
    with np.errstate(all="ignore"):
        if isfinite(np.add.reduce(means, axis=None)):
            return
    for image, channel in np.argwhere(~np.isfinite(means)):
        places = None if index is None else index[image, channel]
        _maximum(x[image, channel], y[image, channel], places, window)


def _maximum(x: Array, y: Array, index: Array | None, window: _Window) -> None:
    """Of one channel of one image, row by row; `argmax` finds the first NaN, else the first of the largest."""
    (kh, kw), (stride_h, stride_w), (top, _, left, right) = window
    columns = np.arange(y.shape[1])
    band = np.empty((kh, left + x.shape[1] + right), x.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(band, (kh, kw))[0, ::stride_w][: columns.size]
    for row in range(y.shape[0]):
        start = row * stride_h - top
        first, last = max(start, 0), min(start + kh, x.shape[0])
        band.fill(-np.inf)
        band[first - start : last - start, left : left + x.shape[1]] = x[first:last]
        values = windows.reshape(columns.size, kh * kw)
        np.max(values, axis=1, out=y[row])
        if index is not None:
            # Padding is -inf here too; of a window that has nothing else the first place within x wins.
            within = (first - start) * kw + np.maximum(left - columns * stride_w, 0)
            index[row] = np.where(y[row] == -np.inf, within, values.argmax(axis=1))


def max_pool2d_derivative(dy: Form, index: Form, dx: Form, *, kernel: Pair, stride: Pair, pad: Pad) -> Routine | None:
    """From the index alone."""
    window = _Window(kernel, stride, pad)
    if not forms.are_floats(dy, dx) or not Images.fit(dy, index, dx):
        return None
    images = Images(dy, index, dx)
    hint = window.forward(images, _MAXIMUM, images.form(dx), images.form(dy))
    if hint.form(f.WORKSPACE) != images.form(index):
        return None
    return _derivative(images, _MAXIMUM, window, dy, dx, index)


def avg_pool2d(x: Form, y: Form, *, kernel: Pair, stride: Pair, pad: Pad, count_pad: bool) -> Routine | None:
    """One primitive."""
    if not forms.are_floats(x, y) or not Images.fit(x, y):
        return None
    images, window = Images(x, y), _Window(kernel, stride, pad)
    primitive = window.forward(images, _average(count_pad), images.form(x), images.form(y), f.FORWARD_INFERENCE)
    if _is_slow(primitive):
        return None
    source = images.read(x)
    with images.written(y) as target:
        images.run(primitive, {f.SRC: source, f.DST: target})
    return images


def avg_pool2d_derivative(
    dy: Form, dx: Form, *, kernel: Pair, stride: Pair, pad: Pad, count_pad: bool
) -> Routine | None:
    """One primitive."""
    if not forms.are_floats(dy, dx) or not Images.fit(dy, dx):
        return None
    return _derivative(Images(dy, dx), _average(count_pad), _Window(kernel, stride, pad), dy, dx)


def _derivative(
    images: Images, algorithm: int, window: _Window, dy: Form, dx: Form, index: Form | None = None
) -> Routine | None:
    primitive = window.backward(images, algorithm, images.form(dx), images.form(dy))
    if _is_slow(primitive):
        return None
    operands = {f.DIFF_DST: images.read(dy), f.WORKSPACE: None if index is None else images.read(index)}
    with images.written(dx) as target:
        images.run(primitive, {**operands, f.DIFF_SRC: target})
    return images


def _average(count_pad: bool) -> int:
    return _AVERAGE_OF_ALL if count_pad else _AVERAGE


def _is_slow(primitive: Primitive) -> bool:
    """Plain loops; "simple" ones serve images in C order of fewer channels than a vector has elements."""
    return any(loops in primitive.implementation for loops in ("ref", "simple"))
