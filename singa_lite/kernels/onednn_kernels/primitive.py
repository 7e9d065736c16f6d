"""Primitives of oneDNN over memory of ours: memory descriptors, attributes, primitives and their launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import memories
from singa_lite.kernels.onednn_kernels.handles import Handle
from singa_lite.kernels.onednn_kernels.handles import MemoryDesc as MemoryDesc
from singa_lite.kernels.onednn_kernels.handles import dims as dims
from singa_lite.kernels.onednn_kernels.handles import memory_desc as memory_desc
from singa_lite.kernels.onednn_kernels.library import load
from singa_lite.kernels.onednn_kernels.memories import Argument, Execution
from singa_lite.kernels.onednn_kernels.primitive_desc import PrimitiveDesc, key_of, shared
from singa_lite.unique import Unique

#: One post-op: its kind ("eltwise", "sum", "binary", "prelu") and what its function takes.
PostOp: TypeAlias = tuple[str, *tuple[object, ...]]

_ZERO = np.zeros(1, np.float32)

NOWHERE: Mapping[int, Sequence[int]] = MappingProxyType({})


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

    function: of the library, without `_primitive_desc_create`; arguments: those behind the engine, but for the
    forward primitive's descriptor (forward) and the attributes (post_ops). OneDNNError if the library has no
    implementation for them.
    """

    def __init__(
        self, function: str, *arguments: object, forward: Primitive | None = None, post_ops: Sequence[PostOp] = ()
    ) -> None:
        self._slopes = [f.slope(index) for index, (kind, *_) in enumerate(post_ops) if kind == "prelu"]
        hints = () if forward is None else (forward.shared,)

        def make() -> Handle:
            library, attributes = load(), _attributes(post_ops)
            given = library.engine, *arguments, *(hint.handle for hint in hints), attributes
            return Handle("primitive_desc", library.make(f"{function}_primitive_desc_create", *given))

        key = function, key_of(arguments), tuple(map(id, hints)), key_of(post_ops)
        # The key has ids of descriptors of memory, so these have to live as long.
        self._has(shared(key, lambda: PrimitiveDesc(make, hints, (arguments, post_ops))))

    #: Arguments of post-ops "prelu", whose slope is 0.
    _slopes: Sequence[int] = ()

    def _has(self, shared: PrimitiveDesc) -> None:
        self.shared = shared
        self.scratch_bytes = shared.scratch_bytes

    @property
    def implementation(self) -> str:
        """The library's name for the code that runs."""
        return self.shared.implementation

    def memory_desc(self, argument: int) -> MemoryDesc:
        """The descriptor that an argument of the execution must have."""
        return self.shared.memory_desc(argument)

    def bind(self, arrays: Mapping[int, Array], scratch: Array | None = None) -> Launch:
        """A call without arguments that runs the primitive. arrays: {argument: NumPy array over its memory}."""
        return memories.current().launch([self.execution(arrays, scratch)])

    def execution(
        self, arrays: Mapping[int, Array], scratch: Array | None, moved: Mapping[int, Sequence[int]] = NOWHERE
    ) -> Execution:
        """What is to be bound. moved: {argument: its address in each round}; the others stay where they are."""
        given = {**arrays, **dict.fromkeys(self._slopes, _ZERO)}
        if self.scratch_bytes:
            if scratch is None:
                raise ValueError(f"{self.implementation}: wanted {self.scratch_bytes} bytes of scratch, received none")
            given[f.SCRATCHPAD] = scratch
        arguments = [
            Argument(number, moved.get(number) or (address_of(array),), array.nbytes if array.flags.forc else None)
            for number, array in given.items()
        ]
        return Execution(self.shared, arguments)


def address_of(array: Array) -> int:
    """Where it begins. (`ctypes.data` takes three times as long.)"""
    address: int = array.__array_interface__["data"][0]
    return address


class Reorder(Primitive):
    """Copies values from one layout to another: SRC to DST."""

    def __init__(self, source: MemoryDesc, target: MemoryDesc) -> None:
        def make() -> Handle:
            library, attributes, engine = load(), _attributes(()), load().engine
            made = library.make("reorder_primitive_desc_create", source, engine, target, engine, attributes)
            return Handle("primitive_desc", made)

        key = "reorder", id(source), id(target)
        self._has(shared(key, lambda: PrimitiveDesc(make, keep=(source, target))))
