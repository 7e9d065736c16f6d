"""Root mean square normalization: the library's layer normalization with statistics that are given to it.

y  = layer norm of x by (mean 0, variance = mean of x**2)
dx = dy * gamma * inv_rms;  dx += x * (-inv_rms**2 * mean of dx * x)
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.pitched import Span
from singa_lite.kernels.onednn_kernels.routine import Routine
from singa_lite.kernels.onednn_kernels.sums.channel_sums import ChannelSums
from singa_lite.kernels.onednn_kernels.sums.columns import Columns
from singa_lite.kernels.onednn_kernels.sums.moments import forward, inverter, is_slow
from singa_lite.kernels.onednn_kernels.sums.running_sums import ACCUMULATE, Link
from singa_lite.kernels.onednn_kernels.work import Work, is_dense

_GIVEN = f.USE_SCALE | f.USE_GLOBAL_STATS
#: Elements of a piece: it stays in the caches of the cores from one step to the next.
_PIECE = 1 << 18


def rms_norm(x: TensorSpec, gamma: TensorSpec, y: TensorSpec, inv_rms: TensorSpec, *, epsilon: float) -> Routine | None:
    """A few rows at a time: their squares on the host, then the library's pass."""
    if not _are_rows(x, gamma, y, inv_rms):
        return None
    work, rows, features = Work(x.size), inv_rms.size, gamma.size
    step = min(rows, max(1, _PIECE // features))
    made = {count: _normalizes(work, count, features, epsilon) for count in {step, rows % step or step}}
    if any(map(is_slow, made.values())):
        return None
    zeros = work.temporary((step,), "float32")
    work.call(lambda zeros: zeros.fill(0), zeros)

    def squares(x: Array, means: Array) -> None:
        matrix = x.reshape(-1, features)
        np.einsum("ij,ij->i", matrix, matrix, out=means)
        np.divide(means, features, out=means)

    def add(start: int) -> None:
        count = min(step, rows - start)
        source, target = (work.part(tensor, start * features, count * features) for tensor in (x, y))
        means = work.part(inv_rms, start, count)
        work.call(squares, source, means)
        operands = {f.MEAN: zeros, f.VARIANCE: means, f.SCALE: gamma}
        work.run(made[count], {f.SRC: source, f.DST: target, **operands})

    for start in range(0, rows, step):
        add(start)
    work.call(inverter(epsilon), inv_rms)
    return work


def rms_norm_derivative(
    dy: TensorSpec, x: TensorSpec, gamma: TensorSpec, inv_rms: TensorSpec, dx: TensorSpec
) -> Routine | None:
    """A few rows at a time: the first term, its products with x on the host, the second term."""
    if not _are_rows(dy, x, gamma, inv_rms, dx):
        return None
    work, rows, features = Work(x.size), inv_rms.size, gamma.size
    step = min(rows, max(1, _PIECE // features))
    made = {count: _derives(work, count, features) for count in {step, rows % step or step}}
    slopes = work.temporary((step,), "float32")

    def along(dx: Array, x: Array, inverse: Array, slope: Array) -> None:
        own = slope[: inverse.size]
        np.einsum("ij,ij->i", dx.reshape(-1, features), x.reshape(-1, features), out=own)
        np.multiply(own, inverse, out=own)
        np.multiply(own, inverse, out=own)
        np.divide(own, -features, out=own)

    def add(start: int) -> None:
        count = min(step, rows - start)
        dy_, x_, dx_ = (work.part(tensor, start * features, count * features) for tensor in (dy, x, dx))
        inverse = work.part(inv_rms, start, count)
        first, second = made[count]
        work.run(first, {f.SRC: dy_, f.SRC_1: inverse, f.post_op(0): gamma, f.DST: dx_})
        work.call(along, dx_, x_, inverse, slopes)
        work.run(second, {f.SRC: x_, f.SRC_1: slopes, f.DST: dx_})

    for start in range(0, rows, step):
        add(start)
    return work


def rms_norm_gradient(dy: TensorSpec, x: TensorSpec, inv_rms: TensorSpec, dgamma: TensorSpec) -> Routine | None:
    """Sums by features of dy * x * inv_rms, as channels that lie last."""
    if not _are_rows(dy, x, inv_rms, dgamma):
        return None
    work, features = Work(x.size), dgamma.size
    sums = ChannelSums(Columns(work, (inv_rms.size, features, 1, 1), True))

    def move(rows: Span) -> tuple[p.MemoryDesc, list[Link]]:
        matrix, column = memory_descs.dense((rows.length, features)), memory_descs.dense((rows.length, 1))
        return matrix, [Link(a.MULTIPLY, column, work.part(inv_rms, *rows))]

    sums.add(x, dy, move)
    products, _ = sums.totals
    work.call(lambda products, dgamma: np.copyto(dgamma.reshape(-1), products, casting="same_kind"), products, dgamma)
    return work


def _normalizes(work: Work, rows: int, features: int, epsilon: float) -> p.Primitive:
    matrix = memory_descs.dense((rows, features))
    tensors = matrix, matrix, memory_descs.dense((rows,))
    return forward(work, "layer", f.FORWARD_INFERENCE, tensors, epsilon, _GIVEN)


def _derives(work: Work, rows: int, features: int) -> tuple[p.Primitive, p.Primitive]:
    """dx = dy * a number a row * gamma; dx += x * a number a row. The other way round the library has plain loops."""
    matrix, row, column = (memory_descs.dense(shape) for shape in ((rows, features), (1, features), (rows, 1)))
    first = work.make("binary", a.MULTIPLY, matrix, column, matrix, post_ops=[("binary", a.MULTIPLY, row)])
    return first, work.make("binary", a.MULTIPLY, matrix, column, matrix, post_ops=[ACCUMULATE])


def _are_rows(*tensors: TensorSpec) -> bool:
    """Whether all are float32, in C order and without gaps, and not empty."""
    plain = layouts.are_floats(*tensors) and all(is_dense(tensor, range(tensor.ndim)) for tensor in tensors)
    return plain and all(tensor.size for tensor in tensors)
