"""Element by element, with broadcasting: activations, arithmetic, comparisons, copies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.routine import THREADS, Argument, Routine, Types, Value, blocks, integer
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES, are_floats, are_ids, may_hold
from singa_lite.kernels.cuda_kernels.walk import spread, walk
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import TensorSpec

#: {source: its kernels `kernel(Walk<N>, *tensors, *settings)` for floats, with the interface's tensors and settings}.
_SOURCES = {
    "activation.cu": """
        relu relu_derivative relu6 relu6_derivative leaky_relu leaky_relu_derivative elu elu_derivative
        sigmoid sigmoid_derivative tanh tanh_derivative gelu gelu_derivative gelu_tanh gelu_tanh_derivative
        silu silu_derivative softplus softplus_derivative""",
    "elementwise.cu": "subtract multiply divide scale power exp log weigh",
    "ordering.cu": "absolute absolute_derivative clip clip_derivative maximum minimum maximum_derivative",
    "update.cu": "add_scaled clip_elements",
}
#: Kernels whose names C has for functions of its own.
_NAMES = {"exp": "exponential", "log": "logarithm", "tanh": "hyperbolic_tangent"}
_MASK = np.dtype(np.bool_)

#: Activations that are done before a result is stored, in the order of `activated.cuh`.
_BOUNDS = ("", "relu", "relu6")
#: What is done in one go.
FUSIONS = (
    *((kernel, bound) for kernel in ("batch_norm", "batch_norm_derivative", "add") for bound in _BOUNDS if bound),
    *((kernel, "other") for kernel in ("batch_norm", "batch_norm_derivative")),
)


def mapped(
    file: str,
    kernel: str,
    y: TensorSpec,
    *reads: TensorSpec,
    values: Sequence[Argument] = (),
    types: Types | None = None,
) -> Routine | None:
    """A kernel `kernel(Walk<N>, *reads, y, *values)` of a file, over the elements of y, to which the reads broadcast.

    types: beside T, the dtype of y and of all reads that are not named there. None for dtypes and shapes that it cannot
    do: more axes than a walk has, dtypes other than floats.
    """
    given = {"T": y.dtype, **(types or {})}
    if not all(spec.dtype in given.values() for spec in reads) or y.dtype.name not in TYPES:
        return None
    found = walk(y.shape, (y, *reads))
    if found is None:
        return None
    vector = max(1, 16 // y.dtype.itemsize)
    grid = blocks(y.size, THREADS * vector)
    return Routine().launch(file, kernel, found, *reads, y, *values, types=given, grid=grid)


def mapped_along(
    axis: int,
    file: str,
    kernel: str,
    y: TensorSpec,
    *reads: TensorSpec,
    values: Sequence[Value] = (),
    types: Types | None = None,
) -> Routine | None:
    """`mapped`, the last of the reads a vector along `axis` of y."""
    *others, vector = reads
    seen = spread(vector, (axis % y.ndim,), y.shape)
    routine = mapped(file, kernel, y, *others, seen, values=values, types=types)
    return None if routine is None else routine.over({seen: vector})


def activated(activation: str, y: TensorSpec) -> Routine | None:
    """The activation, one without settings, of a tensor in its place."""
    return _floats("activation.cu", Call(activation, {"x": y, "y": y}, {}))


def copied(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """Converts as C does; x may broadcast."""
    return mapped("copy.cu", "copy", y, x, types={"S": x.dtype}) if x.dtype.name in TYPES else None


def bound_number(call: Call) -> np.int32 | None:
    """Returns the number of a call's activation in `activated.cuh`; None where it is not one of those."""
    activation = call.text("activation")
    return np.int32(_BOUNDS.index(activation)) if activation in _BOUNDS else None


def _floats(file: str, call: Call) -> Routine | None:
    *reads, y = call.operands.values()
    if not are_floats(y, *reads):
        return None
    numbers = [np.float64(call.number(setting)) for setting in SIGNATURES[call.kernel].settings]
    types = {"S": _MASK} if file == "ordering.cu" else {}
    return mapped(file, _NAMES.get(call.kernel, call.kernel), y, *reads, values=numbers, types=types)


def _choice(call: Call) -> Routine | None:
    """a or b, by a mask."""
    mask, a, b, y = call.all("condition", "a", "b", "y")
    if mask.dtype != _MASK or not are_floats(y, a, b):
        return None
    return mapped("ordering.cu", "where", y, mask, a, b, types={"S": _MASK})


def _add(call: Call) -> Routine | None:
    """a + b, and the activation before the sum is stored."""
    a, b, y = call.all("a", "b", "y")
    bound = bound_number(call)
    if bound is None or y.dtype.name not in FLOATS:
        return None
    if not bound:
        return mapped("elementwise.cu", "add", y, a, b)
    return mapped("elementwise.cu", "add_activation", y, a, b, values=[bound])


def _add_bias(call: Call) -> Routine | None:
    """x + bias along an axis."""
    x, bias, y = call.all("x", "bias", "y")
    if y.dtype.name not in FLOATS or x.dtype != y.dtype or not may_hold(bias.dtype, y.dtype):
        return None
    return mapped_along(int(call.number("axis")), "bias.cu", "add_bias", y, x, bias, types={"S": bias.dtype})


def _copy(call: Call) -> Routine | None:
    return copied(call["x"], call["y"])


def _fill(call: Call) -> Routine | None:
    """The value converted once, on the host."""
    y = call["y"]
    return mapped("copy.cu", "fill", y, values=[np.array(call.settings["value"]).astype(y.dtype)], types={"S": y.dtype})


def _compare(call: Call) -> Routine | None:
    """1 or 0, or of bool."""
    a, b, y = call.all("a", "b", "y")
    if not are_floats(a, b) or (y.dtype.name not in FLOATS and y.dtype != _MASK):
        return None
    return mapped("compare.cu", call.text("relation"), y, a, b, types={"S": a.dtype})


def _differs(call: Call) -> Routine | None:
    """1 where x is not the value."""
    x, y = call["x"], call["y"]
    if y.dtype.name not in FLOATS or not are_ids(x):
        return None
    return mapped("compare.cu", "differs", y, x, values=[integer(call, "value")], types={"S": x.dtype})


KERNELS: dict[str, CallBuilder[Routine]] = {
    **{name: partial(_floats, file) for file, names in _SOURCES.items() for name in names.split()},
    "add": _add,
    "add_bias": _add_bias,
    "copy": _copy,
    "fill": _fill,
    "compare": _compare,
    "where": _choice,
    "differs": _differs,
}
