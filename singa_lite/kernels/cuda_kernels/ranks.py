"""Kernels beside sums over several processes. They are of no set: `parallel/` binds them to its calls' arrays.

Tensors are without gaps, in any order of axes, and gone through in the order of memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.kernels.cuda_kernels.random import drawn
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, Loader, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import DeviceArray, Launch, TensorSpec

FILE = "ranks.cu"


def clear_idle(values: TensorSpec, share: TensorSpec) -> Routine | None:
    """Zeros where the share, float64 (), is 0. None for dtypes that have no sums."""
    if values.dtype.name not in FLOATS:
        return None
    arguments, types = (values, np.int64(values.size), share), {"T": values.dtype}
    return Routine().launch(FILE, "clear_idle", *arguments, types=types, grid=blocks(values.size))


def draw_key(state: TensorSpec, key: TensorSpec, *, by: int) -> Routine | None:
    """One thread. uint64 (3,) each."""
    return drawn(state, key, FILE, "draw_key_of", np.uint64(by))


class RankKernels:
    """These kernels, compiled by a loader."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._kernels: dict[str, CudaKernel] = {}

    def clear_idle(self, values: DeviceArray, share: DeviceArray) -> Launch:
        """Binds `clear_idle`. TypeError for dtypes that have no sums."""
        return self._bound(clear_idle, values, share)

    def draw_key(self, state: DeviceArray, key: DeviceArray, by: int) -> Launch:
        """Binds `draw_key`."""
        return self._bound(draw_key, state, key, by=by)

    def _bound(self, build: Callable[..., Routine | None], *arrays: DeviceArray, **settings: object) -> Launch:
        kernel = self._kernels.setdefault(build.__name__, CudaKernel(build, self._loader))
        launch: Launch = kernel.prepare(arrays, None, settings)
        return launch
