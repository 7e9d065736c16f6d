"""Primitives of oneDNN over memory of ours: memory descriptors, attributes, primitives and their launches."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import one_thread
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


class _Descriptor(Unique):
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


def _pointer(handle: Handle) -> c.c_void_p:
    """Of an object of the library, which somebody has to keep."""
    pointer: c.c_void_p = handle._as_parameter_
    return pointer


_descriptors: WeakValueDictionary[Hashable, _Descriptor] = WeakValueDictionary()


def _shared(key: Hashable, make: Callable[[], Handle]) -> _Descriptor:
    """The descriptor that was made for the key, as long as anybody has it, else a new one.

    Some primitives keep the number of threads that was set when they were made, so it is part of the key.
    """
    key = key, one_thread.count()
    found = _descriptors.get(key)
    if found is None:
        found = _descriptors[key] = _Descriptor(make())
    return found


def _key(value: object) -> Hashable:
    """Equal for arguments that mean the same to the library. Descriptors of memory are told apart by `id`."""
    if isinstance(value, MemoryDesc):
        return id(value)
    if isinstance(value, c.Array | Sequence) and not isinstance(value, str):
        return tuple(_key(each) for each in value)
    return repr(value)  # as 0.0 and -0.0, and 1 and 1.0, are equal


class Primitive(Unique):
    """One primitive for fixed memory descriptors: made once, bound to memory as often as wanted.

    function: of the library, without `_primitive_desc_create`; arguments: those behind the engine, but for the
    forward primitive's descriptor (forward) and the attributes (post_ops). OneDNNError if the library has no
    implementation for them.
    """

    def __init__(
        self, function: str, *arguments: object, forward: Primitive | None = None, post_ops: Sequence[PostOp] = ()
    ) -> None:
        self._slopes = [f.slope(index) for index, (kind, *_) in enumerate(post_ops) if kind == "prelu"]
        hint = () if forward is None else (forward.descriptor,)

        def make() -> Handle:
            library, attributes = load(), _attributes(post_ops)
            made = library.make(f"{function}_primitive_desc_create", library.engine, *arguments, *hint, attributes)
            return Handle("primitive_desc", made, arguments, hint, post_ops)  # whose ids are the key's

        self._has(_shared((function, _key(arguments), tuple(map(id, hint)), _key(post_ops)), make))

    #: Arguments of post-ops "prelu", whose slope is 0.
    _slopes: Sequence[int] = ()

    def _has(self, shared: _Descriptor) -> None:
        self._shared = shared
        self.descriptor, self.scratch_bytes = shared.handle, shared.scratch_bytes

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
        rows = [[(_pointer(memories[a]), c.c_void_p(arrays[a].ctypes.data)) for a in moved] for arrays in rounds]

        def run(index: int) -> None:
            for memory, pointer in rows[index]:
                point(memory, pointer)
            launch()

        return run

    def _launch(self, arrays: Mapping[int, Array], scratch: Array | None) -> tuple[Launch, dict[int, Handle]]:
        """The launch holds the library's objects and no array: whoever binds a kernel has those (`RoutineKernel`)."""
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
        primitive = self._shared.primitive
        # Pointers as ctypes wants them: what it has to convert at each call takes as long as the call itself.
        pointers = _pointer(primitive), library.stream
        launch = partial(library.primitive_execute, *pointers, len(given), c.cast(arguments, c.c_void_p))
        launch.keep = primitive, arguments, *memories.values()  # type: ignore[attr-defined]
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
        def make() -> Handle:
            library, attributes, engine = load(), _attributes(()), load().engine
            made = library.make("reorder_primitive_desc_create", source, engine, target, engine, attributes)
            return Handle("primitive_desc", made, source, target)

        self._has(_shared(("reorder", id(source), id(target)), make))
