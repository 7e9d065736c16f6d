"""BoundFeeds: batches of one form are copied into the same tensors again and again by what was looked up once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from singa_lite.common.array_types import Array, DeviceArray
from singa_lite.device.bound_copies import BoundCopies
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.runtime import Runtime, Stage
from singa_lite.tensor import Block, Tensor, TensorDevice

#: Copies host arrays, which have the forms of those that it was made for, into tensors that keep their bytes meanwhile;
#: where their processor and its stream are the current ones.
BoundFeeds: TypeAlias = Callable[[Sequence[Array]], None]


class _Memory(TensorDevice, Protocol):
    """What a device does for this."""

    kernels: KernelSet
    runtime: Runtime

    def array(self, tensor: Tensor) -> DeviceArray: ...


def bound_feeds(
    device: _Memory, copies: BoundCopies, tensors: Sequence[Tensor], like: Sequence[Array]
) -> BoundFeeds | None:
    """What copies host arrays of the forms of these; None where that cannot be bound. copies: the device's."""
    with device.runtime.here():
        stage = device.runtime.stage([tensor.block for tensor in tensors], like)
        if stage is None:
            return _Written(device.runtime, [device.array(tensor) for tensor in tensors])
        launches = []
        for memory, values, tensor in zip(stage.memories, like, tensors, strict=True):
            source = Tensor(Block(device, values.nbytes, memory), values.shape, values.dtype)
            launch = copies.launch(device, source, tensor)
            if launch is None:
                return None
            launches.append(launch)
        return _Staged(stage, launches)


class _Written:
    """By the host itself, at once."""

    def __init__(self, runtime: Runtime, targets: Sequence[DeviceArray]) -> None:
        self._write = runtime.write
        self._targets = tuple(targets)

    def __call__(self, batch: Sequence[Array]) -> None:
        for target, values in zip(self._targets, batch, strict=True):
            self._write(target, values)


class _Staged:
    """By way of a stage. launches: from there to the tensors."""

    def __init__(self, stage: Stage, launches: Sequence[Launch]) -> None:
        self._stage = stage
        self._launches = tuple(launches)

    def __call__(self, batch: Sequence[Array]) -> None:
        self._stage.begin(batch)
        try:
            for launch in self._launches:
                launch()
        finally:
            self._stage.end()
