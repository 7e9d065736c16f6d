"""Moments of single channels whose means are large, in float64 on the host: a few need no second pass over all of x.

The sums of x as it is gave means that are good, and variances that are not. So of such a channel x is read once more,
less that mean, some samples at a time, in the order of samples and pixels, however they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.onednn_kernels.pitched import Pitched, Span
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.sums.columns import Activations, Columns, read_through
from singa_lite.kernels.routine import Temporary

#: A number of one channel costs as much as some twenty of a pass over all, as each lies in another line of the cache.
_SHARE = 32


def most_alone(columns: Columns, line: Temporary) -> int:
    """How many channels cost less by themselves than a pass over all does. line: as of `add_alone`."""
    return columns.channels // _SHARE if line.shape[0] >= columns.shape[2] * columns.shape[3] else 0


def add_alone(
    columns: Columns,
    x: Activations,
    line: Temporary,
    find: Callable[[Array, Array, Array], Array],
    few: BufferView,
    variance: BufferView,
    mean: BufferView,
    spare: BufferView,
) -> None:
    """Add a step that makes, if the bool `few` says so, the moments of the channels that `find` names of all moments.

    line: float64, to work in, an image of a channel at least; x: that all steps before have read.
    """
    source = read_through(x)
    view: BufferView
    images: Callable[[Array], Array]
    if isinstance(source, Pitched):
        view, images = source.tensor, _as_it_is
    else:
        view = columns.part(source, Span(0, columns.pixels))
        images = partial(_as_images, columns.shape, columns.lie_last)

    def make(x: Array, line: Array, few: Array, variance: Array, mean: Array, spare: Array) -> None:
        if few[0]:
            for channel in find(variance, mean, spare):
                mean[channel], variance[channel] = _moments(images(x), int(channel), line, mean[channel])

    columns.work.call(make, view, line, few, variance, mean, spare)


def _moments(x: Array, channel: int, line: Array, shift: float) -> tuple[float, float]:
    """Mean and variance of a channel of x, (n, c, ...), of which the mean is about the shift."""
    pixels = x[0, 0].size
    most, total, squares = line.size // pixels, 0.0, 0.0
    for start in range(0, x.shape[0], most):
        part = x[start : start + most, channel]
        values = line[: part.size]
        np.copyto(values.reshape(part.shape), part)
        total += float(np.subtract(values, shift, out=values).sum())
        squares += float(np.square(values, out=values).sum())
    count = x.shape[0] * pixels
    off = total / count
    return shift + off, max(squares / count - off * off, 0.0)


def _as_it_is(x: Array) -> Array:
    return x


def _as_images(shape: tuple[int, ...], lie_last: bool, line: Array) -> Array:
    """Activations without gaps as (n, c, pixels)."""
    samples, channels = shape[:2]
    return line.reshape(samples, -1, channels).swapaxes(1, 2) if lie_last else line.reshape(samples, channels, -1)
