"""Runtimes of processors that need not be there: alignment, layouts and links as they have them, and no bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

from singa_lite.common.array_types import DeviceArray, DeviceMemory, DType
from singa_lite.common.errors import AbstractDeviceError
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.host import Host

_HERE = nullcontext()


def refuse(doing: str, name: str, real: str) -> NoReturn:
    """AbstractDeviceError. doing: what wanted bytes; name: of the device; real: a call that makes a real one."""
    raise AbstractDeviceError(
        f"{doing}: wanted a device with memory, received {name}, whose tensors have shapes and no bytes; "
        f"net.to_device({real}) makes a net real"
    )


def _refused(doing: str) -> Callable[..., NoReturn]:
    """Returns a method that raises AbstractDeviceError. doing: what it would do."""

    def method(runtime: WithoutBytes, *given: object) -> NoReturn:
        """AbstractDeviceError."""
        refuse(doing, runtime.device, runtime.real)

    return method


class WithoutBytes:
    """What all of them refuse, and what there is nothing to do for. device, real: for messages, see `refuse`."""

    device: str
    real: str

    write = _refused("values from the host")
    staged = stage = _refused("a batch")
    read = export = _refused("reading a tensor")
    host_memory = _refused("offloading values")
    replay = _refused("running a recorded step")

    def view(
        self, memory: DeviceMemory, shape: Sequence[int], dtype: DType, strides: Sequence[int], offset: int
    ) -> NoReturn:
        """AbstractDeviceError."""
        refuse(f"the values of a tensor of shape {tuple(shape)}", self.device, self.real)

    def memory_slice(self, memory: DeviceMemory, offset: int, nbytes: int) -> NoBytes:
        """As empty as all of it."""
        return NO_BYTES

    def address(self, memory: object) -> None:
        """There is none."""
        return None

    def copies(self, source: DeviceArray, target: DeviceArray) -> bool:
        """False: nothing is there."""
        return False

    def adopt(self, given: object) -> None:
        """None: no other library has arrays here."""
        return None

    def let_go(self, array: DeviceArray) -> None:
        """Nothing, as no array is ever adopted."""

    def here(self) -> AbstractContextManager[object]:
        """Nothing to do."""
        return _HERE

    def synchronize(self) -> None:
        """Nothing is ever done."""


class AbstractHost(WithoutBytes, Host):  # type: ignore[misc]  # it refuses where that gives arrays
    """The runtime of an abstract CPU."""

    def __init__(self, device: str, real: str) -> None:
        self.device, self.real = device, real


class AbstractCuda(WithoutBytes, Cuda):  # type: ignore[misc]
    """The runtime of an abstract GPU, without CuPy and its driver."""

    def __init__(self, device: str, real: str) -> None:
        self.device, self.real = device, real


class NoBytes:
    """In the place of memory: a block over it counts as one that has its bytes."""

    def __repr__(self) -> str:
        return "no bytes"


NO_BYTES = NoBytes()
