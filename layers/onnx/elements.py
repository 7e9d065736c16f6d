"""Operators by elements, reductions, and those that move elements, over operations of `autograd`."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from singa_lite import autograd
from singa_lite.layers.onnx.arrays import checked_size, dtype_of, points_of, slices_of
from singa_lite.layers.onnx.table import OnnxNode, Table, Value, tensor_of
from singa_lite.tensor import Tensor

ELEMENTS = Table()

_UNARY = {
    **{"Relu": autograd.relu, "Sigmoid": autograd.sigmoid, "Tanh": autograd.tanh, "Softplus": autograd.softplus},
    **{"Exp": autograd.exp, "Log": autograd.log, "Sqrt": autograd.sqrt, "Abs": autograd.abs},
    **{"Identity": autograd.identity, "Neg": lambda x: autograd.scale(x, -1.0)},
    **{"Reciprocal": lambda x: autograd.power(x, -1.0), "Dropout": autograd.identity},
}
for _name, _function in _UNARY.items():
    ELEMENTS[_name] = lambda node, x, *_, function=_function: function(x)

_BINARY = {
    **{"Add": autograd.add, "Sub": autograd.subtract, "Mul": autograd.multiply, "Div": autograd.divide},
    **{"Equal": autograd.equal, "Less": autograd.less, "LessOrEqual": autograd.less_equal},
    **{"Greater": autograd.greater, "GreaterOrEqual": autograd.greater_equal},
    **{"And": autograd.multiply, "Or": autograd.maximum},
}
for _name, _binary in _BINARY.items():
    ELEMENTS[_name] = lambda node, a, b, function=_binary: function(_term(a, b), _term(b, a))


def _term(given: Value, other: Value) -> Value:
    """An array of one number as a number, if the other's shape is that of the result."""
    is_one = isinstance(given, np.ndarray) and given.size == 1 and given.ndim <= other.ndim
    return given.reshape(()).item() if is_one else given


@ELEMENTS.computes("Max", "Min")
def _extreme(node: OnnxNode, x: Value, *others: Value) -> Value:
    function = autograd.maximum if node.operator == "Max" else autograd.minimum
    for other in others:
        x = function(_term(x, other), _term(other, x))
    return x


@ELEMENTS.computes("Sum")
def _sum(node: OnnxNode, x: Value, *others: Value) -> Value:
    for other in others:
        x = autograd.add(_term(x, other), _term(other, x))
    return x


