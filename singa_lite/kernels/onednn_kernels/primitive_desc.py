"""Descriptors of primitives, and their code: equal primitives share one."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from sys import intern
from weakref import WeakValueDictionary

from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.handles import Handle, MemoryDesc
from singa_lite.kernels.onednn_kernels.library import load
from singa_lite.unique import Unique


class PrimitiveDesc(Unique):
    """A primitive's descriptor, and its code once somebody has bound it.

    Equal primitives have one between them, as a net asks for the same thing in many layers and in every form of batch.
    It goes with the last of them. make: makes the descriptor, which takes 20 to 40 KiB, from descriptors of memory;
    hints: further descriptors that it is made from; keep: what has to live as long.
    """

    def __init__(self, make: Callable[[], Handle], hints: Sequence[PrimitiveDesc] = (), keep: object = None) -> None:
        library = load()
        self._make, self._hints, self._keep = make, hints, keep
        self._made: Handle | None = make()
        self._primitive: Handle | None = None
        self.scratch_bytes: int = library.desc_bytes(library.query_md(self._made, f.SCRATCHPAD_DESC, 0))

    @property
    def handle(self) -> Handle:
        """The descriptor; made once more where it was let go of."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def primitive(self) -> Handle:
        """With code, which takes time and memory to make: planning asks for scratch alone.

        It has a copy of its descriptor, so that the one it is made from and the hints are not needed any more.
        """
        if self._primitive is None:
            self._primitive = Handle("primitive", load().make("primitive_create", self.handle))
            self.let_go()
            for hint in self._hints:
                hint.let_go()
        return self._primitive

    def let_go(self) -> None:
        """Keep no descriptor, until it is wanted again."""
        self._made = None

    @property
    def _queried(self) -> object:
        """What knows of the descriptor."""
        if self._primitive is None:
            return self.handle
        own = c.c_void_p()
        load().primitive_get_primitive_desc(self._primitive, c.byref(own))
        return own

    @property
    def implementation(self) -> str:
        """The library's name for the code that runs."""
        name = c.c_char_p()
        load().query(self._queried, f.IMPLEMENTATION, 0, c.byref(name))
        return (name.value or b"").decode()

    def memory_desc(self, argument: int) -> MemoryDesc:
        """The descriptor that an argument of the execution must have."""
        library = load()
        made = library.make("memory_desc_clone", library.query_md(self._queried, f.ARGUMENT_DESC, argument))
        return MemoryDesc(made, Handle("memory_desc", made))


_descriptors: WeakValueDictionary[Hashable, PrimitiveDesc] = WeakValueDictionary()


def shared(key: Hashable, make: Callable[[], PrimitiveDesc]) -> PrimitiveDesc:
    """The one that was made for the key, as long as anybody has it, else a new one.

    Some primitives keep the number of threads that was set when they were made, so it is part of the key.
    """
    key = key, one_thread.count()
    found = _descriptors.get(key)
    if found is None:
        found = _descriptors[key] = make()
    return found


def key_of(value: object) -> Hashable:
    """Equal for arguments that mean the same to the library. Descriptors of memory are told apart by `id`."""
    if isinstance(value, MemoryDesc):
        return id(value)
    if isinstance(value, c.Array | Sequence) and not isinstance(value, str):
        return tuple(key_of(each) for each in value)
    return intern(repr(value))  # as 0.0 and -0.0, and 1 and 1.0, are equal
