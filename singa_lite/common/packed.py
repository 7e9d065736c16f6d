"""Packed: a value of many small objects, kept as bytes while nobody uses it.

A plan is a hundred thousand objects, which take ten times their bytes, and lie among what planning made and dropped.
Python hands memory back to the system a MiB at a time, where all objects of one are gone: a few that stay keep it all.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Collection
from io import BytesIO
from typing import Generic, TypeVar
from weakref import ReferenceType, ref

from singa_lite.common.unique import Unique

Value = TypeVar("Value")

_PLAIN = frozenset((bool, dict, float, frozenset, int, list, set, str, tuple, type(None)))


class Packed(Unique, Generic[Value]):
    """A value as it is, until `pack` makes bytes of it. What is done to it later is lost when nobody has it any more.

    Weak references to it must be possible. own: the classes of its objects. All others among them, such as functions,
    and Python's plain ones apart, are kept as they are.
    """

    def __init__(self, value: Value, own: Collection[type]) -> None:
        self._own = _PLAIN.union(own)
        self._value: Value | None = value
        self._known: ReferenceType[Value] = ref(value)
        self._bytes = b""
        self._others: list[object] = []

    def pack(self) -> None:
        """Keep bytes from here on."""
        if self._value is None:
            return
        out = BytesIO()
        pickler = _Pickler(out, self._own)
        pickler.dump(self._value)
        self._bytes, self._others = zlib.compress(out.getvalue(), 1), pickler.others
        self._value = None  # the last step: an interrupt before it changes nothing

    @property
    def value(self) -> Value:
        """The value: the same object as long as anybody has it."""
        found = self._known() if self._value is None else self._value
        if found is None:
            found = _Unpickler(BytesIO(zlib.decompress(self._bytes)), self._others).load()
            self._known = ref(found)
        return found


class _Pickler(pickle.Pickler):
    """others: what is kept as it is, in the order in which it is met."""

    def __init__(self, out: BytesIO, own: Collection[type]) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self.others: list[object] = []
        self._own = own
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: object) -> int | None:
        if type(obj) in self._own:
            return None
        number = self._numbers.setdefault(id(obj), len(self.others))
        if number == len(self.others):
            self.others.append(obj)
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, given: BytesIO, others: list[object]) -> None:
        super().__init__(given)
        self._others = others

    def persistent_load(self, pid: int) -> object:
        return self._others[pid]
