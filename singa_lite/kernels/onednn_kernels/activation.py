"""Activations along memory, and softmax.

The library's own relu gives the bound for NaN. Here NaN stays NaN, so that one sees that a training has failed.
Softplus is left to the fallback: the library's is off by 5e-6, and wrong in all its digits below -16.
"""

from __future__ import annotations

from math import pi, sqrt

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.along import fill_line
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.sums.line import Binary, Eltwise, Line, Steps

#: Longer rows are left to the fallback: the library adds one element after the other, and of 32000 the sum is off by
#: 1e-5.
_LONGEST_ROW = 4096
#: Of 2 u = x * (a x**2 + b) of gelu_tanh.
_TWICE_U = 2 * sqrt(2 / pi) * 0.044715, 2 * sqrt(2 / pi)


def relu(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """The larger of 0 and x."""
    return fill_line(y, x, add=lambda steps, x: steps.bound(y, x, 0.0, a.MAXIMUM))


def relu_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy times 1 or 0, which gives NaN, not 0, where y is 0 and dy is infinite."""
    return fill_line(dx, dy, y, add=lambda steps, dy: steps.derivative(dx, dy, y, a.RELU_FROM_RESULT))


def relu6(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """Bounded by 0, then by 6."""
    return fill_line(y, x, add=lambda steps, x: steps.clip(y, x, 0.0, 6.0))


def relu6_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """dy times 1 or 0."""
    return fill_line(dx, dy, y, add=lambda steps, dy: steps.derivative(dx, dy, y, a.CLIP_FROM_RESULT, 0.0, 6.0))


def leaky_relu(x: TensorSpec, y: TensorSpec, *, slope: float) -> Routine | None:
    """The library's relu with a slope."""
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, a.RELU, slope))


def leaky_relu_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec, *, slope: float) -> Routine | None:
    """From y, which has the sign of x."""
    return fill_line(dx, dy, y, add=lambda steps, dy: steps.derivative(dx, dy, y, a.RELU_FROM_RESULT, slope))


def elu(x: TensorSpec, y: TensorSpec, *, alpha: float) -> Routine | None:
    """The library subtracts 1 from e**x: results are off by up to 6e-8 * alpha, which is much of small ones."""
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, a.ELU, alpha))


def elu_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec, *, alpha: float) -> Routine | None:
    """From y, the result of the activation."""
    return fill_line(dx, dy, y, add=lambda steps, dy: steps.derivative(dx, dy, y, a.ELU_FROM_RESULT, alpha))


def sigmoid(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """The library's logistic."""
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, a.LOGISTIC))


def sigmoid_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """From y, the result of the activation."""
    return fill_line(dx, dy, y, add=lambda steps, dy: steps.derivative(dx, dy, y, a.LOGISTIC_FROM_RESULT))


def tanh(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """The library's."""
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, a.TANH))


def tanh_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec) -> Routine | None:
    """From y, the result of the activation."""
    return fill_line(dx, dy, y, add=lambda steps, dy: steps.derivative(dx, dy, y, a.TANH_FROM_RESULT))


def gelu(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """The exact form, with an erf that the library makes by a polynomial: off by up to 2e-7 * |x|.

    Of infinity it is NaN with AVX-512.
    """
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, a.GELU))


def gelu_derivative(dy: TensorSpec, x: TensorSpec, dx: TensorSpec) -> Routine | None:
    """From x, the input of gelu."""
    return fill_line(dx, dy, x, add=lambda steps, dy: steps.derivative(dx, dy, x, a.GELU))


def gelu_tanh(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """y = x * sigmoid(2 u) with u = sqrt(2 / pi) * (x + 0.044715 x**3), which equals GELU by tanh. The library's own
    takes three times as long, as it looks its tanh up in a table.
    """

    def add(steps: Steps, x: BufferView) -> None:
        by_x = Binary(a.MULTIPLY, x)
        steps.chain(y, x, by_x, Eltwise(a.LINEAR, *_TWICE_U), by_x, Eltwise(a.LOGISTIC), by_x)

    return fill_line(y, x, add=add)


def gelu_tanh_derivative(dy: TensorSpec, x: TensorSpec, dx: TensorSpec) -> Routine | None:
    """From x, the input of gelu_tanh. The library's 1 + tanh cancels: off by up to 6e-7 of the largest result."""
    return fill_line(dx, dy, x, add=lambda steps, dy: steps.derivative(dx, dy, x, a.GELU_TANH))


def silu(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """The library's swish."""
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, a.SWISH, 1.0))


def silu_derivative(dy: TensorSpec, x: TensorSpec, dx: TensorSpec) -> Routine | None:
    """From x, the input of silu."""
    return fill_line(dx, dy, x, add=lambda steps, dy: steps.derivative(dx, dy, x, a.SWISH, 1.0))


def softmax(x: TensorSpec, y: TensorSpec, *, axis: int) -> Routine | None:
    """Only along the axis whose elements are neighbours in memory: the library has fast code for no other."""
    if not layouts.same_layout(y, x) or not _is_row(x, axis):
        return None
    return Line(x.size).each(lambda steps: steps.run(_softmax(x, axis), {f.SRC: x, f.DST: y}))


def softmax_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec, *, axis: int) -> Routine | None:
    """Only along such an axis."""
    if not layouts.same_layout(dx, dy, y) or not _is_row(y, axis):
        return None
    desc, operands = memory_descs.desc_of(y), {f.DST: y, f.DIFF_DST: dy, f.DIFF_SRC: dx}

    def made() -> Primitive:
        lines, forward = (desc, desc, desc), _softmax(y, axis)
        return Primitive("softmax_backward", a.SOFTMAX, *lines, axis % y.ndim, forward=forward)

    return Line(y.size).each(lambda steps: steps.run(made(), operands))


def _softmax(x: TensorSpec, axis: int) -> Primitive:
    desc = memory_descs.desc_of(x)
    return Primitive("softmax_forward", f.FORWARD_TRAINING, a.SOFTMAX, desc, desc, axis % x.ndim)


def _is_row(x: TensorSpec, axis: int) -> bool:
    return layouts.strides_of(x)[axis] == 1 and x.shape[axis] <= _LONGEST_ROW
