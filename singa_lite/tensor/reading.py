"""Readable: what a tensor's values are asked as an array, index, comparison, statistics; answers are NumPy's."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.checks import axes_of, axis_of
from singa_lite.common.errors import DeviceError, GraphError, ShapeError
from singa_lite.common.unique import Unique

#: Along which axes something is taken; None: over all elements.
Axis: TypeAlias = int | tuple[int, ...] | None
#: An array, or a NumPy number where no axis is left.
Values: TypeAlias = Any


class Readable(Unique):
    """Base of `Tensor`: reading values as those of a NumPy array. Each call copies them from the device, and waits.

    What is asked by these names of a tensor that requires grad, or while its device records, is an operation instead,
    where there is one (`ops/operators.py`): `t[0:2]`, iteration, `mean`, `sum`, `min`, `max` and, while recording,
    `t < 1`. It gives a tensor, on the tape or in the record. `t[0:2]` is one in any case, with values of its own
    unless a derivative passes through it; `autograd.index` gives a view.
    All else is NumPy's and on no tape, so GraphError where a derivative would be lost silently, such as by `t[mask]` in
    a layer's forward. `t.detach()[mask]` reads it.
    `a == b` of two tensors says whether they are one, as they are keys of dicts; beside arrays, numbers and lists it
    compares elements; `autograd.equal` compares those of tensors.
    """

    __slots__ = ()

    shape: tuple[int, ...]
    requires_grad: bool

    @abstractmethod
    def __array__(self) -> Array:
        """All values, copied to the host."""

    def item(self) -> float | int | bool:
        """The value of a tensor with one element, as a Python number; waits for the device."""
        if prod(self.shape) != 1:
            raise ShapeError(f"item(): wanted a tensor with one element, received shape {self.shape}")
        value: float | int | bool = self.__array__().reshape(()).item()
        return value

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def _values(self, what: str, has_derivative: bool = True) -> Array:
        if has_derivative and self.requires_grad:
            raise GraphError(
                f"{what}: wanted a tensor that requires no grad, as what is read is on no tape, received {self!r}; "
                "detach() it to read it, or take an operation of `autograd`"
            )
        return self.__array__()

    def __getitem__(self, index: Any) -> Any:
        """As NumPy's, of a copy."""
        return self._values("tensor[...]")[_plain(index)]

    def __setitem__(self, index: object, value: object) -> None:
        raise TypeError("tensor[...] = value: wanted copy_from_numpy(array), which overwrites all values")

    def __str__(self) -> str:
        try:
            return str(self.__array__())
        except (GraphError, DeviceError):  # recorded only, given back, or without bytes
            return repr(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len(): wanted a tensor with an axis, received one of shape ()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Values]:
        if not self.shape:
            raise TypeError("iteration: wanted a tensor with an axis, received one of shape ()")
        return iter(self._values("iteration"))

    def __bool__(self) -> bool:
        if prod(self.shape) != 1:
            raise ShapeError(
                f"bool(): wanted a tensor with one element, received shape {self.shape}; numpy.any or numpy.all of it"
            )
        return bool(self.item())

    #: As keys of dicts and in sets tensors are told apart by what they are, not by their values.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return NotImplemented if _is_other(other) else self._compared(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if _is_other(other) else self._compared(operator.ne, other)

    def __lt__(self, other: object) -> Values:
        return self._compared(operator.lt, other)

    def __le__(self, other: object) -> Values:
        return self._compared(operator.le, other)

    def __gt__(self, other: object) -> Values:
        return self._compared(operator.gt, other)

    def __ge__(self, other: object) -> Values:
        return self._compared(operator.ge, other)

    def _compared(self, compare: Callable[[Any, Any], Any], other: object) -> Values:
        return compare(self._values("comparison", False), _plain(other))

    def _along(self, where: str, axis: Axis) -> tuple[int, ...] | None:
        """Checked. None stays, as NumPy adds up all elements in another order than those along all axes."""
        return None if axis is None else axes_of(where, axis, self.shape)

    def argmax(self, axis: int | None = None) -> Values:
        """Where the largest value stands: along the axis, or among all elements."""
        return self._values("argmax()", False).argmax(None if axis is None else axis_of("argmax()", axis, self.shape))

    def argmin(self, axis: int | None = None) -> Values:
        """Where the smallest value stands."""
        return self._values("argmin()", False).argmin(None if axis is None else axis_of("argmin()", axis, self.shape))

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Values:
        """As numpy.mean, in the tensor's dtype."""
        return self._values("mean()").mean(self._along("mean()", axis), keepdims=keepdims)

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Values:
        """As numpy.sum."""
        return self._values("sum()").sum(self._along("sum()", axis), keepdims=keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Values:
        """As numpy.min."""
        return self._values("min()").min(self._along("min()", axis), keepdims=keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Values:
        """As numpy.max."""
        return self._values("max()").max(self._along("max()", axis), keepdims=keepdims)

    def round(self, decimals: int = 0) -> Values:
        """As numpy.round."""
        return self._values("round()").round(decimals)

    def __round__(self, decimals: int | None = None) -> Values:
        if not self.shape:
            return round(self.item(), decimals)
        return self.round(decimals or 0)

    def tolist(self) -> Any:
        """Python's numbers in lists, as deep as there are axes."""
        return self._values("tolist()", False).tolist()


def _plain(given: object) -> Any:
    """A tensor, or tensors in a tuple, as arrays; all else as it is."""
    if isinstance(given, Readable):
        return np.asarray(given)
    return tuple(map(_plain, given)) if isinstance(given, tuple) else given


def _is_other(given: object) -> bool:
    """Whether it is no array, number or list: a tensor, which is equal if it is the same one, None or text."""
    return not isinstance(given, np.ndarray | np.generic | int | float | Sequence) or isinstance(given, str)
