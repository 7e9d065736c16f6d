"""Primitives of oneDNN over memory of ours: memory descriptors, attributes, primitives and their launches."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels.library import load
from singa_lite.unique import Unique

Extents = Sequence[int]


class Handle(Unique):
    """An object of the library, destroyed with its handle. It can be given to every function of the library."""

    __slots__ = ("_as_parameter_", "_destroy", "_keep")

    def __init__(self, kind: str, pointer: c.c_void_p, *keep: object) -> None:
        self._as_parameter_ = pointer
        self._destroy = getattr(load(), f"{kind}_destroy")
        self._keep = keep

    def __del__(self) -> None:
        destroy = getattr(self, "_destroy", None)  # none in one whose making an interrupt ended
        if destroy is not None:
            destroy(self._as_parameter_)


class _Argument(c.Structure):
    _fields_ = [("argument", c.c_int), ("memory", c.c_void_p)]


def dims(extents: Extents) -> c.Array[c.c_int64]:
    """Extents as the library takes them."""
    return (c.c_int64 * max(len(extents), 1))(*extents)


class MemoryDesc(Unique):
    """How a tensor lies in memory (a memory descriptor); it lives as long as its owner."""

    __slots__ = ("_as_parameter_", "_owner")

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


@lru_cache(maxsize=4096)
def memory_desc(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str = "float32") -> MemoryDesc:
    """The descriptor of a tensor. strides: in elements; None: the primitive chooses them."""
    head = len(shape), dims(shape), f.DATA_TYPES[dtype]
    if strides is None:
        made = load().make("memory_desc_create_with_tag", *head, f.ANY)
    else:
        made = load().make("memory_desc_create_with_strides", *head, dims(strides))
    return MemoryDesc(made, Handle("memory_desc", made))


#: One post-op: its kind ("eltwise", "sum", "binary", "prelu") and what its function takes.
PostOp: TypeAlias = tuple[str, *tuple[object, ...]]

_ZERO = np.zeros(1, np.float32)


def _attributes(post_ops: Sequence[PostOp]) -> Handle:
    """Scratch is the caller's; post_ops: what is done with each element of the result before it is stored."""
    library = load()
    attributes = Handle("primitive_attr", library.make("primitive_attr_create"))
    library.primitive_attr_set_scratchpad_mode(attributes, 1)
    if post_ops:
        chain = Handle("post_ops", library.make("post_ops_create"))
        for kind, *arguments in post_ops:
            getattr(library, f"post_ops_append_{kind}")(chain, *arguments)
        library.primitive_attr_set_post_ops(attributes, chain)
    return attributes


class Primitive(Unique):
    """One primitive for fixed memory descriptors: made once, bound to memory as often as wanted.

    Its code, which takes time and memory, is made when it is first bound: planning asks for scratch alone.

    function: of the library, without `_primitive_desc_create`; arguments: those behind the engine, but for the
    forward primitive's descriptor (forward) and the attributes (post_ops). OneDNNError if the library has no
    implementation for them.
    """

    def __init__(
        self, function: str, *arguments: object, forward: Primitive | None = None, post_ops: Sequence[PostOp] = ()
    ) -> None:
        library, attributes = load(), _attributes(post_ops)
        self._slopes = [f.slope(index) for index, (kind, *_) in enumerate(post_ops) if kind == "prelu"]
        hint = () if forward is None else (forward.descriptor,)
        made = library.make(f"{function}_primitive_desc_create", library.engine, *arguments, *hint, attributes)
        self._finish(made, (arguments, attributes))

    #: Arguments of post-ops "prelu", whose slope is 0.
    _slopes: Sequence[int] = ()

    def _finish(self, descriptor: c.c_void_p, keep: object) -> None:
        library = load()
        self.descriptor = Handle("primitive_desc", descriptor, keep)
        self._primitive: Handle | None = None
        self.scratch_bytes: int = library.desc_bytes(library.query_md(self.descriptor, f.SCRATCHPAD_DESC, 0))

    @property
    def implementation(self) -> str:
        """The library's name for the code that runs."""
        name = c.c_char_p()
        load().query(self.descriptor, f.IMPLEMENTATION, 0, c.byref(name))
        return (name.value or b"").decode()

    def memory_desc(self, argument: int) -> MemoryDesc:
        """The descriptor that an argument of the execution must have."""
        return MemoryDesc(c.c_void_p(load().query_md(self.descriptor, f.ARGUMENT_DESC, argument)), self)

    def bind(self, arrays: Mapping[int, Array], scratch: Array | None = None) -> Launch:
        """A call without arguments that runs the primitive. arrays: {argument: NumPy array over its memory}."""
        launch, _ = self._launch(arrays, scratch)
        return launch

    def bind_each(self, rounds: Sequence[Mapping[int, Array]], scratch: Array | None = None) -> Callable[[int], None]:
        """A call that runs the primitive over the arrays of one of several rounds, given its index.

        Memory objects of the library take kilobytes; here one set of them is pointed at the arrays of each round.
        """
        launch, memories = self._launch(rounds[0], scratch)
        point = load().memory_set_data_handle
        moved = [a for a in rounds[0] if len({arrays[a].ctypes.data for arrays in rounds}) > 1]
        rows = [[(memories[a], arrays[a].ctypes.data) for a in moved] for arrays in rounds]

        def run(index: int) -> None:
            for memory, pointer in rows[index]:
                point(memory, pointer)
            launch()

        return run

    def _launch(self, arrays: Mapping[int, Array], scratch: Array | None) -> tuple[Launch, dict[int, Handle]]:
        library = load()
        given = {**arrays, **dict.fromkeys(self._slopes, _ZERO)}
        if self.scratch_bytes:
            if scratch is None:
                raise ValueError(f"{self.implementation}: wanted {self.scratch_bytes} bytes of scratch, received none")
            given[f.SCRATCHPAD] = scratch
        memories = {argument: self._memory(argument, array) for argument, array in given.items()}
        arguments = (_Argument * len(given))(
            *(_Argument(argument, memory._as_parameter_) for argument, memory in memories.items())
        )
        if self._primitive is None:
            self._primitive = Handle("primitive", library.make("primitive_create", self.descriptor))
        launch = partial(library.primitive_execute, self._primitive, library.stream, len(given), arguments)
        launch.keep = memories, list(given.values())  # type: ignore[attr-defined]
        return launch, memories

    def _memory(self, argument: int, array: Array) -> Handle:
        desc = self.memory_desc(argument)
        if array.flags.forc and array.nbytes < desc.nbytes:  # the library writes to where it is told
            raise ValueError(
                f"{self.implementation}: argument {argument}: wanted {desc.nbytes} bytes, received {array.nbytes}"
            )
        pointer = c.c_void_p(array.ctypes.data)
        return Handle("memory", load().make("memory_create", desc, load().engine, pointer))


class Reorder(Primitive):
    """Copies values from one layout to another: SRC to DST."""

    def __init__(self, source: MemoryDesc, target: MemoryDesc) -> None:
        library, attributes = load(), _attributes(())
        made = library.make("reorder_primitive_desc_create", source, library.engine, target, library.engine, attributes)
        self._finish(made, (source, target, attributes))
