"""Element by element, with NumPy's broadcasting rule. NaN and infinities as in IEEE 754, without a warning."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel

# Where nothing is broadcast; else pieces of a batch may want all of an operand.
EACH = Facts(by_samples=("x", "y"))
OF_TWO = Facts(by_samples=("a", "b", "y"))


@kernel(EACH, y="x")
def copy(x: Read, y: Write) -> None:
    """y = x. x: broadcasts to the shape of y, converted to y's dtype. x and y may have any strides."""


@kernel()
def fill(y: Write, *, value: float) -> None:
    """y = value everywhere."""


@kernel(Facts(activated="add_activation", by_samples=("a", "b", "y")), y="a b")
def add(a: Read, b: Read, y: Write) -> None:
    """y = a + b. a, b: broadcast to the shape of y."""


@kernel(OF_TWO, y="a b")
def add_activation(a: Read, b: Read, y: Write, *, activation: str) -> None:
    """y = activation(a + b), what `passes/fuse.py` puts in the place of the two. activation: as in `fused.py`.

    To the bit what the two give; where b is minus infinity and a is not NaN, a set may give NaN instead.
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
