"""Ready-made batches in memory of their own, where a source makes the next ones before they are used."""

from __future__ import annotations

import threading
from array import array as flat_array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import numpy as np

from singa_lite.common.arrays import on_host
from singa_lite.data.loading.batch_sources import Indexed

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
