"""What the runtime of GPUs uses of CuPy, which has no type information: protocols for objects, a name for it."""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeAlias

from singa_lite.common.array_types import DType

#: The module `cupy`: its functions and classes have no types that a checker could read.
Cupy: TypeAlias = Any


class Pointer(Protocol):
    """`cupy.cuda.MemoryPointer`: an address in a GPU's memory, which holds the allocation that it lies in."""

    @property
    def ptr(self) -> int: ...

    def __add__(self, offset: int, /) -> Self: ...


class CupyArray(Protocol):
    """`cupy.ndarray`. strides: bytes; data: where its first element is."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def size(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def data(self) -> Pointer: ...

    def __dlpack__(self, **options: object) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class Event(Protocol):
    """`cupy.cuda.Event`: a mark in the order of a stream's work. done: the work before it is."""

    @property
    def done(self) -> bool: ...

    def record(self, stream: Stream) -> None: ...

    def synchronize(self) -> None: ...


class CapturedGraph(Protocol):
    """What a capture gives (`cupy.cuda.graph.Graph`)."""

    def launch(self, stream: CapturingStream) -> None: ...


class CapturingStream(Protocol):
    """What a replay asks of a stream (`cupy.cuda.Stream`, made with non_blocking=True)."""

    def begin_capture(self) -> None: ...

    def end_capture(self) -> CapturedGraph: ...


class Stream(CapturingStream, Protocol):
    """`cupy.cuda.Stream`. Inside its `with` block it is the current one."""

    @property
    def ptr(self) -> int: ...

    @property
    def done(self) -> bool: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def is_capturing(self) -> bool: ...

    def wait_event(self, event: Event) -> None: ...

    def synchronize(self) -> None: ...


class CupyPool(Protocol):
    """`cupy.cuda.MemoryPool`."""

    def malloc(self, size: int) -> Pointer: ...

    def total_bytes(self) -> int: ...

    def set_limit(self, size: int) -> None: ...

    def free_all_blocks(self) -> None: ...
