"""Marks: which tensors were parameters where a record goes back through an expression."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import ReferenceType, ref

from singa_lite.common.errors import GraphError
from singa_lite.tensor import Tensor


class Marks:
    """Tensors that operations were given from outside the record, and whether they were to train.

    Called before each run of a record that goes back: GraphError where one of them is marked otherwise by then, as the
    record computes the gradients of those that were to train, and of no others.
    """

    def __init__(self) -> None:
        self._noted: dict[int, tuple[ReferenceType[Tensor], bool]] = {}

    def note(self, inputs: Iterable[Tensor | None]) -> None:
        """An operation that goes on the tape is given these."""
        for tensor in inputs:
            if tensor is not None and tensor.creator is None:
                known = self._noted.get(id(tensor))
                if known is None or known[0]() is not tensor:
                    self._noted[id(tensor)] = ref(tensor), tensor.stores_grad

    def settle(self) -> None:
        """The recording is over; those that have gone by then cannot be marked otherwise."""
        self._noted = {key: one for key, one in self._noted.items() if one[0]() is not None}

    def forget(self) -> None:
        """Nothing goes back."""
        self._noted.clear()

    def __call__(self) -> None:
        for kept, trained in self._noted.values():
            tensor = kept()
            if tensor is not None and tensor.stores_grad != trained:
                raise GraphError(
                    f"run: wanted stores_grad={trained} of {tensor.name or 'a tensor'!r}, through which the expression "
                    f"was recorded to go back, received {tensor.stores_grad}; record it again"
                )
