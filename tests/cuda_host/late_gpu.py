"""A GPU whose streams do their work late: the device, its loader, staging and captures as they are, over `LateCupy`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import host_convolutions
from host_lt import LibraryOnHost
from late_cupy import LateCupy
from late_driver import LateDriver, installed
from singa_lite import device
from singa_lite.device import Device, cuda_libraries
from singa_lite.kernels.cuda_kernels import cublaslt
from singa_lite.kernels.cuda_kernels.cublaslt import CublasLtNotFoundError
from singa_lite.kernels.cuda_kernels.cudnn_library import Target, described
from singa_lite.kernels.kernel_set import Launch


def missing_libraries() -> str:
    """What is wanted for the libraries' kernels and not found; "" if all is there."""
    try:
        cublaslt.load()
    except CublasLtNotFoundError as error:
        return f"{error}; pip install nvidia-cublas"
    return host_convolutions.missing()


@contextmanager
def late_gpu(seed: int, libraries: bool = False) -> Iterator[tuple[LateCupy, LateDriver, Device]]:
    """What `device.new_cuda` makes. libraries: with products and convolutions by NumPy, on their streams."""
    machine = LateCupy(seed)
    with installed(machine) as driver, ExitStack() as stack:
        if libraries:
            library = LateLibrary(cublaslt.load(), machine)
            stack.enter_context(patch.object(cublaslt, "load", lambda: library))
            stack.enter_context(patch.object(cuda_libraries, "Handle", lambda stream: LateHandle(machine, stream)))
        else:
            stack.enter_context(patch.object(cuda_libraries, "libraries", lambda *options: iter(())))
        yield machine, driver, device.new_cuda(0)


class LateLibrary(LibraryOnHost):
    """cuBLASLt, whose products are done when their stream comes to them."""

    def __init__(self, real: Any, machine: LateCupy) -> None:
        super().__init__(real)
        self.machine = machine

    def submit(self, launch: Launch, stream: int) -> None:
        self.machine.stream_of(stream).submit(launch)


class LateHandle:
    """cuDNN's handle: graphs are planned by the library for a described GPU, and done by NumPy on the stream."""

    def __init__(self, machine: LateCupy, stream: int) -> None:
        self._stream = machine.stream_of(stream)
        self._host = host_convolutions.HostExecutor()

    @property
    def target(self) -> Target:
        """The GPU of the tests of plans."""
        return described(host_convolutions.PROPERTIES.read_text())

    def bind(self, graph: Any, addresses: Mapping[int, int], workspace: int) -> Callable[[], None]:
        launch = self._host.bind(graph, addresses, workspace)
        return lambda: self._stream.submit(launch)
