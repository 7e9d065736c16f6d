"""TensorMemory: the tensors of a device, made over bytes of its pool, and their values in and out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.array_types import Array, DeviceArray, DeviceRegion
from singa_lite.common.errors import GraphError
from singa_lite.common.sizes import tensor_bytes
from singa_lite.common.strides import laid_out, span
from singa_lite.common.unique import Unique
from singa_lite.device.step_context import StepContext
from singa_lite.graph.graph import Graph
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.runtime.cuda_pool import MemoryPool
from singa_lite.runtime.runtime import Runtime
from singa_lite.tensor import LAYOUTS, Block, Tensor, checked_dtype, checked_shape
from singa_lite.tensor.frozen import FROZEN, MAPPED, mapping_of

_NOTHING = nullcontext()


class TensorMemory(Unique, ABC):
    """The half of a `Device` that holds tensors. While a thread records, its new tensors have no bytes."""

    #: Whether tensors have shapes and no bytes, see `abstract`.
    is_abstract: ClassVar[bool] = False

    def __init__(self, name: str, kernels: KernelSet, pool: MemoryPool, runtime: Runtime) -> None:
        self.name = name
        self.kernels = kernels
        self.pool = pool
        self.runtime = runtime
        self._steps = StepContext(name)

    @abstractmethod
    def run(self, kernel: str, /, *tensors: Tensor | None, **settings: object) -> None:
        """Do one kernel call, which a tensor may ask of its device."""

    def first_values(self) -> AbstractContextManager[object]:
        """Inside, tensors are given values that follow from how they were made, as zeros or from a random key."""
        return _NOTHING

    def check_bytes(self, doing: str) -> None:
        """AbstractDeviceError on a device whose tensors have no bytes. doing: what wants some."""
        return None

    @property
    def graph(self) -> Graph | None:
        """What some thread is recording on this device."""
        return self._steps.graph

    def empty(self, shape: Sequence[int], dtype: DTypeLike = np.float32, layout: str | Sequence[int] = "") -> Tensor:
        """A tensor of this shape and dtype, its values whatever the memory held.

        layout: the kind of tensor ("image", "filters"), which the kernels may like in another order than C's, or its
        axes from the outermost to the innermost. ShapeError for a negative extent; OutOfMemoryError where the pool's
        limit does not allow it.
        """
        return self._tensor_over(self._eager_or_recorded_block, shape, dtype, layout)

    def frozen(self, shape: Sequence[int]) -> Tensor:
        """A tensor of bytes, uint8, that nobody writes: it has none until `freeze` says which."""
        made = self.unbound(shape, np.uint8)
        made.block.frozen = FROZEN
        return made

    def freeze(self, tensor: Tensor, array: Array) -> None:
        """Lets a tensor of `frozen` lie over these bytes of the host, uint8 of its shape without gaps.

        On a CPU nothing is copied, and the array is held as long as the tensor lives; elsewhere they are copied. An
        abstract device notes where they lie, and no more.
        """
        tensor.block.frozen = MAPPED if mapping_of(array) is not None and self.runtime.reads_host else FROZEN
        if self.is_abstract:
            return
        if self.runtime.reads_host:
            tensor.block.memory = np.asarray(array).reshape(-1)
            return
        if tensor.block.memory is None:
            self.bind(tensor.block)
        self.runtime.write(self.array(tensor), array)

    def unbound(self, shape: Sequence[int], dtype: DTypeLike = np.float32, layout: str | Sequence[int] = "") -> Tensor:
        """As `empty`, over a block that has no bytes yet: the caller gives it some."""
        return self._tensor_over(partial(Block, self), shape, dtype, layout)

    def _tensor_over(
        self, block_of: Callable[[int], Block], shape: Sequence[int], dtype: DTypeLike, layout: str | Sequence[int]
    ) -> Tensor:
        shape, dtype = checked_shape("empty", shape), checked_dtype("empty", dtype)
        if isinstance(layout, str) and layout not in LAYOUTS:
            raise ValueError(f"empty: wanted a layout of {LAYOUTS}, received {layout!r}")
        if not dtype.isnative:  # kernels know no other
            dtype = dtype.newbyteorder("=")
        block = block_of(tensor_bytes(shape, dtype))
        axes = self.kernels.layouts.get(layout, ()) if isinstance(layout, str) else layout
        made = Tensor.trusted(block, shape, dtype, laid_out(shape, axes, dtype.itemsize) if axes else None)
        if isinstance(layout, str):
            made.layout = layout
        return made

    def _eager_or_recorded_block(self, nbytes: int) -> Block:
        graph = self._steps.here_alone("making a tensor").graph
        if graph is None:
            return self.new_block(nbytes)
        block = Block(self, nbytes)
        graph.enter(block)
        return block

    def new_block(self, nbytes: int) -> Block:
        """A block with bytes from the pool."""
        block = Block(self, nbytes)
        self.bind(block)
        return block

    def bind(self, block: Block) -> None:
        """Gives a block that has no bytes some from the pool, which go back when it dies."""
        region: DeviceRegion = self.pool.take(block.nbytes, block)
        block.set_give(partial(self.pool.give, region))
        block.memory = region.memory

    def array(self, tensor: Tensor) -> DeviceArray:
        """The array over the tensor's bytes (NumPy's, on a GPU CuPy's), no copy, valid while the block lives."""
        return self.view(tensor.block, tensor.shape, tensor.dtype, tensor.strides, tensor.offset)

    def view(
        self, block: Block, shape: Sequence[int], dtype: DTypeLike, strides: Sequence[int], offset: int
    ) -> DeviceArray:
        """The array over a block's bytes, no copy. GraphError for a recorded block without bytes."""
        if block.memory is None:
            raise GraphError(
                f"reading a tensor of shape {tuple(shape)}: it was recorded and has no value; run the graph first, "
                "and hold the tensor when it first runs"
            )
        return self.runtime.view(block.memory, shape, np.dtype(dtype), strides, offset)

    def export(self, tensor: Tensor) -> DeviceArray:
        """The array over the tensor's bytes, no copy, which keeps the block alive. GraphError while recording."""
        self._check_readable(tensor)
        return self.runtime.export(tensor.detach(), self.array(tensor))

    def copy_in(self, tensor: Tensor, array: Array) -> None:
        """Overwrite the tensor's values with a host array of its shape.

        GraphError for a tensor that an operation of the present recording uses: the values would be copied now,
        and not again in their turn at each replay.
        """
        self.runtime.write(self._overwritten(tensor), array)

    def adopt(self, given: object) -> Tensor | None:
        """A tensor over an array of another library (CuPy, DLPack) in this GPU's memory, no copy; None for any other.

        Its bytes are the array's own, for kernels to read. The array is held until they have, as the last use of the
        tensor ends; its owner may overwrite it then, on the stream that is current in CuPy.
        """
        if isinstance(given, Tensor):
            return None
        found = self.runtime.adopt(given)
        if found is None:
            return None
        memory, array = found
        reach = span(array.shape, array.strides, array.dtype.itemsize)
        if reach.start < 0:  # a view that runs backwards begins behind its pointer
            return None
        block = Block(self, reach.stop, memory, partial(self.runtime.let_go, array))
        return Tensor(block, array.shape, array.dtype, array.strides)

    def _overwritten(self, tensor: Tensor) -> DeviceArray:
        """The array of a tensor whose values the host overwrites now."""
        self._bind_for_host(tensor)
        return self.array(tensor)

    def _bind_for_host(self, tensor: Tensor) -> None:
        """Before the host overwrites a tensor: it has bytes of its own."""
        graph = self._steps.here_alone("overwriting a tensor").graph
        if graph is not None and graph.knows(tensor.block):
            raise GraphError(
                f"overwriting a tensor of shape {tensor.shape} with host values: wanted one that no operation "
                "recorded so far uses; do it before or after the recording, or with an operation"
            )
        if tensor.block.memory is None and graph is not None:
            # Host values that a recorded step reads: they are there before it, so they have bytes of their own.
            graph.forget(tensor.block)
            self.bind(tensor.block)

    def copy_out(self, tensor: Tensor) -> Array:
        """A host array with a copy of the tensor's values, which waits for them. GraphError while recording."""
        self._check_readable(tensor)
        return self.runtime.read(self.array(tensor))

    def _check_readable(self, tensor: Tensor) -> None:
        """GraphError while recording: host code runs once, so what it makes of a value would be frozen."""
        if self._steps.here_alone("reading a tensor").graph is not None:
            raise GraphError(
                f"reading a tensor of shape {tensor.shape}: wanted no recording on {self.name} meanwhile, as nothing "
                "runs until the graph does; read before or after it"
            )
