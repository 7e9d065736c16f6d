"""Op: one differentiable operation applied once, a node of the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.checks import is_bfloat16
from singa_lite.common.errors import DeviceError, GraphError
from singa_lite.common.unique import Unique
from singa_lite.device import Device, device_of
from singa_lite.tensor import Shape, Tensor

#: A mark for each `no_grad` that the present call is inside of.
_untaped: ContextVar[frozenset[object]] = ContextVar("untaped", default=frozenset())
_sequence = count()
#: What does an operation in the place of its `forward`, for somebody who looks at each of them: (operation, inputs).
applying: ContextVar[Callable[[Op, tuple[Tensor | None, ...]], Tensor | tuple[Tensor, ...]] | None] = ContextVar(
    "applying", default=None
)


def tape_position() -> int:
    """A number behind those of all operations on the tape so far, and before those of all that come."""
    return next(_sequence)


@contextmanager
def no_grad() -> Iterator[None]:
    """Keeps operations in a `with` block off the tape: they keep nothing, and no derivative passes through them.

    >>> w = tensor.ones((3,))
    >>> w.stores_grad = True
    >>> with autograd.no_grad():
    ...     print((w * 2.0).requires_grad)
    False
    """
    mark = object()  # its own, as one that an interrupt left unfinished may end much later, when it is collected
    try:
        _untaped.set(_untaped.get() | {mark})
        yield
    finally:
        _untaped.set(_untaped.get() - {mark})


def is_taping() -> bool:
    """Whether operations that are done now go on the tape: not within `no_grad`, as in evaluation."""
    return not _untaped.get()


def is_traced() -> bool:
    """Whether operations are traced: a layer then does its work in as few of them as it can."""
    return applying.get() is not None


class Edge(NamedTuple):
    """The origin of an input: output number `index` of the op `node`, or the parameter itself."""

    node: Op | None
    output: int
    parameter: Tensor | None


class Op(Unique):
    """The base of all operations, one differentiable operation that is applied once. A subclass gives `forward` and
    `backward`; an instance is applied once.

    forward(*inputs) makes the output tensor, or a tuple of several (new handles, never an input's own), and calls
    kernels to fill them; it saves what `backward` will need with `save`.
    backward(index, *dys) gives the derivative by input `index` from the derivatives by the outputs. The tape asks
    for inputs that lead on first (phase derivative), then for parameters (phase gradient). What comes along with
    another input's derivative may be left in `made[index]`, from where the tape takes it.

    >>> class Triple(autograd.Op):
    ...     def forward(self, x):
    ...         return self.computed("scale", x, alpha=3.0, beta=0.0)
    ...     def backward(self, index, *dys):
    ...         return self.computed("scale", dys[0], alpha=3.0, beta=0.0)
    >>> print(Triple()(tensor.as_tensor([1.0, 2.0])))
    [3. 6.]
    """

    forward: Callable[..., Tensor | tuple[Tensor, ...]]

    device: Device
    #: Indices of inputs that may be left out.
    optional: tuple[int, ...] = ()
    #: Indices of inputs that its kernels read in bfloat16 beside others in float32; any other one is widened.
    reads_stored: tuple[int, ...] = ()
    needs: tuple[bool, ...] = ()
    edges: tuple[Edge | None, ...] = ()
    saved: tuple[Tensor | None, ...] = ()
    outputs: tuple[tuple[Shape, DType], ...] = ()
    sequence: int = -1
    layer: str = ""
    made: dict[int, Tensor]

    @property
    def label(self) -> str:
        """The name of the operation in errors."""
        return type(self).__name__

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        """The output of the operation, applied to these. None stands for an optional input that is left out."""
        return self.several(*inputs)[0]

    def several(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """All outputs, of an operation that may have more than one."""
        self.made = {}
        for index, given in enumerate(inputs):
            if given is not None or index not in self.optional:
                checked_tensor(self.label, given)
        self.device = common_device(self.label, inputs)
        taping = is_taping()
        self.needs = tuple(taping and t is not None and t.requires_grad for t in inputs)
        if taping and (graph := self.device.graph) is not None:
            graph.options.note_tensors(inputs)
        if any(t is not None and is_bfloat16(t.dtype) for t in inputs):
            inputs = self._widened(inputs)
        apply = applying.get()
        result = self.forward(*inputs) if apply is None else apply(self, inputs)
        results = result if isinstance(result, tuple) else (result,)
        if any(self.needs):
            self._link(inputs, results)
        return results

    def _widened(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """The inputs, those in bfloat16 beside others in float32 widened, but for those that are read as they are."""
        if not any(t is not None and t.dtype == np.float32 for t in inputs):
            return inputs
        is_stored = [t is not None and is_bfloat16(t.dtype) for t in inputs]
        return tuple(
            _Widened()(t) if stored and index not in self.reads_stored else t
            for index, (t, stored) in enumerate(zip(inputs, is_stored, strict=True))
        )

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        """The derivative by input `index`."""
        raise TypeError(f"{self.label} has no derivative by its input {index}")

    def save(self, *tensors: Tensor | None) -> None:
        """Keep these for `backward`, if it may be called; inputs and outputs alike."""
        if any(self.needs):
            self.saved = tuple(None if t is None else t.detach() for t in tensors)

    def kept(self, index: int) -> Tensor:
        """The tensor that `save` was given at this index."""
        tensor = self.saved[index]
        if tensor is None:
            raise GraphError(f"{self.label}: backward was asked for an input that needs no derivative")
        return tensor

    def release(self) -> None:
        """Forget everything kept: the tape is past this node."""
        self.saved, self.edges, self.made = (), (), {}

    def empty_like(self, tensor: Tensor) -> Tensor:
        """A new tensor of the same shape and dtype, its axes in the same order in memory, without gaps."""
        return self.device.empty(tensor.shape, tensor.dtype, tensor.memory_order())

    def computed(self, kernel: str, *inputs: Tensor, **settings: object) -> Tensor:
        """The result of a kernel whose output is its last tensor: a new tensor that lies as the first input does."""
        made = self.empty_like(inputs[0])
        self.device.run(kernel, *inputs, made, **settings)
        return made

    def _link(self, inputs: Sequence[Tensor | None], results: Sequence[Tensor]) -> None:
        self.sequence = next(_sequence)
        self.layer = self.device.layer
        self.edges = tuple(
            _edge(tensor) if tensor is not None and needed else None
            for tensor, needed in zip(inputs, self.needs, strict=True)
        )
        self.outputs = tuple((t.shape, t.dtype) for t in results)
        for index, tensor in enumerate(results):
            tensor.creator, tensor.output_index, tensor.requires_grad = self, index, True


NOTHING: Mapping[str, object] = MappingProxyType({})


class Cast(Op):
    """Rounds values to another float dtype, and the derivative to the dtype of the input."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        self.before = x.dtype
        return self._converted(x, self.dtype)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self._converted(dys[0], self.before)

    def _converted(self, x: Tensor, dtype: DType) -> Tensor:
        y = self.device.empty(x.shape, dtype, x.memory_order())
        self.device.run("copy", x, y)
        return y


class _Widened(Cast):
    """A parameter that is stored in bfloat16 as float32; its gradient is float32."""

    def __init__(self) -> None:
        super().__init__(np.dtype(np.float32))

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return dys[0]


class KernelOp(Op):
    """Base of operations of one kernel, which names them in errors too. settings: of the kernel."""

    def __init__(self, kernel: str, **settings: object) -> None:
        self.kernel, self.settings = kernel, settings

    @property
    def label(self) -> str:
        """The kernel's name."""
        return self.kernel


class LinearOp(KernelOp):
    """y = kernel(x, *factors), linear in x but for a constant: the derivative is the same kernel of dy.

    There is none by the factors. back: settings of the derivative that differ.
    """

    def __init__(self, kernel: str, back: Mapping[str, object] = NOTHING, **settings: object) -> None:
        super().__init__(kernel, **settings)
        self.back = back

    def forward(self, x: Tensor, *factors: Tensor) -> Tensor:
        self.save(*factors)
        return self.computed(self.kernel, x, *factors, **self.settings)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index:
            return super().backward(index, *dys)
        factors = map(self.kept, range(len(self.saved)))
        return self.computed(self.kernel, dys[0], *factors, **{**self.settings, **self.back})


def checked_tensor(where: str, given: object) -> Tensor:
    """The tensor itself. TypeError for anything else."""
    if not isinstance(given, Tensor):
        kind = "None" if given is None else type(given).__name__
        raise TypeError(f"{where}: wanted a Tensor, received {kind}; tensor.as_tensor() makes one of an array")
    return given


def _edge(tensor: Tensor) -> Edge | None:
    if tensor.creator is not None:
        return Edge(tensor.creator, tensor.output_index, None)
    return Edge(None, 0, tensor) if tensor.stores_grad else None


def common_device(where: str, tensors: Sequence[Tensor | None]) -> Device:
    """The device of all the tensors. DeviceError names two that differ."""
    devices = [device_of(tensor) for tensor in tensors if tensor is not None]
    for other in devices[1:]:
        if other is not devices[0]:
            raise DeviceError(f"{where}: wanted tensors on one device, received {devices[0].name}, {other.name}")
    return devices[0]
