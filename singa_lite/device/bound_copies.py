"""BoundCopies: copies between the same two places are bound once, as those of batches and results are at each step."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from singa_lite.common.array_types import DeviceArray
from singa_lite.kernels.kernel_set import KernelSet, Launch, specs_of
from singa_lite.runtime.runtime import Runtime
from singa_lite.tensor import Tensor

#: How many are kept: batches and results of a few recorded steps, in the few places that a pool gives results.
MOST = 64


class _Arrays(Protocol):
    """What a device does for this."""

    kernels: KernelSet
    runtime: Runtime

    def array(self, tensor: Tensor) -> DeviceArray: ...


class BoundCopies:
    """Launches of the kernel `copy` by where, and in which form, source and target lie.

    Only of kernels whose launches hold addresses and nothing else: memory that is given back is not kept by them, and
    whatever lies at the same address in the same form is copied by the same launch.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Launch | None] = {}

    def launch(self, device: _Arrays, source: Tensor, target: Tensor) -> Launch | None:
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


def _place(device: _Arrays, tensor: Tensor) -> Hashable:
    """Where a tensor's first element lies, and its form; None for a place that no launch can be known by."""
    block = tensor.block
    owner: object = block.device
    if owner is not device or block.memory is None:
        return None
    address = device.runtime.address(block.memory)
    return None if address is None else (address + tensor.offset, tensor.shape, tensor.strides, tensor.dtype)


def _bound(device: _Arrays, source: Tensor, target: Tensor) -> Launch | None:
    tensors = source, target
    specs = specs_of(tensors)
    kernel = device.kernels.choose("copy", specs, {})
    if not getattr(kernel, "binds_addresses", False) or kernel.scratch_bytes(specs, {}):
        return None
    return kernel.prepare(tuple(map(device.array, tensors)), None, {})
