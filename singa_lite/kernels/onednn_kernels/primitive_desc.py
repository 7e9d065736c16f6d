"""Descriptors of primitives, and their code: equal primitives share one."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from weakref import WeakValueDictionary

from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.handles import Handle, MemoryDesc
from singa_lite.kernels.onednn_kernels.library import load
from singa_lite.unique import Unique


class PrimitiveDesc(Unique):
    """A primitive's descriptor, and its code once somebody has bound it.

    Equal primitives have one between them, as a net asks for the same thing in many layers and in every form of batch:
    a descriptor takes some 20 KiB, code as much. It goes with the last of them.
    """

    def __init__(self, handle: Handle) -> None:
        library = load()
        self.handle = handle
        self.scratch_bytes: int = library.desc_bytes(library.query_md(handle, f.SCRATCHPAD_DESC, 0))

    @cached_property
    def primitive(self) -> Handle:
        """With code, which takes time and memory to make: planning asks for scratch alone."""
        return Handle("primitive", load().make("primitive_create", self.handle))

    @property
    def implementation(self) -> str:
        """The library's name for the code that runs."""
        name = c.c_char_p()
        load().query(self.handle, f.IMPLEMENTATION, 0, c.byref(name))
        return (name.value or b"").decode()

    def memory_desc(self, argument: int) -> MemoryDesc:
        """The descriptor that an argument of the execution must have."""
        return MemoryDesc(c.c_void_p(load().query_md(self.handle, f.ARGUMENT_DESC, argument)), self)


_descriptors: WeakValueDictionary[Hashable, PrimitiveDesc] = WeakValueDictionary()


def shared(key: Hashable, make: Callable[[], Handle]) -> PrimitiveDesc:
    """The descriptor that was made for the key, as long as anybody has it, else a new one.

    Some primitives keep the number of threads that was set when they were made, so it is part of the key.
    """
    key = key, one_thread.count()
    found = _descriptors.get(key)
    if found is None:
        found = _descriptors[key] = PrimitiveDesc(make())
    return found


def key_of(value: object) -> Hashable:
    """Equal for arguments that mean the same to the library. Descriptors of memory are told apart by `id`."""
    if isinstance(value, MemoryDesc):
        return id(value)
    if isinstance(value, c.Array | Sequence) and not isinstance(value, str):
        return tuple(key_of(each) for each in value)
    return repr(value)  # as 0.0 and -0.0, and 1 and 1.0, are equal
