"""What the normalizations share: statistics as the library has them, and sums over pieces of a derivative."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from singa_lite.kernels.kernel_set import Form
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Operand, Routine, Temporary
from singa_lite.kernels.onednn_kernels.work import Work

Array = np.ndarray[Any, Any]
Operands = dict[int, Operand]

#: Elements of a piece of a derivative that is made for its sums alone.
_PIECE = 1 << 19
#: From so many numbers in a sum on, the sums of all pieces are not small beside x.
_LONG = _PIECE // 16


def forward(work: Work, kind: str, prop: int, tensors: tuple[p.Form, ...], epsilon: float, flags: int) -> Primitive:
    """kind: "batch" or "layer"; tensors: x and y, which lie alike, and behind them the statistics of layers."""
    return work.make(f"{kind}_normalization_forward", prop, *tensors, epsilon, flags)


def backward(work: Work, kind: str, tensors: tuple[p.Form, ...], flags: int) -> Primitive:
    """tensors: as of `forward`. The variance that it is given has epsilon in it."""
    hint = forward(work, kind, f.FORWARD_TRAINING, tensors, 0.0, flags)
    return work.make(f"{kind}_normalization_backward", f.BACKWARD, tensors[0], *tensors, 0.0, flags, forward=hint)


def is_slow(primitive: Primitive) -> bool:
    """Whether it runs plain loops."""
    return "ref" in primitive.implementation


def add_variance(work: Work, inv_std: Form) -> Temporary:
    """Add a step: the variance with epsilon in it."""

    def invert(inv_std: Array, variance: Array) -> None:
        np.reciprocal(inv_std, out=variance)
        np.square(variance, out=variance)

    variance = work.temporary(inv_std.shape, "float32")
    work.call(invert, inv_std, variance)
    return variance


def inverter(epsilon: float) -> Callable[[Array], None]:
    """A step: 1 / sqrt(variance + epsilon) in the place of the variance."""

    def invert(variance: Array) -> None:
        np.add(variance, epsilon, out=variance)
        np.sqrt(variance, out=variance)
        np.reciprocal(variance, out=variance)

    return invert


def add_sums(
    work: Work,
    rows: int,
    slopes: tuple[Form, Form],
    gradients: tuple[Form, Form],
    made: Callable[[int], Primitive],
    statistics: Callable[[int, int], Operands],
) -> Routine | None:
    """Add steps: dgamma and dbeta (gradients) from dy and x (slopes), which are so many rows, one behind the other.

    The library makes dx with them. So it does so for a few rows at a time, always in the same place. made: the
    primitive for so many rows; statistics: its operands for rows from the first one on, and how many. None for plain
    loops, and where the sums of each piece would take much scratch.
    """
    (dy, x), size, made = slopes, gradients[0].size, cache(made)
    width = x.size // rows
    step = min(rows, max(1, _PIECE // width))
    pieces = [(start, min(step, rows - start)) for start in range(0, rows, step)]
    if size > _LONG or is_slow(made(step)):
        return None
    dx = work.temporary((step * width,), "float32")
    sums = [work.temporary((len(pieces), size), "float32") for _ in gradients]
    for place, (start, count) in enumerate(pieces):
        source, slope = (work.part(tensor, start * width, count * width) for tensor in (x, dy))
        scales, shifts = (piece_of(total, place * size, size) for total in sums)
        operands: Operands = {f.SRC: source, f.DIFF_DST: slope, f.DIFF_SRC: dx, **statistics(start, count)}
        # The scale counts for dx, which nobody reads.
        work.run(made(count), {**operands, f.SCALE: gradients[0], f.DIFF_SCALE: scales, f.DIFF_SHIFT: shifts})
    for total, gradient in zip(sums, gradients, strict=True):
        work.call(_add_up, total, gradient)
    return work


def piece_of(vector: Temporary, start: int, count: int) -> Temporary:
    """Elements of a temporary in the order of memory."""
    return Temporary(vector.offset + start * np.dtype(vector.dtype).itemsize, (count,), vector.dtype)


def _add_up(pieces: Array, total: Array) -> None:
    np.add.reduce(pieces, axis=0, out=total.reshape(-1))
