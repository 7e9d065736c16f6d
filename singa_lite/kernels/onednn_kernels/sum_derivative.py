"""The sum of two derivatives, masked by an activation's result: a piece is summed, and masked while in the caches."""

from __future__ import annotations

from functools import cache

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import algorithms, layouts, memory_descs
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels.along import along, in_one_order
from singa_lite.kernels.onednn_kernels.line import Binary, Steps
from singa_lite.kernels.onednn_kernels.pitched import Span
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Routine
from singa_lite.kernels.onednn_kernels.work import Work

#: Derivatives of activations by their results.
_BY_RESULT = {"relu": (algorithms.RELU_FROM_RESULT, 0.0, 0.0), "relu6": (algorithms.CLIP_FROM_RESULT, 0.0, 6.0)}

#: What is done in one go.
FUSIONS = [("sum_activation_derivative", activation) for activation in _BY_RESULT]

#: Elements of a piece, which stays in a core's own cache from the sum to the mask.
_PIECE = 1 << 17


def sum_activation_derivative(
    a: TensorSpec, b: TensorSpec, y: TensorSpec, dx: TensorSpec, *, activation: str
) -> Routine | None:
    """The two primitives of the kernels apart. What has gaps is taken a cacheful at a time anyway."""
    if activation not in _BY_RESULT or not in_one_order(dx, a, b, y):
        return None
    if layouts.are_alike(dx, a, b, y):
        return _in_pieces(a, b, y, dx, activation)

    def fill(steps: Steps, a: TensorSpec) -> None:
        steps.chain(dx, a, Binary(algorithms.ADD, b))
        steps.derivative(dx, dx, y, *_BY_RESULT[activation])

    return along(dx, a, b, y, add=fill)


def _in_pieces(a: TensorSpec, b: TensorSpec, y: TensorSpec, dx: TensorSpec, activation: str) -> Work:
    work = Work(dx.size)

    @cache
    def made(count: int) -> tuple[Primitive, Primitive]:
        line = memory_descs.dense((count,))
        algorithm, alpha, beta = _BY_RESULT[activation]
        forward = work.make("eltwise_forward", f.FORWARD_TRAINING, algorithm, line, line, alpha, beta)
        mask = work.make("eltwise_backward", algorithm, line, line, line, alpha, beta, forward=forward)
        return work.make("binary", algorithms.ADD, line, line, line), mask

    def add(span: Span) -> None:
        one, other, result, target = (work.part(tensor, *span) for tensor in (a, b, y, dx))
        total, mask = made(span.length)
        work.run(total, {f.SRC: one, f.SRC_1: other, f.DST: target})
        work.run(mask, {f.DST: result, f.DIFF_DST: target, f.DIFF_SRC: target})

    starts = range(0, dx.size, _PIECE)
    work.repeat([Span(start, min(_PIECE, dx.size - start)) for start in starts], add)
    return work
