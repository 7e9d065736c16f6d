"""The CUDA kernel sets on a real GPU, over NumPy arrays that are copied there and back at each launch."""

from __future__ import annotations

from typing import Any

import numpy as np

from call_steps import own_set
from host_loader import host_bytes
from singa_lite import device
from singa_lite.device import Device
from singa_lite.errors import DeviceError
from singa_lite.kernels.kernel_set import KernelSet, Launch, Settings


class Copied:
    """A host array's span of bytes, gaps included, and its place on the GPU."""

    def __init__(self, on: Device, array: np.ndarray) -> None:
        steps = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
        nbytes = max(steps + array.dtype.itemsize, 1) if array.size else 1
        self.runtime: Any = on.runtime
        self.span = host_bytes(array.ctypes.data, nbytes)
        self.kept = array, on.pool.take(nbytes)
        memory = self.kept[1].memory
        self.bytes = self.runtime.view(memory, (nbytes,), np.dtype(np.uint8), (1,), 0)
        self.array = self.runtime.view(memory, array.shape, array.dtype, array.strides, 0)

    def upload(self) -> None:
        self.runtime.write(self.bytes, self.span)

    def download(self) -> None:
        self.span[:] = self.runtime.read(self.bytes)


class OnGpu(KernelSet):
    """A GPU device's kernels. Arrays that lie at one address share their bytes on the GPU too."""

    def __init__(self, name: str, on: Device, made: KernelSet) -> None:
        super().__init__(name, made.kernels, made.fallback, made.layouts, made.fusions, made.strides_matter)
        self.joins = made.joins
        self.on = on

    def prepare(self, name: str, arrays: tuple[Any, ...], scratch: Any, settings: Settings) -> Launch:
        """Bind to copies on the GPU; a launch brings all bytes there, runs, waits, and brings them back."""
        given = [array for array in (*arrays, scratch) if array is not None]
        copies = {array.ctypes.data: Copied(self.on, array) for array in reversed(given) if array.size}
        empty = {id(array): Copied(self.on, array) for array in given if not array.size}

        def there(array: Any) -> Any:
            if array is None:
                return None
            return (copies.get(array.ctypes.data) if array.size else empty[id(array)]).array

        with self.on.runtime.here():
            launch = super().prepare(name, tuple(map(there, arrays)), there(scratch), settings)
        return CopiedLaunch(self.on, launch, list(copies.values()))


class CopiedLaunch:
    """A launch with all of its bytes brought there before, and back behind it."""

    def __init__(self, on: Device, launch: Launch, copies: list[Copied]) -> None:
        self.on = on
        self.launch = launch
        self.copies = copies

    def __call__(self) -> None:
        with self.on.runtime.here():
            for copy in self.copies:
                copy.upload()
            self.launch()
            for copy in self.copies:
                copy.download()

    def alone(self) -> None:
        """Without the copies, which take memory of the host: over what the GPU holds."""
        with self.on.runtime.here():
            self.launch()


def on_gpu() -> list[KernelSet]:
    """Those of GPU 0 with the libraries' kernels, and our own alone; none where there is no GPU."""
    try:
        on = _device()
    except DeviceError:
        return []
    return [OnGpu("gpu", on, on.kernels), OnGpu("gpu-own", on, own_set(on.kernels))]


def _device() -> Device:
    from cuda_devices import STANDS_IN  # wants pytest, which `benchmarks/gpu_first.py` does without

    if STANDS_IN:
        from host_device import host_cuda

        return host_cuda()
    return device.new_cuda(0)
