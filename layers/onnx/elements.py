"""Operators by elements, and reductions, over operations of `autograd`; some of them over arrays too."""

from __future__ import annotations

from functools import reduce
from math import pi, sqrt

import numpy as np

from singa_lite import autograd
from singa_lite.common.array_types import Array
from singa_lite.layers.onnx.table import ARRAYS, TENSORS, Function, OnnxNode, Value, both, functions_for, tensor_of
from singa_lite.tensor import Tensor

#: Operations that have another name than the operator in small letters.
_NAMES = {
    **{"Sub": "subtract", "Mul": "multiply", "Div": "divide", "Max": "maximum", "Min": "minimum", "Sum": "add"},
    **{
        "LessOrEqual": "less_equal",
        "GreaterOrEqual": "greater_equal",
        "And": "multiply",
        "Or": "maximum",
        "Pow": "power",
    },
}


#: Expressions, of tensors and of arrays.
_BOTH: dict[str, Function] = {
    "Identity": lambda node, x: x,
    "Dropout": lambda node, x, *_: x,
    "Neg": lambda node, x: -x,
    "Reciprocal": lambda node, x: 1 / x,
    "Not": lambda node, x: functions_for(x).equal(x, False),
}
TENSORS.update(_BOTH)
ARRAYS.update(_BOTH)
TENSORS.update(
    {
        "Gelu": lambda node, x: autograd.gelu_tanh(x) if node.get("approximate") == "tanh" else autograd.gelu(x),
        "LeakyRelu": lambda node, x: autograd.leaky_relu(x, node.get("alpha", 0.01)),
        "Elu": lambda node, x: autograd.elu(x, node.get("alpha", 1.0)),
        "PRelu": lambda node, x, slope: autograd.prelu(x, tensor_of(slope, x)),
        "HardSigmoid": lambda node, x: _hard_sigmoid(x, node.get("alpha", 0.2), node.get("beta", 0.5)),
        "HardSwish": lambda node, x: autograd.multiply(x, _hard_sigmoid(x, 1 / 6, 0.5)),
    }
)


def _hard_sigmoid(x: Tensor, alpha: float, beta: float) -> Tensor:
    return autograd.clip(autograd.scale(x, alpha, beta), 0.0, 1.0)


@ARRAYS.enters("Abs", "Exp", "Log", "Sqrt", "Floor", "Ceil")
@TENSORS.enters("Abs", "Exp", "Log", "Sqrt", "Relu", "Sigmoid", "Tanh", "Softplus")
def _unary(node: OnnxNode, x: Value) -> Value:
    return getattr(functions_for(x), node.operator.lower())(x)


