"""Matrix products of our own, for machines without NVIDIA's libraries, and biases."""

from __future__ import annotations

from itertools import chain
from math import prod

import numpy as np

from singa_lite.common.strides import reshaped_strides
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import activated, mapped_along
from singa_lite.kernels.cuda_kernels.reduction import column_sums
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.source import FLOATS, may_hold
from singa_lite.kernels.cuda_kernels.walk import axis_spec, steps, walk
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "linear.cu"
#: Rows and columns of a block's tile, as in linear.cu.
TILE = 64
#: Most blocks along the second and third axis of a grid.
MOST_ACROSS = 65535
MOST = 1 << 31
#: `Activation` of linear.cu.
_NONE, _RELU, _ADDED = range(3)

_EXTENTS = ("rows", "columns", "depth", "activation")
_STRIDES = ("a_row", "a_depth", "b_column", "b_depth", "y_row", "y_column", "bias")
_MATRICES = np.dtype([*((name, "u4") for name in _EXTENTS), *((name, "i8") for name in _STRIDES)])


def _matmul(call: Call) -> Routine | None:
    """Rows of leading axes with one plain matrix on the right are rows of one product, where they lie evenly."""
    a, b, y = call.all("a", "b", "y")
    left = _transposed(a) if call.settings["transpose_a"] else a
    right = _transposed(b) if call.settings["transpose_b"] else b
    if call.kernel == "matmul_add":  # what y holds is added before the result is stored
        return _product((a, left), (b, right), None, (y, y), _ADDED)
    result = y
    if left.ndim > 2 and right.ndim == 2:
        flat, made = _in_one(left), _in_one(y)
        if flat is not None and made is not None:
            left, result = flat, made
    return _product((a, left), (b, right), None, (y, result), _NONE)


def _linear(call: Call) -> Routine | None:
    """The bias is added, and ReLU applied, before the result is stored, other activations behind it."""
    x, weight, y = call.all("x", "weight", "y")
    activation = call.text("activation")
    inside = _RELU if activation == "relu" else _NONE
    routine = _product((x, x), (weight, weight), call.optional("bias"), (y, y), inside)
    if routine is None or activation in ("", "relu"):
        return routine
    behind = activated(activation, y)
    return None if behind is None else routine.then(behind)


def _linear_gradient(call: Call) -> Routine | None:
    """The product, then the sums."""
    x, dy, dweight, dbias = call.all("x", "dy", "dweight", "dbias")
    routine = _product((x, _transposed(x)), (dy, dy), None, (dweight, dweight), _NONE)
    behind = column_sums(dy, dbias)
    return None if routine is None or behind is None else routine.then(behind)


def _add_bias(call: Call) -> Routine | None:
    """x + bias along an axis."""
    x, bias, y = call.all("x", "bias", "y")
    if y.dtype.name not in FLOATS or x.dtype != y.dtype or not may_hold(bias.dtype, y.dtype):
        return None
    return mapped_along(int(call.number("axis")), FILE, "add_bias", y, x, bias, types={"S": bias.dtype})


def _transposed(spec: TensorSpec) -> TensorSpec:
    """The last two axes exchanged."""
    *lead, rows, columns = range(spec.ndim)
    return axis_spec((*lead, columns, rows), spec)


def _in_one(spec: TensorSpec) -> TensorSpec | None:
    """All rows of all matrices as those of one, if they lie evenly."""
    shape = (prod(spec.shape[:-1]), spec.shape[-1])
    strides = reshaped_strides(spec.shape, spec.strides, shape)
    return None if strides is None else TensorSpec(shape, spec.dtype, strides)


def _product(
    a: tuple[TensorSpec, TensorSpec],
    b: tuple[TensorSpec, TensorSpec],
    bias: TensorSpec | None,
    y: tuple[TensorSpec, TensorSpec],
    activation: int,
) -> Routine | None:
    """Factors and result: tensors, each with the spec to read it by."""
    left, right, result = a[1], b[1], y[1]
    if left.dtype.name not in FLOATS or right.dtype != left.dtype or not may_hold(result.dtype, left.dtype):
        return None
    if bias is not None and bias.dtype != result.dtype:
        return None
    (rows, columns), depth = result.shape[-2:], left.shape[-1]
    batch = walk(result.shape[:-2], [axis_spec(range(spec.ndim - 2), spec) for spec in (result, left, right)])
    grid = (-(-rows // TILE), -(-columns // TILE), min(prod(result.shape[:-2]), MOST_ACROSS))
    if batch is None or max(rows, columns, depth) >= MOST or grid[1] > MOST_ACROSS:
        return None
    struct = np.zeros((), _MATRICES)
    for name, extent in zip(_EXTENTS, (rows, columns, depth, activation), strict=True):
        struct[name] = extent
    lines = steps(left)[-2:], steps(right)[:-3:-1], steps(result)[-2:], (0,) if bias is None else steps(bias)
    for name, stride in zip(_STRIDES, chain(*lines), strict=True):
        struct[name] = stride
    operands, types = (a[0], b[0], bias, y[0]), {"T": left.dtype, "S": result.dtype}
    return Routine().launch(FILE, "matrix_product", batch, struct, *operands, types=types, grid=grid)


KERNELS: dict[str, CallBuilder[Routine]] = {
    "matmul": _matmul,
    "matmul_add": _matmul,
    "linear": _linear,
    "linear_gradient": _linear_gradient,
    "add_bias": _add_bias,
}
