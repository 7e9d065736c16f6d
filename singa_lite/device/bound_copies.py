"""Copies that are bound once: of batches into a step's tensors, of its results, and between the same two places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from singa_lite.common.array_types import Array, DeviceArray, DeviceMemory
from singa_lite.device.tensor_memory import TensorMemory
from singa_lite.kernels.kernel_set import Launch, specs_of
from singa_lite.runtime.runtime import Runtime, Stage
from singa_lite.tensor import Block, Tensor, contiguous_strides

#: How many are kept: batches and results of a few recorded steps, in the few places that a pool gives results.
MOST = 64
#: Copies host arrays, which have the forms of those that it was made for, into tensors that keep their bytes meanwhile;
#: where their processor and its stream are the current ones.
BoundFeeds: TypeAlias = Callable[[Sequence[Array]], None]


class BoundCopies:
    """Launches of the kernel `copy` by where, and in which form, source and target lie.

    Only of kernels whose launches hold addresses and nothing else: memory that is given back is not kept by them, and
    whatever lies at the same address in the same form is copied by the same launch.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Launch | None] = {}

    def launch(self, device: TensorMemory, source: Tensor, target: Tensor) -> Launch | None:
        """What copies, asked for where the device is the current one; None where no such launch can be kept."""
        first, second = _place(device, source), _place(device, target)
        if first is None or second is None:
            return None
        key = first, second
        try:
            return self._known[key]
        except KeyError:
            pass
        found = _bound(device, source, target)
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[key] = found
        return found


def _place(device: TensorMemory, tensor: Tensor) -> Hashable:
    """Where a tensor's first element lies, and its form; None for a place that no launch can be known by."""
    block = tensor.block
    owner: object = block.device
    if owner is not device or block.memory is None:
        return None
    address = device.runtime.address(block.memory)
    return None if address is None else (address + tensor.offset, tensor.shape, tensor.strides, tensor.dtype)


def _bound(device: TensorMemory, source: Tensor, target: Tensor) -> Launch | None:
    tensors = source, target
    specs = specs_of(tensors)
    kernel = device.kernels.choose("copy", specs, {})
    if not getattr(kernel, "binds_addresses", False) or kernel.scratch_bytes(specs, {}):
        return None
    return kernel.prepare(tuple(map(device.array, tensors)), None, {})


def bound_feeds(
    device: TensorMemory, copies: BoundCopies, tensors: Sequence[Tensor], like: Sequence[Array]
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


class BoundResults(ABC):
    """Of tensors that keep their bytes meanwhile. Called where their processor and its stream are the current ones, and
    nobody looks at operations. nbytes: of the block.
    """

    def __init__(self, device: TensorMemory, sources: Sequence[Tensor]) -> None:
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

    def __init__(self, device: TensorMemory, sources: Sequence[Tensor]) -> None:
        super().__init__(device, sources)
        self._arrays = [device.array(source) for source in sources]
        self._runtime = device.runtime

    def _copy(self, memory: DeviceMemory) -> None:
        view, copies = self._runtime.view, self._runtime.copies
        for array, (shape, dtype, strides, offset) in zip(self._arrays, self._forms, strict=True):
            copies(array, view(memory, shape, dtype, strides, offset))


class _Launched(BoundResults):
    """By launches, which are bound once for each of the few places that a pool gives."""

    def __init__(self, device: TensorMemory, sources: Sequence[Tensor], copies: BoundCopies) -> None:
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


def bound_results(device: TensorMemory, copies: BoundCopies, sources: Sequence[Tensor]) -> BoundResults | None:
    """What copies these tensors; None where that cannot be bound. copies: the device's."""
    runtime = device.runtime
    with runtime.here():
        if runtime.address(sources[0].block.memory) is None:
            arrays = [device.array(source) for source in sources]
            return _OnHost(device, sources) if all(runtime.copies(array, array) for array in arrays) else None
        made = _Launched(device, sources, copies)
        return made if made.bind(device.new_block(made.nbytes).memory) else None
