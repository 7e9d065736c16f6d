"""Copies that are bound once: of batches into a step's tensors, of its results, and between the same two places."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from singa_lite.common.array_types import Array, DType
from singa_lite.device.tensor_memory import TensorMemory
from singa_lite.kernels.kernel_set import Launch, specs_of
from singa_lite.tensor import Block, Tensor, contiguous_strides

#: How many are kept: batches and results of a few recorded steps, in the few places that a pool gives results.
MOST = 64
#: Copies host arrays, which have the forms of those that it was made for, into tensors that keep their bytes meanwhile;
#: where their processor and its stream are the current ones.
BoundFeeds: TypeAlias = Callable[[Sequence[Array]], None]
#: Copies tensors that keep their bytes meanwhile into new ones over one block, where their processor and its stream are
#: the current ones, and nobody looks at operations.
BoundResults: TypeAlias = Callable[[], list[Tensor]]
#: Copies results to a block.
CopyTo: TypeAlias = Callable[[Block], None]
#: Shape, dtype, strides and offset of a tensor over a block.
Form: TypeAlias = tuple[tuple[int, ...], DType, tuple[int, ...], int]


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

    def launches(
        self, device: TensorMemory, sources: Sequence[Tensor], targets: Sequence[Tensor]
    ) -> list[Launch] | None:
        """As `launch`, of each source to its target; None where one of them cannot be kept."""
        found = [self.launch(device, *pair) for pair in zip(sources, targets, strict=True)]
        kept = [launch for launch in found if launch is not None]
        return kept if len(kept) == len(found) else None


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
            write, targets = device.runtime.write, [device.array(tensor) for tensor in tensors]

            def write_all(batch: Sequence[Array]) -> None:
                for target, values in zip(targets, batch, strict=True):
                    write(target, values)

            return write_all
        sources = [
            Tensor(Block(device, values.nbytes, memory), values.shape, values.dtype)
            for memory, values in zip(stage.memories, like, strict=True)
        ]
        launches = copies.launches(device, sources, tensors)

    def copy_staged(batch: Sequence[Array]) -> None:
        stage.begin(batch)
        try:
            for launch in launches or ():
                launch()
        finally:
            stage.end()

    return None if launches is None else copy_staged


def bound_results(device: TensorMemory, copies: BoundCopies, sources: Sequence[Tensor]) -> BoundResults | None:
    """What copies these tensors; None where that cannot be bound. copies: the device's."""
    alignment, nbytes, forms = device.runtime.alignment, 0, list[Form]()
    for source in sources:
        forms.append((source.shape, source.dtype, contiguous_strides(source.shape, source.dtype), nbytes))
        nbytes += -(-source.nbytes // alignment) * alignment
    with device.runtime.here():
        if device.runtime.address(sources[0].block.memory) is None:
            copy = _host_copy(device, sources, forms)
        else:
            copy = _launched_copy(device, copies, sources, forms, nbytes)
    if copy is None:
        return None

    def results() -> list[Tensor]:
        block = device.new_block(nbytes)
        copy(block)
        return [Tensor.trusted(block, *form) for form in forms]

    return results


def _host_copy(device: TensorMemory, sources: Sequence[Tensor], forms: Sequence[Form]) -> CopyTo | None:
    """What copies few bytes by the host at once; None where they are many."""
    view, copies = device.runtime.view, device.runtime.copies
    arrays = [device.array(source) for source in sources]
    if not all(copies(array, array) for array in arrays):
        return None

    def copy(block: Block) -> None:
        for array, form in zip(arrays, forms, strict=True):
            copies(array, view(block.memory, *form))

    return copy


def _launched_copy(
    device: TensorMemory, copies: BoundCopies, sources: Sequence[Tensor], forms: Sequence[Form], nbytes: int
) -> CopyTo | None:
    """What copies by launches, bound once for each of the few places that a pool gives; None where none can be kept."""
    address, known = device.runtime.address, dict[int | None, Sequence[Launch]]()

    def bind(block: Block) -> bool:
        launches = copies.launches(device, sources, [Tensor.trusted(block, *form) for form in forms])
        if launches is None:
            return False
        if len(known) >= MOST:
            known.clear()
        known[address(block.memory)] = launches
        return True

    def copy(block: Block) -> None:
        place = address(block.memory)
        if place not in known:
            bind(block)
        for launch in known[place]:
            launch()

    return copy if bind(device.new_block(nbytes)) else None
