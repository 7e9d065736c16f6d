"""Arithmetic, element by element, with NumPy's broadcasting rule: add to divide, powers, exp, log."""

from __future__ import annotations

from singa_lite.autograd.ops.activation import Activation
from singa_lite.autograd.ops.broadcasting import Broadcasting, Term, both, cast, plain_number
from singa_lite.autograd.ops.op import LinearOp, Op, checked_tensor
from singa_lite.common import arrays
from singa_lite.device import device_of
from singa_lite.tensor import Tensor


class Add(Broadcasting):
    """y = a + b."""

    kernel, signs = "add", (1.0, 1.0)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.summed(dys[0], index, alpha=self.signs[index])


class Subtract(Add):
    """y = a - b."""

    kernel, signs = "subtract", (1.0, -1.0)


class Multiply(Broadcasting):
    """y = a * b."""

    kernel = "multiply"

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        self.save(a if self.needs[1] else None, b if self.needs[0] else None)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self.summed(self.computed("multiply", dys[0], self.kept(1 - index)), index)


class Divide(Broadcasting):
    """y = a / b."""

    kernel = "divide"

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        self.save(b, y if self.needs[1] else None)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        quotient = self.computed("divide", dys[0], self.kept(0))
        if index == 0:
            return self.summed(quotient, 0)
        return self.summed(self.computed("multiply", quotient, self.kept(1)), 1, alpha=-1.0)


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


class Elementary(Activation):
    """y = kernel(x), with dx = dy * s or dy / s. s is x or y, or twice that.

    by: "multiply" or "divide"; is_doubled: whether s is twice what is kept.
    """

    def __init__(self, kernel: str, by: str, from_output: bool, is_doubled: bool = False, **settings: float) -> None:
        super().__init__(kernel, from_output, **settings)
        self.by, self.is_doubled = by, is_doubled

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if not self.is_doubled:
            return self.computed(self.by, dys[0], self.kept(0))
        dx = self.computed("scale", self.kept(0), alpha=2.0, beta=0.0)
        self.device.run(self.by, dys[0], dx, dx)
        return dx


def _binary(op: type[Broadcasting], a: Term, b: Term) -> Tensor:
    """Apply to two tensors, or to a tensor and anything NumPy makes an array of, in the tensor's dtype.

    A mask of bool beside floats counts as 1 and 0.
    """
    left, right = both(op.__name__, a if isinstance(a, Tensor) else arrays.numbers("arithmetic", a), b)
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
    return LinearOp("scale", {"beta": 0.0}, alpha=alpha, beta=beta)(checked_tensor("Scale", x))


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
    return Elementary("exp", "multiply", from_output=True)(x)


def log(x: Tensor) -> Tensor:
    """Returns the natural logarithm of x, element by element.

    >>> print(autograd.log(tensor.as_tensor([1.0, 2.0, 10.0])).round(3))
    [0.    0.693 2.303]
    """
    return Elementary("log", "divide", from_output=False)(x)


def square(x: Tensor) -> Tensor:
    """Returns x * x, element by element.

    >>> print(autograd.square(tensor.as_tensor([-1.5, 2.0])))
    [2.25 4.  ]
    """
    return Elementary("power", "multiply", from_output=False, is_doubled=True, exponent=2.0)(
        checked_tensor("square", x)
    )


def sqrt(x: Tensor) -> Tensor:
    """Returns the square root of x, element by element: NaN below 0. The derivative at 0 is infinite.

    >>> print(autograd.sqrt(tensor.as_tensor([1.0, 4.0, 6.25])))
    [1.  2.  2.5]
    """
    return Elementary("power", "divide", from_output=True, is_doubled=True, exponent=0.5)(checked_tensor("sqrt", x))


def product(value: Tensor, factor: Tensor) -> Tensor:
    """A new tensor; the factor is float64 ()."""
    device = device_of(value)
    made: Tensor = device.empty(value.shape, value.dtype, value.memory_order())
    device.run("copy", value, made)
    device.run("scale_by", factor, made)
    return made
