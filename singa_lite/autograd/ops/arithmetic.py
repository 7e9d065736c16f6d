"""Arithmetic, element by element, with NumPy's broadcasting rule: add to divide, powers, exp, log."""

from __future__ import annotations

from singa_lite.autograd.ops.broadcasting import Broadcasting, Term, cast, plain_number
from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.common import arrays
from singa_lite.device import device_of
from singa_lite.tensor import Tensor, operand


class _Arithmetic(Broadcasting):
    """Base of those that are one kernel of two tensors."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.applied(a, b)


class Add(_Arithmetic):
    """y = a + b."""

    kernel = "add"

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.summed(dys[0], index)


class Subtract(_Arithmetic):
    """y = a - b."""

    kernel = "subtract"

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.summed(dys[0], index, alpha=1.0 if index == 0 else -1.0)


class Multiply(_Arithmetic):
    """y = a * b."""

    kernel = "multiply"

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        self.save(a if self.needs[1] else None, b if self.needs[0] else None)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.summed(self.times(dys[0], self.kept(1 - index)), index)


class Divide(_Arithmetic):
    """y = a / b."""

    kernel = "divide"

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        self.save(b, y if self.needs[1] else None)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        quotient = self.computed("divide", dys[0], self.kept(0))
        if index == 0:
            return self.summed(quotient, 0)
        return self.summed(self.times(quotient, self.kept(1)), 1, alpha=-1.0)


class Scale(Op):
    """y = alpha * x + beta, both plain numbers."""

    def __init__(self, alpha: float, beta: float = 0.0) -> None:
        self.alpha, self.beta = alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        return self.computed("scale", x, alpha=self.alpha, beta=self.beta)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.computed("scale", dys[0], alpha=self.alpha, beta=0.0)


class Power(Op):
    """y = x ** exponent; dx = dy * exponent * x ** (exponent - 1), 0 for exponent 0, whatever x is."""

    def __init__(self, exponent: float) -> None:
        self.exponent = exponent

    def forward(self, x: Tensor) -> Tensor:
        self.save(x)
        return self.computed("power", x, exponent=self.exponent)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        slope = self.empty_like(dys[0])
        if self.exponent == 0:  # x ** -1 has no number at 0
            self.device.run("fill", slope, value=0.0)
            return slope
        self.device.run("power", self.kept(0), slope, exponent=self.exponent - 1)
        self.device.run("scale", slope, slope, alpha=self.exponent, beta=0.0)
        self.device.run("multiply", dys[0], slope, slope)
        return slope


class _SquareOrRoot(Op):
    """Base of a square and its root: of both the slope is by twice what is kept."""

    exponent: float
    by: str

    def forward(self, x: Tensor) -> Tensor:
        y = self.computed("power", x, exponent=self.exponent)
        self.save(x if self.exponent == 2.0 else y)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.computed("scale", self.kept(0), alpha=2.0, beta=0.0)
        self.device.run(self.by, dys[0], dx, dx)
        return dx


class Square(_SquareOrRoot):
    """y = x * x; dx = dy * 2 x."""

    exponent, by = 2.0, "multiply"


class Sqrt(_SquareOrRoot):
    """y = square root of x; dx = dy / (2 y)."""

    exponent, by = 0.5, "divide"


class Exp(Op):
    """y = e ** x; dx = dy * y."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.computed("exp", x)
        self.save(y)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.computed("multiply", dys[0], self.kept(0))


class Log(Op):
    """y = natural logarithm of x; dx = dy / x."""

    def forward(self, x: Tensor) -> Tensor:
        self.save(x)
        return self.computed("log", x)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.computed("divide", dys[0], self.kept(0))


def _binary(op: type[_Arithmetic], a: Term, b: Term) -> Tensor:
    """Apply to two tensors, or to a tensor and anything NumPy makes an array of, in the tensor's dtype.

    A mask of bool beside floats counts as 1 and 0.
    """
    if isinstance(a, Tensor):
        left, right = a, operand(b, a)
    else:
        right = checked_tensor(op.__name__, b)
        left = operand(arrays.numbers("arithmetic", a), right)
    return op()(_counted(left, right), _counted(right, left))


def _counted(given: Tensor, beside: Tensor) -> Tensor:
    """A mask in the dtype of the floats beside it; all else as it is."""
    counts = isinstance(given, Tensor) and given.dtype.kind == "b" and beside.dtype.kind == "f"
    return cast(given, beside.dtype) if counts else given