@ARRAYS.enters("Pow")
@both("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "And", "Or")
@both("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def _pairwise(node: OnnxNode, *given: Value) -> Value:
    """Of more than two one behind the other."""
    function = getattr(functions_for(*given), _NAMES.get(node.operator, node.operator.lower()))
    return reduce(lambda a, b: function(*_terms(node, a, b)), given)


def _terms(node: OnnxNode, a: Value, b: Value) -> tuple[Value, Value]:
    """Both; an array of one number beside a tensor as a number, if the tensor's shape is that of the result."""
    if functions_for(a, b) is autograd:
        return _term(a, b), _term(b, a)
    node.common_shape(a, b)
    return a, b


def _term(given: Value, other: Value) -> Value:
    is_one = isinstance(given, np.ndarray) and given.size == 1 and given.ndim <= other.ndim
    return given.item() if is_one else given


@ARRAYS.enters("Mod")
def _remainder(node: OnnxNode, a: Array, b: Array) -> Array:
    """Returns the remainder, which has the sign of a for fmod, else that of b."""
    node.common_shape(a, b)
    return np.asarray(np.fmod(a, b) if node.get("fmod") else np.mod(a, b))


@ARRAYS.enters("Where")
def _chosen_elements(node: OnnxNode, *given: Array) -> Array:
    node.common_shape(*given)
    return np.where(*given)


@TENSORS.enters("Where")
def _chosen_tensor(node: OnnxNode, condition: Value, a: Value, b: Value) -> Tensor:
    a = a if functions_for(a, b) is autograd else tensor_of(a, condition)
    return autograd.where(condition, _term(a, b), _term(b, a))


@TENSORS.enters("Pow")
def _power(node: OnnxNode, x: Tensor, exponent: Value) -> Tensor:
    if not isinstance(exponent, np.ndarray) or exponent.size != 1:
        raise node.wants("one constant exponent", "others")
    number = float(exponent.item())
    return autograd.square(x) if number == 2 else autograd.power(x, number)


#: NumPy's dtypes by the numbers that ONNX gives them. All floats are float32 here.
DTYPES = {
    **dict.fromkeys((1, 10, 11, 16), "float32"),
    **{2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 12: "uint32", 13: "uint64"},
}


@both("Cast")
def _cast(node: OnnxNode, x: Value) -> Value:
    """Integers stay as they are among themselves in tensors, floats everywhere."""
    if node.get("to") not in DTYPES:
        raise node.wants(f"one of the data types {sorted(DTYPES)}", node.get("to"))
    wanted = np.dtype(DTYPES[node.get("to")])
    if isinstance(x, np.ndarray):
        return x.astype(wanted)
    if wanted.kind == x.dtype.kind or {wanted.kind, x.dtype.kind} == set("iu"):
        return x
    if wanted.kind == "b":
        return autograd.not_equal(x, 0)
    if wanted.kind == "f" and x.dtype.kind == "b":
        return autograd.where(x, tensor_of(np.ones((), wanted), x), 0.0)
    raise node.wants("floats to floats, or booleans", f"{x.dtype} to {wanted}")


@TENSORS.enters("Erf")
def _erf(node: OnnxNode, z: Tensor) -> Tensor:
    """The error function: 2 * gelu(u) / u - 1, u = sqrt(2) z; near 0, where that is 0 / 0, two terms of its series."""
    u = autograd.scale(z, sqrt(2.0))
    is_small = autograd.less(autograd.abs(u), 0.05)
    divisor = autograd.where(is_small, 1.0, u)
    series = autograd.multiply(autograd.scale(z, 2 / sqrt(pi)), autograd.scale(autograd.square(z), -1 / 3, 1.0))
    return autograd.where(is_small, series, autograd.scale(autograd.divide(autograd.gelu(u), divisor), 2.0, -1.0))


@TENSORS.enters("Clip")
def _clip(node: OnnxNode, x: Value, low: Value = None, high: Value = None) -> Tensor:
    """Bounds are arrays, attributes in older versions, or tensors of no axes."""
    bounds = [node.get(name) if one is None else one for name, one in (("min", low), ("max", high))]
    like = next((one for one in bounds if isinstance(one, Tensor)), None)
    if like is None:
        given = [one.item() if isinstance(one, np.ndarray) else one for one in bounds]
        return x if given == [None, None] else autograd.clip(x, *given)
    y: Tensor = tensor_of(x, like)
    for function, bound in zip((autograd.maximum, autograd.minimum), bounds, strict=True):
        y = y if bound is None else function(y, _term(bound, y))
    return y


@TENSORS.enters("Softmax")
def _softmax(node: OnnxNode, x: Tensor) -> Tensor:
    axis = node.get("axis", -1) % x.ndim
    if node.get("flattens"):
        return autograd.reshape(autograd.softmax(autograd.flatten(x, axis), 1), x.shape)
    return autograd.softmax(x, axis)


@TENSORS.enters("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
@ARRAYS.enters("ReduceProd")
def _reduced(node: OnnxNode, x: Value, axes: Value = None) -> Value:
    chosen = node.numbers(axes, "axes") or None  # none at all are all
    if chosen is None and node.get("noop_with_empty_axes"):
        return x
    name = node.operator.removeprefix("Reduce").lower()
    return getattr(functions_for(x), f"reduce_{name}")(x, chosen, bool(node.get("keepdims", 1)))
