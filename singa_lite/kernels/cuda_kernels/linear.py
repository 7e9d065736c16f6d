"""Matrix products of our own, for machines without NVIDIA's libraries, and biases."""

from __future__ import annotations

from itertools import chain
from math import prod

import numpy as np

from singa_lite.common.strides import reshaped_strides
from singa_lite.kernels.cuda_kernels import activation as activations
from singa_lite.kernels.cuda_kernels.along import mapped_along
from singa_lite.kernels.cuda_kernels.reduction import bias_gradient
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.source import FLOATS, may_hold
from singa_lite.kernels.cuda_kernels.walk import walk
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


def matmul(a: TensorSpec, b: TensorSpec, y: TensorSpec, *, transpose_a: bool, transpose_b: bool) -> Routine | None:
    """Rows of leading axes with one plain matrix on the right are rows of one product, where they lie evenly."""
    left = _transposed(a) if transpose_a else a
    right = _transposed(b) if transpose_b else b
    result = y
    if left.ndim > 2 and right.ndim == 2:
        flat, made = _in_one(left), _in_one(y)
        if flat is not None and made is not None:
            left, result = flat, made
    return _product((a, left), (b, right), None, (y, result), _NONE)


def matmul_add(a: TensorSpec, b: TensorSpec, y: TensorSpec, *, transpose_a: bool, transpose_b: bool) -> Routine | None:
    """What y holds is added before the result is stored."""
    left, right = _transposed(a) if transpose_a else a, _transposed(b) if transpose_b else b
    return _product((a, left), (b, right), None, (y, y), _ADDED)


def linear(
    x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, y: TensorSpec, *, activation: str = ""
) -> Routine | None:
    """The bias is added, and ReLU applied, before the result is stored, other activations behind it."""
    routine = _product((x, x), (weight, weight), bias, (y, y), _RELU if activation == "relu" else _NONE)
    if routine is None or activation in ("", "relu"):
        return routine
    behind: Routine | None = getattr(activations, activation)(y, y)
    return None if behind is None else routine.then(behind)


def linear_gradient(x: TensorSpec, dy: TensorSpec, dweight: TensorSpec, dbias: TensorSpec) -> Routine | None:
    """The product, then the sums."""
    routine = matmul(x, dy, dweight, transpose_a=True, transpose_b=False)
    behind = bias_gradient(dy, dbias, axis=1)
    return None if routine is None or behind is None else routine.then(behind)


def add_bias(x: TensorSpec, bias: TensorSpec, y: TensorSpec, *, axis: int) -> Routine | None:
    """x + bias along an axis."""
    if y.dtype.name not in FLOATS or x.dtype != y.dtype or not may_hold(bias.dtype, y.dtype):
        return None
    return mapped_along(axis, FILE, "add_bias", y, x, bias, types={"S": bias.dtype})


def _transposed(spec: TensorSpec) -> TensorSpec:
    """The last two axes exchanged."""
    *lead, rows, columns = range(spec.ndim)
    axes = (*lead, columns, rows)
    return TensorSpec(tuple(spec.shape[i] for i in axes), spec.dtype, tuple(spec.strides[i] for i in axes))


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
    batch = walk(result.shape[:-2], [_batch_axes(spec) for spec in (result, left, right)])
    grid = (-(-rows // TILE), -(-columns // TILE), min(prod(result.shape[:-2]), MOST_ACROSS))
    if batch is None or max(rows, columns, depth) >= MOST or grid[1] > MOST_ACROSS:
        return None
    struct = np.zeros((), _MATRICES)
    for name, extent in zip(_EXTENTS, (rows, columns, depth, activation), strict=True):
        struct[name] = extent
    lines = _steps(left)[-2:], _steps(right)[:-3:-1], _steps(result)[-2:], (0,) if bias is None else _steps(bias)
    for name, stride in zip(_STRIDES, chain(*lines), strict=True):
        struct[name] = stride
    operands, types = (a[0], b[0], bias, y[0]), {"T": left.dtype, "S": result.dtype}
    return Routine().launch(FILE, "matrix_product", batch, struct, *operands, types=types, grid=grid)


def _steps(spec: TensorSpec) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(stride // spec.dtype.itemsize for stride in spec.strides)


def _batch_axes(spec: TensorSpec) -> TensorSpec:
    """All axes but those of the matrices."""
    return TensorSpec(spec.shape[:-2], spec.dtype, spec.strides[:-2])
