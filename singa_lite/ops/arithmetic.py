"""Arithmetic, element by element, with NumPy's broadcasting rule: add, subtract, multiply, divide, power, exp, log."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from singa_lite import arrays
from singa_lite.checks import real
from singa_lite.errors import ShapeError
from singa_lite.ops.op import Op, checked_tensor
from singa_lite.tensor import Tensor, operand

#: What stands on either side of an operator, a tensor on one of them at least.
Term = Tensor | ArrayLike


class _Broadcasting(Op):
    """Base of the binary operations: y has the common shape, derivatives are summed back to the inputs' shapes."""

    kernel: str

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        self.shapes = a.shape, b.shape
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            raise ShapeError(
                f"{self.kernel}: wanted shapes that broadcast together, received {a.shape} and {b.shape}"
            ) from None
        if a.dtype != b.dtype:
            raise TypeError(f"{self.kernel}: wanted equal dtypes, received {a.dtype} and {b.dtype}")
        whole = a if a.shape == shape else b
        y = self.device.empty(shape, a.dtype, whole.memory_order() if whole.shape == shape else "")
        self.device.run(self.kernel, a, b, y)
        self.keep(a, b, y)
        return y

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        """Save what the derivatives need."""

    def times(self, dy: Tensor, factor: Tensor) -> Tensor:
        product = self.empty_like(dy)
        self.device.run("multiply", dy, factor, product)
        return product

    def summed(self, dy: Tensor, index: int, alpha: float = 1.0) -> Tensor:
        """alpha * dy, summed over the axes along which input `index` was broadcast."""
        shape = self.shapes[index]
        if dy.shape == shape:
            return dy if alpha == 1.0 else self.scaled(dy, alpha)
        padded = (1,) * (dy.ndim - len(shape)) + shape
        axes = tuple(axis for axis, extent in enumerate(padded) if extent != dy.shape[axis])
        axes += tuple(axis for axis in range(dy.ndim - len(shape)) if axis not in axes)
        total = self.device.empty(padded, dy.dtype)
        self.device.run("reduce_sum", dy, total, axes=tuple(sorted(axes)), alpha=alpha)
        return total.view(shape)

    def scaled(self, dy: Tensor, alpha: float) -> Tensor:
        result = self.empty_like(dy)
        self.device.run("scale", dy, result, alpha=alpha, beta=0.0)
        return result


class Add(_Broadcasting):
    """y = a + b."""

    kernel = "add"

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.summed(dys[0], index)


class Subtract(_Broadcasting):
    """y = a - b."""

    kernel = "subtract"

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.summed(dys[0], index, alpha=1.0 if index == 0 else -1.0)


class Multiply(_Broadcasting):
    """y = a * b."""

    kernel = "multiply"

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        self.save(a if self.needs[1] else None, b if self.needs[0] else None)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.summed(self.times(dys[0], self.kept(1 - index)), index)


class Divide(_Broadcasting):
    """y = a / b."""

    kernel = "divide"

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        self.save(b, y if self.needs[1] else None)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        quotient = self.empty_like(dys[0])
        self.device.run("divide", dys[0], self.kept(0), quotient)
        if index == 0:
            return self.summed(quotient, 0)
        return self.summed(self.times(quotient, self.kept(1)), 1, alpha=-1.0)


class Scale(Op):
    """y = alpha * x + beta, both plain numbers."""

    def __init__(self, alpha: float, beta: float = 0.0) -> None:
        self.alpha, self.beta = alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        y = self.empty_like(x)
        self.device.run("scale", x, y, alpha=self.alpha, beta=self.beta)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.empty_like(dys[0])
        self.device.run("scale", dys[0], dx, alpha=self.alpha, beta=0.0)
        return dx


class Power(Op):
    """y = x ** exponent; dx = dy * exponent * x ** (exponent - 1)."""

    def __init__(self, exponent: float) -> None:
        self.exponent = exponent

    def forward(self, x: Tensor) -> Tensor:
        y = self.empty_like(x)
        self.device.run("power", x, y, exponent=self.exponent)
        self.save(x)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        slope = self.empty_like(dys[0])
        self.device.run("power", self.kept(0), slope, exponent=self.exponent - 1)
        self.device.run("scale", slope, slope, alpha=self.exponent, beta=0.0)
        self.device.run("multiply", dys[0], slope, slope)
        return slope


class Exp(Op):
    """y = e ** x; dx = dy * y."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.empty_like(x)
        self.device.run("exp", x, y)
        self.save(y)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.empty_like(dys[0])
        self.device.run("multiply", dys[0], self.kept(0), dx)
        return dx


class Log(Op):
    """y = natural logarithm of x; dx = dy / x."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.empty_like(x)
        self.device.run("log", x, y)
        self.save(x)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.empty_like(dys[0])
        self.device.run("divide", dys[0], self.kept(0), dx)
        return dx


def _binary(op: type[_Broadcasting], a: Term, b: Term) -> Tensor:
    """Apply to two tensors, or to a tensor and anything NumPy makes an array of, in the tensor's dtype."""
    if isinstance(a, Tensor):
        return op()(a, operand(b, a))
    right = checked_tensor(op.__name__, b)
    return op()(operand(arrays.numbers("arithmetic", a), right), right)


def add(a: Term, b: Term) -> Tensor:
    """a + b. Tensors of one dtype whose shapes broadcast together; either may be a number."""
    if not isinstance(a, Tensor):
        return add(checked_tensor("add", b), a)
    return shift(a, b) if isinstance(b, int | float) else _binary(Add, a, b)


def subtract(a: Term, b: Term) -> Tensor:
    """a - b. Tensors of one dtype whose shapes broadcast together; either may be a number."""
    if isinstance(b, int | float):
        return shift(a, -b)
    return _scale(b, -1.0, _number("subtract", a)) if isinstance(a, int | float) else _binary(Subtract, a, b)


def multiply(a: Term, b: Term) -> Tensor:
    """a * b, element by element. Tensors of one dtype whose shapes broadcast together; either may be a number."""
    if not isinstance(a, Tensor):
        return multiply(checked_tensor("multiply", b), a)
    return scale(a, b) if isinstance(b, int | float) else _binary(Multiply, a, b)


def divide(a: Term, b: Term) -> Tensor:
    """a / b, element by element. Tensors of one dtype whose shapes broadcast together; either may be a number."""
    return _scale(a, 1.0 / _number("divide", b), 0.0) if isinstance(b, int | float) else _binary(Divide, a, b)


def scale(x: Tensor, alpha: float, beta: float = 0.0) -> Tensor:
    """alpha * x + beta. alpha, beta: numbers, NaN and infinity too."""
    return _scale(x, _number("scale", alpha), _number("scale", beta))


def shift(x: Tensor, beta: float) -> Tensor:
    """x + beta. beta: a number, NaN and infinity too."""
    return _scale(x, 1.0, _number("shift", beta))


def _scale(x: object, alpha: float, beta: float) -> Tensor:
    return Scale(alpha, beta)(checked_tensor("Scale", x))


def power(x: Tensor, exponent: float) -> Tensor:
    """x ** exponent, element by element."""
    return Power(_number("power", exponent))(x)


def _number(where: str, value: object) -> float:
    found = float(value) if isinstance(value, bool | np.bool_ | Tensor) else real(value)
    if found is None:
        raise TypeError(f"{where}: wanted a number, received {value!r}")
    return found


def exp(x: Tensor) -> Tensor:
    """e ** x, element by element."""
    return Exp()(x)


def log(x: Tensor) -> Tensor:
    """Natural logarithm of x, element by element."""
    return Log()(x)
