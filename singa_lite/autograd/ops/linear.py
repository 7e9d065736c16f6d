"""Matrix products: matmul, also of many matrices at once, add_bias and linear (both in one)."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.autograd.ops.broadcasting import Broadcasting
from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.autograd.ops.shape import reshape, reshaped
from singa_lite.common.checks import axis_of, flag, is_bfloat16
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Shape, Tensor


class MatMul(Broadcasting):
    """y = a @ b over leading axes; derivatives are summed over the axes along which an input was broadcast."""

    kernel = "matmul"
    reads_stored = (1,)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        self.shapes = a.shape, b.shape
        self.lead = _common_lead(a, b)
        _check_dtypes("matmul", a, b)
        self.save(a if self.needs[1] else None, b if self.needs[0] else None)
        return self._product(a, b)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 0:
            return self.summed(self._product(dys[0], self.kept(1), transpose_b=True), 0)
        a, (rows, columns) = self.kept(0), self.shapes[1][-2:]
        if len(self.shapes[1]) > 2 or a.ndim == 2:
            return self.summed(self._product(a, dys[0], transpose_a=True), 1)
        count = prod(a.shape[:-1])
        return product(self, reshaped(a, (count, rows)), reshaped(dys[0], (count, columns)), transpose_a=True)

    def _product(self, a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        return product(self, self._with_lead(a), self._with_lead(b), transpose_a, transpose_b, self.lead)

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


class Linear(Op):
    """y = x @ weight + bias in one kernel. transposed: y = x @ weight^T, of a weight with one row for each output."""

    optional = (2,)
    reads_stored = (1,)

    def __init__(self, transposed: bool) -> None:
        self.transposed = transposed

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        fits = x.ndim == 2 and weight.ndim == 2 and x.shape[1] == weight.shape[1 if self.transposed else 0]
        if not fits or (bias is not None and bias.shape != weight.shape[1:]):
            wanted = "a transposed weight (out, in)" if self.transposed else "weight (in, out), bias (out,)"
            raise ShapeError(
                f"linear: wanted x (n, in), {wanted}, received {x.shape}, {weight.shape}, "
                f"{None if bias is None else bias.shape}"
            )
        _check_dtypes("linear", x, weight)
        self.keep(x, weight)
        if self.transposed:
            return product(self, x, weight, transpose_b=True)
        y: Tensor = self.device.empty((x.shape[0], weight.shape[1]), x.dtype)
        self.device.run("linear", x, weight, bias, y)
        return y

    def keep(self, x: Tensor, weight: Tensor) -> None:
        """Save what the derivatives need."""
        self.save(x if self.needs[1] else None, weight if self.needs[0] else None)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 0:
            return product(self, dys[0], self.kept(1), transpose_b=not self.transposed)
        if index == 2:
            return bias_gradient(self, dys[0], 1)
        factors = (dys[0], self.kept(0)) if self.transposed else (self.kept(0), dys[0])
        return product(self, *factors, transpose_a=True)


class AddBias(Op):
    """y = x + bias along an axis."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        self.axis = axis_of("add_bias", self.axis, x.shape)
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


def product(
    op: Op, a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False, lead: Shape = ()
) -> Tensor:
    """The matrix product a @ b, each transposed where it is said so. lead: the result's leading axes."""
    shape = *lead, a.shape[-1 if transpose_a else -2], b.shape[-2 if transpose_b else -1]
    y: Tensor = op.device.empty(shape, a.dtype)
    op.device.run("matmul", a, b, y, transpose_a=transpose_a, transpose_b=transpose_b)
    return y


def _check_dtypes(where: str, a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype and not (a.dtype == np.float32 and is_bfloat16(b.dtype)):
        raise TypeError(f"{where}: wanted equal dtypes, received {a.dtype} and {b.dtype}")


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Returns the matrix product a @ b. a: (..., n, k); b: (..., k, m); result (..., n, m), leading axes broadcast as
    in NumPy.

    >>> autograd.matmul(tensor.ones((4, 2, 3)), tensor.ones((3, 5))).shape
    (4, 2, 5)
    """
    return MatMul()(a, b)


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
        return Linear(transposed)(x, weight, bias)
    rows = Linear(transposed)(reshape(x, (-1, x.shape[-1])), weight, bias)
    return reshape(rows, (*x.shape[:-1], rows.shape[1]))
