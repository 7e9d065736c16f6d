"""Sums and means along axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from singa_lite.checks import flag, is_int
from singa_lite.errors import ShapeError
from singa_lite.ops.op import Op, checked_tensor
from singa_lite.ops.shape import numbers, reshaped
from singa_lite.tensor import Shape, Tensor


class ReduceSum(Op):
    """y = alpha * sum of x along axes, which stay as extents of 1 if keepdims."""

    def __init__(self, axes: tuple[int, ...], keepdims: bool, alpha: float) -> None:
        self.axes, self.keepdims, self.alpha = axes, keepdims, alpha

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        self.narrow = tuple(1 if axis in self.axes else extent for axis, extent in enumerate(x.shape))
        left = tuple(extent for axis, extent in enumerate(x.shape) if axis not in self.axes)
        y = self.device.empty(self.narrow if self.keepdims else left, x.dtype)
        if self.axes:
            self.device.run("reduce_sum", x, y, axes=self.axes, alpha=self.alpha)
        else:  # a sum over no axis, as of a 0-d tensor
            self.device.run("scale", x, y, alpha=self.alpha, beta=0.0)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.device.empty(self.shape, dys[0].dtype)
        self.device.run("scale", reshaped(dys[0], self.narrow), dx, alpha=self.alpha, beta=0.0)
        return dx


def reduce_sum(x: Tensor, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Sum of x along `axes` (default all), left out of the shape or, with keepdims, kept as 1."""
    return ReduceSum(_axes(checked_tensor("reduce_sum", x).shape, axes), flag("reduce_sum keepdims", keepdims), 1.0)(x)


def reduce_mean(x: Tensor, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Mean of x along `axes` (default all), left out of the shape or, with keepdims, kept as 1."""
    chosen = _axes(checked_tensor("reduce_mean", x).shape, axes)
    count = prod(x.shape[axis] for axis in chosen)
    return ReduceSum(chosen, flag("reduce_mean keepdims", keepdims), 1.0 / max(count, 1))(x)


def _axes(shape: Shape, axes: int | Sequence[int] | None) -> tuple[int, ...]:
    given = range(len(shape)) if axes is None else numbers("axes", "axes", (axes,) if is_int(axes) else axes)
    for axis in given:
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(f"axes: wanted values from {-len(shape)} to {len(shape) - 1}, received {axis}")
    return tuple(sorted({axis % len(shape) for axis in given}))
