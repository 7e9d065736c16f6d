"""Matrix products: matmul, also of many matrices at once, add_bias and linear (both in one)."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.autograd.ops.broadcasting import Broadcasting
from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.autograd.ops.shape import checked_axis, reshape, reshaped
from singa_lite.common.checks import flag
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


class _Product(Op):
    """Base of the products a @ b: da = dy @ b^T, db = a^T @ dy; a and b are saved where they are needed."""

    def keep(self, a: Tensor, b: Tensor) -> None:
        """Save what the derivatives need."""
        self.save(a if self.needs[1] else None, b if self.needs[0] else None)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 0:
            return _product(self, dys[0], self.kept(1), transpose_b=True)
        return _product(self, self.kept(0), dys[0], transpose_a=True)


class MatMul(_Product):
    """y = a @ b."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
            raise ShapeError(f"matmul: wanted (n, k) and (k, m), received {a.shape} and {b.shape}")
        _same_dtype("matmul", a, b)
        self.keep(a, b)
        return _product(self, a, b)


class Linear(_Product):
    """y = x @ weight + bias in one kernel."""

    optional = (2,)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        fits = x.ndim == 2 and weight.ndim == 2 and x.shape[1] == weight.shape[0]
        if not fits or (bias is not None and bias.shape != weight.shape[1:]):
            raise ShapeError(
                f"linear: wanted x (n, in), weight (in, out), bias (out,), received {x.shape}, {weight.shape}, "
                f"{None if bias is None else bias.shape}"
            )
        _same_dtype("linear", x, weight)
        y = self.device.empty((x.shape[0], weight.shape[1]), x.dtype)
        self.device.run("linear", x, weight, bias, y)
        self.keep(x, weight)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return bias_gradient(self, dys[0], 1) if index == 2 else super().backward(index, *dys)


class LinearTransposed(_Product):
    """y = x @ weight^T, of a weight that lies as the table of an embedding does, one row for each output."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1]:
            raise ShapeError(
                f"linear: wanted x (n, in) and a transposed weight (out, in), received {x.shape}, {weight.shape}"
            )
        _same_dtype("linear", x, weight)
        self.keep(x, weight)
        return _product(self, x, weight, transpose_b=True)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 0:
            return _product(self, dys[0], self.kept(1))
        return _product(self, dys[0], self.kept(0), transpose_a=True)


class AddBias(Op):
    """y = x + bias along an axis."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        self.axis = checked_axis("add_bias", x, self.axis)
        if bias.shape != (x.shape[self.axis],):
            raise ShapeError(
                f"add_bias: wanted a bias of x's extent along axis {self.axis}, received {bias.shape} for x {x.shape}"
            )
        return self.computed("add_bias", x, bias, axis=self.axis)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return dys[0] if index == 0 else bias_gradient(self, dys[0], self.axis)


def bias_gradient(op: Op, dy: Tensor, axis: int) -> Tensor:
    """The sum of dy over all axes but `axis`: the gradient of a bias along it."""
    db = op.device.empty((dy.shape[axis],), dy.dtype)
    op.device.run("bias_gradient", dy, db, axis=axis)
    return db


def _product(op: Op, a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    shape = a.shape[1 if transpose_a else 0], b.shape[0 if transpose_b else 1]
    y = op.device.empty(shape, a.dtype)
    op.device.run("matmul", a, b, y, transpose_a=transpose_a, transpose_b=transpose_b)
    return y


def _same_dtype(where: str, a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise TypeError(f"{where}: wanted equal dtypes, received {a.dtype} and {b.dtype}")


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Returns the matrix product a @ b. a: (..., n, k); b: (..., k, m); result (..., n, m), leading axes broadcast as
    in NumPy.

    >>> autograd.matmul(tensor.ones((4, 2, 3)), tensor.ones((3, 5))).shape
    (4, 2, 5)
    """
    several = any(isinstance(given, Tensor) and given.ndim > 2 for given in (a, b))
    return (BatchedMatMul() if several else MatMul())(a, b)


def add_bias(x: Tensor, bias: Tensor, axis: int = 1) -> Tensor:
    """Returns x + bias, the bias along `axis`. x: any shape; bias: (x.shape[axis],).

    >>> x = tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> print(autograd.add_bias(x, tensor.as_tensor([10.0, 20.0, 30.0])))
    [[11. 22. 33.]
     [14. 25. 36.]]
    """
    return AddBias(axis)(x, bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, transposed: bool = False) -> Tensor:
    """Returns x @ weight + bias over the last axis. x: (..., in); weight: (in, out); bias: (out,); result (..., out).

    transposed: the weight is (out, in), as an embedding's table is; there is no bias then. The kernel sees x as rows
    (rows, in), a view where x lies in C order without gaps.

    >>> x, weight, bias = tensor.ones((4, 3)), tensor.ones((3, 5)), tensor.zeros((5,))
    >>> autograd.linear(x, weight, bias).shape
    (4, 5)
    """
    if flag("linear transposed", transposed) and bias is not None:
        raise ValueError("linear: wanted no bias beside transposed=True, received one; add_bias() adds it")
    if checked_tensor("linear", x).ndim <= 2:
        return _rows_times(x, weight, bias, transposed)
    rows = _rows_times(reshape(x, (-1, x.shape[-1])), weight, bias, transposed)
    return reshape(rows, (*x.shape[:-1], rows.shape[1]))


def _rows_times(x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool) -> Tensor:
    return LinearTransposed()(x, weight) if transposed else Linear()(x, weight, bias)
