"""Batch normalization with what stands behind it: the sum with another tensor, and an activation."""

from __future__ import annotations

from math import inf

from singa_lite.kernels.loop_kernels.operands import Matrix, as_matrix, check_vectors, piece_count
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine
from singa_lite.kernels.routine import Temporary

#: {activation: the bounds of its result}.
BOUNDS = {"": (-inf, inf), "relu": (0.0, inf), "relu6": (0.0, 6.0)}
#: Columns of joined rows at most.
JOINED_COLUMNS = 512


def _forward(call: Call, routine: Routine) -> None:
    matrix = _images(call, routine, "x", "y", "other")
    vectors = call.all("gamma", "beta", "running_mean", "running_var", "mean", "inv_std")
    check_vectors(*vectors)
    x, y, *other = matrix.views
    numbers = call.number("momentum"), call.number("epsilon"), *BOUNDS[call.text("activation")]
    sums = _sums(routine, matrix, 4)
    routine.run("batch_norm", x, other[0] if other else None, y, *vectors, *sums, *numbers)


def _normalize(call: Call, routine: Routine) -> None:
    matrix = _images(call, routine, "x", "y", "other")
    gamma, beta = call["gamma"], call["beta"]
    mean = call.optional("mean") or call["running_mean"]
    inv_std, var = call.optional("inv_std"), call.optional("running_var")
    check_vectors(gamma, beta, mean, *call.all("inv_std", "running_var"))
    x, y, *other = matrix.views
    joined = _joined_rows(matrix)
    scratch = routine.temporary((3, joined * matrix.columns), "float32")
    vectors = gamma, beta, mean, inv_std, var, scratch
    numbers = matrix.rows, matrix.columns, joined, call.number("epsilon"), *BOUNDS[call.text("activation")]
    routine.run("batch_normalize", x, other[0] if other else None, y, *vectors, *numbers)


def _derivative(call: Call, routine: Routine) -> None:
    matrix = _images(call, routine, "x", "dy", "dx", "other")
    gamma, beta = call.optional("gamma"), call.optional("beta")
    check_vectors(*call.all("gamma", "beta", "mean", "inv_std", "dgamma", "dbeta"))
    x, dy, *more = matrix.views
    dx, other = [*more, None, None][:2]
    vectors = (
        gamma,
        beta if call.text("activation") else None,
        call["mean"],
        call["inv_std"],
        call["dgamma"],
        call["dbeta"],
    )
    numbers = *_sums(routine, matrix, 5), *BOUNDS[call.text("activation")]
    routine.run("batch_norm_derivative", dy, x, other, dx, *vectors, *numbers)


def _images(call: Call, routine: Routine, *names: str) -> Matrix:
    """Those operands (n, c, ...) that are given as rows of channels."""
    return as_matrix(routine, call.all(*names), [1])


def _joined_rows(matrix: Matrix) -> int:
    """How many rows of few columns are joined to one, so that loops along a row are long."""
    limit = min(JOINED_COLUMNS // matrix.columns, matrix.rows & -matrix.rows)
    return 1 << max(0, limit.bit_length() - 1)


def _sums(routine: Routine, matrix: Matrix, vectors: int) -> tuple[Temporary, int, int, int, int]:
    """Scratch for two sums of each piece and so many vectors; rows, columns, rows that are joined, pieces."""
    rows, columns = matrix.rows, matrix.columns
    joined = _joined_rows(matrix)
    pieces = piece_count(rows // joined, columns * joined)
    return routine.temporary(columns * joined * (2 * 8 * pieces + 4 * vectors)), rows, columns, joined, pieces


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "batch_norm": _forward,
    **dict.fromkeys(("batch_normalize", "batch_norm_inference"), _normalize),
    **dict.fromkeys(("batch_norm_derivative", "batch_norm_gradient"), _derivative),
}
#: What is done in one go.
FUSIONS = [
    (kernel, option) for kernel in ("batch_norm", "batch_norm_derivative") for option in ("relu", "relu6", "other")
]
