"""Primitives of oneDNN over memory of ours: memory descriptors, attributes, primitives and their launches."""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.unique import Unique
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import memories
from singa_lite.kernels.onednn_kernels.library.handles import MemoryDesc as MemoryDesc
from singa_lite.kernels.onednn_kernels.library.handles import dims as dims
from singa_lite.kernels.onednn_kernels.library.handles import memory_desc as memory_desc
from singa_lite.kernels.onednn_kernels.library.library import OneDNNError, load
from singa_lite.kernels.onednn_kernels.library.memories import Argument, Execution
from singa_lite.kernels.onednn_kernels.library.primitive_desc import PostOp as PostOp
from singa_lite.kernels.onednn_kernels.library.primitive_desc import PrimitiveDesc, shared

_ZERO = np.zeros(1, np.float32)

NOWHERE: Mapping[int, Sequence[int]] = MappingProxyType({})


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
        self._has(shared(function, partial(_make, function), arguments, hints, post_ops))

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
        self._has(shared("reorder", _make_reorder, (source, target)))


def usable(function: str, *arguments: object, post_ops: Sequence[PostOp] = ()) -> Primitive | None:
    """The primitive, if the library has more than plain loops for it."""
    try:
        primitive = Primitive(function, *arguments, post_ops=post_ops)
    except OneDNNError as error:
        if error.status != OneDNNError.UNIMPLEMENTED:
            raise
        return None
    return None if "ref" in primitive.implementation else primitive


def _make(function: str, arguments: tuple[object, ...]) -> c.c_void_p:
    library = load()
    return library.make(sys.intern(f"{function}_primitive_desc_create"), library.engine, *arguments)


def _make_reorder(arguments: tuple[object, ...]) -> c.c_void_p:
    library, (source, target, attributes) = load(), arguments
    return library.make("reorder_primitive_desc_create", source, library.engine, target, library.engine, attributes)
