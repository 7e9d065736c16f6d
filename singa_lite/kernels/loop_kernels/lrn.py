"""Local response normalization over neighbouring channels."""

from __future__ import annotations

from singa_lite.kernels.loop_kernels.operands import as_matrix
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine

#: Channels of a window at most (lrn.c).
MAX_SIZE = 65


def _norm(call: Call, routine: Routine) -> bool:
    return _run(call, routine, ["x", "y", "scale"], [call.number("k")])


def _derivative(call: Call, routine: Routine) -> bool:
    return _run(call, routine, ["dy", "x", "scale", "dx"], [])


def _run(call: Call, routine: Routine, names: list[str], more: list[float]) -> bool:
    """The kernel over rows of channels; False for other types and larger windows."""
    size, written = int(call.number("size")), [call[name] for name in call.written]
    matrix = as_matrix(routine, call.all(*names), [1], written)
    if matrix is None or size > MAX_SIZE:
        return False
    numbers = call.number("alpha") / size, call.number("beta"), *more
    routine.run(call.kernel, *matrix.views, matrix.rows, matrix.columns, size, *numbers)
    return True


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {"lrn": _norm, "lrn_derivative": _derivative}