def add(a: Term, b: Term) -> Tensor:
    """Returns a + b, element by element. Tensors of one dtype whose shapes broadcast together; either may be a number.

    >>> x = tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> print(autograd.add(x, tensor.as_tensor([10.0, 20.0, 30.0])))  # the same as x + ...
    [[11. 22. 33.]
     [14. 25. 36.]]
    """
    if not isinstance(a, Tensor):
        return add(checked_tensor("add", b), a)
    return shift(a, b) if isinstance(b, int | float) else _binary(Add, a, b)


def subtract(a: Term, b: Term) -> Tensor:
    """Returns a - b, element by element. Tensors of one dtype whose shapes broadcast together; either may be a number.

    >>> x = tensor.as_tensor([1.0, 2.0, 4.0])
    >>> print(autograd.subtract(x, 1.0), autograd.subtract(1.0, x))
    [0. 1. 3.] [ 0. -1. -3.]
    """
    if isinstance(b, int | float):
        return shift(a, -b)
    return _scale(b, -1.0, plain_number("subtract", a)) if isinstance(a, int | float) else _binary(Subtract, a, b)


def multiply(a: Term, b: Term) -> Tensor:
    """Returns a * b, element by element. Tensors of one dtype whose shapes broadcast together; either may be a number.

    >>> x = tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> print(autograd.multiply(x, tensor.as_tensor([[10.0], [-1.0]])))
    [[10. 20. 30.]
     [-4. -5. -6.]]
    """
    if not isinstance(a, Tensor):
        return multiply(checked_tensor("multiply", b), a)
    return scale(a, b) if isinstance(b, int | float) else _binary(Multiply, a, b)


def divide(a: Term, b: Term) -> Tensor:
    """Returns a / b, element by element. Tensors of one dtype whose shapes broadcast together; either may be a number.

    >>> x = tensor.as_tensor([1.0, 2.0, 4.0])
    >>> print(autograd.divide(x, 4.0), autograd.divide(4.0, x))
    [0.25 0.5  1.  ] [4. 2. 1.]
    """
    return _scale(a, 1.0 / plain_number("divide", b), 0.0) if isinstance(b, int | float) else _binary(Divide, a, b)


def scale(x: Tensor, alpha: float, beta: float = 0.0) -> Tensor:
    """Returns alpha * x + beta. alpha, beta: numbers, NaN and infinity too.

    >>> print(autograd.scale(tensor.as_tensor([1.0, 2.0, 4.0]), 3.0, beta=-1.0))
    [ 2.  5. 11.]
    """
    return _scale(x, plain_number("scale", alpha), plain_number("scale", beta))


def shift(x: Tensor, beta: float) -> Tensor:
    """Returns x + beta. beta: a number, NaN and infinity too.

    >>> print(autograd.shift(tensor.as_tensor([1.0, 2.0, 4.0]), -1.0))
    [0. 1. 3.]
    """
    return _scale(x, 1.0, plain_number("shift", beta))


def _scale(x: object, alpha: float, beta: float) -> Tensor:
    return Scale(alpha, beta)(checked_tensor("Scale", x))


def power(x: Tensor, exponent: float) -> Tensor:
    """Returns x ** exponent, element by element.

    >>> print(autograd.power(tensor.as_tensor([1.0, 4.0, 9.0]), 1.5))
    [ 1.  8. 27.]
    """
    return Power(plain_number("power", exponent))(x)


def exp(x: Tensor) -> Tensor:
    """Returns e ** x, element by element.

    >>> print(autograd.exp(tensor.as_tensor([0.0, 1.0, 2.0])).round(3))
    [1.    2.718 7.389]
    """
    return Exp()(x)


def log(x: Tensor) -> Tensor:
    """Returns the natural logarithm of x, element by element.

    >>> print(autograd.log(tensor.as_tensor([1.0, 2.0, 10.0])).round(3))
    [0.    0.693 2.303]
    """
    return Log()(x)


def square(x: Tensor) -> Tensor:
    """Returns x * x, element by element.

    >>> print(autograd.square(tensor.as_tensor([-1.5, 2.0])))
    [2.25 4.  ]
    """
    return Square()(x)


def sqrt(x: Tensor) -> Tensor:
    """Returns the square root of x, element by element: NaN below 0. The derivative at 0 is infinite.

    >>> print(autograd.sqrt(tensor.as_tensor([1.0, 4.0, 6.25])))
    [1.  2.  2.5]
    """
    return Sqrt()(x)


def product(value: Tensor, factor: Tensor) -> Tensor:
    """A new tensor; the factor is float64 ()."""
    device = device_of(value)
    made: Tensor = device.empty(value.shape, value.dtype, value.memory_order())
    device.run("copy", value, made)
    device.run("scale_by", factor, made)
    return made
