"""Activations and softmax.

Where a derivative has two branches the choice is made by arithmetic on masks: NumPy's masked copies take five
times as long as a multiplication.
"""

from __future__ import annotations

import math

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.normal_tail import FARTHEST, normal_tail
from singa_lite.kernels.numpy_kernels.ordering import keep
from singa_lite.kernels.numpy_kernels.pieces import axis_buffer, axis_shape, line_buffer, pieces
from singa_lite.kernels.numpy_kernels.scratch import Bytes, Shaped, blocks, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.temporaries import by_blocks

#: Of the form by tanh: e to the power of -(GELU_LINE * x + GELU_CUBE * x**3).
GELU_LINE = 2 * math.sqrt(2 / math.pi)
GELU_CUBE = 0.044715 * GELU_LINE


def relu(x: Array, y: Array) -> None:
    """y = max(x, 0)."""
    np.maximum(x, 0, out=y)


@by_blocks(masks=1)
def relu_derivative(dy: Array, y: Array, dx: Array, mask: Array) -> None:
    """dx = dy where y > 0, else 0."""
    np.greater(y, 0, out=mask)
    keep(dy, mask, dx)


def relu6(x: Array, y: Array) -> None:
    """y = min(max(x, 0), 6)."""
    np.minimum(np.maximum(x, 0, out=y), 6, out=y)


@by_blocks(masks=2)
def relu6_derivative(dy: Array, y: Array, dx: Array, mask: Array, below: Array) -> None:
    """dx = dy where 0 < y < 6, else 0."""
    np.greater(y, 0, out=mask)
    np.less(y, 6, out=below)
    np.logical_and(mask, below, out=mask)
    keep(dy, mask, dx)


@by_blocks(floats=1)
def leaky_relu(x: Array, y: Array, scaled: Array, *, slope: float) -> None:
    """y = x where x > 0, else slope * x: the larger of the two, or with a slope above 1 the smaller."""
    choose = np.maximum if slope <= 1 else np.minimum
    np.multiply(x, slope, out=scaled)
    choose(x, scaled, out=y)


@by_blocks(floats=1, masks=1)
def leaky_relu_derivative(dy: Array, y: Array, dx: Array, factor: Array, mask: Array, *, slope: float) -> None:
    """dx = dy where y > 0, else slope * dy."""
    factor.fill(slope)
    _one_where_positive(y, factor, mask)
    np.multiply(dy, factor, out=dx)


def _one_where_positive(y: Array, factor: Array, mask: Array) -> None:
    """factor = 1 where y > 0; elsewhere it stays. factor: finite."""
    np.greater(y, 0, out=mask)
    np.logical_not(mask, out=mask)
    np.multiply(factor, mask, out=factor)
    np.logical_not(mask, out=mask)
    np.add(factor, mask, out=factor)


@by_blocks(floats=1)
def elu(x: Array, y: Array, negative: Array, *, alpha: float) -> None:
    """y = max(x, 0) + alpha * (e**min(x, 0) - 1)."""
    np.minimum(x, 0, out=negative)
    np.expm1(negative, out=negative)
    np.multiply(negative, alpha, out=negative)
    np.maximum(x, 0, out=y)
    np.add(y, negative, out=y)


@by_blocks(floats=1, masks=1)
def elu_derivative(dy: Array, y: Array, dx: Array, factor: Array, mask: Array, *, alpha: float) -> None:
    """dx = dy where y > 0, else dy * (y + alpha)."""
    np.minimum(y, 0, out=factor)
    np.add(factor, alpha, out=factor)
    _one_where_positive(y, factor, mask)
    np.multiply(dy, factor, out=dx)


def sigmoid(x: Array, y: Array) -> None:
    """y = 1 / (1 + e**-x); where e**-x is inf, 1 / inf is the 0 that is wanted."""
    with np.errstate(over="ignore"):
        for xb, yb in blocks(x, y):
            np.negative(xb, out=yb)
            np.exp(yb, out=yb)
            np.add(yb, 1, out=yb)
            np.reciprocal(yb, out=yb)


