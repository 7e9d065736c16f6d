"""Products of many matrices at once, with broadcast leading axes."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.autograd.ops.broadcasting import Broadcasting
from singa_lite.autograd.ops.shape import reshaped
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Shape, Tensor


class BatchedMatMul(Broadcasting):
    """y = a @ b over leading axes; derivatives are summed over the axes along which an input was broadcast."""

    kernel = "matmul"

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        self.shapes = a.shape, b.shape
        self.lead = _common_lead(a, b)
        if a.dtype != b.dtype:
            raise TypeError(f"matmul: wanted equal dtypes, received {a.dtype} and {b.dtype}")
        self.save(a if self.needs[1] else None, b if self.needs[0] else None)
        return self._product(a, b)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 0:
            return self.summed(self._product(dys[0], self.kept(1), transpose_b=True), 0)
        a, (rows, columns) = self.kept(0), self.shapes[1][-2:]
        if len(self.shapes[1]) > 2:
            return self.summed(self._product(a, dys[0], transpose_a=True), 1)
        db: Tensor = self.device.empty((rows, columns), a.dtype)
        count = prod(a.shape[:-1])
        below = reshaped(a, (count, rows)), reshaped(dys[0], (count, columns))
        self.device.run("matmul", *below, db, transpose_a=True, transpose_b=False)
        return db

    def _product(self, a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        shape = a.shape[-1 if transpose_a else -2], b.shape[-2 if transpose_b else -1]
        y: Tensor = self.device.empty((*self.lead, *shape), a.dtype)
        left, right = self._with_lead(a), self._with_lead(b)
        self.device.run("matmul", left, right, y, transpose_a=transpose_a, transpose_b=transpose_b)
        return y

    def _with_lead(self, x: Tensor) -> Tensor:
        """x itself if it has all leading axes, or none, as the kernel takes it; else a copy that is broadcast."""
        if x.ndim == 2 or x.shape[:-2] == self.lead:
            return x
        wide: Tensor = self.device.empty((*self.lead, *x.shape[-2:]), x.dtype)
        self.device.run("copy", x, wide)
        return wide


def _common_lead(a: Tensor, b: Tensor) -> Shape:
    """The leading axes of the product. ShapeError for matrices, or leading axes, that do not fit."""
    try:
        if min(a.ndim, b.ndim) >= 2 and a.shape[-1] == b.shape[-2]:
            return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        pass
    raise ShapeError(
        "matmul: wanted (..., n, k) and (..., k, m), leading axes that broadcast together, received "
        f"{a.shape} and {b.shape}"
    )
