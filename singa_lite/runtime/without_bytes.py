"""Runtimes of processors that need not be there: alignment, layouts and links as they have them, and no bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

from singa_lite.common.array_types import DeviceMemory
from singa_lite.common.errors import AbstractDeviceError
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.host import Host
from singa_lite.runtime.pool_numbers import NO_BYTES, NoBytes
from singa_lite.runtime.runtime import Runtime

_HERE = nullcontext()


def refuse(doing: str, name: str, real: str) -> NoReturn:
    """AbstractDeviceError. doing: what wanted bytes; name: of the device; real: a call that makes a real one."""
    raise AbstractDeviceError(
        f"{doing}: wanted a device with memory, received {name}, whose tensors have shapes and no bytes; "
        f"net.to_device({real}) makes a net real"
    )


def _refusing(doing: str) -> Callable[..., NoReturn]:
    def refused(runtime: WithoutBytes, *_: object, **__: object) -> NoReturn:
        """AbstractDeviceError."""
        refuse(doing, runtime.device, runtime.real)

    return refused


class WithoutBytes(Runtime):
    """What all of them refuse, and what there is nothing to do for. device, real: for messages, see `refuse`."""

    device: str
    real: str

    view = _refusing("the values of a tensor")
    write = _refusing("values from the host")
    stage = _refusing("a batch")
    read = export = _refusing("reading a tensor")
    host_memory = _refusing("offloading values")
    replay = _refusing("running a recorded step")

    # Nothing is there, as in a runtime that has no work of its own under way.
    address, copies = Runtime.address, Runtime.copies
    adopt, let_go, synchronize = Runtime.adopt, Runtime.let_go, Runtime.synchronize

    def memory_slice(self, memory: DeviceMemory, offset: int, nbytes: int) -> NoBytes:
        """As empty as all of it."""
        return NO_BYTES

    def here(self) -> AbstractContextManager[object]:
        """Nothing to do."""
        return _HERE


class AbstractHost(WithoutBytes, Host):  # type: ignore[misc]  # it refuses where that gives arrays
    """The runtime of an abstract CPU."""

    def __init__(self, device: str, real: str) -> None:
        self.device, self.real = device, real


class AbstractCuda(WithoutBytes, Cuda):  # type: ignore[misc]
    """The runtime of an abstract GPU, without CuPy and its driver."""

    def __init__(self, device: str, real: str) -> None:
        self.device, self.real = device, real
