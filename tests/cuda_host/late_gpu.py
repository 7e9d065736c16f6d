"""A GPU whose streams do their work late: the device, its loader, staging and captures as they are, over `LateCupy`.

Kernels are compiled for the host, and done when their stream comes to them. `installed(machine)` puts a driver in the
place of CuPy and of libcuda.so.1, so that the loader, the devices and the runtime of the package are what drives it.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import build_cache
import host_libraries
import host_loader
from host_libraries import LibraryOnHost
from late_cupy import Capture, Event, LateCupy, Stream, host
from singa_lite import device
from singa_lite.device import Device, cuda_libraries
from singa_lite.kernels.cuda_kernels import loader, source
from singa_lite.kernels.cuda_kernels.libraries import cublaslt
from singa_lite.kernels.cuda_kernels.libraries.cublaslt import CublasLtNotFoundError
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import Target, described
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.runtime.cuda import Cuda

DRIVER, INVALID_VALUE, INVALID_HANDLE = "libcuda.so.1", 1, 400
#: What CUDA lets a launch have, of every GPU that is supported.
MOST_THREADS, MOST_DEEP, MOST_BLOCKS, MOST_SHARED = 1024, 64, 65535, 48 << 10
_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
_NAME = re.compile(r'#line 1 "(?:.*/)?(\w+)\.cu"')


class Kernel:
    """A kernel of a loaded module, compiled for the host."""

    def __init__(self, name: str, library: ctypes.CDLL) -> None:
        self.name = name
        self.run = getattr(library, f"run_{name}")
        held = (ctypes.c_ulong * 64)()
        count = getattr(library, f"arguments_of_{name}")(held, len(held))
        self.bytes = list(held[:count])


class LateDriver:
    """The driver, and `cupy.RawModule`."""

    def __init__(self, machine: LateCupy) -> None:
        self.machine = machine
        self._kernels: dict[int, Kernel] = {}
        self.callback = _CALL(self._asked)
        self._library = ctypes.CDLL(str(library()))

    @contextmanager
    def idle(self) -> Iterator[None]:
        """What is asked of the machine and of its driver costs next to nothing inside, and is never done."""
        nothing: Any = lambda *arguments: None  # noqa: E731
        names = {Event: ("record", "synchronize"), Stream: ("wait_event", "synchronize"), Capture: ("launch",)}
        patches = [patch.object(owner, name, nothing) for owner, all_of in names.items() for name in all_of]
        patches += [patch.object(self.machine.runtime, name, nothing) for name in ("memcpyAsync", "memsetAsync")]
        self.machine.until(lambda: not any(stream.work for stream in self.machine.streams))
        self._library.set_idle(1)
        try:
            with ExitStack() as stack:
                for each in patches:
                    stack.enter_context(each)
                yield
        finally:
            self._library.set_idle(0)

    def module(self, *, code: str, options: tuple[str, ...]) -> Any:
        """`RawModule`: its functions have a handle, as CuPy's have."""
        name = _NAME.search(code)
        path = host_loader.compiled_program(name[1] if name else "module", code, source.defined(code))
        library = ctypes.CDLL(str(path))

        def get_function(kernel: str) -> Any:
            handle = 0x1000 + 16 * len(self._kernels)
            self._kernels[handle] = Kernel(kernel, library)
            return SimpleNamespace(kernel=SimpleNamespace(ptr=handle))

        return SimpleNamespace(get_function=get_function, compile=lambda: None)

    def _asked(self, handle: int, extents: Any, shared: int, stream: int | None, given: Any, extra: int | None) -> int:
        """`cuLaunchKernel`: a status."""
        kernel = self._kernels.get(handle)
        on = next((one for one in self.machine.streams if one.ptr == (stream or 0)), None)
        if kernel is None or on is None:
            return INVALID_HANDLE
        grid, block = tuple(extents[:3]), tuple(extents[3:6])
        threads = prod(block)
        if extra is not None or shared > MOST_SHARED or not 0 < threads <= MOST_THREADS or block[2] > MOST_DEEP:
            return INVALID_VALUE
        if prod(grid) == 0 or max(grid[1:]) > MOST_BLOCKS:
            return INVALID_VALUE
        on.submit(_work(kernel, (*grid, *block), shared, given))
        return 0


