"""A trial of a library's routine on a GPU, over small arrays, beside whatever else the device does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.common.array_types import Array, DeviceRegion
from singa_lite.kernels.cuda_kernels.libraries.nan_probe import Values
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.kernel_set import DeviceArray, TensorSpec
from singa_lite.runtime.cuda import Cuda


class GpuTrial:
    """See `nan_probe.Trial`. The bytes are the pool's, and given back. No trial while the stream is being captured."""

    def __init__(self, runtime: Cuda) -> None:
        self._runtime = runtime

    def __call__(self, routine: Routine, specs: Sequence[TensorSpec | None], values: Sequence[Values]) -> Values:
        """None, too, where the pool has no bytes for it or the library fails."""
        if self._runtime.stream.is_capturing():
            return None
        regions: list[DeviceRegion] = []
        try:
            with self._runtime.here():
                return self._done(routine, tuple(specs), values, regions)
        except (MemoryError, RuntimeError):
            return None
        finally:
            for region in regions:
                self._runtime.pool.give(region)

    def _done(
        self,
        routine: Routine,
        specs: tuple[TensorSpec | None, ...],
        values: Sequence[Values],
        regions: list[DeviceRegion],
    ) -> Values:
        arrays = tuple(
            None if spec is None or value is None else self._filled(spec, value, regions)
            for spec, value in zip(specs, values, strict=True)
        )
        nbytes = routine.scratch_bytes
        scratch = None
        if nbytes:
            scratch = self._array(TensorSpec((nbytes,), np.dtype(np.uint8), (1,)), nbytes, regions)
        routine.bind(specs, arrays, scratch)()
        return self._runtime.read(arrays[-1])

    def _filled(self, spec: TensorSpec, value: Array, regions: list[DeviceRegion]) -> DeviceArray:
        made = self._array(spec, value.nbytes, regions)
        self._runtime.write(made, value)
        return made

    def _array(self, spec: TensorSpec, nbytes: int, regions: list[DeviceRegion]) -> DeviceArray:
        regions.append(self._runtime.pool.take(nbytes))
        return self._runtime.view(regions[-1].memory, spec.shape, spec.dtype, spec.strides, 0)
