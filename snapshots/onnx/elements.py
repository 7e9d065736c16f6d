"""Converters of operations by elements: activations, arithmetic, comparisons, and reductions along axes."""

from __future__ import annotations

from functools import partial
from math import inf, pi, prod, sqrt

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.onnx.calls import Table, TracedCall
from singa_lite.snapshots.onnx.writer import Value, Writer

TABLE = Table()

#: {kernel: operator} that take the same inputs and no settings.
_OPERATORS = {
    **{"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softplus": "Softplus", "absolute": "Abs"},
    **{"exp": "Exp", "log": "Log", "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div"},
    **{"matmul": "MatMul", "maximum": "Max", "minimum": "Min", "PRelu": "PRelu"},
}
#: {operator of numbers: that of masks}
_OF_MASKS = {"Max": "Or", "Min": "And", "Mul": "And"}
_COMPARED = {"equal": "Equal", "less": "Less", "less_equal": "LessOrEqual"}


def _operator(kind: str, w: Writer, a: TracedCall) -> Value:
    return w.node(_OF_MASKS[kind] if a.dtype == np.bool_ else kind, *a.inputs)


TABLE.update({name: partial(_operator, kind) for name, kind in _OPERATORS.items()})


@TABLE.converts("leaky_relu")
def _leaky_relu(w: Writer, a: TracedCall) -> Value:
    return w.node("LeakyRelu", a.inputs[0], alpha=a.settings["slope"])


@TABLE.converts("elu")
def _elu(w: Writer, a: TracedCall) -> Value:
    return w.node("Elu", a.inputs[0], alpha=a.settings["alpha"])


@TABLE.converts("relu6")
def _relu6(w: Writer, a: TracedCall) -> Value:
    return w.node("Clip", a.inputs[0], w.float(0.0, a.dtype), w.float(6.0, a.dtype))


@TABLE.converts("clip")
def _clip(w: Writer, a: TracedCall) -> Value:
    low, high = a.settings["low"], a.settings["high"]
    bounds = ["" if abs(bound) == inf else w.float(bound, a.dtype) for bound in (low, high)]
    return w.node("Clip", a.inputs[0], *bounds)


@TABLE.converts("softmax")
def _softmax(w: Writer, a: TracedCall) -> Value:
    return w.node("Softmax", a.inputs[0], axis=a.settings["axis"])


@TABLE.converts("silu")
def _silu(w: Writer, a: TracedCall) -> Value:
    return w.node("Mul", a.inputs[0], w.node("Sigmoid", a.inputs[0]))


@TABLE.converts("gelu")
def _gelu(w: Writer, a: TracedCall) -> Value:
    """x * (1 + erf(x / sqrt 2)) / 2."""
    x, half = a.inputs[0], w.float(0.5, a.dtype)
    erf = w.node("Erf", w.node("Mul", x, w.float(sqrt(0.5), a.dtype)))
    return w.node("Mul", w.node("Mul", x, half), w.node("Add", erf, w.float(1.0, a.dtype)))


@TABLE.converts("gelu_tanh")
def _gelu_tanh(w: Writer, a: TracedCall) -> Value:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2."""
    x = a.inputs[0]
    cube = w.node("Mul", w.node("Mul", w.node("Mul", x, x), x), w.float(0.044715, a.dtype))
    bent = w.node("Tanh", w.node("Mul", w.node("Add", x, cube), w.float(sqrt(2 / pi), a.dtype)))
    return w.node("Mul", w.node("Mul", x, w.float(0.5, a.dtype)), w.node("Add", bent, w.float(1.0, a.dtype)))


@TABLE.converts("scale")
def _scale(w: Writer, a: TracedCall) -> Value:
    """alpha * x + beta."""
    alpha, beta, y = a.settings["alpha"], a.settings["beta"], a.inputs[0]
    y = y if alpha == 1 else w.node("Mul", y, w.float(alpha, a.dtype))
    return y if beta == 0 else w.node("Add", y, w.float(beta, a.dtype))


@TABLE.converts("power")
def _power(w: Writer, a: TracedCall) -> Value:
    exponent = a.settings["exponent"]
    if exponent == 0.5:
        return w.node("Sqrt", a.inputs[0])
    return (
        w.node("Mul", a.inputs[0], a.inputs[0])
        if exponent == 2
        else w.node("Pow", a.inputs[0], w.float(exponent, a.dtype))
    )


@TABLE.converts("Power")
def _any_power(w: Writer, a: TracedCall) -> Value:
    return w.node("Pow", a.inputs[0], w.float(a.op.exponent, a.dtype))


@TABLE.converts("where")
def _choose(w: Writer, a: TracedCall) -> Value:
    chosen, other, condition = a.inputs
    return w.node("Where", condition, chosen, other)


@TABLE.converts("compare")
def _compare(w: Writer, a: TracedCall) -> Value:
    relation = a.settings["relation"]
    if relation == "not_equal":
        return w.node("Not", w.node("Equal", *a.inputs))
    return w.node(_COMPARED[relation], *a.inputs)


@TABLE.converts("differs")
def _differs(w: Writer, a: TracedCall) -> Value:
    """1 where an id is not the value."""
    same = w.node("Equal", a.inputs[0], w.constant(a.settings["value"], a.tensor(0).dtype))
    return w.cast(w.node("Not", same), a.dtype)


@TABLE.converts("fill")
def _fill(w: Writer, a: TracedCall) -> Value:
    """A new tensor of one number."""
    return w.node("Expand", w.float(a.settings["value"], a.dtype), w.numbers(w.extents(a.results())))


@TABLE.converts("Cast", "_Widened")
def _cast(w: Writer, a: TracedCall) -> Value:
    return w.cast(a.inputs[0], a.dtype)


@TABLE.converts("reduce_sum")
def _reduce_sum(w: Writer, a: TracedCall) -> Value:
    """alpha * the sum, the mean where alpha divides by the number of elements in each trace."""
    axes, keep = a.op.axes, int(a.op.keepdims)
    counts = [prod(shape[axis] for axis in axes) for shape in a.shapes()]
    alphas = [alpha for (alpha,) in a.traced_numbers(lambda op: [op.alpha])]
    is_mean = max(counts) > 1 and alphas == [1 / count for count in counts]
    if not axes:
        return a.inputs[0]
    if is_mean:
        return reduced(w, "ReduceMean", a.inputs[0], axes, keep)
    if len(set(alphas)) > 1:
        raise SnapshotError(
            f"export: wanted sums by a factor that does not depend on the size of a batch, received {alphas} in layer "
            f"{w.layer!r}"
        )
    total = w.node("ReduceSum", a.inputs[0], w.constant(axes), keepdims=keep)
    return total if a.op.alpha == 1 else w.node("Mul", total, w.float(a.op.alpha, a.dtype))


@TABLE.converts("reduce_max", "reduce_min")
def _extreme(w: Writer, a: TracedCall) -> Value:
    kind = "ReduceMax" if a.op.kernel == "reduce_max" else "ReduceMin"
    return reduced(w, kind, a.inputs[0], a.op.axes, int(a.op.keepdims)) if a.op.axes else a.inputs[0]


def reduced(w: Writer, kind: str, value: Value, axes: tuple[int, ...], keep: int) -> Value:
    """ReduceMean, ReduceMax or ReduceMin: axes are an input from opset 18 on."""
    if w.opset < 18:
        return w.node(kind, value, axes=list(axes), keepdims=keep)
    return w.node(kind, value, w.constant(axes), keepdims=keep)
