"""Element by element: activations, arithmetic, comparisons, copies, and dropout.

`source/operations.h` has the formula of each, under the name of its kernel where the interface has one.
"""

from __future__ import annotations

from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.library import operations
from singa_lite.kernels.loop_kernels.operands import TYPES, UNIFORM, are_stored, as_boxes, broadcast
from singa_lite.kernels.loop_kernels.routine import BoxView, Builder, Call, Routine

#: {exponent: operation}; other powers are NumPy's.
_POWERS = {1.0: "copy", 2.0: "square", 0.5: "square_root", -1.0: "inverse", -0.5: "inverse_root"}
#: Kernels that take tensors of bool.
_CHOOSING = {"copy", "compare", "where"}
#: Of an operation that is left out.
NONE = -1


def _elementwise(call: Call, routine: Routine) -> bool:
    *read, y = call.operands.values()
    operation = operations().get(_operation(call))
    if operation is None or not _has_types(call.kernel, *read, y):
        return False
    numbers = [float(value) for value in call.settings.values() if isinstance(value, float | int)]
    if call.kernel == "scale" and not numbers[1]:
        numbers[1] = -0.0  # added to a zero, it keeps the sign
    extents, views = as_boxes([*((broadcast(spec, y.shape), spec) for spec in read), (y, y)])
    *found, result = views
    run(routine, operation, operations().get(call.text("activation"), NONE), found, result, extents, numbers)
    return True


def _add_bias(call: Call, routine: Routine) -> bool:
    x, bias, y = call["x"], call["bias"], call["y"]
    if not are_stored(x, bias, y):
        return False
    strides = [0] * x.ndim
    strides[int(call.number("axis"))] = bias.strides[0]
    repeated = TensorSpec(x.shape, bias.dtype, tuple(strides))
    extents, (*read, result) = as_boxes([(x, x), (repeated, bias), (y, y)])
    run(routine, operations()["add"], NONE, read, result, extents, [])
    return True


def _operation(call: Call) -> str:
    """The name of what is done with each element."""
    if call.kernel == "power":
        return _POWERS.get(call.number("exponent"), "")
    return call.text("relation") or call.kernel


def _has_types(kernel: str, *specs: TensorSpec) -> bool:
    """Whether the loops have code for operands of these types."""
    return are_stored(*specs) or (kernel in _CHOOSING and all(spec.dtype.name in TYPES for spec in specs))


def _dropout(call: Call, routine: Routine) -> bool:
    x, y, p = call["x"], call["y"], call.number("p")
    if not are_stored(x, y) or call["key"].strides != (8,):
        return False
    places = TensorSpec(y.shape, y.dtype, ordered_strides(y.shape, range(y.ndim), y.dtype.itemsize))
    extents, (given, result, numbered) = as_boxes([(x, x), (y, y), (places, call["key"])])
    numbers = BoxView(call["key"], numbered.steps, UNIFORM)
    run(routine, operations()["dropout"], NONE, [given, numbers], result, extents, [p, 1 - p])
    return True


def run(
    routine: Routine,
    operation: int,
    then: int,
    read: list[BoxView],
    result: BoxView,
    extents: tuple[int, ...],
    numbers: list[float],
) -> None:
    """Adds the step of an operation on what is read, and of the activation `then` behind it."""
    three, two = [*read, None, None, None][:3], [*numbers, 0.0, 0.0][:2]
    routine.run("elementwise", operation, then, *three, result, extents, *two)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    **dict.fromkeys((name for name in operations() if name in SIGNATURES), _elementwise),
    **dict.fromkeys(("power", "compare"), _elementwise),
    "dropout": _dropout,
    "add_bias": _add_bias,
}
#: What is done in one go.
FUSIONS = [("add", "relu"), ("add", "relu6")]
