"""Descriptors of primitives, and their code: equal primitives share one."""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import TypeAlias
from weakref import WeakValueDictionary

from singa_lite.common.unique import Unique
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library.handles import Handle, MemoryDesc
from singa_lite.kernels.onednn_kernels.library.library import load

#: One post-op: its kind ("eltwise", "sum", "prelu") and what its function takes.
PostOp: TypeAlias = tuple[str, *tuple[object, ...]]
#: Makes the library's descriptor of arguments, hints and attributes.
Make = Callable[[tuple[object, ...]], c.c_void_p]


class PrimitiveDesc(Unique):
    """A primitive's descriptor, and its code once somebody has bound it.

    Equal primitives have one between them, as a net asks for the same thing in many layers and in every form of batch.
    It goes with the last of them. make: makes the descriptor, which takes 20 to 40 KiB, of these arguments, among them
    descriptors of memory; hints: further descriptors that it is made from; post_ops: what is done with the result.

    Threads share it. What one of them makes, another may make at the same time or let go of: whoever uses a handle has
    it under a name of its own, and one who keeps its pointer keeps the handle.
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_hints",
        "_made",
        "_post_ops",
        "_primitive",
        "_threads",
        "make",
        "scratch_bytes",
    )

    def __init__(
        self,
        make: Make,
        arguments: tuple[object, ...],
        hints: tuple[PrimitiveDesc, ...] = (),
        post_ops: Sequence[PostOp] = (),
    ) -> None:
        library = load()
        self.make, self._arguments, self._hints, self._post_ops = make, arguments, hints, tuple(post_ops)
        #: The library keeps code by what it does and by the number of threads set when it is asked for. Asked with
        #: another number than its descriptor was made for, it may give code that wants more scratch than this has.
        self._threads = one_thread.count()
        self._made: Handle | None = None
        self._primitive: Handle | None = None
        made = self.handle
        self.scratch_bytes: int = library.desc_bytes(library.query_md(made, f.SCRATCHPAD_DESC, 0))

    @property
    def handle(self) -> Handle:
        """The descriptor; made once more where it was let go of."""
        made = self._made
        if made is None:
            attributes = _attributes(self._post_ops)
            hints = [hint.handle for hint in self._hints]
            with one_thread.thread_count(self._threads):
                made = self._made = Handle("primitive_desc", self.make((*self._arguments, *hints, attributes)))
        return made

    @property
    def primitive(self) -> Handle:
        """With code, which takes time and memory to make: planning asks for scratch alone.

        It has a copy of its descriptor, so that the one it is made from and the hints are not needed any more.
        """
        made = self._primitive
        if made is None:
            own = self.handle
            with one_thread.thread_count(self._threads):
                made = self._primitive = Handle("primitive", load().make("primitive_create", own))
            self.let_go()
            for hint in self._hints:
                hint.let_go()
        return made

    def let_go(self) -> None:
        """Keep no descriptor, until it is wanted again."""
        self._made = None

    @contextmanager
    def _queried(self) -> Iterator[object]:
        """What knows of the descriptor, which lives at least as long as the block."""
        primitive = self._primitive
        if primitive is None:
            made = self.handle
            yield made
        else:
            own = c.c_void_p()
            load().primitive_get_primitive_desc(primitive, c.byref(own))
            yield own

    @property
    def implementation(self) -> str:
        """The library's name for the code that runs."""
        name = c.c_char_p()
        with self._queried() as queried:
            load().query(queried, f.IMPLEMENTATION, 0, c.byref(name))
            return (name.value or b"").decode()

    def memory_desc(self, argument: int) -> MemoryDesc:
        """The descriptor that an argument of the execution must have."""
        library = load()
        with self._queried() as queried:
            made = library.make("memory_desc_clone", library.query_md(queried, f.ARGUMENT_DESC, argument))
        return MemoryDesc(made, Handle("memory_desc", made))


_descriptors: WeakValueDictionary[bytes, PrimitiveDesc] = WeakValueDictionary()


def shared(
    name: str,
    make: Make,
    arguments: tuple[object, ...],
    hints: tuple[PrimitiveDesc, ...] = (),
    post_ops: Sequence[PostOp] = (),
) -> PrimitiveDesc:
    """The one that was made of equal arguments by the function of this name, as long as anybody has it, else a new one.

    Some primitives keep the number of threads that was set when they were made, so it is part of the key. So are ids of
    descriptors, which live as long as what was made of them.
    """
    parts = name, _key_of(arguments), tuple(map(id, hints)), _key_of(post_ops), one_thread.count()
    key = blake2b(repr(parts).encode(), digest_size=16).digest()
    found = _descriptors.get(key)
    if found is None:
        found = _descriptors[key] = PrimitiveDesc(make, arguments, hints, post_ops)
    return found


def _attributes(post_ops: Sequence[PostOp]) -> Handle:
    """Scratch is the caller's; post_ops: what is done with each element of the result before it is stored."""
    library = load()
    attributes = Handle("primitive_attr", library.make("primitive_attr_create"))
    library.primitive_attr_set_scratchpad_mode(attributes, 1)
    if post_ops:
        chain = Handle("post_ops", library.make("post_ops_create"))
        for kind, *arguments in post_ops:
            getattr(library, sys.intern(f"post_ops_append_{kind}"))(chain, *arguments)
        library.primitive_attr_set_post_ops(attributes, chain)
    return attributes


def _key_of(value: object) -> Hashable:
    """Equal for arguments that mean the same to the library. Descriptors of memory are told apart by `id`."""
    if isinstance(value, MemoryDesc):
        return id(value)
    if isinstance(value, c.Array | Sequence) and not isinstance(value, str):
        return tuple(_key_of(each) for each in value)
    return repr(value)  # as 0.0 and -0.0, and 1 and 1.0, are equal
