"""Sources of ready-made batches: which objects are one, and in which of four ways."""

from __future__ import annotations

from array import array as flat_array
from collections.abc import Iterable, Iterator, Mapping, Set
from os import PathLike
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np

from singa_lite.common.arrays import kind
from singa_lite.data import Epochs


@runtime_checkable
class Indexed(Protocol):
    """Batches by number, as Keras's Sequence and PyDataset have them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


@runtime_checkable
class Stateful(Protocol):
    """A source that says where it is, and goes there, as torchdata's StatefulDataLoader does."""

    def state_dict(self) -> object: ...

    def load_state_dict(self, state: object, /) -> object: ...


#: What batches are taken from.
BatchSource = Epochs | Indexed | Iterable[object]

#: What is no source of batches, though it can be gone through.
_OTHERS = (str, bytes, bytearray, list, tuple, range, memoryview, flat_array, Mapping, Set, np.ndarray, PathLike, type)
#: What arrays, tables and sparse matrices have.
_OF_ARRAYS = ("__array__", "__array_interface__", "__dlpack__", "iloc", "toarray", "dtype")


def gives_batches(given: object) -> TypeGuard[BatchSource]:
    """Whether it is an iterator, a loader, batches by number, or `data.Epochs`."""
    if isinstance(given, Epochs):
        return True
    if isinstance(given, _OTHERS) or any(hasattr(given, name) for name in _OF_ARRAYS):
        return False
    return by_number(given) or isinstance(given, Iterable)


def by_number(given: object) -> TypeGuard[Indexed]:
    """Whether batches are taken by number."""
    return isinstance(given, Indexed)


def is_iterator(given: object) -> bool:
    """Whether it is an iterator, which can be gone through once."""
    return isinstance(given, Iterator)


def check_is_no_dataset(where: str, given: object) -> None:
    """TypeError for PyTorch's Dataset, whose items are samples and no batches."""
    for made in type(given).__mro__:
        if (made.__module__ or "").startswith("torch.utils.data.dataset"):
            raise TypeError(
                f"{where}: wanted batches, received {kind(given)}, which gives single samples; "
                "torch.utils.data.DataLoader(data, batch_size=32) makes batches of it"
            )
