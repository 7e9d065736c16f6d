"""Kernels beside sums over several processes. They are of no set: `parallel/` binds them to its calls' arrays.

Tensors are without gaps, in any order of axes, and gone through in the order of memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.kernels.cuda_kernels.routine import CudaKernel, Loader, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import DeviceArray, Launch, TensorSpec

FILE = "ranks.cu"


def clear_idle(values: TensorSpec, share: TensorSpec) -> Routine | None:
    """Zeros where the share, float64 (), is 0. None for dtypes that have no sums."""
    if values.dtype.name not in FLOATS:
        return None
    types = {"T": values.dtype}
    return Routine().launch(
        FILE, "clear_idle", values, np.int64(values.size), share, types=types, grid=blocks(values.size)
    )


def draw_key(state: TensorSpec, key: TensorSpec, *, by: int) -> Routine | None:
    """One thread. uint64 (3,) each."""
    operands = state, _step(state), key, _step(key), np.uint64(by)
    return Routine().launch(FILE, "draw_key_of", *operands, types={"T": np.float32}, grid=1, block=1)


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


def _step(words: TensorSpec) -> np.int64:
    """How far apart the words lie."""
    return np.int64(words.strides[0] // 8)
