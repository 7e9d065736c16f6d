"""One call of a function of a user's own operation: its arrays by name, and what is watched about them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import GraphError
from singa_lite.kernels.kernel_set import CallArrays, DeviceArray, Launch

#: Of each piece in the scratch: a cache line.
_ALIGNMENT = 64


class Piece(NamedTuple):
    """A temporary in the scratch of a call."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


class FunctionCall:
    """A function over NumPy arrays, which are handed to it by name.

    method: the function; tensors: names of those that the kernel is given, in order; writes: which of them it may
    write, the others are handed over read-only; scratch: its temporaries; checked: whether it is looked at each time
    whether the function keeps one of its arrays; begins: whether it begins with the settings that its object has now,
    whatever an earlier run set. Equal to a call of the same function with equal settings.
    """

    def __init__(
        self,
        method: Callable[..., object],
        tensors: Sequence[str],
        writes: Sequence[str],
        scratch: Sequence[Piece],
        checked: bool,
        begins: bool = False,
    ) -> None:
        self._method = method
        self._settings = dict(vars(method.__self__)) if begins and hasattr(method, "__self__") else None
        self._tensors = tuple(tensors)
        self._writes = frozenset(writes)
        *starts, self.scratch_bytes = _starts(scratch)
        self._pieces = dict(zip(scratch, starts, strict=True))
        self._checked = checked

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None) -> Launch:
        """Bind it to its arrays and scratch."""
        given = {name: a for name, a in zip(self._tensors, arrays, strict=True) if a is not None}
        handed = {name: _argument_view(array, name in self._writes) for name, array in given.items()}
        for piece, start in self._pieces.items():
            handed[piece.name] = np.ndarray(piece.shape, piece.dtype, scratch, start)
        return partial(self._run_checked if self._checked else self._run, handed)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, FunctionCall):
            return self is other
        try:
            return self._stated() == other._stated()
        except Exception:  # of an object's own comparison, such as that of two arrays
            return False

    def __hash__(self) -> int:
        return hash((getattr(self._method, "__func__", None), self._tensors))

    def _stated(self) -> tuple[object, ...]:
        """All that the results go by: the function and its object's settings, and the forms of its arrays."""
        owner = getattr(self._method, "__self__", None)
        settings = getattr(owner, "__dict__", None)
        function = getattr(self._method, "__func__", self._method)
        return function, type(owner), settings, self._tensors, self._writes, self._pieces

    def _run(self, arrays: Mapping[str, Array]) -> None:
        if self._settings is not None:
            self._begin(self._settings)
        try:
            made = self._method(**arrays)
        except Exception as error:
            error.add_note(f"in {self}")
            raise
        if made is not None:
            raise TypeError(
                f"{self}: wanted a function that writes into the arrays it is given ({self._written()}[...] = ) and "
                f"returns None, received {type(made).__name__}"
            )

    def _begin(self, settings: Mapping[str, object]) -> None:
        attributes: dict[str, object] = self._method.__self__.__dict__  # type: ignore[attr-defined]  # a method, here
        attributes.clear()
        attributes.update(settings)

    def _run_checked(self, arrays: Mapping[str, Array]) -> None:
        """As `_run`, over arrays that are made for this one call: those that live on are kept by the function."""
        fresh = {name: _owned_view(array) for name, array in arrays.items()}
        living = {name: weakref.ref(array) for name, array in fresh.items()}
        self._run(fresh)
        fresh.clear()
        kept = [name for name, array in living.items() if array() is not None]
        if kept:
            raise GraphError(
                f"{self}: wanted a function that keeps none of its arrays, as others get their memory, received one "
                f"that keeps {', '.join(map(repr, kept))}, or a view of it; keep a copy, or ask for Scratch that "
                "lives longer"
            )

    def _written(self) -> str:
        return next((name for name in self._tensors if name in self._writes), "y")

    def __repr__(self) -> str:
        return f"{getattr(self._method, '__qualname__', self._method)}"


def _starts(pieces: Sequence[Piece]) -> list[int]:
    """Where each piece begins in the scratch, and where the last one ends."""
    starts = [0]
    for piece in pieces:
        nbytes = prod(piece.shape) * piece.dtype.itemsize
        starts.append(starts[-1] + -(-nbytes // _ALIGNMENT) * _ALIGNMENT)
    return starts


def _argument_view(array: Array, may_write: bool) -> Array:
    """The array as the function gets it."""
    handed = array.view()
    handed.flags.writeable = may_write
    return handed


class _Interface:
    """Stands between arrays: a view's base is the array that it was made of, no further back than to one of these."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def _owned_view(array: Array) -> Array:
    """An array over the same elements, which lives for as long as somebody holds it, or a view of it."""
    if array.dtype.kind not in "biuf":  # of another library, which the interface cannot name
        return array.view()
    return np.asarray(_Interface(array))
