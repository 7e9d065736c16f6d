"""Element by element: activations, arithmetic, comparisons, copies, and dropout.

`source/operations.h` has the formula of each, under the name of its kernel where the interface has one.
"""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.library import operations
from singa_lite.kernels.loop_kernels.operands import (
    TYPES,
    UNIFORM,
    are_stored,
    as_boxes,
    broadcast,
    broadcast_vector,
    check_key,
    check_stored,
)
from singa_lite.kernels.loop_kernels.routine import BoxView, Builder, Call, Routine, want

#: {exponent: operation}; other powers are NumPy's.
_POWERS = {1.0: "copy", 2.0: "square", 0.5: "square_root", -1.0: "inverse", -0.5: "inverse_root"}
#: Of an activation that is left out.
NONE = -1
#: Kernels that take tensors of bool.
_CHOOSING = {"copy", "compare", "where"}


def _elementwise(call: Call, routine: Routine) -> None:
    *read, y = call.operands.values()
    want(_has_types(call.kernel, *read, y), "types of the operation")
    numbers = [float(value) for value in call.settings.values() if isinstance(value, float | int)]
    if call.kernel == "scale" and not numbers[1]:
        numbers[1] = -0.0  # added to a zero, it keeps the sign
    extents, views = as_boxes([*((broadcast(spec, y.shape), spec) for spec in read), (y, y)])
    run(routine, _operation(call), views, extents, numbers, call.text("activation"))


def _add_bias(call: Call, routine: Routine) -> None:
    x, bias, y = call["x"], call["bias"], call["y"]
    check_stored(x, bias, y)
    extents, views = as_boxes([(x, x), (broadcast_vector(bias, x.shape, int(call.number("axis"))), bias), (y, y)])
    run(routine, "add", views, extents)


def _operation(call: Call) -> str:
    """The name of what is done with each element."""
    if call.kernel == "power":
        return _POWERS.get(call.number("exponent"), "")
    return call.text("relation") or call.kernel


def _has_types(kernel: str, *specs: TensorSpec) -> bool:
    """Whether the loops have code for operands of these types."""
    return are_stored(*specs) or (kernel in _CHOOSING and all(spec.dtype.name in TYPES for spec in specs))


def _dropout(call: Call, routine: Routine) -> None:
    x, y, p = call["x"], call["y"], call.number("p")
    check_stored(x, y)
    check_key(call["key"])
    places = TensorSpec(y.shape, y.dtype, ordered_strides(y.shape, range(y.ndim), y.dtype.itemsize))
    extents, (given, result, numbered) = as_boxes([(x, x), (y, y), (places, call["key"])])
    numbers = BoxView(call["key"], numbered.steps, UNIFORM)
    run(routine, "dropout", [given, numbers, result], extents, [p, 1 - p])


def run(
    routine: Routine,
    operation: str,
    views: Sequence[BoxView],
    extents: tuple[int, ...],
    numbers: Sequence[float] = (),
    activation: str = "",
) -> None:
    """Adds the step of an operation, and of the activation behind it. views: of what is read, then of the result."""
    *read, result = views
    want(operation in operations(), "an operation of operations.h")
    three, two = [*read, None, None, None][:3], [*numbers, 0.0, 0.0][:2]
    which = operations()[operation], operations()[activation] if activation else NONE
    routine.run("elementwise", *which, *three, result, extents, *two)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    **dict.fromkeys((name for name in operations() if name in SIGNATURES), _elementwise),
    **dict.fromkeys(("power", "compare"), _elementwise),
    "dropout": _dropout,
    "add_bias": _add_bias,
}
#: What is done in one go.
FUSIONS = [("add", "relu"), ("add", "relu6")]