@by_blocks(floats=1)
def sigmoid_derivative(dy: Array, y: Array, dx: Array, factor: Array) -> None:
    """dx = dy * y * (1 - y)."""
    np.subtract(1, y, out=factor)
    np.multiply(factor, y, out=factor)
    np.multiply(dy, factor, out=dx)


def tanh(x: Array, y: Array) -> None:
    """y = tanh(x)."""
    np.tanh(x, out=y)


@by_blocks(floats=1)
def tanh_derivative(dy: Array, y: Array, dx: Array, factor: Array) -> None:
    """dx = dy * (1 - y**2)."""
    np.square(y, out=factor)
    np.subtract(1, factor, out=factor)
    np.multiply(dy, factor, out=dx)


@by_blocks(floats=3)
def gelu(x: Array, y: Array, a: Array, bell: Array, tail: Array) -> None:
    """y = x * Phi(x) = max(x, 0) - |x| * Phi(-|x|): nothing cancels as 1 + erf does for negative x."""
    normal_tail(x, a, bell, tail)
    np.multiply(tail, a, out=tail)
    np.maximum(x, 0, out=y)
    np.subtract(y, tail, out=y)


@by_blocks(floats=3, masks=1)
def gelu_derivative(dy: Array, x: Array, dx: Array, a: Array, bell: Array, tail: Array, mask: Array) -> None:
    """dx = dy * (Phi(x) + x * phi(x)), by d(-x) = 1 - d(x) from t = Phi(-|x|) - |x| * phi(x)."""
    normal_tail(x, a, bell, tail)
    np.multiply(a, bell, out=a)
    np.multiply(a, 1 / math.sqrt(2 * math.pi), out=a)
    np.subtract(tail, a, out=tail)
    _times_mirrored(dy, x, tail, dx, bell, mask)


@by_blocks(floats=2)
def gelu_tanh(x: Array, y: Array, bounded: Array, s: Array) -> None:
    """y = x * s(x), as (1 + tanh(v / 2)) / 2 = sigmoid(v): nothing cancels as 1 + tanh does for negative x."""
    np.maximum(x, -FARTHEST, out=bounded)
    _gelu_power(bounded, s)
    sigmoid(s, s)
    np.multiply(bounded, s, out=y)


@by_blocks(floats=3, masks=1)
@np.errstate(over="ignore")
def gelu_tanh_derivative(dy: Array, x: Array, dx: Array, a: Array, t: Array, slope: Array, mask: Array) -> None:
    """dx = dy * d(x), by d(-x) = 1 - d(x) from t * (1 - |x| * v' * (1 - t)), t = sigmoid(-v(|x|)): nothing cancels."""
    np.abs(x, out=a)
    np.minimum(a, FARTHEST, out=a)
    _gelu_power(a, t)
    np.exp(t, out=t)
    np.add(t, 1, out=t)
    np.reciprocal(t, out=t)
    np.square(a, out=slope)
    np.multiply(slope, 3 * GELU_CUBE, out=slope)
    np.add(slope, GELU_LINE, out=slope)
    np.multiply(slope, a, out=slope)
    np.subtract(1, t, out=a)
    np.multiply(slope, a, out=slope)
    np.subtract(1, slope, out=slope)
    np.multiply(t, slope, out=t)
    _times_mirrored(dy, x, t, dx, slope, mask)


def _gelu_power(x: Array, v: Array) -> None:
    """v = GELU_LINE * x + GELU_CUBE * x**3."""
    np.square(x, out=v)
    np.multiply(v, GELU_CUBE, out=v)
    np.add(v, GELU_LINE, out=v)
    np.multiply(v, x, out=v)


def _times_mirrored(dy: Array, x: Array, tail: Array, dx: Array, sign: Array, mask: Array) -> None:
    """dx = dy * tail where x < 0, else dy * (1 - tail). tail, sign and mask are used up."""
    np.less(x, 0, out=mask)
    np.copyto(sign, mask)
    np.multiply(sign, 2, out=sign)
    np.subtract(sign, 1, out=sign)
    np.multiply(tail, sign, out=tail)
    np.logical_not(mask, out=mask)
    np.add(tail, mask, out=tail)
    np.multiply(dy, tail, out=dx)


