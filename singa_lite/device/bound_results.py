"""BoundResults: copies of what a step gives, which the next one overwrites, in one block that is new each time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from singa_lite.common.array_types import DeviceArray, DeviceMemory
from singa_lite.device.bound_copies import MOST, BoundCopies
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.runtime import Runtime
from singa_lite.tensor import Block, Tensor, TensorDevice, contiguous_strides


class _Memory(TensorDevice, Protocol):
    """What a device does for this."""

    kernels: KernelSet
    runtime: Runtime

    def array(self, tensor: Tensor) -> DeviceArray: ...

    def new_block(self, nbytes: int) -> Block: ...


class BoundResults(ABC):
    """Of tensors that keep their bytes meanwhile. Called where their processor and its stream are the current ones, and
    nobody looks at operations. nbytes: of the block.
    """

    def __init__(self, device: _Memory, sources: Sequence[Tensor]) -> None:
        self._device = device
        self._sources = tuple(sources)
        alignment, end = device.runtime.alignment, 0
        self._forms = []
        for source in sources:
            self._forms.append((source.shape, source.dtype, contiguous_strides(source.shape, source.dtype), end))
            end += -(-source.nbytes // alignment) * alignment
        self.nbytes = end

    def __call__(self) -> list[Tensor]:
        block = self._device.new_block(self.nbytes)
        self._copy(block.memory)
        trusted = Tensor.trusted
        return [trusted(block, *form) for form in self._forms]

    @abstractmethod
    def _copy(self, memory: DeviceMemory) -> None:
        """To the memory of a block."""


class _OnHost(BoundResults):
    """Few bytes, copied by the host at once."""

    def __init__(self, device: _Memory, sources: Sequence[Tensor]) -> None:
        super().__init__(device, sources)
        self._arrays = [device.array(source) for source in sources]
        self._runtime = device.runtime

    def _copy(self, memory: DeviceMemory) -> None:
        view, copies = self._runtime.view, self._runtime.copies
        for array, (shape, dtype, strides, offset) in zip(self._arrays, self._forms, strict=True):
            copies(array, view(memory, shape, dtype, strides, offset))


class _Launched(BoundResults):
    """By launches, which are bound once for each of the few places that a pool gives."""

    def __init__(self, device: _Memory, sources: Sequence[Tensor], copies: BoundCopies) -> None:
        super().__init__(device, sources)
        self._copies = copies
        self._known: dict[int | None, Sequence[Launch]] = {}

    def _copy(self, memory: DeviceMemory) -> None:
        address = self._device.runtime.address(memory)
        if address not in self._known:
            self.bind(memory)
        for launch in self._known[address]:
            launch()

    def bind(self, memory: DeviceMemory) -> bool:
        """Bind what copies to there; False where such launches cannot be kept, here or anywhere."""
        block = Block(self._device, self.nbytes, memory)
        targets = [Tensor.trusted(block, *form) for form in self._forms]
        found = [self._copies.launch(self._device, *pair) for pair in zip(self._sources, targets, strict=True)]
        if None in found:
            return False
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[self._device.runtime.address(memory)] = [launch for launch in found if launch is not None]
        return True


def bound_results(device: _Memory, copies: BoundCopies, sources: Sequence[Tensor]) -> BoundResults | None:
    """What copies these tensors; None where that cannot be bound. copies: the device's."""
    runtime = device.runtime
    with runtime.here():
        if runtime.address(sources[0].block.memory) is None:
            arrays = [device.array(source) for source in sources]
            return _OnHost(device, sources) if all(runtime.copies(array, array) for array in arrays) else None
        made = _Launched(device, sources, copies)
        return made if made.bind(device.new_block(made.nbytes).memory) else None
