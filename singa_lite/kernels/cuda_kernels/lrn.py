"""Local response normalization: a thread for each element, which goes over the channels beside it."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.plane import MOST_INDICES, plane
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import are_floats


def _norm(call: Call) -> Routine | None:
    """One step, which writes y and scale."""
    return _windows(call, call.number("alpha"), call.number("beta"), call.number("k"))


def _derivative(call: Call) -> Routine | None:
    """One step."""
    alpha, beta = call.number("alpha"), call.number("beta")
    return _windows(call, 2 * alpha * beta, beta)


def _windows(call: Call, factor: float, *numbers: float) -> Routine | None:
    """factor: of all channels of a window; numbers: of the kernel behind it."""
    specs, size = tuple(call.operands.values()), int(call.number("size"))
    found = plane((1,), specs)
    if found is None or not are_floats(*specs) or specs[0].size >= MOST_INDICES:
        return None
    settings = map(np.float64, (factor / size, *numbers))
    arguments: list[Argument] = [found.struct, *specs, np.int32(size // 2), *settings]
    types, grid = {"T": specs[0].dtype}, blocks(specs[0].size)
    return Routine().launch("lrn.cu", call.kernel, *arguments, types=types, grid=grid)


KERNELS: dict[str, CallBuilder[Routine]] = {"lrn": _norm, "lrn_derivative": _derivative}