@by_blocks(floats=1)
@np.errstate(over="ignore")
def silu(x: Array, y: Array, below: Array) -> None:
    """y = x / (1 + e**-x); where e**-x is inf, x / inf is the 0 that is wanted."""
    np.negative(x, out=below)
    np.exp(below, out=below)
    np.add(below, 1, out=below)
    np.divide(x, below, out=y)


@by_blocks(floats=2)
def silu_derivative(dy: Array, x: Array, dx: Array, s: Array, factor: Array) -> None:
    """dx = dy * s * (1 + x * (1 - s)), s = sigmoid(x)."""
    sigmoid(x, s)
    np.subtract(1, s, out=factor)
    np.multiply(factor, x, out=factor)
    np.add(factor, 1, out=factor)
    np.multiply(factor, s, out=factor)
    np.multiply(dy, factor, out=dx)


@by_blocks(floats=1)
def softplus(x: Array, y: Array, rest: Array) -> None:
    """y = max(x, 0) + log(1 + e**-|x|)."""
    log_one_plus_exp(x, rest)
    np.maximum(x, 0, out=y)
    np.add(y, rest, out=y)


def log_one_plus_exp(x: Array, y: Array) -> None:
    """y = log(1 + e**-|x|), which cannot overflow."""
    np.abs(x, out=y)
    np.negative(y, out=y)
    np.exp(y, out=y)
    np.log1p(y, out=y)


@by_blocks(floats=1)
def softplus_derivative(dy: Array, y: Array, dx: Array, factor: Array) -> None:
    """dx = dy * (1 - e**-y)."""
    np.negative(y, out=factor)
    np.expm1(factor, out=factor)
    np.negative(factor, out=factor)
    np.multiply(dy, factor, out=dx)


def _softmax_rule(x: Shaped, y: Shaped, *, axis: int) -> int:
    """Scratch of `softmax`."""
    return bytes_for(axis_buffer(x, axis))


def _softmax_derivative_rule(dy: Shaped, y: Shaped, dx: Shaped, *, axis: int) -> int:
    """Scratch of `softmax_derivative`."""
    return bytes_for(axis_buffer(dy, axis), line_buffer(dy, axis))


@scratch(_softmax_rule)
def softmax(x: Array, y: Array, *, axis: int, scratch: Bytes) -> None:
    """y = e**(x - top) / its sum, top the largest along `axis`."""
    axis %= x.ndim
    (numbers,) = carve(scratch, axis_buffer(x, axis))
    for xb, yb in pieces(x, y, whole=(axis,)):
        number = shaped(numbers, axis_shape(xb.shape, axis))
        subtract_top(xb, yb, axis, number)
        normalize_exp(yb, axis, number)


def subtract_top(x: Array, y: Array, axis: int, top: Array) -> None:
    """y = x - top, top = the largest of x along `axis`, so that no power of e overflows."""
    np.maximum.reduce(x, axis=axis, keepdims=True, out=top)
    np.subtract(x, top, out=y)


def normalize_exp(y: Array, axis: int, sums: Array) -> None:
    """y = e**y / sums, sums = the sums of e**y along `axis`."""
    np.exp(y, out=y)
    np.add.reduce(y, axis=axis, keepdims=True, out=sums)
    np.divide(y, sums, out=y)


@scratch(_softmax_derivative_rule)
def softmax_derivative(dy: Array, y: Array, dx: Array, *, axis: int, scratch: Bytes) -> None:
    """dx = y * (dy - sum of dy * y along `axis`)."""
    axis %= dy.ndim
    numbers, products = carve(scratch, axis_buffer(dy, axis), line_buffer(dy, axis))
    for dyb, yb, dxb in pieces(dy, y, dx, whole=(axis,)):
        number, product = shaped(numbers, axis_shape(yb.shape, axis)), shaped(products, yb.shape)
        np.multiply(dyb, yb, out=product)
        np.add.reduce(product, axis=axis, keepdims=True, out=number)
        np.subtract(dyb, number, out=dxb)
        np.multiply(dxb, yb, out=dxb)
