"""Two-dimensional pooling: a thread takes a pack of channels where images lie channels last, else one element."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.images import (
    MOST_POSITIONS,
    images,
    in_packs,
    positions,
    struct,
    vector,
    windows,
)
from singa_lite.kernels.cuda_kernels.routine import BufferView, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.cuda_kernels.walk import Struct
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec

#: Threads that keep a whole GPU busy: as long as there are fewer, threads share windows.
BUSY = 1 << 18
#: Most threads to share a window, and the least taps that each of them takes.
MOST_LANES = 64
LEAST_TAPS = 4


def max_pool2d(x: TensorSpec, y: TensorSpec, index: TensorSpec | None, *, window: Window) -> Routine | None:
    """The winner's number beside the maximum."""
    return _pooled("max_pool2d", x, y, index, window, False, (x, y, index))


def max_pool2d_derivative(dy: TensorSpec, index: TensorSpec, dx: TensorSpec, *, window: Window) -> Routine | None:
    """Gathered: each element of dx asks the windows over it whether it won."""
    return _spread("max_pool2d_derivative", dx, dy, index, window, False, (dy, index, dx))


def avg_pool2d(x: TensorSpec, y: TensorSpec, *, window: Window, count_pad: bool) -> Routine | None:
    """Sums, divided once."""
    return _pooled("avg_pool2d", x, y, None, window, count_pad, (x, y))


def avg_pool2d_derivative(dy: TensorSpec, dx: TensorSpec, *, window: Window, count_pad: bool) -> Routine | None:
    """Gathered: each element of dx adds the shares of the windows over it."""
    return _spread("avg_pool2d_derivative", dx, dy, None, window, count_pad, (dy, dx))


def _pooled(
    name: str,
    x: TensorSpec,
    y: TensorSpec,
    index: TensorSpec | None,
    window: Window,
    count_pad: bool,
    operands: tuple[BufferView, ...],
) -> Routine | None:
    """A thread for each pack of y; several for one where windows are large and few."""
    if not _fit(x, y):
        return None
    settings, types, count = _settings(x, y, index, y, window, count_pad)
    lanes = _lanes(y, window.taps)
    if lanes == 1:
        return Routine().launch("pooling.cu", name, settings, *operands, types=types, grid=blocks(count))
    grid = blocks(count * lanes)
    return Routine().launch(
        "pooling_lanes.cu", f"{name}_lanes", settings, np.int32(lanes), *operands, types=types, grid=grid
    )


def _spread(
    name: str,
    dx: TensorSpec,
    dy: TensorSpec,
    index: TensorSpec | None,
    window: Window,
    count_pad: bool,
    operands: tuple[BufferView, ...],
) -> Routine | None:
    """A thread for each pack of dx."""
    if not _fit(dx, dy):
        return None
    settings, types, count = _settings(dx, dy, index, dx, window, count_pad)
    return Routine().launch("pooling_derivative.cu", name, settings, *operands, types=types, grid=blocks(count))


def _fit(x: TensorSpec, y: TensorSpec) -> bool:
    return x.dtype == y.dtype and x.dtype.name in FLOATS and max(x.size, y.size) < MOST_POSITIONS


def _settings(
    x: TensorSpec, y: TensorSpec, index: TensorSpec | None, target: TensorSpec, window: Window, count_pad: bool
) -> tuple[Struct, dict[str, np.dtype], int]:
    """The struct `Pooling` of pooling.cuh, the types, and how many positions there are. target: what threads write."""
    winners = y if index is None else index
    pack = vector(x) if in_packs(vector(x), x, y, winners) else 1
    settings = struct(
        x=images(x),
        y=images(y),
        index=images(winners),
        window=windows(window),
        positions=positions(target, pack),
        count_pad=int(count_pad),
    )
    winner_type = np.dtype(np.uint8) if index is None else index.dtype
    return settings, {"T": x.dtype, "I": winner_type}, target.size // pack


def _lanes(y: TensorSpec, taps: int) -> int:
    """Threads for each window: by shapes alone, so that sums are the same for all strides."""
    lanes = 1
    while y.size // vector(y) * lanes < BUSY and lanes < MOST_LANES and 2 * lanes * LEAST_TAPS <= taps:
        lanes *= 2
    return lanes
