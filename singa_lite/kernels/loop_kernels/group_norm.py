"""Group normalization: statistics of groups of channels of each sample."""

from __future__ import annotations

from singa_lite.kernels.loop_kernels.operands import Matrix, as_matrix, as_vector
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine
from singa_lite.kernels.routine import Temporary

#: Bytes of two sums, and of a number of each channel.
SUMS, NUMBER = 2 * 8, 4
#: (samples, rows of a sample, channels, groups).
Sizes = tuple[int, int, int, int]


def _norm(call: Call, routine: Routine) -> None:
    matrix = _operands(call, routine, "x", "y")
    vectors = (as_vector(routine, call[name]) for name in ("gamma", "beta", "mean", "inv_std"))
    scratch, sizes = _scratch(call, routine, matrix, 3)
    routine.run("group_norm", *matrix.views, *vectors, scratch, *sizes, call.number("epsilon"))


def _derivative(call: Call, routine: Routine) -> None:
    matrix = _operands(call, routine, "dy", "x", "dx")
    vectors = (as_vector(routine, call[name]) for name in ("gamma", "mean", "inv_std"))
    scratch, sizes = _scratch(call, routine, matrix, 4)
    routine.run("group_norm_derivative", *matrix.views, *vectors, scratch, *sizes)


def _gradient(call: Call, routine: Routine) -> None:
    matrix, names = _operands(call, routine, "dy", "x"), ("mean", "inv_std", "dgamma", "dbeta")
    vectors = (as_vector(routine, call[name]) for name in names)
    scratch, sizes = _scratch(call, routine, matrix, 1)
    routine.run("group_norm_gradient", *matrix.views, *vectors, scratch, *sizes)


def _operands(call: Call, routine: Routine, *names: str) -> Matrix:
    """Operands (n, c, ...) as rows of channels, sample by sample."""
    order = [axis for axis in range(call[names[0]].ndim) if axis != 1]
    return as_matrix(routine, call.all(*names), [1], order)


def _scratch(call: Call, routine: Routine, matrix: Matrix, numbers: int) -> tuple[Temporary, Sizes]:
    """Scratch for sums and so many numbers of each channel of each sample, and the sizes of the call."""
    samples, groups = call["mean"].shape
    scratch = routine.temporary(samples * matrix.columns * (SUMS + NUMBER * numbers))
    return scratch, (samples, matrix.rows // samples, matrix.columns, groups)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "group_norm": _norm,
    "group_norm_derivative": _derivative,
    "group_norm_gradient": _gradient,
}
