"""Sources of ready-made batches: which objects are one, in which of four ways, and batches of theirs that are dicts."""

from __future__ import annotations

from array import array as flat_array
from collections.abc import Iterable, Mapping, Sequence, Set
from os import PathLike
from typing import Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np

from singa_lite.common.arrays import kind
from singa_lite.common.errors import GraphError
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
#: Names of a net's input layers, and of the output layers that have targets.
Names: TypeAlias = tuple[Sequence[str], Sequence[str]]
#: What inputs, targets and weights of samples are called where no layer's name stands.
_X = ("x", "input", "inputs")
_Y = ("y", "target", "targets", "label", "labels")
_WEIGHTS = ("sample_weight", "sample_weights", "weight", "weights")


def gives_batches(given: object) -> TypeGuard[BatchSource]:
    """Whether it is an iterator, a loader, batches by number, or `data.Epochs`."""
    if isinstance(given, Epochs):
        return True
    if isinstance(given, _OTHERS) or any(hasattr(given, name) for name in _OF_ARRAYS):
        return False
    return isinstance(given, Indexed | Iterable)


def check_is_no_dataset(where: str, given: object) -> None:
    """TypeError for PyTorch's Dataset, whose items are samples and no batches."""
    for made in type(given).__mro__:
        if (made.__module__ or "").startswith("torch.utils.data.dataset"):
            raise TypeError(
                f"{where}: wanted batches, received {kind(given)}, which gives single samples; "
                "torch.utils.data.DataLoader(data, batch_size=32) makes batches of it"
            )


def parts_of(where: str, batch: Mapping[object, object], names: Names) -> tuple[object, object, object]:
    """(x, y, weights of samples) of a batch, None for what it has not.

    Its entries have names of input and output layers, or one of the usual names. GraphError for any other entry, and
    for a batch without inputs.
    """
    left, (inputs, outputs) = dict(batch), names
    x, y, weights = _pop_entry(left, inputs, _X), _pop_entry(left, outputs, _Y), _pop_entry(left, (), _WEIGHTS)
    if left or x is None:
        raise GraphError(
            f"{where}: wanted batches with the inputs {list(inputs)}, or one of {_X}, the targets "
            f"{list(outputs)}, or one of {_Y}, and perhaps {_WEIGHTS[0]!r}, received entries {list(batch)}"
        )
    return x, y, weights


def _pop_entry(left: dict[object, object], layers: Sequence[str], usual: Sequence[str]) -> object:
    """{layer: array} of these layers, or the entry of a usual name, taken out of what is left; None for neither."""
    named = {name: left.pop(name) for name in layers if name in left}
    return named or next((left.pop(name) for name in usual if name in left), None)
