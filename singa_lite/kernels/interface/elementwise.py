"""Element by element, with NumPy's broadcasting rule. NaN and infinities as in IEEE 754, without a warning."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel

# Where nothing is broadcast; else pieces of a batch may want all of an operand.
EACH = Facts(by_samples=("x", "y"))
OF_TWO = Facts(by_samples=("a", "b", "y"))
OF_DERIVATIVE = Facts(by_samples=("dy", "x", "dx"))


@kernel(EACH, y="x")
def copy(x: Read, y: Write) -> None:
    """y = x. x: broadcasts to the shape of y, converted to y's dtype. x and y may have any strides."""


@kernel()
def fill(y: Write, *, value: float) -> None:
    """y = value everywhere."""


@kernel(OF_TWO, y="a b")
def add(a: Read, b: Read, y: Write, *, activation: str = "") -> None:
    """y = activation(a + b). a, b: broadcast to the shape of y. activation: one without settings, such as "relu".

    To the bit what the two give; where b is minus infinity and a is not NaN, an activation may give NaN instead.
    """


@kernel(OF_TWO, y="a b")
def subtract(a: Read, b: Read, y: Write) -> None:
    """y = a - b. a, b: broadcast to the shape of y."""


@kernel(OF_TWO, y="a b")
def multiply(a: Read, b: Read, y: Write) -> None:
    """y = a * b. a, b: broadcast to the shape of y."""


@kernel(OF_TWO, y="a b")
def divide(a: Read, b: Read, y: Write) -> None:
    """y = a / b. a, b: broadcast to the shape of y."""


@kernel(EACH, y="x")
def scale(x: Read, y: Write, *, alpha: float, beta: float) -> None:
    """y = alpha * x + beta. x: broadcasts to the shape of y."""


@kernel(EACH, y="x")
def power(x: Read, y: Write, *, exponent: float) -> None:
    """y = x ** exponent. Equal shapes."""


@kernel(EACH, y="x")
def exp(x: Read, y: Write) -> None:
    """y = e ** x. Equal shapes."""


@kernel(EACH, y="x")
def log(x: Read, y: Write) -> None:
    """y = natural logarithm of x. Equal shapes."""


@kernel(EACH)
def differs(x: Read, y: Write, *, value: int) -> None:
    """y = 1 where x is not `value`, else 0. x: integers of any dtype; y: of any float dtype. Equal shapes."""


@kernel(EACH, y="x")
def absolute(x: Read, y: Write) -> None:
    """y = x without its sign. Equal shapes."""


@kernel(OF_DERIVATIVE, dx="dy x")
def absolute_derivative(dy: Read, x: Read, dx: Write) -> None:
    """dx = dy times the sign of x, which is 0 at 0 and of NaN. Equal shapes."""


@kernel(EACH, y="x")
def clip(x: Read, y: Write, *, low: float, high: float) -> None:
    """y = min(max(x, low), high), NaN where x is NaN. low <= high, either may be infinite. Equal shapes."""


@kernel(OF_DERIVATIVE, dx="dy x")
def clip_derivative(dy: Read, x: Read, dx: Write, *, low: float, high: float) -> None:
    """dx = dy where low <= x <= high, the bounds with it, else 0, also where x is NaN. Equal shapes."""


@kernel(OF_TWO, y="a b")
def maximum(a: Read, b: Read, y: Write) -> None:
    """y = the larger of a and b, NaN where either is. a, b: broadcast to the shape of y."""


@kernel(OF_TWO, y="a b")
def minimum(a: Read, b: Read, y: Write) -> None:
    """y = the smaller of a and b, NaN where either is. a, b: broadcast to the shape of y."""


@kernel(Facts(by_samples=("dy", "a", "b", "da")), da="dy a b")
def maximum_derivative(dy: Read, a: Read, b: Read, da: Write) -> None:
    """da = 0 where a < b, dy / 2 where a = b, else dy: the derivative of maximum(a, b) by a.

    That of minimum(b, a) by b is the same. a, b: broadcast to the shape of dy and da.
    """


@kernel(OF_TWO)
def compare(a: Read, b: Read, y: Write, *, relation: str) -> None:
    """y = whether a stands in the relation to b: 1 or 0, or of bool. a, b: broadcast to the shape of y.

    relation: "equal", "not_equal", "less" or "less_equal". NaN is not equal to anything, itself included.
    """


@kernel(Facts(by_samples=("condition", "a", "b", "y")), y="a b")
def where(condition: Read, a: Read, b: Read, y: Write) -> None:
    """y = a where the condition holds, else b. condition: of bool; all three broadcast to the shape of y."""


@kernel()
def flip(x: Read, y: Write, *, axes: tuple[int, ...]) -> None:
    """y = x with the order of its elements reversed along `axes`. Equal shapes and dtypes."""