def _work(kernel: Kernel, extents: Sequence[int], shared: int, given: Any) -> Any:
    """The kernel over its arguments as they are now: the driver copies them before the launch returns."""
    values = [ctypes.create_string_buffer(ctypes.string_at(given[n], size)) for n, size in enumerate(kernel.bytes)]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    asked = (ctypes.c_uint * 6)(*extents)

    def work() -> None:
        kept = values
        if kernel.run(asked, ctypes.c_ulong(shared), pointers):
            raise RuntimeError(f"kernel {kernel.name!r} failed, see above; it had {len(kept)} arguments")

    return work


@cache
def library() -> Path:
    text = Path(__file__).with_name("late_driver.cpp").read_text(encoding="utf-8")
    options = [*host_loader.FLAGS, "-O1"]

    def make(made: Path) -> None:
        code = made.with_suffix(".cpp")
        code.write_text(text)
        host_loader.gcc("-shared", *options, str(code), "-o", str(made))

    return build_cache.entry("libcuda.so", [text, *options, *host_loader.surroundings()], make)


@contextmanager
def installed(machine: LateCupy) -> Iterator[LateDriver]:
    """`import cupy` is this machine inside, and its driver is the one that is loaded."""
    driver, real = LateDriver(machine), ctypes.CDLL
    machine.RawModule = driver.module
    stand_in = real(str(library()))
    stand_in.set_launch(driver.callback)

    def load(name: str | None, *options: Any, **further: Any) -> ctypes.CDLL:
        return stand_in if name == DRIVER else real(name, *options, **further)

    loader._driver.cache_clear()
    try:
        with patch.object(ctypes, "CDLL", load), patch.dict(sys.modules, {"cupy": machine}):
            yield driver
    finally:
        stand_in.set_launch(_CALL())
        loader._driver.cache_clear()


def missing_libraries() -> str:
    """What is wanted for the libraries' kernels and not found; "" if all is there."""
    try:
        cublaslt.load()
    except CublasLtNotFoundError as error:
        return f"{error}; pip install nvidia-cublas"
    return host_libraries.missing()


@contextmanager
def late_gpu(seed: int) -> Iterator[tuple[LateCupy, LateDriver, Device]]:
    """Yields the device of `device.new_cuda` over late streams, behind its CuPy and its driver.

    NumPy does the libraries' products and convolutions on these streams, where the libraries are installed.
    """
    machine = LateCupy(seed)
    with installed(machine) as driver, ExitStack() as stack:
        if not missing_libraries():
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
        self._host = host_libraries.HostExecutor()

    @property
    def target(self) -> Target:
        """The GPU of the tests of plans."""
        return described(host_libraries.PROPERTIES.read_text())

    def bind(self, graph: Any, addresses: Mapping[int, int], workspace: int) -> Callable[[], None]:
        launch = self._host.bind(graph, addresses, workspace)
        return lambda: self._stream.submit(launch)


class LateKernel:
    """A kernel of NumPy's whose work its stream does late."""

    def __init__(self, stream: Stream, name: str) -> None:
        self.stream, self.name = stream, name

    def supports(self, specs: Any, settings: Any) -> bool:
        return True

    def scratch_bytes(self, specs: Any, settings: Any) -> int:
        return NUMPY[self.name].scratch_bytes(specs, settings)

    def prepare(self, arrays: Any, scratch: Any, settings: Any) -> Launch:
        shown = tuple(None if array is None else host(array) for array in arrays)
        launch = NUMPY[self.name].prepare(shown, None if scratch is None else host(scratch), settings)
        return lambda: self.stream.submit(launch)


def late_device(machine: LateCupy) -> Device:
    """A device on the real runtime with NumPy's kernels, which want no compiler."""
    runtime = Cuda(machine, 0)
    kernels = KernelSet("late", {name: LateKernel(runtime.stream, name) for name in NUMPY.kernels})
    return Device("late", kernels, runtime.pool, runtime)
