"""CUDA's driver and NVRTC of a `LateCupy`: kernels compiled for the host, done when their stream comes to them.

`installed(machine)` puts it in the place of CuPy and of libcuda.so.1, so that the loader, the devices and the runtime
of the package are what drives it.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import build_cache
import host_loader
from late_cupy import Capture, Event, LateCupy, Stream
from singa_lite.kernels.cuda_kernels import loader, source

DRIVER = "libcuda.so.1"
INVALID_VALUE, INVALID_HANDLE = 1, 400
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


class Launched(NamedTuple):
    """A launch as the driver was asked for it. stream: its pointer."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    stream: int


class Kernel:
    """A kernel of a loaded module, compiled for the host."""

    def __init__(self, name: str, library: ctypes.CDLL) -> None:
        self.name = name
        self.run = getattr(library, f"run_{name}")
        held = (ctypes.c_ulong * 64)()
        count = getattr(library, f"arguments_of_{name}")(held, len(held))
        self.bytes = list(held[:count])


class LateDriver:
    """The driver, and `cupy.RawModule`. launched: what it was asked for, in order, captures among it."""

    def __init__(self, machine: LateCupy) -> None:
        self.machine = machine
        self.launched: list[Launched] = []
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
        if extra is not None or shared > MOST_SHARED or not is_legal(grid, block):
            return INVALID_VALUE
        self.launched.append(Launched(kernel.name, grid, block, shared, on.ptr))
        on.submit(_work(kernel, (*grid, *block), shared, given))
        return 0


def is_legal(grid: Sequence[int], block: Sequence[int]) -> bool:
    """Whether CUDA launches a grid of such blocks."""
    return 0 < prod(block) <= MOST_THREADS and block[2] <= MOST_DEEP and prod(grid) > 0 and max(grid[1:]) <= MOST_BLOCKS


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
