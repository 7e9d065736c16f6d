"""Objects of the library that we own, and its descriptors of memory."""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Hashable, Sequence
from functools import cache
from weakref import WeakValueDictionary

from singa_lite.common.unique import Unique
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library.library import load


class Handle(Unique):
    """An object of the library, destroyed with its handle. It can be given to every function of the library."""

    __slots__ = ("_as_parameter_", "_destroy", "_keep")

    def __init__(self, kind: str, pointer: c.c_void_p, *keep: object) -> None:
        self._as_parameter_ = pointer
        self._destroy = getattr(load(), sys.intern(f"{kind}_destroy"))  # Python keeps names that it looked up
        self._keep = keep

    def __del__(self) -> None:
        destroy = getattr(self, "_destroy", None)  # none in one whose making an interrupt ended
        if destroy is not None:
            destroy(self._as_parameter_)

    @property
    def pointer(self) -> c.c_void_p:
        """Of the object, which somebody has to keep. What ctypes has to convert at each call takes as long as it."""
        return self._as_parameter_


def dims(extents: Sequence[int]) -> c.Array[c.c_int64]:
    """Extents as the library takes them."""
    return _integers(max(len(extents), 1))(*extents)


@cache
def _integers(count: int) -> type[c.Array[c.c_int64]]:
    """The type of so many: ctypes would make one each time."""
    return c.c_int64 * count


class MemoryDesc(Unique):
    """How a tensor lies in memory (a memory descriptor); it lives as long as its owner."""

    __slots__ = ("__weakref__", "_as_parameter_", "_owner")

    def __init__(self, pointer: c.c_void_p, owner: object) -> None:
        self._as_parameter_ = pointer
        self._owner = owner

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the last, padding included; 0 where there is no tensor."""
        size: int = load().desc_bytes(self)
        return size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryDesc) and bool(load().descs_equal(self, other))

    __hash__ = None  # type: ignore[assignment]


_memory_descs: WeakValueDictionary[Hashable, MemoryDesc] = WeakValueDictionary()


def memory_desc(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str = "float32") -> MemoryDesc:
    """The descriptor of a tensor, the same one as long as anybody has it. strides: in elements; None: the primitive
    chooses them.
    """
    key = shape, strides, dtype
    found = _memory_descs.get(key)
    if found is None:
        found = _memory_descs[key] = _new_memory_desc(*key)
    return found


def _new_memory_desc(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str) -> MemoryDesc:
    head = len(shape), dims(shape), f.DATA_TYPES[dtype]
    if strides is None:
        made = load().make("memory_desc_create_with_tag", *head, f.ANY)
    else:
        made = load().make("memory_desc_create_with_strides", *head, dims(strides))
    return MemoryDesc(made, Handle("memory_desc", made))
