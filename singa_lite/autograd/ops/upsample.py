"""Upsampling of images by repeated pixels."""

from __future__ import annotations

from singa_lite.autograd.ops.op import Op
from singa_lite.autograd.ops.windows import Extents, pair
from singa_lite.common.errors import ShapeError
from singa_lite.kernels.interface.window import Pair
from singa_lite.tensor import Tensor


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
    """Nearest-neighbor upsampling: each pixel as a block of equal ones.

    x: (n, c, h, w); factor: int or (rows, columns), at least 1; result (n, c, h * rows, w * columns).
    """
    return UpsampleNearest(pair("upsample_nearest", "factor", factor))(x)
