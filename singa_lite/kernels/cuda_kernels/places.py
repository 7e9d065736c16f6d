"""Copies to or from other places: axes turned round, single positions of a state, which lie in the GPU's memory."""

from __future__ import annotations

from typing import cast

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import mapped
from singa_lite.kernels.cuda_kernels.routine import Argument, Routine
from singa_lite.kernels.cuda_kernels.walk import steps
from singa_lite.kernels.kernel_set import TensorSpec


def _flip(call: Call) -> Routine | None:
    """Strides of x below 0, from its last element on."""
    x = call["x"]
    axes = {axis % x.ndim for axis in cast(tuple[int, ...], call.settings["axes"])}
    turned = tuple(-stride if axis in axes else stride for axis, stride in enumerate(x.strides))
    last = sum((x.shape[axis] - 1) * steps(x)[axis] for axis in axes)
    return _copied_part(call, "x", TensorSpec(x.shape, x.dtype, turned), np.int64(last))


def _state_part(call: Call) -> Routine | None:
    """Part of a state along axis 1: of x, or of y if it is written."""
    x, position, y = call.all("x", "position", "y")
    name, part = ("x", y) if call.kernel == "read_at" else ("y", x)
    state = call[name]
    if position.dtype != np.int64:
        return None
    seen = TensorSpec(part.shape, state.dtype, state.strides)
    return _copied_part(call, name, seen, position, np.int64(steps(state)[1]), np.int64(state.shape[1] - part.shape[1]))


def _copied_part(call: Call, name: str, seen: TensorSpec, *values: Argument) -> Routine | None:
    """The kernel over x and y, the one of that name as it is seen."""
    given = {"x": call["x"], "y": call["y"], name: seen}
    routine = mapped("copy.cu", call.kernel, given["y"], given["x"], values=values, types={"S": call["x"].dtype})
    if routine is None or call["x"].dtype != call["y"].dtype:
        return None
    return routine.over({seen: call[name]})


KERNELS: dict[str, CallBuilder[Routine]] = {"flip": _flip, "read_at": _state_part, "write_at": _state_part}
