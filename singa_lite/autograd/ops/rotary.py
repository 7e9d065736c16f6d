"""Rotary positions: pairs of features turned by an angle that grows with the position."""

from __future__ import annotations

from singa_lite.autograd.ops.op import Op
from singa_lite.autograd.ops.shape import checked_axis
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class Rotary(Op):
    """Turns; the derivative turns back."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        self.axis = checked_axis("rotary", x, self.axis)
        if not 0 < self.axis < x.ndim - 1:
            raise ShapeError(
                f"rotary: wanted an axis of time between the first and the last of x {x.shape}, received {self.axis}"
            )
        wanted = 2, x.shape[self.axis], x.shape[-1] // 2
        if x.shape[-1] % 2 or table.shape != wanted:
            raise ShapeError(
                f"rotary: wanted x with an even last axis and a table {wanted}, received x {x.shape} and {table.shape}"
            )
        if table.dtype != x.dtype:
            raise TypeError(f"rotary: wanted a table of x's dtype {x.dtype}, received {table.dtype}")
        y = self.empty_like(x)
        self.device.run("rotary", x, table, y, axis=self.axis, inverse=False)
        self.save(table)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index:
            return super().backward(index, *dys)
        dx = self.empty_like(dys[0])
        self.device.run("rotary", dys[0], self.kept(0), dx, axis=self.axis, inverse=True)
        return dx


def rotary(x: Tensor, table: Tensor, axis: int = -2) -> Tensor:
    """Pairs (x[..., i], x[..., i + size / 2]) turned by the angles of their position (Su and others, arXiv 2104.09864).

    x: (n, ..., size), size even; axis: that of time, neither the first nor the last; table: of
    `positions.rotary_table`, (2, x.shape[axis], size / 2) in x's dtype, which has no derivative; a view of later rows
    of it gives later positions.
    """
    return Rotary(axis)(x, table)
