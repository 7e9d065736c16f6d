"""Sums and extremes along axes, and gradients of biases."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import LEAST_PIECE, MAX_PIECES, as_boxes, check_stored
from singa_lite.kernels.loop_kernels.routine import BoxView, Builder, Call, Routine, want
from singa_lite.kernels.routine import BufferView

#: Columns that a loop adds up at a time, as in numbers.h, and those of a block in registers.
CHUNK, BLOCK = 512, 64

Operand = tuple[TensorSpec, BufferView]


def _reduce(call: Call, routine: Routine) -> None:
    axes = call.settings["axes"]
    _add(routine, call.kernel, call["x"], call["y"], axes, call.number("alpha", 1.0))  # type: ignore[arg-type]


def _bias_gradient(call: Call, routine: Routine) -> None:
    dy, kept = call["dy"], int(call.number("axis"))
    axes = tuple(axis for axis in range(dy.ndim) if axis != kept % dy.ndim)
    _add(routine, "reduce_sum", dy, call["db"], axes, 1.0)


def _add(routine: Routine, function: str, x: TensorSpec, y: TensorSpec, axes: tuple[int, ...], alpha: float) -> None:
    """Adds the step; UnservedError for other types than float32 and bfloat16, and axes that go backwards.

    Operands with gaps are copied where loops would go over them in another order, which would change bits.
    """
    check_stored(x, y)
    want(all(stride >= 0 for stride in (*x.strides, *y.strides)), "axes that go forwards")
    form, dense_x, dense_y = _Form.by_strides((x, x), (y, y), axes), x.without_gaps(), y.without_gaps()
    if form.order != _Form.by_strides((dense_x, x), (dense_y, y), axes).order:
        source, target = (routine.temporary(spec.shape, spec.dtype) for spec in (x, y))
        extents, views = as_boxes([(x, x), (dense_x, source)])
        routine.run("copy", *views, extents)
        form = _Form.by_strides((dense_x, source), (dense_y, target), axes)
        extents, views = as_boxes([(dense_y, target), (y, y)])
        routine.run_last("copy", *views, extents)
    scratch = routine.temporary((y.size * form.pieces,), "float64") if form.pieces > 1 else None
    boxes = form.x, form.y, form.kept, form.across, form.summed
    routine.run(function, *boxes, form.width, form.y_step, form.pieces, scratch, alpha)


class _Form(NamedTuple):
    """A reduction as the loops of reduction.h take it."""

    x: BoxView
    y: BoxView
    kept: tuple[int, ...]
    across: BoxView
    summed: tuple[int, ...]
    width: int
    y_step: int

    @classmethod
    def by_strides(cls, of_x: Operand, of_y: Operand, axes: tuple[int, ...]) -> _Form:
        """By the specs of x and y, each with the buffer that it lies in."""
        (x, source), (y, target) = of_x, of_y
        summed = sorted({axis % x.ndim for axis in axes})
        others = [axis for axis in range(x.ndim) if axis not in summed]
        places = others if y.ndim == x.ndim else range(y.ndim)
        kept, (into, outer) = as_boxes([(_restricted(y, places), target), (_restricted(x, others), source)])
        terms, (across,) = as_boxes([(_restricted(x, summed), source)])
        if kept[-1] > 1 and outer.steps[-1] == 1:
            step = into.steps[-1]
            return cls(_outer(outer), _outer(into), (1, *kept[:-1]), across, terms, kept[-1], step)
        if across.steps[-1] == 1:
            return cls(outer, into, kept, _outer(across), (1, *terms[:-1]), terms[-1], 0)
        return cls(outer, into, kept, across, terms, 1, 1)

    @property
    def pieces(self) -> int:
        """Into how many pieces what is added up is cut, as otherwise a few threads would have all the work."""
        chunks = prod(self.kept) * (-(-self.width // CHUNK) if self.y_step else 1)
        terms = prod(self.summed) * (1 if self.y_step else self.width)
        all_terms = prod(self.kept) * prod(self.summed) * self.width
        return max(1, min(MAX_PIECES // chunks, all_terms // LEAST_PIECE // chunks, terms))

    @property
    def order(self) -> tuple[object, ...]:
        """All that the order of additions goes by: also whether short rows lie one behind the other."""
        is_dense = self.across.steps[-1] == self.width
        return self.kept, self.summed, self.width, self.y_step == 0, is_dense or self.width % BLOCK == 0


def _restricted(spec: TensorSpec, axes: Sequence[int]) -> TensorSpec:
    """The tensor's first element and all others along these axes."""
    return TensorSpec(tuple(spec.shape[axis] for axis in axes), spec.dtype, tuple(spec.strides[axis] for axis in axes))


def _outer(box: BoxView) -> BoxView:
    """The box without its last axis."""
    return BoxView(box.view, (0, *box.steps[:-1]), box.type)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min"), _reduce),
    "bias_gradient": _bias_gradient,
}
