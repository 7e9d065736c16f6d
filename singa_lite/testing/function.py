"""check_function: that a `Function` keeps what it states, its functions called one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from singa_lite import tensor
from singa_lite.autograd import Function
from singa_lite.autograd.ops.function import differentiable
from singa_lite.common.array_types import Array
from singa_lite.common.checks import finite_above_zero, integer
from singa_lite.device import new_cpu
from singa_lite.graph.graph import Operation
from singa_lite.kernels.interface import is_user_kernel
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.testing.gradients import STEP, TOLERANCE, CheckError, Compared, Subject, by_tape, compare
from singa_lite.testing.kernel_call import (
    Calls,
    allocated_bytes,
    outputs_are_written_fully_and_inputs_stay,
    overwriting_gives_equal_bits,
    scratch_rule_needs_forms_alone,
    tensors_may_be_strided,
    what_scratch_held_does_not_matter,
)

#: What holds of every function, in every dtype.
PROMISES: tuple[Callable[[Calls], None], ...] = (
    outputs_are_written_fully_and_inputs_stay,
    what_scratch_held_does_not_matter,
    overwriting_gives_equal_bits,
    tensors_may_be_strided,
    scratch_rule_needs_forms_alone,
)


@dataclass(frozen=True)
class Checked:
    """The result of a check of a function. gradients: as of `check_gradients`, none of a function without derivatives
    or one that does not give the same again; allocated: {function: the most bytes that NumPy took for it beside what
    was planned}.

    >>> class Double(autograd.Function):
    ...     def makes(self, x):
    ...         return {"y": autograd.Output(x.shape)}
    ...     def forward(self, x, y):
    ...         np.multiply(x, 2, out=y)
    >>> sorted(testing.check_function(Double(), [0.5, -1.5]).allocated)
    ['Double.forward']
    """

    gradients: list[Compared]
    allocated: Mapping[str, int]


def check_function(
    function: Function,
    *inputs: object,
    allowed_bytes: int | None = None,
    step: float = STEP,
    tolerance: float = TOLERANCE,
) -> Checked:
    """Checks all that a `Function` has to keep to, for these inputs, arrays or tensors; floats are taken in 32 and 64
    bits.

    Its gradients, where it has any (`check_gradients`); that each of its functions writes all that it has to write,
    from what it reads alone, whatever was there and in its scratch before; that results are the same, bit for bit,
    where one is written over an input as it allows, and to rounding where arrays have gaps; that no array is kept, nor
    anything written beyond those it is given. allowed_bytes: the most that NumPy may allocate within one of its
    functions; None only tells. A function that is not repeatable is only tried for what it keeps and where it writes.
    CheckError where one of these does not hold; TypeError, ValueError for other arguments.

    >>> class Double(autograd.Function):
    ...     def makes(self, x):
    ...         return {"y": autograd.Output(x.shape)}
    ...     def forward(self, x, y):
    ...         np.multiply(x, 2, out=y)
    ...     def derivative_x(self, dy, dx):
    ...         np.multiply(dy, 2, out=dx)
    >>> [row.name for row in testing.check_function(Double(), [0.5, -1.5]).gradients]
    ['input 0']
    """
    if not isinstance(function, Function):
        raise TypeError(
            f"check_function: wanted an object of a subclass of autograd.Function, received {function!r:.80}"
        )
    allowed = None if allowed_bytes is None else integer("check_function allowed_bytes", allowed_bytes, 0)
    step, tolerance = finite_above_zero("step", step), finite_above_zero("tolerance", tolerance)
    repeatable = type(function).repeatable
    allocated: dict[str, int] = {}
    gradients: list[Compared] = []
    for name in ("float64", "float32"):
        for calls in _calls_of(function, inputs, name):
            method = repr(calls.given[3]["call"])
            for promise in PROMISES if repeatable else ():
                promise(calls)
            allocated[method] = max(allocated.get(method, 0), allocated_bytes(calls()))
    if allowed is not None:
        for method, nbytes in allocated.items():
            if nbytes > allowed:
                raise CheckError(f"{method}: wanted at most {allowed} bytes allocated, received {nbytes}")
    if repeatable:
        gradients = _gradients(function, inputs, step, tolerance)
    return Checked(gradients, allocated)


def _differentiable(function: Function, inputs: tuple[object, ...], dtype: str) -> Subject:
    """The function, and those inputs of floats that it has derivatives by, on a device that looks what is kept."""
    device = new_cpu(kernels="numpy")
    device.pool.checked = True
    subject = Subject("check_function", function, inputs, dtype=np.dtype(dtype), on=device)
    for place in set(range(len(inputs))) - set(differentiable(function)):
        subject.inputs[place].stores_grad = False
        subject.trained.pop(f"input {place}", None)
    return subject


def _calls_of(function: Function, inputs: tuple[object, ...], dtype: str) -> list[Calls]:
    """Each kernel call of the function's own, forward and back."""
    subject, found = _differentiable(function, inputs, dtype), list[Calls]()

    def note(operation: Operation) -> None:
        if is_user_kernel(operation.kernel):
            arrays: list[Array | None] = [None if t is None else tensor.to_numpy(t) for t in operation.tensors]
            found.append(Calls(NUMPY, operation.kernel, arrays, operation.settings))

    with subject.device.watch(note):
        if subject.trained:
            by_tape(subject.call, list(subject.trained.values()))
        else:
            subject.call()
    return found


def _gradients(function: Function, inputs: tuple[object, ...], step: float, tolerance: float) -> list[Compared]:
    trained = (subject := _differentiable(function, inputs, "float64")).trained
    return compare(subject.call, list(trained.values()), list(trained), step, tolerance) if trained else []
