"""HostMemory: bytes outside a device's memory that values of a step are offloaded to, and the link that they pass.

On a CPU it is a temporary file (`offload_file.py`), on a GPU pinned memory of the host (`pinned.py`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from singa_lite.common.array_types import DeviceArray
from singa_lite.kernels.kernel_set import Launch


class Link(NamedTuple):
    """The speed of copies to host memory and back.

    share: of the rate at which the device reads and writes its own memory. beside: whether they go on while kernels
    run, one at a time in each direction; else a step waits for each.
    """

    share: float
    beside: bool


class Copying(NamedTuple):
    """The two launches of a copy. end: behind it, all that is asked for comes after the copy."""

    begin: Launch
    end: Launch


class HostMemory(Protocol):
    """So many bytes."""

    nbytes: int

    def out(self, array: DeviceArray, offset: int) -> Copying:
        """Copies an array of bytes, uint8 without gaps, to this offset; it is bound, and copied by each run."""

    def back(self, array: DeviceArray, offset: int) -> Copying:
        """Copies the bytes from this offset on into an array."""

    def settle(self) -> None:
        """Waits until no copy is under way, as after a run that an interrupt has ended."""
