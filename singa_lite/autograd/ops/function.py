"""Function: a user's own operation, NumPy functions for forward and derivatives in one class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, ClassVar, cast

from singa_lite.autograd.ops.function_form import (
    DERIVATIVE,
    CallTensors,
    D,
    Form,
    Kernels,
    OwnKernel,
    Statement,
)
from singa_lite.autograd.ops.op import Op, checked_tensor, common_device
from singa_lite.common.checks import flag
from singa_lite.common.contexts import shared_in_step
from singa_lite.common.errors import ShapeError
from singa_lite.common.option_version import Versioned
from singa_lite.kernels.own_call import FunctionCall
from singa_lite.tensor import Tensor, full


class Function(Versioned):
    """The base of users' own operations, written as functions of NumPy arrays. An object is called with tensors, as
    often as wanted, and gives the results.

        class Shrink(autograd.Function):
            overwrites = (("y", "x"), ("dx", "dy"))

            def __init__(self, threshold): self.threshold = threshold

            def makes(self, x):                                      # Form in, Output and Scratch out
                return {"y": Output(x.shape), "kept": Scratch(x.shape, bool, "backward")}

            def forward(self, x, y, kept):                           # NumPy arrays; write into y and kept
                ...

            def derivative_x(self, dy, kept, dx):                    # write into dx
                ...

    makes(inputs): {name: Output or Scratch}, by the shapes and dtypes of the inputs, whose names and order are those of
    its arguments. forward: writes all outputs and "backward" scratch. derivative_<input>: writes d<input> from
    d<output> and whatever else it names: inputs, outputs, "backward" scratch. What a function names it is given, and
    nothing is kept for it beside that. What it may not write is handed over read-only. An input without such a function
    has no derivative. overwrites: pairs of what is written and what it may be written over, for functions that read
    each element before they write it. repeatable: whether a call gives the same again; if not, or if there is scratch
    for the whole step, a memory budget keeps its results and never makes them again.

    An object's attributes are its settings, and are taken as they are when it is called; what `forward` sets is there
    for the derivatives of the same call, and for no later one. A recorded function runs at
    each replay: it must not keep arrays it was given, nor go by anything else that changes. TypeError, ShapeError where
    the class states what does not fit together, at the call.

    >>> class Double(autograd.Function):
    ...     def makes(self, x):
    ...         return {"y": autograd.Output(x.shape)}
    ...     def forward(self, x, y):
    ...         np.multiply(x, 2, out=y)
    >>> print(Double()(tensor.as_tensor([1.0, 2.5])))
    [2. 5.]
    """

    overwrites: ClassVar[tuple[tuple[str, str], ...]] = ()
    repeatable: ClassVar[bool] = True

    def makes(self, *inputs: Any) -> Mapping[str, object]:
        """What a call makes, {name: Output or Scratch}."""
        raise NotImplementedError

    def forward(self, *arrays: Any) -> None:
        """Write the outputs."""
        raise NotImplementedError

    def onnx(self, node: Callable[..., Any], *inputs: str) -> Any:
        """The output as a value of an ONNX graph, or a tuple of several, for `net.export`.

        inputs: names of values. node(operator, *inputs, outputs=1, **attributes): adds a node; the name of its output,
        a list of several.
        """
        raise NotImplementedError

    def __call__(self, *inputs: Tensor) -> Any:
        """The output, or a tuple of several, in the order in which `makes` names them."""
        name = type(self).__qualname__
        statement, kernels = _stated(type(self))
        wanted = statement.inputs
        if len(inputs) != len(wanted):
            raise ShapeError(f"{name}: wanted {len(wanted)} inputs, {', '.join(wanted)}, received {len(inputs)}")
        for given in inputs:
            checked_tensor(name, given)
        if (graph := common_device(name, inputs).graph) is not None:
            graph.options.note(self)
        made = statement.checked(self.makes(*(Form(t.shape, t.dtype) for t in inputs)), inputs)
        results = _FunctionCall(self, statement, kernels, made).several(*inputs)
        return results[0] if len(results) == 1 else results


def differentiable(function: Function) -> tuple[int, ...]:
    """The places of the inputs that it has a derivative by."""
    statement, _ = _stated(type(function))
    return tuple(place for place, name in enumerate(statement.inputs) if name in statement.derivatives)


def _stated(of: type[Function]) -> tuple[Statement, Kernels]:
    """What a class states, read once."""
    found = vars(of).get("_stated")
    if found is None:
        statement = Statement.of(of, Function)
        repeatable = flag(f"{of.__qualname__}.repeatable", of.repeatable)
        found = statement, Kernels(statement, of.overwrites, repeatable)
        type.__setattr__(of, "_stated", found)
    return cast(tuple[Statement, Kernels], found)


class _FunctionCall(Op):
    """One call of a Function."""

    @property
    def label(self) -> str:
        """The class of the user's."""
        return self._statement.name

    def __init__(self, function: Function, statement: Statement, kernels: Kernels, made: CallTensors) -> None:
        self._owner = function  # whose scratch for the step it is
        self.function = copy(function)  # its settings may change behind this call
        self._statement, self._kernels, self._made = statement, kernels, made
        self._tensors: dict[str, Tensor] = {}  # what derivatives read
        self._inputs: tuple[tuple[Form, tuple[int, ...]], ...] = ()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        needed = [name for name, is_needed in zip(self._statement.inputs, self.needs, strict=True) if is_needed]
        derivatives = [self._derivative(name) for name in needed]
        kernel = self._kernels.forward(self._made)
        self._inputs = tuple((Form(t.shape, t.dtype), t.memory_order()) for t in inputs)
        tensors = dict(zip(self._statement.inputs, inputs, strict=True))
        for name, form in {**self._made.outputs, **self._made.scratch["backward"]}.items():
            like = next((t for t in inputs if t.shape == form.shape), None)
            tensors[name] = self.device.empty(*form, () if like is None else like.memory_order())
        tensors |= {name: self._of_step(name, form) for name, form in self._made.scratch["step"].items()}
        self._run(kernel, tensors)
        read = {name for derivative in derivatives for name in derivative.signature.tensors}
        self._tensors = {name: tensor.detach() for name, tensor in tensors.items() if name in read}
        return tuple(tensors[name] for name in self._made.outputs)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        """The derivative by input `index`."""
        name = self._statement.inputs[index]
        form, order = self._inputs[index]
        dx = self.device.empty(*form, order)
        given = {D + output: dy for output, dy in zip(self._made.outputs, dys, strict=True)}
        self._run(self._derivative(name), {**self._tensors, **given, D + name: dx})
        return dx

    def release(self) -> None:
        super().release()
        self._tensors = {}

    def _derivative(self, name: str) -> OwnKernel:
        if name not in self._statement.derivatives:
            raise TypeError(
                f"{self._statement.name}: wanted a function {DERIVATIVE}{name}, as {name!r} is a parameter or computed "
                "from some, received a class without; write it, or detach() this input"
            )
        return self._kernels.derivative(name, self._made)

    def _run(self, kernel: OwnKernel, tensors: Mapping[str, Tensor]) -> None:
        signature = kernel.signature
        method = getattr(self.function, kernel.method)
        begins = kernel.method == "forward"  # each run of it starts as the first one did, whatever that has counted
        checked = self.device.pool.checked
        call = FunctionCall(method, signature.tensors, kernel.writes, kernel.scratch, checked, begins)
        self.device.run(signature.name, *(tensors[name] for name in signature.tensors), call=call)

    def _of_step(self, name: str, form: Form) -> Tensor:
        """The scratch of this name that all calls of the object share in this step."""
        graph = self.device.graph
        shared = cast("dict[object, Any] | None", shared_in_step() if graph is None else graph.shared)
        key = id(self._owner), name
        found = None if shared is None else shared.get(key)
        if found is None:
            made = full(form.shape, 0, form.dtype, self.device)
            if shared is not None:
                shared[key] = self._owner, made
            return made
        tensor = cast(Tensor, found[1])
        if (tensor.shape, tensor.dtype) != form:
            raise ShapeError(
                f"{self._statement.name}: wanted scratch {name!r} of the step as the call before made it, "
                f"{tensor.shape} {tensor.dtype}, received {form.shape} {form.dtype}"
            )
        return tensor
