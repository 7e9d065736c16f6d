"""Layer normalization: the library's passes over rows; work on one number a row is done on the host.

The library keeps the biased variance where the interface keeps 1 / sqrt(variance + epsilon).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.pitched import Pitched, Span
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.sums.channel_sums import ChannelSums
from singa_lite.kernels.onednn_kernels.sums.columns import Columns
from singa_lite.kernels.onednn_kernels.sums.moments import Arguments, add_variance, backward, forward, inverter, is_slow
from singa_lite.kernels.onednn_kernels.work import Work, is_dense

_AFFINE = f.USE_SCALE | f.USE_SHIFT
#: Elements of a piece: it stays in the caches of the cores from one step to the next.
_PIECE = 1 << 18


def layer_norm(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    y: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    *,
    epsilon: float,
) -> Routine | None:
    """Forward, a few rows at a time: each row less its first value, then normalized.

    The subtraction is exact where means are large. A row of equal numbers becomes a row of zeros: its mean has no
    rounding error, which a division by a tiny deviation would enlarge.
    """
    if not _are_rows(x, gamma, beta, y, mean, inv_std):
        return None
    work, rows, features = Work(x.size), mean.size, gamma.size
    made = cache(lambda count: forward(work, "layer", f.FORWARD_TRAINING, _rows(count, gamma), epsilon, _AFFINE))
    moved = cache(lambda count: _less_first(work, count, features))
    step = min(rows, max(1, _PIECE // features))
    if is_slow(made(step)):
        return None
    first = work.temporary((rows,), "float32")
    work.call(lambda x, first: np.copyto(first, x.reshape(rows, features)[:, 0]), x, first)

    def add(start: int) -> None:
        count = min(step, rows - start)
        source, target = (work.part(tensor, start * features, count * features) for tensor in (x, y))
        offset, mean_, variance = (work.part(vector, start, count) for vector in (first, mean, inv_std))
        work.run(moved(count), {f.SRC: source, f.SRC_1: offset, f.DST: target})
        vectors = {f.SCALE: gamma, f.SHIFT: beta, f.MEAN: mean_, f.VARIANCE: variance}
        work.run(made(count), {f.SRC: target, f.DST: target, **vectors})

    work.repeat(range(0, rows, step), add)
    work.call(lambda mean, first: np.add(mean.reshape(-1), first, out=mean.reshape(-1)), mean, first)
    work.call(inverter(epsilon), inv_std)
    return work


def _less_first(work: Work, rows: int, features: int) -> Primitive:
    """A matrix minus one number for each row."""
    matrix, column = memory_descs.dense((rows, features)), memory_descs.dense((rows, 1))
    return work.make("binary", a.SUBTRACT, matrix, column, matrix)


def layer_norm_derivative(
    dy: TensorSpec, x: TensorSpec, gamma: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, dx: TensorSpec
) -> Routine | None:
    """The primitive makes the sums of `layer_norm_gradient` too: without them it takes no scale."""
    if not _are_rows(dy, x, gamma, mean, inv_std, dx):
        return None
    work = Work(x.size)
    primitive = backward(work, "layer", _rows(mean.size, gamma), _AFFINE)
    if is_slow(primitive):
        return None
    dgamma, dbeta = (work.temporary(gamma.shape, "float32") for _ in range(2))
    vectors: Arguments = {f.MEAN: mean, f.VARIANCE: add_variance(work, inv_std), f.DIFF_SCALE: dgamma}
    # It asks for the shift and makes no use of it.
    vectors |= {f.DIFF_SHIFT: dbeta, f.SCALE: gamma, f.SHIFT: gamma}
    work.run(primitive, {f.SRC: x, f.DIFF_DST: dy, f.DIFF_SRC: dx, **vectors})
    return work


def layer_norm_gradient(
    dy: TensorSpec, x: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, dgamma: TensorSpec, dbeta: TensorSpec
) -> Routine | None:
    """Sums by features of dy and of dy * (x - mean) * inv_std. Features lie as channels do where these lie last."""
    if not _are_rows(dy, x, mean, inv_std, dgamma, dbeta):
        return None
    work, features = Work(x.size), dgamma.size
    sums = ChannelSums(Columns(work, (mean.size, features, 1, 1), True))
    sums.add(_Standardized(work, x, mean, inv_std, features), dy)
    for total, gradient in zip(sums.totals, (dgamma, dbeta), strict=True):
        work.call(lambda total, gradient: np.copyto(gradient.reshape(-1), total, casting="same_kind"), total, gradient)
    return work


class _Standardized(Pitched):
    """Rows less their means and by their deviations, made where they are read: some at a time, in the scratch.

    In two steps: for a second number a row, in one, the library has plain loops alone.
    """

    def __init__(self, work: Work, x: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, features: int) -> None:
        super().__init__(work, x, (mean.size, features, 1, 1), features)
        self._vectors = (a.SUBTRACT, mean), (a.MULTIPLY, inv_std)
        self._made: dict[tuple[int, int], Primitive] = {}

    def read(self, span: Span) -> tuple[BufferView, Span]:
        """Add the steps that make these rows. Returns where they stand then."""
        start, count = (n * self.channels for n in span)
        source, target = self.work.part(self.tensor, start, count), self.dense(span)
        for algorithm, vector in self._vectors:
            numbers = self.work.part(vector, *span)
            self.work.run(self._step(algorithm, span.length), {f.SRC: source, f.SRC_1: numbers, f.DST: target})
            source = target
        return self.scratch, Span(0, span.length)

    def _step(self, algorithm: int, rows: int) -> Primitive:
        if (algorithm, rows) not in self._made:
            matrix, column = memory_descs.dense((rows, self.channels)), memory_descs.dense((rows, 1))
            self._made[algorithm, rows] = self.work.make("binary", algorithm, matrix, column, matrix)
        return self._made[algorithm, rows]


def _are_rows(*tensors: TensorSpec) -> bool:
    """Whether all are float32, in C order and without gaps."""
    return layouts.are_floats(*tensors) and all(is_dense(tensor, range(tensor.ndim)) for tensor in tensors)


def _rows(count: int, parameter: TensorSpec) -> tuple[p.MemoryDesc, p.MemoryDesc, p.MemoryDesc]:
    """Descriptors of x, y and a statistic."""
    matrix = memory_descs.dense((count, parameter.size))
    return matrix, matrix, memory_descs.dense((count,))
