"""Matrix products: matmul, add_bias and linear (both in one)."""

from __future__ import annotations

from singa_lite.autograd.ops.batched_product import BatchedMatMul
from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.autograd.ops.shape import checked_axis, reshape
from singa_lite.common.checks import flag
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


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
        y = self.empty_like(x)
        self.device.run("add_bias", x, bias, y, axis=self.axis)
        return y

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
    """Matrix product. a: (..., n, k); b: (..., k, m); result (..., n, m), leading axes broadcast as in NumPy."""
    several = any(isinstance(given, Tensor) and given.ndim > 2 for given in (a, b))
    return (BatchedMatMul() if several else MatMul())(a, b)


def add_bias(x: Tensor, bias: Tensor, axis: int = 1) -> Tensor:
    """x + bias along `axis`. x: any shape; bias: (x.shape[axis],)."""
    return AddBias(axis)(x, bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, transposed: bool = False) -> Tensor:
    """x @ weight + bias over the last axis. x: (..., in); weight: (in, out); bias: (out,); result (..., out).

    transposed: the weight is (out, in), as an embedding's table is; there is no bias then. The kernel sees x as rows
    (rows, in), a view where x lies in C order without gaps.
    """
    if flag("linear transposed", transposed) and bias is not None:
        raise ValueError("linear: wanted no bias beside transposed=True, received one; add_bias() adds it")
    if checked_tensor("linear", x).ndim <= 2:
        return _rows_times(x, weight, bias, transposed)
    rows = _rows_times(reshape(x, (-1, x.shape[-1])), weight, bias, transposed)
    return reshape(rows, (*x.shape[:-1], rows.shape[1]))


def _rows_times(x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool) -> Tensor:
    return LinearTransposed()(x, weight) if transposed else Linear()(x, weight, bias)
