"""Converters: for each operation, by its kernel's name or its class, what writes it as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from singa_lite.autograd.ops.op import Op
from singa_lite.common.array_types import DType
from singa_lite.common.functions import Functions
from singa_lite.snapshots.onnx.trace import Call
from singa_lite.snapshots.onnx.writer import Value, Writer
from singa_lite.tensor import Shape, Tensor


class TracedCall(NamedTuple):
    """An operation as it was applied in each trace, the first one's first. inputs: the values in the graph, "" for one
    that is left out.
    """

    calls: Sequence[Call]
    inputs: Sequence[Value]

    @property
    def op(self) -> Any:
        """The operation; the name of a kernel that was called by itself."""
        return self.calls[0].of

    @property
    def ops(self) -> list[Any]:
        """The operation in each trace."""
        return [call.of for call in self.calls]

    @property
    def settings(self) -> Any:
        """Of the kernel."""
        return self.calls[0].settings

    def tensor(self, index: int) -> Tensor:
        """An input in the first trace."""
        found = self.calls[0].inputs[index]
        if found is None:
            raise LookupError(f"{self.op}: input {index} was left out")
        return found

    def traced_numbers(self, read: Callable[[Any], Sequence[int]]) -> list[Sequence[int]]:
        """Some numbers of the operation in each trace."""
        return [read(op) for op in self.ops]

    def shapes(self, index: int = 0) -> list[Shape]:
        """The shape of an input in each trace."""
        return [tensor.shape for call in self.calls if (tensor := call.inputs[index]) is not None]

    def results(self, index: int = 0) -> list[Shape]:
        """The shape of an output in each trace."""
        return [call.outputs[index].shape for call in self.calls]

    @property
    def ndim(self) -> int:
        """Axes of the first input."""
        return len(self.shapes()[0])

    @property
    def dtype(self) -> DType:
        """Of the first output."""
        return self.calls[0].outputs[0].dtype


#: Returns the value of the output, or a list of several.
Converter = Callable[[Writer, TracedCall], Value | list[Value]]


class Table(Functions[Converter]):
    """{name of an operation: its converter}."""

    converts = Functions[Converter].enters


def label_of(of: Op | str) -> str:
    """The name of an operation in errors."""
    return of if isinstance(of, str) else of.label


def name_of(of: Op | str) -> str:
    """The name by which an operation's converter is found: its kernel's, or its class's."""
    return of if isinstance(of, str) else getattr(of, "kernel", type(of).__name__)
