"""Machine: a GPU with its device, events and kernels. See `stand_in.py` for the host in its place."""

from __future__ import annotations

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from call_steps import own_set
from singa_lite import device, tensor
from singa_lite.device import cuda_libraries
from singa_lite.kernels.cuda_kernels import cuda
from singa_lite.kernels.kernel_set import KernelSet, Settings, TensorSpecs

#: Bytes that a timed copy moves at a time; more than any cache holds.
COPIED = 1 << 29

Types = tuple[tuple[str, str], ...]


class Machine(ABC):
    """on: the device of all items, so that what the libraries plan once is there for the next item."""

    @cached_property
    @abstractmethod
    def on(self) -> Any:
        """The device."""

    @abstractmethod
    def mark(self) -> Any:
        """An event on the stream."""

    @abstractmethod
    def milliseconds(self, first: Any, second: Any) -> float:
        """From one event to another one; waits for the second."""

    @abstractmethod
    def compile(self, file: str, types: Types) -> None:
        """Compile a source for these types."""

    @abstractmethod
    def versions(self) -> dict[str, Any]:
        """Of everything that the results depend on."""

    @abstractmethod
    def copy_bandwidth(self) -> float:
        """GB/s of a copy within the memory, bytes read and bytes written."""

    def is_alive(self) -> bool:
        """Whether a kernel still runs in this process. False, too, where there is no device: the next process may have
        one, if this one came while the driver still ended a hung one.
        """
        try:
            found = tensor.from_numpy(np.arange(3.0, dtype=np.float32), self.on)
            return bool(tensor.to_numpy(found + found)[2] == 4)
        except Exception:
            return False

    def microseconds(self, launch: Callable[[], Any], count: int, repeats: int = 5) -> float:
        """Of one launch: the median of `repeats` times `count` launches between two events, after a warm-up."""
        launch()
        return self._median(lambda: [launch() for _ in range(count)], repeats) / count

    def captured_microseconds(self, launch: Callable[[], Any], count: int, repeats: int = 5) -> float:
        """The same of launches that are one CUDA graph, so that the host's time does not count: the GPU still does the
        graph once while the host asks for the first event and for the graph again."""
        launch()
        graph = self._captured(launch, count)
        stream = self.on.runtime.stream

        def again() -> None:
            graph.launch(stream)

        with here(self.on):
            return self._median(again, repeats, before=again) / count

    @contextmanager
    def profiled(self) -> Iterator[None]:
        """A profiler that waits for the program's word looks at what is done inside."""
        yield

    def _captured(self, launch: Callable[[], Any], count: int) -> Any:
        stream = self.on.runtime.stream
        with here(self.on):
            stream.begin_capture()
            try:
                for _ in range(count):
                    launch()
            except BaseException:
                with suppress(Exception):  # the first error is the one to tell
                    stream.end_capture()
                raise
            return stream.end_capture()

    def _median(self, work: Callable[[], Any], repeats: int, before: Callable[[], Any] = lambda: None) -> float:
        """Microseconds of the work. before: what the GPU does meanwhile when the time begins."""
        found = []
        for _ in range(repeats):
            before()
            first = self.mark()
            work()
            found.append(self.milliseconds(first, self.mark()) * 1e3)
        return median(found)

    def own_set(self) -> KernelSet:
        """The kernels of ours, without the libraries before them; products of composed ones are the libraries'."""
        return own_set(self.on.kernels)

    def fresh_set(self) -> KernelSet:
        """The kernels of ours but for composed ones, of which none has built anything yet."""
        own = self.own_set()
        return cuda(next(iter(own.kernels.values()))._loader, own.fallback)  # type: ignore[attr-defined]

    def served_by(self, kernels: KernelSet, name: str, specs: TensorSpecs, settings: Settings) -> str:
        """Who does a call: "library", "own" or "host"."""
        chosen, own = kernels.choose(name, specs, settings), own_set(kernels)
        if own.fallback is not None and chosen is own.fallback[name]:
            return "host"
        return "own" if chosen is own[name] else "library"


class Gpu(Machine):
    """GPU 0 of this machine. own: without cuBLASLt and cuDNN, which start slowly under compute-sanitizer.

    deterministic: as of `device.new_cuda`.
    """

    def __init__(self, own: bool = False, deterministic: bool = True) -> None:
        self._own, self._deterministic = own, deterministic

    @cached_property
    def on(self) -> Any:
        if not self._deterministic:
            return device.new_cuda(0, deterministic=False)
        if not self._own:
            return device.cuda(0)
        with patch.object(cuda_libraries, "libraries", lambda *given: iter(())):
            return device.new_cuda(0)

    def mark(self) -> Any:
        import cupy

        with self.on.runtime.here():
            event = cupy.cuda.Event()
            event.record(self.on.runtime.stream)
        return event

    def milliseconds(self, first: Any, second: Any) -> float:
        import cupy

        second.synchronize()
        return float(cupy.cuda.get_elapsed_time(first, second))

    def compile(self, file: str, types: Types) -> None:
        import cupy

        from singa_lite.kernels.cuda_kernels import source
        from singa_lite.kernels.cuda_kernels.loader import OPTIONS

        with cupy.cuda.Device(0):
            cupy.RawModule(code=source.program(file, dict(types)), options=OPTIONS).compile()

    def versions(self) -> dict[str, Any]:
        values = {"Python": sys.version, "NumPy": np.__version__, "nvidia-smi": _nvidia_smi()}
        try:
            for name, text in cuda_libraries.library_rows():
                values[name] = text
        except Exception as error:  # what was found before is told
            values["error"] = f"{type(error).__name__}: {error}"
        return values

    @contextmanager
    def profiled(self) -> Iterator[None]:
        import cupy

        cupy.cuda.runtime.profilerStart()
        try:
            yield
        finally:
            cupy.cuda.runtime.profilerStop()

    def copy_bandwidth(self) -> float:
        pool, runtime = self.on.pool, self.on.runtime
        regions = [pool.take(COPIED) for _ in range(2)]
        to, source = (region.memory.ptr for region in regions)
        both = runtime.cupy.cuda.runtime.memcpyDeviceToDevice
        copy = runtime.cupy.cuda.runtime.memcpyAsync
        taken = self.microseconds(lambda: copy(to, source, COPIED, both, runtime.stream.ptr), 10)
        for region in regions:
            pool.give(region)
        return 2 * COPIED / taken / 1e3


def _nvidia_smi() -> str:
    """The driver's own words, or why there are none."""
    wanted = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,memory.used"
    asked = ["nvidia-smi", f"--query-gpu={wanted}", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout + done.stderr).strip()


def machine(stand_in: bool, own: bool = False, deterministic: bool = True) -> Machine:
    """The machine that was asked for. deterministic: of the GPU."""
    if not stand_in:
        return Gpu(own, deterministic)
    from first_run.stand_in import StandIn

    return StandIn()


def here(on: Any) -> Any:
    """The device's GPU and stream are the current ones inside."""
    return on.runtime.here() if hasattr(on.runtime, "here") else nullcontext()