@ELEMENTS.computes("Not")
def _not(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.equal(x, False)


@ELEMENTS.computes("Pow")
def _pow(node: OnnxNode, x: Tensor, exponent: Value) -> Tensor:
    if not isinstance(exponent, np.ndarray) or exponent.size != 1:
        raise node.wants("one constant exponent", "others")
    number = float(exponent.reshape(()).item())
    return autograd.square(x) if number == 2 else autograd.power(x, number)


@ELEMENTS.computes("Erf")
def _erf(node: OnnxNode, z: Tensor) -> Tensor:
    """erf(z) = 2 * gelu(u) / u - 1 with u = sqrt(2) z; near 0, where that is 0 / 0, the first terms of its series."""
    u = autograd.scale(z, sqrt(2.0))
    is_small = autograd.less(autograd.abs(u), 0.05)
    divisor = autograd.where(is_small, 1.0, u)
    series = autograd.multiply(autograd.scale(z, 2 / sqrt(pi)), autograd.scale(autograd.square(z), -1 / 3, 1.0))
    return autograd.where(is_small, series, autograd.scale(autograd.divide(autograd.gelu(u), divisor), 2.0, -1.0))


@ELEMENTS.computes("Gelu")
def _gelu(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.gelu_tanh(x) if node.get("approximate") == "tanh" else autograd.gelu(x)


@ELEMENTS.computes("LeakyRelu")
def _leaky_relu(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.leaky_relu(x, node.get("alpha", 0.01))


@ELEMENTS.computes("Elu")
def _elu(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.elu(x, node.get("alpha", 1.0))


@ELEMENTS.computes("PRelu")
def _prelu(node: OnnxNode, x: Tensor, slope: Value) -> Tensor:
    """max(x, 0) + slope * min(x, 0)."""
    return autograd.add(autograd.relu(x), autograd.multiply(autograd.clip(x, high=0.0), slope))


@ELEMENTS.computes("HardSigmoid")
def _hard_sigmoid(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.clip(autograd.scale(x, node.get("alpha", 0.2), node.get("beta", 0.5)), 0.0, 1.0)


@ELEMENTS.computes("HardSwish")
def _hard_swish(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.multiply(x, autograd.clip(autograd.scale(x, 1 / 6, 0.5), 0.0, 1.0))


@ELEMENTS.computes("Clip")
def _clip(node: OnnxNode, x: Tensor, low: Value = None, high: Value = None) -> Tensor:
    given = [node.get(name) if one is None else one.reshape(()).item() for name, one in (("min", low), ("max", high))]
    return x if given == [None, None] else autograd.clip(x, *given)


@ELEMENTS.computes("Where")
def _choose(node: OnnxNode, condition: Value, a: Value, b: Value) -> Tensor:
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a = tensor_of(a, condition)
    return autograd.where(condition, _term(a, b), _term(b, a))


@ELEMENTS.computes("Cast")
def _cast(node: OnnxNode, x: Tensor) -> Tensor:
    """Integers stay as they are among themselves."""
    wanted = dtype_of(node)
    if wanted == x.dtype or (wanted.kind in "iu" and x.dtype.kind in "iu"):
        return x
    if wanted.kind == "b":
        return autograd.not_equal(x, 0)
    if wanted.kind == "f" and x.dtype.kind == "b":
        return autograd.where(x, tensor_of(np.ones((), wanted), x), 0.0)
    if wanted.kind == "f" and x.dtype.kind == "f":
        return autograd.cast(x, wanted)
    raise node.wants("floats to floats, or booleans", f"{x.dtype} to {wanted}")


@ELEMENTS.computes("Softmax")
def _softmax(node: OnnxNode, x: Tensor) -> Tensor:
    axis = node.get("axis", -1) % x.ndim
    if node.get("flattens"):
        return autograd.reshape(autograd.softmax(autograd.flatten(x, axis), 1), x.shape)
    return autograd.softmax(x, axis)


@ELEMENTS.computes("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
def _reduced(node: OnnxNode, x: Tensor, axes: Value = None) -> Tensor:
    functions = {"Mean": autograd.reduce_mean, "Sum": autograd.reduce_sum, "Max": autograd.reduce_max}
    function = functions.get(node.operator.removeprefix("Reduce"), autograd.reduce_min)
    chosen = node.axes(axes) or None  # none at all are all
    if chosen is None and node.get("noop_with_empty_axes"):
        return x
    return function(x, chosen, bool(node.get("keepdims", 1)))


# ---- shapes


@ELEMENTS.computes("Shape")
def _shape(node: OnnxNode, x: Value) -> Value:
    return np.array(x.shape[slice(node.get("start", 0), node.get("end"))], np.int64)


@ELEMENTS.computes("Size")
def _size(node: OnnxNode, x: Value) -> Value:
    return np.array(int(np.prod(x.shape)), np.int64)


@ELEMENTS.computes("Flatten")
def _flatten(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.flatten(x, node.get("axis", 1) % (x.ndim + 1))


@ELEMENTS.computes("Reshape")
def _reshape(node: OnnxNode, x: Tensor, shape: Value) -> Tensor:
    wanted = node.numbers(shape, "a shape")
    zero = bool(node.get("allowzero"))
    return autograd.reshape(x, [x.shape[at] if n == 0 and not zero else n for at, n in enumerate(wanted)])


@ELEMENTS.computes("Transpose")
def _transpose(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.transpose(x, node.get("perm"))


@ELEMENTS.computes("Unsqueeze")
def _unsqueeze(node: OnnxNode, x: Tensor, axes: Value = None) -> Tensor:
    given = node.axes(axes) or []
    places = {axis % (x.ndim + len(given)) for axis in given}
    rest = iter(x.shape)
    return autograd.reshape(x, [1 if at in places else next(rest) for at in range(x.ndim + len(given))])


@ELEMENTS.computes("Squeeze")
def _squeeze(node: OnnxNode, x: Tensor, axes: Value = None) -> Tensor:
    given = node.axes(axes)
    chosen = [at for at, n in enumerate(x.shape) if n == 1] if given is None else [axis % x.ndim for axis in given]
    if any(x.shape[axis] != 1 for axis in chosen):
        raise node.wants(f"axes of extent 1 of {x.shape}", chosen)
    return autograd.reshape(x, [n for at, n in enumerate(x.shape) if at not in chosen])


@ELEMENTS.computes("Concat")
def _concat(node: OnnxNode, *xs: Value) -> Tensor:
    like = next(x for x in xs if isinstance(x, Tensor))
    return autograd.concat([tensor_of(x, like) for x in xs], node.get("axis") % like.ndim)


@ELEMENTS.computes("Split")
def _split(node: OnnxNode, x: Tensor, sizes: Value = None) -> list[Tensor]:
    axis = node.get("axis", 0) % x.ndim
    return list(autograd.split(x, axis, points_of(node, x.shape[axis], sizes)))


@ELEMENTS.computes("Slice")
def _slice(
    node: OnnxNode, x: Tensor, starts: Value = None, ends: Value = None, axes: Value = None, steps: Value = None
) -> Tensor:
    return autograd.index(x, slices_of(node, x.ndim, starts, ends, axes, steps))


@ELEMENTS.computes("Gather")
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


@ELEMENTS.computes("Expand")
def _expand(node: OnnxNode, x: Tensor, shape: Value) -> Tensor:
    """Multiplied by ones, whose derivative is the sum over the new places."""
    wanted = np.broadcast_shapes(x.shape, tuple(node.numbers(shape, "a shape")))
    return x if wanted == x.shape else autograd.multiply(x, tensor_of(np.ones(checked_size(node, wanted), x.dtype), x))


@ELEMENTS.computes("Pad")
def _pad(node: OnnxNode, x: Tensor, pads: Value = None, value: Value = None, axes: Value = None) -> Tensor:
    given = node.get("pads") if pads is None else node.numbers(pads, "pads")
    number = node.get("value", 0.0) if value is None else float(value.reshape(()))
    if node.get("mode", "constant") != "constant" or number:
        raise node.wants("zeros around", f"mode {node.get('mode')}, value {number}")
    chosen = list(range(x.ndim)) if axes is None else node.numbers(axes, "axes")
    before, behind = given[: len(chosen)], given[len(chosen) :]
    margins = [(0, 0)] * x.ndim
    for axis, one, other in zip(chosen, before, behind, strict=True):
        margins[axis] = one, other
    return autograd.pad(x, margins)
