"""Activations and softmax. Derivatives take the output where that suffices, so that the input can die.

NaN gives NaN, and an infinite x the limit of the formula, unless a kernel says otherwise. At a kink, where y is 0
(or 6, of relu6), a derivative is what its "else" says. `tests/contract/kernel_edges.py` has the values.
"""

from __future__ import annotations

from dataclasses import replace

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel

EACH = Facts(by_samples=("x", "y"))
COMMUTES_WITH_MAX = replace(EACH, commutes_with_max=True)
BY_RESULT = Facts(by_samples=("dy", "y", "dx"))
BY_INPUT = Facts(by_samples=("dy", "x", "dx"))


@kernel(COMMUTES_WITH_MAX, y="x")
def relu(x: Read, y: Write) -> None:
    """y = max(x, 0), NaN for NaN and 0.0 for -0.0, so that what is fused gives equal bits. Equal shapes."""


@kernel(BY_RESULT, dx="dy")
def relu_derivative(dy: Read, y: Read, dx: Write) -> None:
    """dx = dy where y > 0, else 0, also where y is NaN or dy is not finite."""


@kernel(COMMUTES_WITH_MAX, y="x")
def relu6(x: Read, y: Write) -> None:
    """y = min(max(x, 0), 6), NaN for NaN and 0.0 for -0.0."""


@kernel(BY_RESULT, dx="dy")
def relu6_derivative(dy: Read, y: Read, dx: Write) -> None:
    """dx = dy where 0 < y < 6, else 0, as in `relu_derivative` also where y is NaN or dy is not finite."""


@kernel(EACH, y="x")
def leaky_relu(x: Read, y: Write, *, slope: float) -> None:
    """y = x where x > 0, else slope * x. slope > 0, so that y has the sign of x."""


@kernel(BY_RESULT, dx="dy")
def leaky_relu_derivative(dy: Read, y: Read, dx: Write, *, slope: float) -> None:
    """dx = dy where y > 0, else slope * dy."""


@kernel(EACH, y="x")
def elu(x: Read, y: Write, *, alpha: float) -> None:
    """y = x where x > 0, else alpha * (e**x - 1). alpha > 0."""


@kernel(BY_RESULT, dx="dy")
def elu_derivative(dy: Read, y: Read, dx: Write, *, alpha: float) -> None:
    """dx = dy where y > 0, else dy * (y + alpha)."""


@kernel(EACH, y="x")
def sigmoid(x: Read, y: Write) -> None:
    """y = 1 / (1 + e**-x), without overflow for any x."""


@kernel(BY_RESULT, dx="dy")
def sigmoid_derivative(dy: Read, y: Read, dx: Write) -> None:
    """dx = dy * y * (1 - y)."""


@kernel(EACH, y="x")
def tanh(x: Read, y: Write) -> None:
    """y = tanh(x)."""


@kernel(BY_RESULT, dx="dy")
def tanh_derivative(dy: Read, y: Read, dx: Write) -> None:
    """dx = dy * (1 - y**2)."""


@kernel(EACH, y="x")
def gelu(x: Read, y: Write) -> None:
    """y = x * (1 + erf(x / sqrt 2)) / 2, the exact form (Hendrycks and Gimpel, arXiv 1606.08415).

    0 for minus infinity.
    """


@kernel(BY_INPUT, dx="dy")
def gelu_derivative(dy: Read, x: Read, dx: Write) -> None:
    """dx = dy * (Phi(x) + x * phi(x)), Phi and phi of the standard normal distribution."""


@kernel(EACH, y="x")
def gelu_tanh(x: Read, y: Write) -> None:
    """y = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2, near gelu (Hendrycks and Gimpel, arXiv 1606.08415).

    0 for minus infinity.
    """


@kernel(BY_INPUT, dx="dy")
def gelu_tanh_derivative(dy: Read, x: Read, dx: Write) -> None:
    """dx = dy * s * (1 + x * (1 - s) * v'), s = sigmoid(v), v = 2 * sqrt(2 / pi) * (x + 0.044715 * x**3)."""


@kernel(EACH, y="x")
def silu(x: Read, y: Write) -> None:
    """y = x * sigmoid(x), without overflow for any x. NaN for minus infinity, which is infinity times 0."""


@kernel(BY_INPUT, dx="dy")
def silu_derivative(dy: Read, x: Read, dx: Write) -> None:
    """dx = dy * s * (1 + x * (1 - s)), s = sigmoid(x)."""


@kernel(EACH, y="x")
def softplus(x: Read, y: Write) -> None:
    """y = log(1 + e**x), without overflow for any x."""


@kernel(BY_RESULT, dx="dy")
def softplus_derivative(dy: Read, y: Read, dx: Write) -> None:
    """dx = dy * (1 - e**-y)."""


@kernel(y="x")
def softmax(x: Read, y: Write, *, axis: int) -> None:
    """y = e**x / sum of e**x along `axis`, without overflow for any x; 0 for minus infinity.

    A line whose largest x is NaN or infinite is NaN (in the oneDNN set at least one element of it), and no other line.
    """


@kernel(dx="dy")
def softmax_derivative(dy: Read, y: Read, dx: Write, *, axis: int) -> None:
    """dx = y * (dy - sum of dy * y along `axis`)."""
