"""Kernels for a GPU that has none of its own for a call: values to the host, the reference kernel there, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast, runtime_checkable

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import DeviceArray, Kernel, KernelSet, Launch, Settings, TensorSpecs
from singa_lite.runtime.cuda import Cuda

_RESULTS = ("Write", "Update")


@runtime_checkable
class OnGpu(Protocol):
    """What a call of an own kernel is done by, if a GPU can do it: its setting "call"."""

    def prepare_on_gpu(self, runtime: Cuda, arrays: tuple[DeviceArray, ...]) -> Launch:
        """Bind it to arrays of the GPU."""


class HostFallback:
    """A kernel of the reference set over a GPU's arrays. It waits for the GPU, so no CUDA graph can hold it.

    What it allocates on the host is freed after each call.
    """

    def __init__(self, name: str, reference: KernelSet, runtime: Cuda) -> None:
        self._name = name
        self._reference = reference
        self._runtime = runtime

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """It can do every call."""
        return True

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """None on the GPU."""
        return 0

    def prepare(
        self, arrays: tuple[DeviceArray | None, ...], scratch: DeviceArray | None, settings: Settings
    ) -> Launch:
        """Copies, the kernel, copies of what it wrote."""
        roles = SIGNATURES[self._name].roles

        def launch() -> None:
            self._runtime.refuse_capture(f"{self._name} is done on the host")
            values = _in_one_dtype([None if array is None else self._runtime.read(array) for array in arrays])
            nbytes = self._reference.scratch_bytes(self._name, values, settings)
            with np.errstate(all="ignore"):  # as a CPU's kernels are run, see `runtime/host.py`
                self._reference.prepare(self._name, values, np.empty(nbytes, np.uint8), settings)()
            self._write_back(arrays, values, roles)

        return launch

    def _write_back(
        self, arrays: Sequence[DeviceArray | None], values: Sequence[Array | None], roles: Sequence[str]
    ) -> None:
        for array, value, role in zip(arrays, values, roles, strict=True):
            if array is not None and value is not None and role in _RESULTS:
                self._runtime.write(array, value)


def _in_one_dtype(values: Sequence[Array | None]) -> tuple[Array | None, ...]:
    """float16 in float32 where both are there: the reference does not mix them, as it does bfloat16 and float32."""
    mixed = {"float16", "float32"} <= {value.dtype.name for value in values if value is not None}
    return tuple(
        value.astype(np.float32) if mixed and value is not None and value.dtype == np.float16 else value
        for value in values
    )


def by_way_of_host(reference: KernelSet, runtime: Cuda) -> KernelSet:
    """The reference set over a GPU's arrays. runtime: that of the GPU."""
    return _HostSet(reference, runtime)


class _HostSet(KernelSet):
    """All kernels of the reference set, and users' own ones."""

    def __init__(self, reference: KernelSet, runtime: Cuda) -> None:
        kernels = {name: HostFallback(name, reference, runtime) for name in reference.kernels}
        super().__init__("by way of the host", kernels)
        self._reference, self._runtime = reference, runtime

    def own_kernel(self, name: str) -> Kernel:
        """A function over NumPy's arrays: on the host, unless the call can be done on a GPU."""
        return _OwnFallback(name, self._reference, self._runtime)


class _OwnFallback(HostFallback):
    def prepare(
        self, arrays: tuple[DeviceArray | None, ...], scratch: DeviceArray | None, settings: Settings
    ) -> Launch:
        call = settings["call"]
        if isinstance(call, OnGpu):
            return call.prepare_on_gpu(self._runtime, cast(tuple[DeviceArray, ...], arrays))
        return super().prepare(arrays, scratch, settings)
