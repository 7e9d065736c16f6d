"""BoundFeeds: batches of one form are copied into the same tensors again and again by what was looked up once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from singa_lite.array_types import Array, DeviceArray
from singa_lite.device.bound_copies import BoundCopies
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.runtime import Runtime, Stage
from singa_lite.tensor import Block, Tensor, TensorDevice

#: Copies a host array, which has the form of the one that it was made for.
Feed: TypeAlias = Callable[[Array], None]


class _Memory(TensorDevice, Protocol):
    """What a device does for this."""

    kernels: KernelSet
    runtime: Runtime

    def array(self, tensor: Tensor) -> DeviceArray: ...


class BoundFeeds:
    """Of tensors that keep their bytes meanwhile. feeds: one a tensor."""

    def __init__(self, runtime: Runtime, feeds: Sequence[Feed]) -> None:
        self._here = runtime.here
        self._feeds = tuple(feeds)

    def __call__(self, arrays: Sequence[Array]) -> None:
        with self._here():
            for feed, values in zip(self._feeds, arrays, strict=True):
                feed(values)


def bound_feeds(
    device: _Memory, copies: BoundCopies, tensors: Sequence[Tensor], like: Sequence[Array]
) -> BoundFeeds | None:
    """What copies host arrays of the forms of these; None where that cannot be bound. copies: the device's."""
    with device.runtime.here():
        feeds = [_feed(device, copies, tensor, values) for tensor, values in zip(tensors, like, strict=True)]
    found = [feed for feed in feeds if feed is not None]
    return BoundFeeds(device.runtime, found) if len(found) == len(feeds) else None


def _feed(device: _Memory, copies: BoundCopies, tensor: Tensor, like: Array) -> Feed | None:
    stage = device.runtime.stage(tensor.block, like.nbytes)
    if stage is None:
        target, write = device.array(tensor), device.runtime.write
        return lambda values: write(target, values)
    source = Tensor(Block(device, like.nbytes, stage.memory), like.shape, like.dtype)
    launch = copies.launch(device, source, tensor)
    return None if launch is None else _staged(stage, launch)


def _staged(stage: Stage, launch: Launch) -> Feed:
    def feed(values: Array) -> None:
        stage.begin(values)
        try:
            launch()
        finally:
            stage.end()

    return feed
