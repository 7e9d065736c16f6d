"""Activations, element by element, and softmax."""

from __future__ import annotations

from singa_lite.autograd.ops.op import Op
from singa_lite.autograd.ops.shape import checked_axis
from singa_lite.common.checks import finite_above_zero
from singa_lite.tensor import Tensor


class Activation(Op):
    """y = kernel(x). from_output: the derivative takes y, so x may die; else it takes x."""

    def __init__(self, kernel: str, from_output: bool = True, **settings: float) -> None:
        self.kernel, self.from_output, self.settings = kernel, from_output, settings

    def forward(self, x: Tensor) -> Tensor:
        y = self.empty_like(x)
        self.device.run(self.kernel, x, y, **self.settings)
        self.save(y if self.from_output else x)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.empty_like(dys[0])
        self.device.run(f"{self.kernel}_derivative", dys[0], self.kept(0), dx, **self.settings)
        return dx


class Softmax(Activation):
    """y = e**x / sum of e**x along an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__("softmax")
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        self.settings = {"axis": checked_axis("softmax", x, self.axis)}
        return super().forward(x)


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return Activation("relu")(x)


def relu6(x: Tensor) -> Tensor:
    """min(max(x, 0), 6)."""
    return Activation("relu6")(x)


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x where x > 0, else slope * x; slope above 0."""
    return Activation("leaky_relu", slope=finite_above_zero("leaky_relu slope", slope))(x)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (e**x - 1); alpha above 0 (Clevert, arXiv 1511.07289)."""
    return Activation("elu", alpha=finite_above_zero("elu alpha", alpha))(x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e**-x)."""
    return Activation("sigmoid")(x)


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return Activation("tanh")(x)


def gelu(x: Tensor) -> Tensor:
    """x * (1 + erf(x / sqrt 2)) / 2, the exact form (arXiv 1606.08415)."""
    return Activation("gelu", from_output=False)(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2, near gelu: GPT-2's form (arXiv 1606.08415)."""
    return Activation("gelu_tanh", from_output=False)(x)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return Activation("silu", from_output=False)(x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + e**x)."""
    return Activation("softplus")(x)


def softmax(x: Tensor, axis: int = 1) -> Tensor:
    """e**x / sum of e**x along `axis` (axis 0 is the batch)."""
    return Softmax(axis)(x)
