"""Statistics of a batch, from exact sums (`channel_sums.py`), and what batch normalization wants of its tensors."""

from __future__ import annotations

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import layouts
from singa_lite.kernels.onednn_kernels.channel_sums import ChannelSums
from singa_lite.kernels.onednn_kernels.columns import COLUMNS, Activations, Columns
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.work import lies
from singa_lite.kernels.routine import Temporary

#: x is summed without a shift as long as the square of its mean is at most this many times its variance: the variance,
#: a difference of squares, is then off by a few roundings only. Most layers of ResNet-50 have a channel or two over 4,
#: few have one over 16, and one channel over the limit costs a second pass over all of them.
NEAR = 16.0
#: How often x is summed again, shifted by the mean that came out, at most.
_SHIFTS = 2


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
    columns = columns_of(images, x)
    sums, count = ChannelSums(columns), columns.pixels
    shift = _add_moments(sums, source)
    share, scale = (images.temporary((columns.channels,), dtype) for dtype in ("float64", "float32"))

    def finish(squares: Array, total: Array, shift: Array, share: Array, *vectors: Array) -> None:
        """Turns the sums into the variance and the mean, and updates the running ones."""
        gamma, running_mean, running_var, mean, inv_std, scale = vectors
        _to_moments(squares, total, share, count)
        np.add(total, shift, out=total)
        _move(running_mean, total, momentum, 1.0, share)
        _move(running_var, squares, momentum, count / max(1, count - 1), share)
        np.copyto(mean, total, casting="same_kind")
        np.divide(1, np.sqrt(np.add(squares, epsilon, out=squares), out=squares), out=squares)
        np.copyto(inv_std, squares, casting="same_kind")
        np.multiply(gamma, inv_std, out=scale)

    images.call(finish, *sums.totals, shift, share, *vectors, scale)
    return scale


def _add_moments(sums: ChannelSums, x: Activations) -> Temporary:
    """Add steps: the sums of x - shift and of its squares. Returns the shift, float32.

    It is 0 where the mean is small: the variance, a difference of squares, is then off by a few roundings at most. Else
    x is summed again with its mean as the shift, and once more if that mean was still too far off.
    """
    channels, pixels, images = sums.columns.channels, sums.columns.pixels, sums.work
    moments = [images.temporary((channels,), "float64") for _ in range(3)]
    shift = images.temporary((channels,), "float32")
    times, is_far = images.temporary((1,), "int64"), images.temporary((1,), "bool")

    def begin(shift: Array, times: Array) -> None:
        shift.fill(0)
        times.fill(0)

    def choose(squares: Array, total: Array, variance: Array, mean: Array, spare: Array, *results: Array) -> None:
        shift, times, is_far = results
        np.copyto(variance, squares)
        np.copyto(mean, total)
        _to_moments(variance, mean, spare, pixels)
        is_far[0] = times[0] < _SHIFTS and far_from_zero(mean, np.multiply(variance, NEAR, out=variance), spare)
        times += 1
        if is_far[0]:
            np.add(shift, mean, out=shift, where=np.isfinite(mean), casting="same_kind")

    images.call(begin, shift, times)
    sums.add(x)
    images.call(choose, *sums.totals, *moments, shift, times, is_far)
    with images.repeat_while(is_far):
        sums.add(x, move=sums.less(shift))
        images.call(choose, *sums.totals, *moments, shift, times, is_far)
    return shift


def _to_moments(squares: Array, total: Array, spare: Array, count: int) -> None:
    """Turns sums of squares and of values into the variance and the mean, in place."""
    np.divide(squares, count, out=squares)
    np.divide(total, count, out=total)
    np.subtract(squares, np.square(total, out=spare), out=squares)
    np.maximum(squares, 0, out=squares)


def far_from_zero(mean: Array, limit: Array, spare: Array) -> bool:
    """Whether the square of any mean is over its limit, or one of the two is NaN or infinite."""
    return not np.all(np.square(mean, out=spare) <= limit) or not np.all(np.isfinite(limit))


def _move(running: Array, batch: Array, momentum: float, correction: float, share: Array) -> None:
    """running = (1 - momentum) * running + momentum * correction * batch."""
    np.multiply(running, 1 - momentum, out=running)
    np.add(running, np.multiply(batch, momentum * correction, out=share), out=running)


def columns_of(images: Images, tensor: TensorSpec, least: int = COLUMNS) -> Columns:
    """The matrix of a tensor, with so many columns at least."""
    return Columns(images, images.shape(tensor), images.axes == layouts.CHANNELS_LAST, least)


def fit(images: tuple[TensorSpec, ...], *vectors: TensorSpec) -> bool:
    """Whether the library can take these activations, float32 or bfloat16, and vectors of channels."""
    stored = layouts.are_stored(*images) and layouts.are_floats(*vectors)
    return stored and Images.fit(*images) and all(lies(v, (0,)) for v in vectors)
