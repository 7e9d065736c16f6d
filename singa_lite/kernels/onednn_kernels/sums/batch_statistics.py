"""Statistics of a batch, from exact sums, and what batch normalization wants of its tensors."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.library import layouts
from singa_lite.kernels.onednn_kernels.sums import piece_sums
from singa_lite.kernels.onednn_kernels.sums.columns import COLUMNS, Activations, Columns
from singa_lite.kernels.onednn_kernels.sums.piece_sums import PieceSums
from singa_lite.kernels.onednn_kernels.sums.shifted_sums import ShiftedSums
from singa_lite.kernels.onednn_kernels.work import is_dense
from singa_lite.kernels.routine import Temporary
from singa_lite.kernels.widening import NARROW

#: What sums activations by channels: in pieces by the library where that is fast, else by running sums.
BatchSums = PieceSums | ShiftedSums


def images_of(*tensors: TensorSpec) -> Images:
    """Images for steps over these activations: as they are stored where the library sums them so, else in float32."""
    stored = Images(*tensors, as_stored=True)
    is_fast = layouts.are_of_one_type(*tensors) and _by_pieces(columns_of(stored, tensors[0]))
    return stored if is_fast else Images(*tensors)


def sums_of(images: Images, x: TensorSpec) -> BatchSums:
    """What sums such activations."""
    columns = columns_of(images, x)
    return PieceSums(columns) if _by_pieces(columns) else ShiftedSums(columns)


def _by_pieces(columns: Columns) -> bool:
    """In float32 both ways take as long, and running sums are exact to the last digit."""
    return columns.dtype.name == NARROW and columns.lie_last and piece_sums.is_fast(columns)


def add_statistics(
    images: Images,
    x: TensorSpec,
    source: Activations,
    vectors: tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec, TensorSpec],
    momentum: float,
    epsilon: float,
) -> Temporary:
    """Add steps: mean and inv_std of x, which is read from the source, and the running ones. Returns gamma * inv_std.

    vectors: gamma, running_mean, running_var, mean, inv_std.
    """
    sums = sums_of(images, x)
    count, channels = sums.columns.pixels, sums.columns.channels
    share, scale = (images.temporary((channels,), dtype) for dtype in ("float64", "float32"))

    def finish(variance: Array, average: Array, share: Array, *vectors: Array) -> None:
        """Updates the running statistics, and turns the variance into its inverse root."""
        gamma, running_mean, running_var, mean, inv_std, scale = vectors
        _move(running_mean, average, momentum, 1.0, share)
        _move(running_var, variance, momentum, count / max(1, count - 1), share)
        np.copyto(mean, average, casting="same_kind")
        np.divide(1, np.sqrt(np.add(variance, epsilon, out=variance), out=variance), out=variance)
        np.copyto(inv_std, variance, casting="same_kind")
        np.multiply(gamma, inv_std, out=scale)

    images.call(finish, *sums.add_moments(source), share, *vectors, scale)
    return scale


def _move(running: Array, batch: Array, momentum: float, correction: float, share: Array) -> None:
    """running = (1 - momentum) * running + momentum * correction * batch."""
    np.multiply(running, 1 - momentum, out=running)
    np.add(running, np.multiply(batch, momentum * correction, out=share), out=running)


def columns_of(images: Images, tensor: TensorSpec, least: int = COLUMNS) -> Columns:
    """The matrix of a tensor, with so many columns at least."""
    lie_last = images.axes == layouts.CHANNELS_LAST
    return Columns(images, images.shape(tensor), lie_last, least, images.stored(tensor))


def fit(images: tuple[TensorSpec, ...], *vectors: TensorSpec) -> bool:
    """Whether the library can take these activations, float32 or bfloat16, and vectors of channels."""
    stored = layouts.are_stored(*images) and layouts.are_floats(*vectors)
    return stored and Images.fit(*images) and all(is_dense(v, (0,)) for v in vectors)
