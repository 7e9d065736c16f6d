"""Batch normalization: statistics from exact sums (`batch_statistics.py`), then one pass over activations.

The library's own primitives add up in float32, one term after the other in each thread. Only the one that takes given
statistics is used.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.sums.batch_statistics import add_statistics, columns_of, fit, images_of
from singa_lite.kernels.onednn_kernels.sums.columns import SHORT, Activations, read_through
from singa_lite.kernels.onednn_kernels.sums.normalized import Normalized
from singa_lite.kernels.routine import Temporary


def batch_norm(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    y: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    *,
    momentum: float,
    epsilon: float,
) -> Routine | None:
    """Sums of x, shifted where its mean is large, give the statistics; then x is normalized by them.

    x with gaps is read once: for its sums a piece is copied to where y will be, and normalized there.
    """
    if not fit((x, y), gamma, beta, running_mean, running_var, mean, inv_std):
        return None
    images = images_of(x, y)
    source = images.source(x, copy=y)
    vectors = gamma, running_mean, running_var, mean, inv_std
    scale = add_statistics(images, x, source, vectors, momentum, epsilon)
    return _normalized(images, read_through(source), y, mean, scale, beta)


def batch_normalize(
    x: TensorSpec, gamma: TensorSpec, beta: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, y: TensorSpec
) -> Routine | None:
    """The last step of `batch_norm`."""
    if not fit((x, y), gamma, beta, mean, inv_std):
        return None
    images = images_of(x, y)
    scale = add_scale(images, gamma, inv_std)
    return _normalized(images, images.source(x), y, mean, scale, beta)


def add_scale(images: Images, gamma: TensorSpec, inv_std: TensorSpec) -> Temporary:
    """Add a step. Returns gamma * inv_std."""
    scale = images.temporary(gamma.shape, "float32")
    images.call(lambda gamma, inv_std, scale: np.multiply(gamma, inv_std, out=scale), gamma, inv_std, scale)
    return scale


def batch_norm_inference(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    y: TensorSpec,
    *,
    epsilon: float,
) -> Routine | None:
    """Forward with the statistics given."""
    if not fit((x, y), gamma, beta, running_mean, running_var):
        return None
    images = images_of(x, y)
    scale, wide = (images.temporary(gamma.shape, dtype) for dtype in ("float32", "float64"))

    def finish(gamma: Array, variance: Array, wide: Array, scale: Array) -> None:
        np.sqrt(np.add(variance, epsilon, out=wide), out=wide)
        np.divide(gamma, wide, out=scale)

    images.call(finish, gamma, running_var, wide, scale)
    return _normalized(images, images.source(x), y, running_mean, scale, beta)


def _normalized(
    images: Images, source: Activations, y: TensorSpec, mean: BufferView, scale: BufferView, shift: BufferView
) -> Images:
    """Add steps: y = (source - mean) * scale + shift, of vectors of channels."""
    columns = columns_of(images, y, SHORT)
    normalized = Normalized(columns, mean, scale, shift)
    with images.sink(y) as target:
        columns.each([source], target, lambda pixels, reads, target: normalized.add(pixels, reads[0], target))
    return images
