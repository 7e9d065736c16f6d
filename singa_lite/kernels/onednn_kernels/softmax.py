"""Softmax and its derivative, along the axis whose elements are neighbours in memory."""

from __future__ import annotations

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Routine
from singa_lite.kernels.onednn_kernels.sums.line import Line

#: Longer rows are left to the fallback: the library adds one element after the other, and of 32000 the sum is off by
#: 1e-5.
_LONGEST_ROW = 4096


def softmax(x: TensorSpec, y: TensorSpec, *, axis: int) -> Routine | None:
    """Only along the axis whose elements are neighbours in memory: the library has fast code for no other."""
    if not layouts.same_layout(y, x) or not _is_row(x, axis):
        return None
    return Line(x.size).each(lambda steps: steps.run(_softmax(x, axis), {f.SRC: x, f.DST: y}))


def softmax_derivative(dy: TensorSpec, y: TensorSpec, dx: TensorSpec, *, axis: int) -> Routine | None:
    """Only along such an axis."""
    if not layouts.same_layout(dx, dy, y) or not _is_row(y, axis):
        return None
    desc, operands = memory_descs.desc_of(y), {f.DST: y, f.DIFF_DST: dy, f.DIFF_SRC: dx}

    def backward() -> Primitive:
        lines, forward = (desc, desc, desc), _softmax(y, axis)
        return Primitive("softmax_backward", a.SOFTMAX, *lines, axis % y.ndim, forward=forward)

    return Line(y.size).each(lambda steps: steps.run(backward(), operands))


def _softmax(x: TensorSpec, axis: int) -> Primitive:
    desc = memory_descs.desc_of(x)
    return Primitive("softmax_forward", f.FORWARD_TRAINING, a.SOFTMAX, desc, desc, axis % x.ndim)


def _is_row(x: TensorSpec, axis: int) -> bool:
    return layouts.strides_of(x)[axis] == 1 and x.shape[axis] <= _LONGEST_ROW
