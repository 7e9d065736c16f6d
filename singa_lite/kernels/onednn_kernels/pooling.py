"""Two-dimensional pooling. The workspace of the library's maximum is our index: the winner's number in its window."""

from __future__ import annotations

from math import isfinite

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.call import Call
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.routine import Temporary

# dnnl_pooling_max, dnnl_pooling_avg_include_padding, dnnl_pooling_avg_exclude_padding
_MAXIMUM, _AVERAGE_OF_ALL, _AVERAGE = 0x1FF, 0x2FF, 0x3FF


def max_pool2d(call: Call) -> Routine | None:
    """The library's maximum passes over NaN and is never below the least finite number.

    So the mean of each channel is taken as well, which reads x at the speed of memory; channels whose mean is NaN or
    infinite are done again on the host.
    """
    x, y, index, window = call["x"], call["y"], call.optional("index"), _window(call)
    tensors = (x, y) if index is None else (x, y, index)
    if not layouts.are_of_one_type(x, y) or not Images.fit(*tensors):
        return None
    if index is not None and layouts.is_narrow(x) and index.dtype != np.uint8:
        return None  # with AVX-512 the library writes other numbers into an index of 32 bits
    images = Images(*tensors)
    kind = f.FORWARD_INFERENCE if index is None else f.FORWARD_TRAINING
    maximum = _forward(images, window, _MAXIMUM, images.desc(x), images.desc(y), kind)
    if _is_slow(maximum) or (index is not None and maximum.memory_desc(f.WORKSPACE) != images.desc(index)):
        return None
    source = images.read(x)
    means = _means(images, x, source)
    if means is None:
        return None
    if index is None:
        with images.written(y) as target:
            images.run(maximum, {f.SRC: source, f.DST: target})
    else:
        with images.written(y) as target, images.written(index) as winners:
            images.run(maximum, {f.SRC: source, f.DST: target, f.WORKSPACE: winners})

    def repair(x: Array, means: Array, y: Array, index: Array | None = None) -> None:
        _repair(x, y, index, means, window)

    images.call(repair, x, means, y, index)
    return images


def _means(images: Images, x: TensorSpec, source: BufferView) -> Temporary | None:
    """Adds a step: the mean of each channel of each image. None if the library has but plain loops for it."""
    n, c, *extents = x.shape
    result = memory_descs.dense((n, c, 1, 1), str(x.dtype), images.axes)
    whole = Window((extents[0], extents[1]))
    primitive = _forward(images, whole, _AVERAGE_OF_ALL, images.desc(x), result, f.FORWARD_INFERENCE)
    if _is_slow(primitive):
        return None
    means = images.temporary((n, c), x.dtype)
    images.run(primitive, {f.SRC: source, f.DST: means})
    return means


def _repair(x: Array, y: Array, index: Array | None, means: Array, window: Window) -> None:
    """Do channels again whose mean is not finite."""
    means = means.astype(layouts.FLOAT, copy=False)
    with np.errstate(all="ignore"):
        if isfinite(np.add.reduce(means, axis=None)):
            return
    for image, channel in np.argwhere(~np.isfinite(means)):
        winners = None if index is None else index[image, channel]
        _maximum(x[image, channel], y[image, channel], winners, window)


def _maximum(x: Array, y: Array, index: Array | None, window: Window) -> None:
    """Of one channel of one image, row by row; `argmax` finds the first NaN, else the first of the largest."""
    (kh, kw), (stride_h, stride_w), (top, _, left, right) = window.kernel, window.stride, window.pad
    columns = np.arange(y.shape[1])
    band = np.empty((kh, left + x.shape[1] + right), layouts.FLOAT)
    windows = np.lib.stride_tricks.sliding_window_view(band, (kh, kw))[0, ::stride_w][: columns.size]
    for row in range(y.shape[0]):
        start = row * stride_h - top
        first, last = max(start, 0), min(start + kh, x.shape[0])
        band.fill(-np.inf)
        band[first - start : last - start, left : left + x.shape[1]] = x[first:last]
        values = windows.reshape(columns.size, kh * kw)
        largest = values.max(axis=1)
        np.copyto(y[row], largest, casting="unsafe")
        if index is not None:
            # Padding is -inf here too; of a window that has nothing else the first tap within x wins.
            within = (first - start) * kw + np.maximum(left - columns * stride_w, 0)
            index[row] = np.where(largest == -np.inf, within, values.argmax(axis=1))


