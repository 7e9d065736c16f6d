"""Two-dimensional pooling: a thread takes a pack of channels where images lie channels last, else one element."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.images import (
    MOST_POSITIONS,
    images,
    in_packs,
    positions,
    struct,
    vector,
    window_of,
    windows,
)
from singa_lite.kernels.cuda_kernels.routine import Routine, blocks
from singa_lite.kernels.cuda_kernels.source import are_floats
from singa_lite.kernels.cuda_kernels.walk import Struct
from singa_lite.kernels.kernel_set import TensorSpec

#: Threads that keep a whole GPU busy: as long as there are fewer, threads share windows.
BUSY = 1 << 18
#: Most threads to share a window, and the least taps that each of them takes.
MOST_LANES = 64
LEAST_TAPS = 4


def _pooled(call: Call) -> Routine | None:
    """A thread for each pack of y; several for one where windows are large and few."""
    x, y, index = call["x"], call["y"], call.optional("index")
    if not _fit(x, y):
        return None
    settings, types, count = _settings(call, x, y, y)
    operands = (x, y, index) if call.kernel == "max_pool2d" else (x, y)
    lanes = _lanes(y, window_of(call).taps)
    if lanes == 1:
        return Routine().launch("pooling.cu", call.kernel, settings, *operands, types=types, grid=blocks(count))
    arguments, grid = (settings, np.int32(lanes), *operands), blocks(count * lanes)
    return Routine().launch("pooling.cu", f"{call.kernel}_lanes", *arguments, types=types, grid=grid)


def _derivative(call: Call) -> Routine | None:
    """A thread for each pack of dx: each element asks the windows over it for their slopes, or for its shares."""
    dy, dx = call["dy"], call["dx"]
    if not _fit(dx, dy):
        return None
    settings, types, count = _settings(call, dx, dy, dx)
    operands = call.operands.values()
    return Routine().launch("pooling_derivative.cu", call.kernel, settings, *operands, types=types, grid=blocks(count))


def _fit(x: TensorSpec, y: TensorSpec) -> bool:
    return are_floats(x, y) and max(x.size, y.size) < MOST_POSITIONS


def _settings(call: Call, x: TensorSpec, y: TensorSpec, target: TensorSpec) -> tuple[Struct, dict[str, np.dtype], int]:
    """The struct `Pooling` of pooling.cuh, the types, and how many positions there are. target: what threads write."""
    winners = call.optional("index") or y
    pack = vector(x) if in_packs(vector(x), x, y, winners) else 1
    settings = struct(
        x=images(x),
        y=images(y),
        index=images(winners),
        window=windows(window_of(call)),
        positions=positions(target, pack),
        count_pad=int(call.number("count_pad")),
    )
    winner_type = np.dtype(np.uint8) if winners is y else winners.dtype
    return settings, {"T": x.dtype, "I": winner_type}, target.size // pack


def _lanes(y: TensorSpec, taps: int) -> int:
    """Threads for each window: by shapes alone, so that sums are the same for all strides."""
    lanes = 1
    while y.size // vector(y) * lanes < BUSY and lanes < MOST_LANES and 2 * lanes * LEAST_TAPS <= taps:
        lanes *= 2
    return lanes


KERNELS: dict[str, CallBuilder[Routine]] = {
    "max_pool2d": _pooled,
    "max_pool2d_derivative": _derivative,
    "avg_pool2d": _pooled,
    "avg_pool2d_derivative": _derivative,
}
