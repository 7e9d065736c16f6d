"""Softmax, losses of classes and of single elements, their derivatives, and the metric of the first k."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import memory_order, ordered_strides
from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.elementwise import run
from singa_lite.kernels.loop_kernels.operands import (
    LEAST_PIECE,
    MAX_PIECES,
    as_boxes,
    as_matrix,
    broadcast_vector,
    check_stored,
    check_vectors,
    id_type,
)
from singa_lite.kernels.loop_kernels.routine import BoxView, Builder, Call, Routine, RowsView, want
from singa_lite.kernels.routine import Temporary

#: Of a box whose steps are in bytes.
BYTE = np.dtype(np.bool_)
#: {kernel: the operation that makes each element of it}.
ERRORS = {"sigmoid_cross_entropy_derivative": "sigmoid_error", "huber_derivative": "bounded_error"}


def _softmax(call: Call, routine: Routine) -> None:
    specs = call.all("x", "dy", "y", "dx")
    matrix = as_matrix(routine, specs, [int(call.number("axis")) % specs[0].ndim])
    routine.run(call.kernel, *matrix.views, matrix.rows, matrix.columns)


def _cross_entropy(call: Call, routine: Routine) -> None:
    of = _scores(call, routine, "x", "p")
    sizes = of.rows, of.columns, of.positions
    routine.run(call.kernel, *of.views, of.weights, *of.ids, _numbers(routine, of), call["losses"], *sizes)


def _cross_entropy_derivative(call: Call, routine: Routine) -> None:
    of = _scores(call, routine, "p", "dx")
    (share, dx), sizes = of.views, (of.rows, of.columns, of.positions)
    routine.run(call.kernel, call["dlosses"], share, of.weights, *of.ids, dx, *sizes)


def _in_top_k(call: Call, routine: Routine) -> None:
    want(call["target"].ndim < call["x"].ndim, "ids")
    of = _scores(call, routine, "x")
    sizes = of.rows, of.columns, of.positions, int(call.number("k"))
    routine.run(call.kernel, *of.views, *of.ids, _numbers(routine, of), call["values"], *sizes)


def _log_sum_exp(call: Call, routine: Routine) -> None:
    matrix = as_matrix(routine, [call["x"]], [1])
    check_vectors(call["y"])
    routine.run(call.kernel, *matrix.views, call["y"], matrix.rows, matrix.columns)


def _classes_derivative(call: Call, routine: Routine) -> None:
    of = _scores(call, routine, "x", "dx", are_some=True)
    check_vectors(call["lse"])
    (x, dx), numbers = of.views, (int(call.number("first")), int(call.number("classes")), call.number("share"))
    routine.run(call.kernel, call["dlosses"], x, call["lse"], *of.ids, dx, of.rows, of.columns, *numbers)


def _smooth_labels(call: Call, routine: Routine) -> None:
    of = _scores(call, routine, "x")
    routine.run(call.kernel, *of.views, *of.ids, call["losses"], of.rows, of.columns, call.number("share"))


def _smooth_labels_derivative(call: Call, routine: Routine) -> None:
    of = _scores(call, routine, "dx")
    routine.run(call.kernel, call["dlosses"], *of.ids, *of.views, of.rows, of.columns, call.number("share"))


def _mean(call: Call, routine: Routine) -> None:
    x, losses = call["x"], call["losses"]
    columns = [axis for axis in memory_order(x.shape, x.strides) if axis]
    matrix = as_matrix(routine, [x, call["target"]], columns)
    check_vectors(losses)
    pieces = max(1, min(MAX_PIECES, matrix.columns // LEAST_PIECE))
    scratch, numbers = routine.temporary((matrix.rows * pieces,), "float64"), map(call.number, call.settings)
    routine.run(call.kernel, *matrix.views, losses, scratch, matrix.rows, matrix.columns, pieces, *numbers)


def _error(call: Call, routine: Routine) -> None:
    dlosses, x, target, dx = call.all("dlosses", "x", "target", "dx")
    check_stored(dlosses, x, target, dx)
    extents, views = as_boxes([(broadcast_vector(dlosses, x.shape, 0), dlosses), (x, x), (target, target), (dx, dx)])
    run(routine, ERRORS[call.kernel], views, extents, [1 / prod(x.shape[1:]), call.number("delta")])


class _Scores(NamedTuple):
    """Scores (n, c, ...) as rows in the order of ids (n, ...).

    weights: the target, if it is rows too; ids: else, as a box and its extents; positions: rows of a sample.
    """

    views: tuple[RowsView, ...]
    weights: RowsView | None
    ids: tuple[BoxView | None, tuple[int, ...]]
    rows: int
    columns: int
    positions: int


def _scores(call: Call, routine: Routine, *names: str, are_some: bool = False) -> _Scores:
    """Scores, and the target, behind a check that each id names a class, unless they are those of some classes."""
    scores, target = call.all(*names), call["target"]
    shape, is_rows = scores[0].shape, target.ndim == scores[0].ndim
    check_vectors(*call.all("losses", "dlosses", "values"))
    want(is_rows or target.dtype.kind in "iu", "ids that are integers")
    order = [axis for axis in range(len(shape)) if axis != 1]
    matrix = as_matrix(routine, [*scores, *[target] * is_rows], [1], order)
    views, weights = matrix.views[: len(scores)], matrix.views[len(scores) :]
    if not is_rows and not are_some:
        routine.check(partial(_check, classes=shape[1]), target)
    ids = (None, ()) if is_rows else _box_of(target)
    return _Scores(views, weights[0] if is_rows else None, ids, matrix.rows, matrix.columns, prod(shape[2:]))


def _numbers(routine: Routine, of: _Scores) -> Temporary | None:
    """Scratch for a number of each row; None for one row a sample."""
    return routine.temporary((of.rows,), "float32") if of.positions > 1 else None


def _box_of(ids: TensorSpec) -> tuple[BoxView, tuple[int, ...]]:
    """The ids in C order as a box, see ids.h, and its extents."""
    by_bytes = TensorSpec(ids.shape, BYTE, ids.strides)
    in_order = TensorSpec(ids.shape, BYTE, ordered_strides(ids.shape, range(ids.ndim)))
    extents, (found, _) = as_boxes([(by_bytes, ids), (in_order, ids)])
    return BoxView(ids, found.steps, id_type(ids)), extents


def _check(target: Array, classes: int) -> None:
    check_ids("class ids", target, classes)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    **dict.fromkeys(("softmax", "softmax_derivative"), _softmax),
    "softmax_cross_entropy": _cross_entropy,
    "softmax_cross_entropy_derivative": _cross_entropy_derivative,
    "log_sum_exp": _log_sum_exp,
    "softmax_classes_derivative": _classes_derivative,
    "smooth_labels": _smooth_labels,
    "smooth_labels_derivative": _smooth_labels_derivative,
    "in_top_k": _in_top_k,
    **dict.fromkeys(("sigmoid_cross_entropy", "huber"), _mean),
    **dict.fromkeys(ERRORS, _error),
}
