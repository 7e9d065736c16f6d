"""Sums, means and extremes along axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, prod

from singa_lite.autograd.ops.op import KernelOp, checked_tensor
from singa_lite.autograd.ops.shape import reshaped
from singa_lite.common.checks import axes_of, flag
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class _Reduction(KernelOp):
    """Base: y = kernel of x along axes, which stay as extents of 1 if keepdims."""

    def __init__(self, kernel: str, axes: tuple[int, ...], keepdims: bool) -> None:
        super().__init__(kernel)
        self.axes, self.keepdims = axes, keepdims

    def result(self, x: Tensor) -> Tensor:
        """Room for the result."""
        self.shape, self.narrow = x.shape, tuple(1 if i in self.axes else n for i, n in enumerate(x.shape))
        left = tuple(extent for axis, extent in enumerate(x.shape) if axis not in self.axes)
        return self.device.empty(self.narrow if self.keepdims else left, x.dtype)


class ReduceSum(_Reduction):
    """y = alpha * sum of x along axes."""

    def __init__(self, axes: tuple[int, ...], keepdims: bool, alpha: float) -> None:
        super().__init__("reduce_sum", axes, keepdims)
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        y = self.result(x)
        if self.axes:
            self.device.run("reduce_sum", x, y, axes=self.axes, alpha=self.alpha)
        else:  # a sum over no axis, as of a 0-d tensor
            self.device.run("scale", x, y, alpha=self.alpha, beta=0.0)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.device.empty(self.shape, dys[0].dtype)
        self.device.run("scale", reshaped(dys[0], self.narrow), dx, alpha=self.alpha, beta=0.0)
        return dx


class ReduceExtreme(_Reduction):
    """y = the largest or smallest of x along axes; dy is shared evenly by the elements that are equal to it."""

    def forward(self, x: Tensor) -> Tensor:
        if 0 in [x.shape[axis] for axis in self.axes]:
            raise ShapeError(f"{self.kernel}: wanted elements along axes {self.axes}, received shape {x.shape}")
        y = self.result(x)
        if self.axes:
            self.device.run(self.kernel, x, y, axes=self.axes)
        else:
            self.device.run("copy", x, y)
        self.save(x, y)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        x, y, dy = self.kept(0), reshaped(self.kept(1), self.narrow), reshaped(dys[0], self.narrow)
        dx = self.empty_like(x)
        if not self.axes:  # each is the largest of itself, NaN too
            self.device.run("copy", dy, dx)
            return dx
        count = self.device.empty(self.narrow, dy.dtype)
        self.device.run("compare", x, y, dx, relation="equal")
        self.device.run("reduce_sum", dx, count, axes=self.axes, alpha=1.0)
        self.device.run("multiply", dy, dx, dx)
        self.device.run("divide", dx, count, dx)
        return dx


def reduce_sum(x: Tensor, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Returns the sum of x along `axes` (default all), left out of the shape or, with keepdims, kept as 1.

    >>> x = tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> print(autograd.reduce_sum(x), autograd.reduce_sum(x, axes=0))
    21.0 [5. 7. 9.]
    """
    chosen = axes_of("reduce_sum axes", axes, checked_tensor("reduce_sum", x).shape)
    return ReduceSum(chosen, flag("reduce_sum keepdims", keepdims), 1.0)(x)


def reduce_mean(x: Tensor, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Returns the mean of x along `axes` (default all), left out of the shape or, with keepdims, kept as 1; that of
    nothing is NaN.

    >>> print(autograd.reduce_mean(tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), axes=1, keepdims=True))
    [[2.]
     [5.]]
    """
    chosen = axes_of("reduce_mean axes", axes, checked_tensor("reduce_mean", x).shape)
    count = prod(x.shape[axis] for axis in chosen)
    return ReduceSum(chosen, flag("reduce_mean keepdims", keepdims), 1.0 / count if count else nan)(x)


def reduce_max(x: Tensor, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Returns the largest of x along `axes` (default all), left out of the shape or, with keepdims, kept as 1.

    NaN where one of them is. The derivative is shared evenly by the elements that are equal to the largest. ShapeError
    where there are none.

    >>> print(autograd.reduce_max(tensor.as_tensor([[1.0, 9.0, 3.0], [4.0, 5.0, 6.0]]), axes=0))
    [4. 9. 6.]
    """
    return _extreme("reduce_max", x, axes, keepdims)


def reduce_min(x: Tensor, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Returns the smallest of x along `axes`; all else is as of `reduce_max`.

    >>> print(autograd.reduce_min(tensor.as_tensor([[1.0, 9.0, 3.0], [4.0, 5.0, 6.0]]), axes=1))
    [1. 4.]
    """
    return _extreme("reduce_min", x, axes, keepdims)


def _extreme(kernel: str, x: Tensor, axes: int | Sequence[int] | None, keepdims: bool) -> Tensor:
    chosen = axes_of(f"{kernel} axes", axes, checked_tensor(kernel, x).shape)
    return ReduceExtreme(kernel, chosen, flag(f"{kernel} keepdims", keepdims))(x)
