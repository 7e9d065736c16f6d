"""Moments and products of activations by running sums (`channel_sums.py`), shifted where the mean is large.

Unshifted, one pass gives both moments, and the variance, a difference of squares, is off by a few roundings as long as
the mean is small. Else x is summed once more, less its mean; where few channels are so, these alone are
(`far_channels.py`).
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.onednn_kernels.far_channels import add_alone, most_alone
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.sums.channel_sums import Before, ChannelSums, Moments
from singa_lite.kernels.onednn_kernels.sums.columns import Activations, Columns

#: x is summed without a shift as long as the square of its mean is at most this many times its variance: the variance
#: is then off by a few roundings only. Most layers of ResNet-50 have a channel or two over 4, few have one over 16. In
#: a densely connected net one such channel is among those of every layer behind it.
NEAR = 16.0
#: How often x is summed again, shifted by the mean that came out, at most.
_SHIFTS = 2


class ShiftedSums:
    """Adds steps that sum activations by channels, whatever their means. longest: pixels of the longest piece.

    totals: of `add_products`.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns, self.work, self._sums = columns, columns.work, ChannelSums(columns)
        self.longest, self.totals = self._sums.longest, self._sums.totals

    def add_moments(self, x: Activations) -> Moments:
        """Add the steps of both moments of x.

        The shift is 0 where the mean is small, or large in few channels, which are then summed by themselves. Else x is
        summed again with its mean as the shift, and once more if that mean was still too far off.
        """
        channels, pixels, work, sums = self.columns.channels, self.columns.pixels, self.work, self._sums
        most = most_alone(self.columns, sums.line)
        variance, mean, spare = (work.temporary((channels,), "float64") for _ in range(3))
        shift = work.temporary((channels,), "float32")
        times, is_far, few = work.temporary((1,), "int64"), *(work.temporary((1,), "bool") for _ in range(2))

        def begin(shift: Array, times: Array) -> None:
            shift.fill(0)
            times.fill(0)

        def choose(squares: Array, total: Array, variance: Array, mean: Array, spare: Array, *results: Array) -> None:
            shift, times, is_far, few = results
            np.copyto(variance, squares)
            np.copyto(mean, total)
            _to_moments(variance, mean, spare, pixels)
            few[0] = times[0] == 0 and 0 < _far_apart(variance, mean, spare).size <= most
            np.multiply(variance, NEAR, out=variance)
            is_far[0] = times[0] < _SHIFTS and not few[0] and _far_from_zero(mean, variance, spare)
            times += 1
            if is_far[0]:
                np.add(shift, mean, out=shift, where=np.isfinite(mean), casting="same_kind")

        def finish(squares: Array, total: Array, variance: Array, mean: Array, spare: Array, shift: Array) -> None:
            np.copyto(variance, squares)
            np.copyto(mean, total)
            _to_moments(variance, mean, spare, pixels)
            np.add(mean, shift, out=mean)

        moments = variance, mean, spare
        work.call(begin, shift, times)
        sums.add(x)
        work.call(choose, *sums.totals, *moments, shift, times, is_far, few)
        with work.repeat_while(is_far):
            sums.add(x, move=sums.less(shift))
            work.call(choose, *sums.totals, *moments, shift, times, is_far, few)
        work.call(finish, *sums.totals, *moments, shift)
        if most:
            add_alone(self.columns, x, sums.line, _far_apart, few, *moments)
        return Moments(variance, mean)

    def add_products(
        self, x: Activations, dy: Activations, mean: BufferView, inv_std: BufferView, before: Before | None = None
    ) -> None:
        """Add the steps of the sums of (x - mean) * dy and of dy, into `totals`. before: as of `ChannelSums.add`."""
        work, sums = self.work, self._sums
        is_far, is_near = (work.temporary((1,), "bool") for _ in range(2))
        spare, limit = (work.temporary((self.columns.channels,), "float64") for _ in range(2))

        def choose(mean: Array, inv_std: Array, spare: Array, limit: Array, is_far: Array, is_near: Array) -> None:
            np.divide(NEAR, np.square(inv_std, dtype=np.float64, out=limit), out=limit)
            is_far[0] = _far_from_zero(mean, limit, spare)
            is_near[0] = not is_far[0]

        def centre(products: Array, total: Array, mean: Array, spare: Array) -> None:
            np.subtract(products, np.multiply(total, mean, out=spare), out=products)

        work.call(choose, mean, inv_std, spare, limit, is_far, is_near)
        with work.only_if(is_near, likely=True):
            sums.add(x, dy, before=before)
            work.call(centre, *sums.totals, mean, spare)
        with work.only_if(is_far):
            sums.add(x, dy, sums.less(mean), before)


def _to_moments(squares: Array, total: Array, spare: Array, count: int) -> None:
    """Turns sums of squares and of values into the variance and the mean, in place."""
    np.divide(squares, count, out=squares)
    np.divide(total, count, out=total)
    np.subtract(squares, np.square(total, out=spare), out=squares)
    np.maximum(squares, 0, out=squares)


def _far_apart(variance: Array, mean: Array, spare: Array) -> Array:
    """The channels with a mean over its limit; none where any moment is NaN or infinite."""
    if not (np.isfinite(variance).all() and np.isfinite(mean).all()):
        return np.empty(0, np.int64)
    np.square(mean, out=spare)
    return np.flatnonzero(np.divide(spare, NEAR, out=spare) > variance)


def _far_from_zero(mean: Array, limit: Array, spare: Array) -> bool:
    """Whether the square of any mean is over its limit, or one of the two is NaN or infinite."""
    return not np.all(np.square(mean, out=spare) <= limit) or not np.all(np.isfinite(limit))
