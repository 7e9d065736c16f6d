"""Normalizations of rows: layer normalization, by the root of the mean square, by the length of each sample."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.kernels.loop_kernels.operands import Matrix, as_matrix, as_vector, piece_count
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine
from singa_lite.kernels.routine import BufferView

#: What stands for each row, and for each feature.
VECTORS = "gamma", "beta", "mean", "inv_std", "inv_rms", "dgamma", "dbeta", "norm"


def _norm(call: Call, routine: Routine) -> None:
    matrix, of = _operands(call, routine, ["x", "y"], call["gamma"].ndim), _vectors(call, routine)
    vectors = of["gamma"], of.get("beta"), of.get("mean"), of.get("inv_std") or of["inv_rms"]
    routine.run("row_norm", *matrix.views, *vectors, matrix.rows, matrix.columns, call.number("epsilon"))


def _derivative(call: Call, routine: Routine) -> None:
    matrix, of = _operands(call, routine, ["dy", "x", "dx"], call["gamma"].ndim), _vectors(call, routine)
    vectors = of["gamma"], of.get("mean"), of.get("inv_std") or of["inv_rms"]
    routine.run("row_norm_derivative", *matrix.views, *vectors, matrix.rows, matrix.columns)


def _gradient(call: Call, routine: Routine) -> None:
    matrix, of = _operands(call, routine, ["dy", "x"], call["dgamma"].ndim), _vectors(call, routine)
    pieces = piece_count(matrix.rows, matrix.columns)
    scratch = routine.temporary((pieces, 2, matrix.columns), "float64")
    vectors = of.get("mean"), of.get("inv_std") or of["inv_rms"], of["dgamma"], of.get("dbeta"), scratch
    routine.run("row_norm_gradient", *matrix.views, *vectors, matrix.rows, matrix.columns, pieces)


def _length(call: Call, routine: Routine) -> None:
    matrix, of = _operands(call, routine, ["x", "y"], call["x"].ndim - 1), _vectors(call, routine)
    routine.run("length_norm", *matrix.views, of["norm"], matrix.rows, matrix.columns, call.number("epsilon"))


def _length_derivative(call: Call, routine: Routine) -> None:
    matrix, of = _operands(call, routine, ["dy", "y", "dx"], call["y"].ndim - 1), _vectors(call, routine)
    dy, y, dx = matrix.views
    routine.run("length_norm_derivative", dy, y, of["norm"], dx, matrix.rows, matrix.columns)


def _operands(call: Call, routine: Routine, names: Sequence[str], inner: int) -> Matrix:
    """Operands (rows..., features...) as a matrix, rows in C order."""
    ndim = call[names[0]].ndim
    return as_matrix(routine, call.all(*names), range(ndim - inner, ndim), range(ndim - inner))


def _vectors(call: Call, routine: Routine) -> dict[str, BufferView]:
    """Those that are given, by their names."""
    given = [name for name in VECTORS if name in call.operands]
    return {name: as_vector(routine, call[name]) for name in given}


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    **dict.fromkeys(("layer_norm_derivative", "rms_norm_derivative"), _derivative),
    **dict.fromkeys(("layer_norm_gradient", "rms_norm_gradient"), _gradient),
    "l2_norm": _length,
    "l2_norm_derivative": _length_derivative,
}
