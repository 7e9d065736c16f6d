"""Operators that move elements, or make arrays of shapes: over tensors, and over arrays as a step is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite import autograd
from singa_lite.common.array_types import Array
from singa_lite.layers.onnx.table import ARRAYS, TENSORS, OnnxNode, Value, both, functions_for, tensor_of, tensors_of
from singa_lite.tensor import Tensor


@both("Shape")
def _shape(node: OnnxNode, x: Value) -> Array:
    return np.array(x.shape[slice(node.get("start", 0), node.get("end"))], np.int64)


@both("Size")
def _size(node: OnnxNode, x: Value) -> Array:
    return np.array(int(np.prod(x.shape)), np.int64)


@TENSORS.enters("Flatten")
def _flatten(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.flatten(x, node.get("axis", 1) % (x.ndim + 1))


@both("Reshape")
def _reshape(node: OnnxNode, x: Value, shape: Value = None) -> Value:
    wanted, zero = node.numbers(shape, "shape") or [], bool(node.get("allowzero"))
    return functions_for(x).reshape(x, [x.shape[at] if n == 0 and not zero else n for at, n in enumerate(wanted)])


@both("Transpose")
def _transpose(node: OnnxNode, x: Value) -> Value:
    return functions_for(x).transpose(x, node.get("perm"))


@both("Unsqueeze")
def _unsqueeze(node: OnnxNode, x: Value, axes: Value = None) -> Value:
    given = node.numbers(axes, "axes") or []
    places = {axis % (x.ndim + len(given)) for axis in given}
    rest = iter(x.shape)
    return functions_for(x).reshape(x, [1 if at in places else next(rest) for at in range(x.ndim + len(given))])


@both("Squeeze")
def _squeeze(node: OnnxNode, x: Value, axes: Value = None) -> Value:
    given = node.numbers(axes, "axes")
    chosen = [at for at, n in enumerate(x.shape) if n == 1] if given is None else [axis % x.ndim for axis in given]
    if any(x.shape[axis] != 1 for axis in chosen):
        raise node.wants(f"axes of extent 1 of {x.shape}", chosen)
    return functions_for(x).reshape(x, [n for at, n in enumerate(x.shape) if at not in chosen])


@both("Concat")
def _concat(node: OnnxNode, *xs: Value) -> Value:
    like = next((x for x in xs if isinstance(x, Tensor)), None)
    return functions_for(like).concat(xs if like is None else tensors_of(xs, like), node.get("axis") % xs[0].ndim)


@both("Split")
def _split(node: OnnxNode, x: Value, sizes: Value = None) -> list[Any]:
    axis = node.get("axis", 0) % x.ndim
    given = node.numbers(sizes, "split") or [-(-x.shape[axis] // node.outputs)] * node.outputs
    return list(functions_for(x).split(x, axis, [int(one) for one in np.cumsum(given)[:-1]]))


@both("Slice")
def _slice(node: OnnxNode, x: Value, *given: Value) -> Value:
    """given: starts, ends, axes, steps, those of older versions as attributes."""
    names = ("starts", "ends", "axes", "steps")
    given = (*given, *[None] * (4 - len(given)))
    starts, ends, axes, steps = (node.numbers(one, name) or [] for name, one in zip(names, given, strict=True))
    parts = [slice(None)] * x.ndim
    axes = axes or list(range(len(starts)))
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        parts[axis] = slice(start, None if step < 0 and end < -(1 << 30) else end, step)
    return functions_for(x).index(x, tuple(parts))


@ARRAYS.enters("Gather")
def _take(node: OnnxNode, x: Array, ids: Array) -> Array:
    axis = node.get("axis", 0) % x.ndim
    node.sized((*x.shape[:axis], *ids.shape, *x.shape[axis + 1 :]), x.size)
    return np.take(x, ids, axis)


@TENSORS.enters("Gather")
def _gather(node: OnnxNode, x: Value, ids: Value) -> Tensor:
    axis = node.get("axis", 0)
    if isinstance(ids, np.ndarray):
        axis %= x.ndim
        ids = np.where(ids < 0, ids + x.shape[axis], ids)
        if ids.ndim == 0:
            return autograd.index(x, (*[slice(None)] * axis, int(ids)))
        return autograd.gather(x, tensor_of(ids, x), axis)
    table = tensor_of(x, ids)
    return autograd.embedding(ids, table) if axis == 0 and table.ndim == 2 else autograd.gather(table, ids, axis)


@both("Expand")
def _expand(node: OnnxNode, x: Value, shape: Value = None) -> Value:
    """A tensor is multiplied by ones, whose derivative is the sum over the new places."""
    wanted = np.broadcast_shapes(x.shape, tuple(node.numbers(shape, "shape") or ()))
    ones = np.broadcast_to(np.ones((), x.dtype), node.sized(wanted))
    return (
        x
        if wanted == x.shape
        else functions_for(x).multiply(x, ones if isinstance(x, np.ndarray) else tensor_of(ones, x))
    )


@TENSORS.enters("Pad")
def _pad(node: OnnxNode, x: Tensor, pads: Value = None, value: Value = None, axes: Value = None) -> Tensor:
    given = node.numbers(pads, "pads")
    number = node.get("value", 0.0) if value is None else node.known(value, "constant_value").item()
    if node.get("mode", "constant") != "constant" or number:
        raise node.wants("zeros around", f"mode {node.get('mode')}, value {number}")
    margins = [(0, 0)] * x.ndim
    chosen = node.numbers(axes, "axes") or range(x.ndim)
    for axis, *margin in zip(chosen, given[: len(chosen)], given[len(chosen) :], strict=True):
        margins[axis] = tuple(margin)
    return autograd.pad(x, margins)


@ARRAYS.enters("ConstantOfShape")
def _filled(node: OnnxNode, shape: Array) -> Array:
    value = node.get("value", np.zeros(1, np.float32))
    return np.full(node.sized(node.numbers(shape, "shape")), value.item(), value.dtype)


@ARRAYS.enters("Range")
def _range(node: OnnxNode, start: Array, limit: Array, delta: Array) -> Array:
    node.sized([max(0, int(-(-(limit - start) // delta)))])
    return np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


@ARRAYS.enters("Constant")
def _constant(node: OnnxNode) -> Array:
    name, value = next(iter(node.attributes.items()))
    if name.startswith("value_") and "string" not in name:
        return np.asarray(value, np.int64 if "int" in name else np.float32)
    if name != "value":
        raise node.wants("numbers", name)
    return np.asarray(value)
