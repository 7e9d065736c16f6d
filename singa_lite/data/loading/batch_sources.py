"""Sources of ready-made batches: which objects are one, batches that are dicts, and batches in memory of their own."""

from __future__ import annotations

import threading
from array import array as flat_array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from os import PathLike
from typing import Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np

from singa_lite.common.arrays import kind, on_host
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


#: So many first batches of a source are asked for one after the other, to see whether it refills its arrays.
_LOOKED_AT = 4


def copied(given: object) -> object:
    """The same batch in memory of its own: the arrays of tuples, lists and dicts of any depth are copied.

    What is no array stays as it is, and is refused when the batch is checked.
    """
    try:
        return _copied(given)
    except RecursionError:  # a list that holds itself
        return given


def _copied(given: object) -> object:
    if isinstance(given, Mapping):
        return {name: _copied(each) for name, each in given.items()}
    if isinstance(given, tuple | list):
        return (tuple if isinstance(given, tuple) else list)(map(_copied, given))
    if isinstance(given, memoryview | flat_array):
        return np.array(given)
    if isinstance(given, type):
        return given
    for name in ("clone", "copy"):  # PyTorch's name, and that of NumPy, pandas and CuPy
        if callable(getattr(given, name, None)):
            made: object = getattr(given, name)()
            return made
    return np.array(given) if hasattr(given, "__array__") and on_host(given) else given


class Gate:
    """Lets one thread at a time work, and several as soon as `opens` is set: their results share no memory.

    Pickled it is a new one.
    """

    def __init__(self) -> None:
        self.opens = False
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Gate], tuple[()]]:
        return Gate, ()

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Work within this."""
        with nullcontext() if self.opens else self._lock:
            yield


class InOwnMemory:
    """Makes batches by number, each in memory of its own, for several threads at a time.

    A source that refills the arrays of an earlier batch is asked by one thread at a time. Whether it does shows in its
    first batches, which are asked for one after the other.
    """

    def __init__(self, source: Indexed) -> None:
        self._source = source
        self._gate = Gate()
        self._first: list[tuple[object, object]] = []

    def __call__(self, number: int) -> object:
        """The batch of this number."""
        with self._gate.passed():
            given = self._source[number]
            made = copied(given)
            if len(self._first) < _LOOKED_AT:
                self._compare_with_copy(given, made)
            return made

    def _compare_with_copy(self, given: object, made: object) -> None:
        """Compare the first batches with their copies: one that has changed since was refilled."""
        self._first.append((given, made))
        if len(self._first) == _LOOKED_AT:
            self._gate.opens = all(_values(old) == _values(copy) for old, copy in self._first)
            self._first = [(None, None)] * _LOOKED_AT  # which holds no batch any more


def _values(given: object) -> list[bytes]:
    """The values of all arrays and numbers of a batch; those that NumPy cannot read are left out."""
    if isinstance(given, Mapping | tuple | list):
        members = given.values() if isinstance(given, Mapping) else given
        return [found for each in members for found in _values(each)]
    try:
        return [np.asarray(given).tobytes()] if on_host(given) else []
    except (RuntimeError, TypeError, ValueError):
        return []
