"""Softmax, cross entropy with what is beside it, and the metric of the first k."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import Matrix, are_vectors, as_boxes, as_matrix, id_type
from singa_lite.kernels.loop_kernels.routine import Argument, BoxView, Builder, Call, Routine

#: Of a box whose steps are in bytes.
BYTE = np.dtype(np.bool_)


def _softmax(call: Call, routine: Routine) -> bool:
    axis, names = int(call.number("axis")), ("x", "dy", "y", "dx")
    given = {name: call[name] for name in names if call.optional(name)}
    spec = given["y"]
    matrix = as_matrix(routine, [*given.values()], [axis % spec.ndim], written=call.all("dx") or [spec])
    if matrix is None:
        return False
    routine.run(call.kernel, *matrix.views, matrix.rows, matrix.columns)
    return True


def _cross_entropy(call: Call, routine: Routine) -> bool:
    x, target, losses = call["x"], call["target"], call["losses"]
    found = _scores(routine, [x, call["p"]], target, losses)
    if found is None:
        return False
    (scores, share, *weights), ids = found.views, _ids(routine, target, x)
    positions = prod(x.shape[2:])
    numbers = routine.temporary((found.rows,), "float32") if positions > 1 else None
    routine.run(
        call.kernel, scores, share, *_weights(weights), *ids, numbers, losses, found.rows, found.columns, positions
    )
    return True


def _cross_entropy_derivative(call: Call, routine: Routine) -> bool:
    p, target, dlosses = call["p"], call["target"], call["dlosses"]
    found = _scores(routine, [p, call["dx"]], target, dlosses)
    if found is None:
        return False
    (share, dx, *weights), ids = found.views, _ids(routine, target, p)
    routine.run(call.kernel, dlosses, share, *_weights(weights), *ids, dx, found.rows, found.columns, prod(p.shape[2:]))
    return True


def _in_top_k(call: Call, routine: Routine) -> bool:
    x, target, values = call["x"], call["target"], call["values"]
    found = None if target.ndim == x.ndim else _scores(routine, [x], target, values)
    if found is None:
        return False
    positions, ids = prod(x.shape[2:]), _ids(routine, target, x)
    numbers = routine.temporary((found.rows,), "float32") if positions > 1 else None
    sizes = found.rows, found.columns, positions, int(call.number("k"))
    routine.run("in_top_k", *found.views, *ids, numbers, values, *sizes)
    return True


def _log_sum_exp(call: Call, routine: Routine) -> bool:
    found = as_matrix(routine, [call["x"]], [1])
    if found is None or not are_vectors(call["y"]):
        return False
    routine.run("log_sum_exp", *found.views, call["y"], found.rows, found.columns)
    return True


def _classes_derivative(call: Call, routine: Routine) -> bool:
    target, dlosses, lse = call["target"], call["dlosses"], call["lse"]
    found = _scores(routine, [call["x"], call["dx"]], target, dlosses)
    if found is None or not are_vectors(lse):
        return False
    x, dx = found.views
    columns = int(call.number("first")), int(call.number("classes")), call.number("share")
    routine.run(call.kernel, dlosses, x, lse, *_box_of(target), dx, found.rows, found.columns, *columns)
    return True


def _smooth_labels(call: Call, routine: Routine) -> bool:
    x, target, losses = call["x"], call["target"], call["losses"]
    found = _scores(routine, [x], target, losses)
    if found is None:
        return False
    ids = _ids(routine, target, x)
    routine.run(call.kernel, *found.views, *ids, losses, found.rows, found.columns, call.number("share"))
    return True


def _smooth_labels_derivative(call: Call, routine: Routine) -> bool:
    dx, target, dlosses = call["dx"], call["target"], call["dlosses"]
    found = _scores(routine, [dx], target, dlosses, updated=[dx])
    if found is None:
        return False
    ids = _ids(routine, target, dx)
    routine.run(call.kernel, dlosses, *ids, *found.views, found.rows, found.columns, call.number("share"))
    return True


def _scores(
    routine: Routine,
    scores: list[TensorSpec],
    target: TensorSpec,
    numbers: TensorSpec,
    updated: Sequence[TensorSpec] = (),
) -> Matrix | None:
    """Scores (n, c, ...) as rows in the order of ids (n, ...); or with the target behind them, if it is rows too.

    None for other types. numbers: one a sample. The second of the scores is written.
    """
    is_rows = target.ndim == scores[0].ndim
    if not are_vectors(numbers) or not (is_rows or target.dtype.kind in "iu"):
        return None
    order = [axis for axis in range(scores[0].ndim) if axis != 1]
    all_rows = [*scores, *[target] * is_rows]
    return as_matrix(routine, all_rows, [1], written=scores[1:], order=order, updated=updated)


def _ids(routine: Routine, target: TensorSpec, scores: TensorSpec) -> tuple[Argument, tuple[int, ...]]:
    """A target of ids as loops take it, behind a check that each names a class; nothing for one of rows."""
    if target.ndim == scores.ndim:
        return None, ()
    routine.check(partial(_check, classes=scores.shape[1]), target)
    return _box_of(target)


def _box_of(ids: TensorSpec) -> tuple[BoxView, tuple[int, ...]]:
    """The ids in C order as a box, see ids.h, and its extents."""
    by_bytes = TensorSpec(ids.shape, BYTE, ids.strides)
    in_order = TensorSpec(ids.shape, BYTE, ordered_strides(ids.shape, range(ids.ndim)))
    extents, (found, _) = as_boxes([(by_bytes, ids), (in_order, ids)])
    return BoxView(ids, found.steps, id_type(ids)), extents


def _check(target: Array, classes: int) -> None:
    check_ids("class ids", target, classes)


def _weights(rows: Sequence[Argument]) -> Sequence[Argument]:
    """The target's rows as an operand; None for one of ids."""
    return rows or (None,)


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
}
