"""Losses that are means over the elements of a sample, and their derivatives."""

from __future__ import annotations

from math import prod

from singa_lite.common.strides import memory_order
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.elementwise import NONE, run
from singa_lite.kernels.loop_kernels.library import operations
from singa_lite.kernels.loop_kernels.operands import (
    LEAST_PIECE,
    MAX_PIECES,
    are_stored,
    are_vectors,
    as_boxes,
    as_matrix,
)
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine

#: {kernel: the operation that makes each element of it}.
_DERIVATIVES = {"sigmoid_cross_entropy_derivative": "sigmoid_error", "huber_derivative": "bounded_error"}


def _mean(call: Call, routine: Routine) -> bool:
    x, losses = call["x"], call["losses"]
    columns = [axis for axis in memory_order(x.shape, x.strides) if axis]
    matrix = as_matrix(routine, [x, call["target"]], columns)
    if matrix is None or not are_vectors(losses):
        return False
    pieces = max(1, min(MAX_PIECES, matrix.columns // LEAST_PIECE))
    scratch = routine.temporary((matrix.rows * pieces,), "float64")
    sizes = matrix.rows, matrix.columns, pieces
    routine.run(call.kernel, *matrix.views, losses, scratch, *sizes, *map(float, call.settings.values()))  # type: ignore[arg-type]
    return True


def _derivative(call: Call, routine: Routine) -> bool:
    dlosses, x, target, dx = call.all("dlosses", "x", "target", "dx")
    if not are_stored(dlosses, x, target, dx):
        return False
    repeated = TensorSpec(x.shape, dlosses.dtype, (*dlosses.strides, *[0] * (x.ndim - 1)))
    extents, (*read, result) = as_boxes([(repeated, dlosses), (x, x), (target, target), (dx, dx)])
    numbers = [1 / prod(x.shape[1:]), call.number("delta")]
    run(routine, operations()[_DERIVATIVES[call.kernel]], NONE, read, result, extents, numbers)
    return True


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    **dict.fromkeys(("sigmoid_cross_entropy", "huber"), _mean),
    **dict.fromkeys(_DERIVATIVES, _derivative),
}
