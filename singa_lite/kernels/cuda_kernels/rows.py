"""Rows in C order, of others copies: root mean square norms, rotary positions, scores of some or all classes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.copies import without_gaps
from singa_lite.kernels.cuda_kernels.plane import partial_results, plane
from singa_lite.kernels.cuda_kernels.routine import Routine, Types, Value, blocks, integer, warps
from singa_lite.kernels.cuda_kernels.source import are_floats, are_ids, computed
from singa_lite.kernels.cuda_kernels.walk import spread
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import TensorSpec


def types_of_rows(floats: Sequence[TensorSpec], ids: Sequence[TensorSpec] = ()) -> Types | None:
    """T, the type of the floats, and S, that of the ids; None for what the kernels do not do."""
    if not are_floats(*floats) or (ids and not are_ids(*ids)):
        return None
    return {"T": floats[0].dtype, "S": ids[0].dtype if ids else np.dtype(np.int32)}


def _by_warps(call: Call, file: str, rows: int, columns: int, *numbers: Value) -> Routine | None:
    """A warp for each row."""
    return _launched(call, file, rows, columns, *numbers, grid=warps(rows))


def _launched(call: Call, file: str, *numbers: Value | int, grid: int) -> Routine | None:
    ids = call.all("target", "ids")
    types = types_of_rows([spec for spec in call.operands.values() if spec not in ids], ids)
    if types is None:
        return None
    values = [np.int64(number) if isinstance(number, int) else number for number in numbers]
    return Routine().launch(file, call.kernel, *call.operands.values(), *values, types=types, grid=grid)


def _rms_norm(call: Call) -> Routine | None:
    return _by_warps(call, "rms_norm.cu", *_extents(call), np.float64(call.number("epsilon")))


def _rms_norm_derivative(call: Call) -> Routine | None:
    return _by_warps(call, "rms_norm.cu", *_extents(call))


def _rms_norm_gradient(call: Call) -> Routine | None:
    """Steps: sums of slabs of rows, then of features."""
    dy, x, inv_rms, dgamma = operands = call.all("dy", "x", "inv_rms", "dgamma")
    types, rows = types_of_rows(operands), range(inv_rms.ndim)
    found = plane(range(inv_rms.ndim, x.ndim), (dy, x, spread(inv_rms, rows, x.shape)))
    if types is None or found is None:
        return None
    routine = Routine()
    sums = partial_results(routine, found, computed(x.dtype))
    first = found.struct, dy, x, inv_rms, sums
    routine.launch("rms_norm.cu", "rms_slab_gradients", *first, types=types, grid=found.blocks)
    second = sums, np.uint32(found.slabs), dgamma, np.int64(dgamma.size)
    return routine.launch("rms_norm.cu", "rms_norm_gradient", *second, types=types, grid=found.warps)


def _extents(call: Call) -> tuple[int, int]:
    """Rows and features."""
    return call["inv_rms"].size, call["gamma"].size


def _rotary(call: Call) -> Routine | None:
    """A thread for each pair."""
    x = call["x"]
    axis = int(call.number("axis")) % x.ndim
    pairs, half = x.size // 2, x.shape[-1] // 2
    extents = pairs, x.shape[axis], prod(x.shape[axis + 1 : -1]), half
    sign = np.float64(-1 if call.settings["inverse"] else 1)
    return _launched(call, "position.cu", *extents, sign, grid=blocks(pairs))


def _scores(call: Call) -> Routine | None:
    """Rows of scores, x or dx, some or all of whose classes are there."""
    scores = call.optional("x") or call["dx"]
    if scores.ndim != 2:
        return None
    settings, (rows, columns) = SIGNATURES[call.kernel].settings, scores.shape
    numbers = [np.float64(call.number(name)) if name == "share" else integer(call, name) for name in settings]
    return _by_warps(call, "class_scores.cu", rows, columns, *numbers)


def _target_weights(call: Call) -> Routine | None:
    """One block, as there is a number or two for each position only."""
    return _launched(call, "class_scores.cu", call["target"].size, integer(call, "ignored"), grid=1)


_BUILDERS: dict[str, CallBuilder[Routine]] = {
    "rms_norm": _rms_norm,
    "rms_norm_derivative": _rms_norm_derivative,
    "rms_norm_gradient": _rms_norm_gradient,
    "rotary": _rotary,
    "log_sum_exp": _scores,
    "softmax_classes_derivative": _scores,
    "smooth_labels": _scores,
    "smooth_labels_derivative": _scores,
    "target_weights": _target_weights,
}
KERNELS = {name: without_gaps(build) for name, build in _BUILDERS.items()}
