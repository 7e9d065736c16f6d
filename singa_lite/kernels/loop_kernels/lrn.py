"""Local response normalization over neighbouring channels."""

from __future__ import annotations

from singa_lite.kernels.loop_kernels.operands import as_matrix
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine, want

#: Channels of a window at most (lrn.c).
MAX_SIZE = 65


def _norm(call: Call, routine: Routine) -> None:
    _run(call, routine, ["x", "y", "scale"], [call.number("k")])


def _derivative(call: Call, routine: Routine) -> None:
    _run(call, routine, ["dy", "x", "scale", "dx"], [])


def _run(call: Call, routine: Routine, names: list[str], more: list[float]) -> None:
    """The kernel over rows of channels."""
    size = int(call.number("size"))
    want(size <= MAX_SIZE, f"windows of at most {MAX_SIZE} channels")
    matrix = as_matrix(routine, call.all(*names), [1])
    numbers = call.number("alpha") / size, call.number("beta"), *more
    routine.run(call.kernel, *matrix.views, matrix.rows, matrix.columns, size, *numbers)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {"lrn": _norm, "lrn_derivative": _derivative}
