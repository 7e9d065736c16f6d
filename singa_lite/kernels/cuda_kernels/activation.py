"""Activations and their derivatives, element by element."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.elementwise import mapped
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import TensorSpec


def _float(kernel: str, y: TensorSpec, *reads: TensorSpec, values: tuple[float, ...] = ()) -> Routine | None:
    """The kernel for floats. values: its settings."""
    settings = tuple(map(np.float64, values))
    return mapped("activation.cu", kernel, y, *reads, values=settings) if y.dtype.name in FLOATS else None


def relu(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """x where x > 0, else 0."""
    return _float("relu", y, x)


def relu_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy where y > 0, else 0."""
    return _float("relu_derivative", dx, dy, y)


def relu6(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """Between 0 and 6."""
    return _float("relu6", y, x)


def relu6_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy where 0 < y < 6, else 0."""
    return _float("relu6_derivative", dx, dy, y)


def leaky_relu(x: TensorSpec, y: TensorSpec, *, slope: float) -> Routine | None:
    """x where x > 0, else slope * x."""
    return _float("leaky_relu", y, x, values=(slope,))


def leaky_relu_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec, *, slope: float) -> Routine | None:
    """dy where y > 0, else slope * dy."""
    return _float("leaky_relu_derivative", dx, dy, y, values=(slope,))


def elu(x: TensorSpec, y: TensorSpec, *, alpha: float) -> Routine | None:
    """x where x > 0, else alpha * (e**x - 1)."""
    return _float("elu", y, x, values=(alpha,))


def elu_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec, *, alpha: float) -> Routine | None:
    """dy where y > 0, else dy * (y + alpha)."""
    return _float("elu_derivative", dx, dy, y, values=(alpha,))


def sigmoid(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """1 / (1 + e**-x)."""
    return _float("sigmoid", y, x)


def sigmoid_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy * y * (1 - y)."""
    return _float("sigmoid_derivative", dx, dy, y)


def tanh(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """The kernel has another name than C's function."""
    return _float("hyperbolic_tangent", y, x)


def tanh_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy * (1 - y**2)."""
    return _float("tanh_derivative", dx, dy, y)


def gelu(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """x * Phi(x), the exact form."""
    return _float("gelu", y, x)


def gelu_derivative(dy: TensorSpec, x: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy * (Phi(x) + x * phi(x))."""
    return _float("gelu_derivative", dx, dy, x)


def gelu_tanh(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """x * sigmoid(v), the form by tanh."""
    return _float("gelu_tanh", y, x)


def gelu_tanh_derivative(dy: TensorSpec, x: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy * s * (1 + x * (1 - s) * v')."""
    return _float("gelu_tanh_derivative", dx, dy, x)


def silu(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """x / (1 + e**-x)."""
    return _float("silu", y, x)


def silu_derivative(dy: TensorSpec, x: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy * s * (1 + x * (1 - s)), s = sigmoid(x)."""
    return _float("silu_derivative", dx, dy, x)


def softplus(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """max(x, 0) + log(1 + e**-|x|)."""
    return _float("softplus", y, x)


def softplus_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy * (1 - e**-y)."""
    return _float("softplus_derivative", dx, dy, y)
