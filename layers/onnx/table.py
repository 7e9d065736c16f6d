"""The table of ONNX's operators, and what one is called with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.tensor import Tensor, from_numpy

#: A tensor; an array, where it is known without the batch's numbers; None, where it is left out.
Value = Any


class OnnxNode(NamedTuple):
    """An operator as a layer runs it. attributes: numbers, text, lists and arrays by name; outputs: how many."""

    name: str
    operator: str
    attributes: Mapping[str, Any]
    outputs: int
    training: bool = False

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)

    def wants(self, what: str, received: object) -> SnapshotError:
        """What is raised for a form of the operator that is not here."""
        return SnapshotError(f"node {self.name!r}: wanted {self.operator} with {what}, received {received}")

    def numbers(self, given: Value, what: str) -> list[int]:
        """An argument that is known without the batch's numbers."""
        if not isinstance(given, np.ndarray):
            raise self.wants(f"{what} that depend on shapes alone", "some that depend on the batch's values")
        return [int(one) for one in given.reshape(-1)]

    def axes(self, given: Value) -> list[int] | None:
        """Axes: an input, or in older versions an attribute."""
        return self.get("axes") if given is None else self.numbers(given, "axes")


Function = Callable[..., Value | Sequence[Value]]
Entered = TypeVar("Entered", bound=Function)


class Table(dict[str, Function]):
    """{operator: its function of an OnnxNode and the inputs}."""

    def computes(self, *names: str) -> Callable[[Entered], Entered]:
        """Enter the function below for these operators."""

        def entered(function: Entered) -> Entered:
            self.update(dict.fromkeys(names, function))
            return function

        return entered


def tensor_of(given: Value, like: Tensor) -> Tensor:
    """A value as a tensor on the device of another one, floats in its dtype."""
    if isinstance(given, Tensor):
        return given
    array: Array = given.astype(like.dtype) if given.dtype.kind == "f" and like.dtype.kind == "f" else given
    return from_numpy(array, like.device)
