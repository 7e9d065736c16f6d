"""The tables of ONNX's operators, and what one is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from operator import getitem
from typing import Any, NamedTuple

import numpy as np

from singa_lite import autograd
from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.common.functions import Functions
from singa_lite.tensor import Tensor, from_numpy

#: A tensor; an array, where it is known without the batch's numbers; None, where it is left out.
Value = Any
#: The most elements of an array that a node makes of less.
MOST = 1 << 24


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

    def numbers(self, given: Value, name: str) -> Any:
        """Numbers that are known without the batch's: an input, or in older versions an attribute; None for neither."""
        return self.get(name) if given is None else [int(one) for one in self.known(given, name).reshape(-1)]

    def known(self, given: Value, name: str) -> Array:
        """Returns an input as an array. SnapshotError for one that depends on the batch's numbers."""
        if not isinstance(given, np.ndarray):
            raise self.wants(f"{name} of constants and shapes alone", "a value that depends on the batch's numbers")
        return given

    def sized(self, shape: Sequence[int], held: int = 0) -> Sequence[int]:
        """The shape. SnapshotError for more elements than a node may make. held: elements that were there before."""
        if min(shape, default=0) < 0 or prod(shape) > max(MOST, held):
            raise self.wants(f"at most {MOST} elements", shape)
        return shape

    def common_shape(self, *arrays: Array) -> Sequence[int]:
        """That to which the arrays broadcast, if it is not too large."""
        return self.sized(np.broadcast_shapes(*(one.shape for one in arrays)), sum(one.size for one in arrays))


Function = Callable[..., Value | Sequence[Value]]
#: {operator: its function of an OnnxNode and the inputs}, of which some are tensors.
TENSORS = Functions[Function]()
#: The same of inputs that all are arrays: constants, and computations of shapes as a step is recorded.
ARRAYS = Functions[Function]()


def both(*names: str) -> Callable[[Function], Function]:
    """Enter the function below for these operators, of tensors and of arrays."""
    return lambda function: ARRAYS.enters(*names)(TENSORS.enters(*names)(function))


class _OfArrays:
    """NumPy's functions by the names of operations of `autograd`, and with their arguments."""

    concat, gather, index = staticmethod(np.concatenate), staticmethod(np.take), staticmethod(getitem)

    @staticmethod
    def split(x: Array, axis: int, points: Sequence[int]) -> list[Array]:
        return np.split(x, points, axis)

    @staticmethod
    def divide(a: Array, b: Array) -> Array:
        """Of integers, towards zero."""
        return np.trunc(np.divide(a, b)).astype(a.dtype) if a.dtype.kind in "iu" else np.divide(a, b)

    @staticmethod
    def reduce_prod(x: Array, axes: Sequence[int] | None, keepdims: bool) -> Array:
        return np.asarray(np.prod(x, None if axes is None else tuple(axes), x.dtype, keepdims=keepdims))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


_OF_ARRAYS = _OfArrays()


def functions_for(*values: Value) -> Any:
    """`autograd`, or for arrays alone what gives its functions over them."""
    return autograd if any(isinstance(value, Tensor) for value in values) else _OF_ARRAYS


def tensor_of(given: Value, like: Tensor) -> Any:
    """A value as a tensor on the device of another one, floats in its dtype; None as it is."""
    if not isinstance(given, np.ndarray):
        return given
    return from_numpy(given.astype(like.dtype) if given.dtype.kind == like.dtype.kind == "f" else given, like.device)


def tensors_of(given: Iterable[Value], like: Tensor) -> list[Any]:
    """The same of several."""
    return [tensor_of(one, like) for one in given]
