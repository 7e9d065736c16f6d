"""Two-dimensional pooling, largest value or average, and upsampling by repeated pixels."""

from __future__ import annotations

import numpy as np

from singa_lite.autograd.ops.op import KernelOp, Op, checked_tensor
from singa_lite.autograd.ops.reduction import reduce_mean
from singa_lite.autograd.ops.windows import Extents, pair, window
from singa_lite.common.checks import flag
from singa_lite.common.errors import ShapeError
from singa_lite.kernels.interface.window import Pair, Window
from singa_lite.tensor import Tensor


class Pool2d(KernelOp):
    """y = the largest element ("max_pool2d") or the average ("avg_pool2d") of each window. settings: of the kernel."""

    def __init__(self, kernel: str, window: Window, **settings: object) -> None:
        super().__init__(kernel, window=window, **settings)
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise ShapeError(f"pooling: wanted x (n, c, h, w), received {x.shape}")
        self.window.check_pads("pooling")
        self.shape = x.shape
        shape = x.shape[:2] + self.window.positions("pooling", (x.shape[2], x.shape[3]))
        y: Tensor = self.device.empty(shape, x.dtype, "image")
        indices = [self._indices(y)] if self.kernel == "max_pool2d" else []
        self.device.run(self.kernel, x, y, *indices, **self.settings)
        self.save(*indices)
        return y

    def _indices(self, y: Tensor) -> Tensor | None:
        """Room for the place of each largest element in its window; None where no derivative is wanted."""
        if not self.needs[0]:
            return None
        return self.device.empty(y.shape, np.uint8 if self.window.taps <= 256 else np.int32, "image")

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx: Tensor = self.device.empty(self.shape, dys[0].dtype, "image")
        self.device.run(f"{self.kernel}_derivative", dys[0], *self.saved, dx, **self.settings)
        return dx


def max_pool2d(x: Tensor, kernel: Extents, stride: Extents, pad: Extents = 0) -> Tensor:
    """Returns the largest element of each window; padding never wins.

    x: (n, c, h, w); kernel, stride: int or (height, width); pad: int, (height, width) or (top, bottom, left, right).

    >>> x = tensor.from_numpy(np.arange(16.0).reshape(1, 1, 2, 8))
    >>> print(autograd.max_pool2d(x, kernel=2, stride=2))
    [[[[ 9. 11. 13. 15.]]]]
    """
    return Pool2d("max_pool2d", window("max_pool2d", kernel, stride, pad))(x)


def avg_pool2d(x: Tensor, kernel: Extents, stride: Extents, pad: Extents = 0, count_pad: bool = True) -> Tensor:
    """Returns the average of each window. All as `max_pool2d`; count_pad: whether padding counts in the divisor.

    >>> x = tensor.from_numpy(np.arange(16.0).reshape(1, 1, 2, 8))
    >>> print(autograd.avg_pool2d(x, kernel=2, stride=2))
    [[[[ 4.5  6.5  8.5 10.5]]]]
    """
    count_pad = flag("avg_pool2d count_pad", count_pad)
    return Pool2d("avg_pool2d", window("avg_pool2d", kernel, stride, pad), count_pad=count_pad)(x)


def global_avg_pool2d(x: Tensor) -> Tensor:
    """Returns the average of each channel's image. x: (n, c, h, w); result (n, c).

    >>> autograd.global_avg_pool2d(tensor.ones((2, 3, 4, 5))).shape
    (2, 3)
    """
    if checked_tensor("global_avg_pool2d", x).ndim != 4:
        raise ShapeError(f"global_avg_pool2d: wanted x (n, c, h, w), received {x.shape}")
    return reduce_mean(x, (2, 3))


class UpsampleNearest(Op):
    """y = each element of x as a block of factor[0] x factor[1] equal ones."""

    def __init__(self, factor: Pair) -> None:
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self.factor
        if x.ndim != 4:
            raise ShapeError(f"upsample_nearest: wanted x (n, c, h, w), received {x.shape}")
        self.shape = n, c, h, w = x.shape
        per_image, per_channel, per_row, per_column = x.strides
        y = self.device.empty((n, c, h * rows, w * columns), x.dtype, "image")
        single = x.view((n, c, h, 1, w, 1), (per_image, per_channel, per_row, 0, per_column, 0))
        self.device.run("copy", single, _in_blocks(y, self.factor))
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.device.empty(self.shape, dys[0].dtype, "image")
        self.device.run("reduce_sum", _in_blocks(dys[0], self.factor), dx, axes=(3, 5), alpha=1.0)
        return dx


def _in_blocks(y: Tensor, factor: Pair) -> Tensor:
    """The view (n, c, h, rows, w, columns) of y (n, c, h * rows, w * columns), whatever its strides."""
    n, c, height, width = y.shape
    per_image, per_channel, per_row, per_column = y.strides
    rows, columns = factor
    shape = n, c, height // rows, rows, width // columns, columns
    return y.view(shape, (per_image, per_channel, per_row * rows, per_row, per_column * columns, per_column))


def upsample_nearest(x: Tensor, factor: Extents) -> Tensor:
    """Returns the image with each pixel repeated as a block of equal ones (nearest-neighbour upsampling).

    x: (n, c, h, w); factor: int or (rows, columns), at least 1; result (n, c, h * rows, w * columns).

    >>> print(autograd.upsample_nearest(tensor.as_tensor([[[[1.0, 2.0]]]]), (2, 3))[0, 0])
    [[1. 1. 1. 2. 2. 2.]
     [1. 1. 1. 2. 2. 2.]]
    """
    return UpsampleNearest(pair("upsample_nearest", "factor", factor))(x)
