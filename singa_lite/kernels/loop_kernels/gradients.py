"""Gradients and other tensors of parameters: added, scaled and clipped in place."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.common.strides import memory_order
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import Matrix, as_matrix, check_number, lie_alike
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine

#: Sums of squares that are made before they are added up, see gradients.h.
PARTIAL_SUMS = 4096


def _add_scaled(call: Call, routine: Routine) -> None:
    matrix = _lines(routine, [call["y"], call["x"]])
    y, x = matrix.views
    routine.run("add_scaled", x, y, matrix.rows, matrix.columns, call.number("alpha"))


def _clip_elements(call: Call, routine: Routine) -> None:
    matrix = _lines(routine, [call["y"]])
    routine.run("clip_elements", *matrix.views, matrix.rows, matrix.columns, call.number("threshold"))


def _scale_by(call: Call, routine: Routine) -> None:
    factor = call["factor"]
    check_number(factor)
    matrix = _lines(routine, [call["y"]])
    routine.run("scale_by", factor, *matrix.views, matrix.rows, matrix.columns)


def _add_squares(call: Call, routine: Routine) -> None:
    x, total = call["x"], call["total"]
    outermost_first = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    columns = outermost_first[1:] if x.ndim > 1 else outermost_first
    check_number(total)
    matrix = as_matrix(routine, [x], columns)
    sums = routine.temporary((PARTIAL_SUMS,), "float64")
    routine.run("add_squares", *matrix.views, total, sums, matrix.rows, matrix.columns)


def _clip_norm(call: Call, routine: Routine) -> None:
    matrix = _lines(routine, [call["y"]])
    sums = routine.temporary((PARTIAL_SUMS,), "float64")
    routine.run("clip_norm", *matrix.views, sums, matrix.rows, matrix.columns, call.number("threshold"))


def _lines(routine: Routine, specs: Sequence[TensorSpec]) -> Matrix:
    """Returns operands as one row, or where they have gaps as a row for each index of the outermost axis."""
    order = memory_order(specs[0].shape, specs[0].strides)
    return as_matrix(routine, specs, order if lie_alike(*specs) else order[1:])


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "add_scaled": _add_scaled,
    "add_squares": _add_squares,
    "clip_elements": _clip_elements,
    "clip_norm": _clip_norm,
    "scale_by": _scale_by,
}