def max_pool2d_derivative(call: Call) -> Routine | None:
    """From the index alone."""
    dy, index, dx, window = call["dy"], call["index"], call["dx"], _window(call)
    if not _adds_in_float32(window, dy, dx) or not Images.fit(dy, index, dx):
        return None
    images = Images(dy, index, dx)
    hint = _forward(images, window, _MAXIMUM, images.desc(dx), images.desc(dy))
    if hint.memory_desc(f.WORKSPACE) != images.desc(index):
        return None
    return _derivative(images, _MAXIMUM, window, dy, dx, index)


def avg_pool2d(call: Call) -> Routine | None:
    """One primitive."""
    x, y = call["x"], call["y"]
    if not layouts.are_of_one_type(x, y) or not Images.fit(x, y):
        return None
    images = Images(x, y)
    given = images.desc(x), images.desc(y)
    primitive = _forward(images, _window(call), _average(call), *given, f.FORWARD_INFERENCE)
    if _is_slow(primitive):
        return None
    source = images.read(x)
    with images.written(y) as target:
        images.run(primitive, {f.SRC: source, f.DST: target})
    return images


def avg_pool2d_derivative(call: Call) -> Routine | None:
    """One primitive."""
    dy, dx, window = call["dy"], call["dx"], _window(call)
    if not _adds_in_float32(window, dy, dx) or not Images.fit(dy, dx):
        return None
    return _derivative(Images(dy, dx), _average(call), window, dy, dx)


def _adds_in_float32(window: Window, dy: TensorSpec, dx: TensorSpec) -> bool:
    """Whether the library can take these, and adds none in bfloat16, as it may where windows overlap."""
    apart = all(step >= extent for step, extent in zip(window.stride, window.kernel, strict=True))
    return layouts.are_floats(dy, dx) or (apart and layouts.are_of_one_type(dy, dx))


def _derivative(
    images: Images, algorithm: int, window: Window, dy: TensorSpec, dx: TensorSpec, index: TensorSpec | None = None
) -> Routine | None:
    given = images.desc(dx), images.desc(dy)
    hint = _forward(images, window, algorithm, *given)
    primitive = images.make("pooling_backward", algorithm, *given, *_geometry(window), forward=hint)
    if _is_slow(primitive):
        return None
    operands = {f.DIFF_DST: images.read(dy), f.WORKSPACE: None if index is None else images.read(index)}
    with images.written(dx) as target:
        images.run(primitive, {**operands, f.DIFF_SRC: target})
    return images


def _forward(
    images: Images, window: Window, algorithm: int, x: p.MemoryDesc, y: p.MemoryDesc, kind: int = f.FORWARD_TRAINING
) -> Primitive:
    return images.make("pooling_forward", kind, algorithm, x, y, *_geometry(window))


def _geometry(window: Window) -> tuple[object, ...]:
    """As the library takes it; between the taps of a pooling there are no gaps."""
    return tuple(map(p.dims, (window.stride, window.kernel, (0, 0), window.pad_before, window.pad_behind)))


def _average(call: Call) -> int:
    return _AVERAGE_OF_ALL if call.settings["count_pad"] else _AVERAGE


def _window(call: Call) -> Window:
    return call.settings["window"]  # type: ignore[return-value]  # as the interface has it


def _is_slow(primitive: Primitive) -> bool:
    """Plain loops; "simple" ones serve images in C order of fewer channels than a vector has elements."""
    return any(loops in primitive.implementation for loops in ("ref", "simple"))


#: {kernel: what makes its routine}.
KERNELS = {
    "max_pool2d": max_pool2d,
    "max_pool2d_derivative": max_pool2d_derivative,
    "avg_pool2d": avg_pool2d,
    "avg_pool2d_derivative": avg_pool2d_derivative,
}
