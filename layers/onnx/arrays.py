"""Operators on arrays: constants, and computations of shapes, which are done as a step is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.layers.onnx.table import OnnxNode, Table

ARRAYS = Table()
#: The most elements of an array that a node makes of less.
MOST = 1 << 24

#: NumPy's dtypes by the numbers that ONNX gives them.
DTYPES = {
    **{1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool"},
    **{10: "float16", 11: "float64", 12: "uint32", 13: "uint64"},
}

_FUNCTIONS: dict[str, Any] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Pow": np.power, "Neg": np.negative, "Abs": np.abs},
    **{"Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal, "Where": np.where},
    **{"GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or, "Not": np.logical_not},
    **{"Sqrt": np.sqrt, "Exp": np.exp, "Log": np.log, "Floor": np.floor, "Ceil": np.ceil, "Identity": np.array},
    **{"Reciprocal": np.reciprocal, "Max": np.maximum, "Min": np.minimum, "Mod": np.mod},
}


def checked_size(node: OnnxNode, shape: Sequence[int], held: int = 0) -> Sequence[int]:
    """The shape. SnapshotError for one of more elements than a node may make. held: elements that were there before."""
    if min(shape, default=0) < 0 or prod(shape) > max(MOST, held):
        raise node.wants(f"at most {MOST} elements", shape)
    return shape


def _by_element(function: Any, node: OnnxNode, *arrays: Array) -> Any:
    """What a function of NumPy makes of arrays whose common shape is not too large."""
    checked_size(node, np.broadcast_shapes(*(array.shape for array in arrays)), sum(array.size for array in arrays))
    return function(*arrays)


ARRAYS.update({name: partial(_by_element, function) for name, function in _FUNCTIONS.items()})


@ARRAYS.computes("Div")
def _div(node: OnnxNode, a: Array, b: Array) -> Array:
    """Of integers, towards zero."""
    checked_size(node, np.broadcast_shapes(a.shape, b.shape), a.size + b.size)
    return np.trunc(np.divide(a, b)).astype(a.dtype) if a.dtype.kind in "iu" else np.divide(a, b)


@ARRAYS.computes("Cast")
def _cast(node: OnnxNode, x: Array) -> Array:
    return x.astype(dtype_of(node))


def dtype_of(node: OnnxNode) -> np.dtype[Any]:
    """What a Cast makes."""
    if node.get("to") not in DTYPES:
        raise node.wants(f"one of the data types {sorted(DTYPES)}", node.get("to"))
    return np.dtype(DTYPES[node.get("to")])


@ARRAYS.computes("Gather")
def _gather(node: OnnxNode, x: Array, ids: Array) -> Array:
    axis = node.get("axis", 0) % x.ndim
    checked_size(node, (*x.shape[:axis], *ids.shape, *x.shape[axis + 1 :]), x.size)
    return np.take(x, ids, axis)


@ARRAYS.computes("Concat")
def _concat(node: OnnxNode, *xs: Array) -> Array:
    return np.concatenate(xs, node.get("axis"))


@ARRAYS.computes("Unsqueeze")
def _unsqueeze(node: OnnxNode, x: Array, axes: Array | None = None) -> Array:
    return np.expand_dims(x, tuple(node.axes(axes) or ()))


@ARRAYS.computes("Squeeze")
def _squeeze(node: OnnxNode, x: Array, axes: Array | None = None) -> Array:
    given = node.axes(axes)
    return np.squeeze(x, None if given is None else tuple(given))


@ARRAYS.computes("Reshape")
def _reshape(node: OnnxNode, x: Array, shape: Array) -> Array:
    wanted = node.numbers(shape, "a shape")
    return x.reshape([x.shape[place] if n == 0 else n for place, n in enumerate(wanted)])


@ARRAYS.computes("Transpose")
def _transpose(node: OnnxNode, x: Array) -> Array:
    return np.transpose(x, node.get("perm"))


def slices_of(node: OnnxNode, ndim: int, *given: Any) -> tuple[slice, ...]:
    """What Slice takes along each axis. given: starts, ends, axes, steps, those of older versions as attributes."""
    names = ("starts", "ends", "axes", "steps")
    found = [node.get(name) if one is None else node.numbers(one, name) for name, one in zip(names, given, strict=True)]
    starts, ends, axes, steps = found
    parts = [slice(None)] * ndim
    for place, axis in enumerate(axes or range(len(starts))):
        step = steps[place] if steps else 1
        end = ends[place]
        parts[axis] = slice(starts[place], None if step < 0 and end < -(1 << 30) else end, step)
    return tuple(parts)


@ARRAYS.computes("Slice")
def _slice(
    node: OnnxNode, x: Array, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Array:
    return x[slices_of(node, x.ndim, starts, ends, axes, steps)]


def points_of(node: OnnxNode, extent: int, given: Any) -> list[int]:
    """Where Split cuts."""
    sizes = node.get("split") if given is None else node.numbers(given, "lengths")
    if sizes is None:
        each = -(-extent // node.outputs)
        sizes = [each] * node.outputs
    return [int(one) for one in np.cumsum(sizes)[:-1]]


@ARRAYS.computes("Split")
def _split(node: OnnxNode, x: Array, sizes: Any = None) -> list[Array]:
    axis = node.get("axis", 0)
    return np.split(x, points_of(node, x.shape[axis], sizes), axis)


@ARRAYS.computes("ReduceProd")
def _product(node: OnnxNode, x: Array, axes: Any = None) -> Array:
    given = node.axes(axes)
    made: Array = np.prod(
        x, None if given is None else tuple(given), keepdims=bool(node.get("keepdims", 1)), dtype=x.dtype
    )
    return made


@ARRAYS.computes("ConstantOfShape")
def _filled(node: OnnxNode, shape: Array) -> Array:
    value = node.get("value", np.zeros(1, np.float32))
    return np.full(checked_size(node, node.numbers(shape, "a shape")), value.reshape(-1)[0], value.dtype)


@ARRAYS.computes("Expand")
def _expand(node: OnnxNode, x: Array, shape: Array) -> Array:
    wanted = np.broadcast_shapes(x.shape, tuple(node.numbers(shape, "a shape")))
    return np.broadcast_to(x, checked_size(node, wanted))


@ARRAYS.computes("Range")
def _range(node: OnnxNode, start: Array, limit: Array, delta: Array) -> Array:
    checked_size(node, [max(0, int(-(-(limit - start) // delta)))])
    made: Array = np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)
    return made


@ARRAYS.computes("Constant")
def _constant(node: OnnxNode) -> Array:
    name, value = next(iter(node.attributes.items()))
    if name.startswith("value_") and "string" not in name:
        return np.asarray(value, np.int64 if "int" in name else np.float32)
    if name != "value":
        raise node.wants("numbers", name)
    return np.asarray(value)
