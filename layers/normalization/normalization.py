"""Normalization: channels by statistics that are known before training."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from singa_lite import autograd
from singa_lite.common.checks import real
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import input_axes, label
from singa_lite.tensor import Shape, Tensor, to_numpy

#: A number for all channels, or one for each.
Numbers = float | Sequence[float]

#: Elements that `adapt` works on at a time.
_PIECE = 1 << 20


@runtime_checkable
class _Data(Protocol):
    """An array, or a set on disk, of which samples are read as they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[np.generic]: ...
    def __getitem__(self, samples: slice, /) -> ArrayLike: ...


class Normalization(Layer):
    """Computes y = (x - mean) / sqrt(variance), channel by channel, by numbers that no training changes.

    Input and output samples (channels,), (channels, length) or (channels, height, width). State: mean and std, of the
    shape (channels,), (channels, 1) or (channels, 1, 1).

    mean, variance: a number or one for each channel, variances of at least 0; or neither, and `adapt` takes them from
    data. A variance of 0 counts as 1, as of a feature that is always the same. Until `adapt` or a snapshot brings the
    numbers they are NaN, and a net refuses batches.

    >>> net = Sequential([layers.Input((2,)), layers.Normalization("norm", mean=[1.0, 10.0], variance=[4.0, 25.0])])
    >>> print(net.predict([[3.0, 20.0]]))
    [[1. 2.]]
    """

    def __init__(self, name: str, mean: Numbers | None = None, variance: Numbers | None = None, **options: Any) -> None:
        super().__init__(name, **options)
        if (mean is None) != (variance is None):
            raise ValueError(
                f"{label(self)}: wanted mean and variance, or neither, received mean {mean!r:.100} and variance "
                f"{variance!r:.100}"
            )
        self.mean = None if mean is None else self._numbers("mean", mean, -np.inf)
        self.variance = None if variance is None else self._numbers("variance", variance, 0.0)

    def adapt(self, data: ArrayLike | _Data) -> None:
        """Take mean and variance of each channel from data (samples, channels, ...), of any real numbers.

        Sums are in float64, over a part of the data at a time. ShapeError or TypeError for what is no such array.
        """
        array: _Data = data if isinstance(data, _Data) else np.asarray(data)
        if len(array.shape) < 2 or 0 in array.shape:
            raise ShapeError(f"{label(self)}: adapt: wanted data (samples, channels, ...), received {array.shape}")
        if np.dtype(array.dtype).kind not in "fiub":
            raise TypeError(f"{label(self)}: adapt: wanted real numbers, received {array.dtype}")
        if self.output_sample_shape is not None and tuple(array.shape[1:]) != self.output_sample_shape:
            raise ShapeError(
                f"{label(self)}: adapt: wanted samples of shape {self.output_sample_shape}, received {array.shape[1:]}"
            )
        mean, variance = _statistics(array)
        if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
            raise ValueError(f"{label(self)}: adapt: wanted finite numbers, received NaN or infinities among them")
        self.change_options({"mean": tuple(mean.tolist()), "variance": tuple(variance.tolist())})

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = input_axes(self, shapes, ("channels", "..."))
        for what, numbers in (("mean", self.mean), ("variance", self.variance)):
            if numbers is not None and len(numbers) not in (1, shape[0]):
                raise ShapeError(
                    f"{label(self)}: wanted a {what} for each channel of input samples of shape {shape}, received "
                    f"{len(numbers)}"
                )
        wide = (shape[0], *(1,) * (len(shape) - 1))
        self.add_state("mean", wide, np.nan)
        self.add_state("std", wide, np.nan)
        if self.mean is not None:
            self._fill()
        return shape

    def check_usable(self) -> None:
        """GraphError before mean and variance are known."""
        if self.mean is None and np.isnan(to_numpy(self.states["mean"])).any():
            raise GraphError(
                f"{label(self)}: wanted mean and variance before the first batch, received neither: call adapt(data) "
                "first, or load a snapshot that has them"
            )

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, ...) -> the same shape."""
        return autograd.divide(autograd.subtract(x, self.states["mean"]), self.states["std"])

    def options_changed(self) -> None:
        """The state has the numbers."""
        if self.mean is not None:
            self._fill()

    def _fill(self) -> None:
        """Put the numbers into the state."""
        std = np.sqrt(np.asarray(self.variance))
        for name, numbers in (("mean", np.asarray(self.mean)), ("std", np.where(std == 0, 1.0, std))):
            state = self.states[name]
            spread = np.broadcast_to(numbers, state.shape[:1]).reshape(state.shape)
            state.copy_from_numpy(spread.astype(state.dtype))

    def _numbers(self, what: str, given: object, low: float) -> tuple[float, ...]:
        several = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str) and np.ndim(given) == 1
        found = [real(each) for each in given] if several else [real(given)]  # type: ignore[attr-defined]
        numbers = tuple(each for each in found if each is not None and np.isfinite(each) and each >= low)
        if not numbers or len(numbers) < len(found):
            least = "" if low == -np.inf else f" of at least {low:g}"
            raise ValueError(
                f"{label(self)}: wanted {what} to be a finite number{least}, or one a channel, received {given!r:.100}"
            )
        return numbers


def _statistics(array: _Data) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(mean, biased variance) of each index along axis 1, merged from pieces (Chan, Golub and LeVeque, 1979)."""
    step = max(1, _PIECE // prod(array.shape[1:]))
    count, mean, squares = 0, np.zeros(array.shape[1]), np.zeros(array.shape[1])
    for start in range(0, array.shape[0], step):
        piece = np.asarray(array[start : start + step], np.float64)
        axes = (0, *range(2, piece.ndim))
        more = piece.size // array.shape[1]
        its_mean = piece.mean(axes)
        apart = its_mean - mean
        squares += piece.var(axes) * more + apart**2 * (count * more / (count + more))
        mean += apart * (more / (count + more))
        count += more
    return mean, squares / count
