"""Rotary positions: pairs of numbers turned by angles."""

from __future__ import annotations

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import as_boxes, check_stored
from singa_lite.kernels.loop_kernels.routine import Builder, Call, Routine


def _rotary(call: Call, routine: Routine) -> None:
    x, table, y = call["x"], call["table"], call["y"]
    check_stored(x, table, y)
    half = table.shape[-1]
    shape = (*x.shape[:-1], half)
    steps = [0] * x.ndim
    steps[int(call.number("axis")) % x.ndim], steps[-1] = table.strides[1:]
    sides = [(TensorSpec(shape, t.dtype, t.strides), t) for t in (x, y)]
    angles = TensorSpec(shape, table.dtype, tuple(steps)), table
    extents, (from_x, from_table, to) = as_boxes([sides[0], angles, sides[1]])
    far = [half * t.strides[-1] // t.dtype.itemsize for t in (x, y)]
    sine = table.strides[0] // table.dtype.itemsize
    inverse = bool(call.settings["inverse"])
    routine.run("rotary", from_x, from_table, to, extents, far[0], sine, far[1], int(inverse))


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {"rotary": _rotary}
