"""The interface of a processor's runtime, as a device calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from singa_lite.common.array_types import Array, DeviceArray, DeviceMemory, DType
from singa_lite.kernels.kernel_set import Launch
from singa_lite.runtime.pinned import PinnedMemory


class Replay(Protocol):
    """A replay runs the launches of a step, again and again."""

    def __call__(self) -> None: ...

    def pausing(self, index: int, wait: Callable[[], object]) -> None:
        """Run them, and call `wait` once before the launch at `index`, or earlier."""


class Stage(Protocol):
    """Memory that batches pass through. memories: the processor's, of each array, for work between the two calls."""

    @property
    def memories(self) -> Sequence[DeviceMemory]: ...

    def begin(self, batch: Sequence[Array]) -> None:
        """Copy host arrays there in C order; they are read when this returns. Where this processor is the current."""

    def end(self) -> None:
        """What was asked for since `begin` reads them, and nothing after it."""


class Runtime(Protocol):
    """Arrays over memory, values in and out, and how launches are replayed. Methods with a body are a processor's whose
    work is done when a call returns.

    alignment: bytes; offsets in an arena are multiples of it. feed_layout: the kind of tensor (`Device.empty`) as which
    batches of images are held, "" for C order. is_asynchronous: whether work goes on behind the call that asks for it,
    as on a GPU. reads_host: whether kernels read host memory where it is. host_link: the rate of copies to
    `host_memory`, as a share of that of the processor's own memory; None where no values are offloaded there.
    """

    alignment: int
    feed_layout: str
    is_asynchronous: bool
    reads_host: bool
    host_link: float | None

    def view(
        self, memory: DeviceMemory, shape: Sequence[int], dtype: DType, strides: Sequence[int], offset: int
    ) -> DeviceArray:
        """An array over a region's memory, no copy. strides, offset: bytes."""

    def memory_slice(self, memory: DeviceMemory, offset: int, nbytes: int) -> DeviceMemory:
        """The memory of `nbytes` bytes from `offset` on within a region's memory, for `view`."""

    def address(self, memory: DeviceMemory) -> int | None:
        """Where a region's memory begins, if launches are bound to addresses and hold nothing else; None elsewhere."""
        return None

    def drop(self, memory: DeviceMemory) -> None:
        """Hand a region's pages back to the system, whose values are lost, where it has memory as it is used."""
        return None

    def write(self, array: DeviceArray, values: Array) -> None:
        """Overwrite with host values of this shape, whose dtype converts without changing kind."""

    def stage(self, owners: Sequence[object], like: Sequence[Array]) -> Stage | None:
        """Returns a stager that copies batches of this form, one array for each block, all at once. It is valid as long
        as the blocks live and are fed no longer ones. This processor and its stream are the current ones, as in `here`.

        The values are copied while work asked for earlier still runs. None where that gains nothing over `write`.
        owners: the blocks that are fed. Their staging memory is kept for their next batch, and goes back when they die.
        """
        return None

    def copies(self, source: DeviceArray, target: DeviceArray) -> bool:
        """Copies at once where arrays are the host's; False, and nothing done, where a kernel copies."""
        return False

    def read(self, array: DeviceArray) -> Array:
        """A copy of the values on the host, in C order; waits for them."""

    def export(self, keeper: object, array: DeviceArray) -> DeviceArray:
        """The array in a form that speaks DLPack and keeps `keeper` alive."""

    def adopt(self, given: object) -> tuple[DeviceMemory, DeviceArray] | None:
        """(memory, array) of another library's array in this processor's memory, no copy; None if it lies elsewhere."""
        return None

    def let_go(self, array: DeviceArray) -> None:
        """An adopted array will not be used any more; it is held until what it was used for is done."""
        return None

    def host_memory(self, nbytes: int) -> PinnedMemory:
        """Bytes of the host, outside this processor's memory. MemoryError where they cannot be had."""

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> Replay:
        """What runs these launches, again and again. names: of what each does."""

    def here(self) -> AbstractContextManager[object]:
        """Inside, this processor and its stream are the current ones."""

    def synchronize(self) -> None:
        """Wait until all that was asked for is done."""
        return None
