"""Sums and extremes along axes, and gradients of biases."""

from __future__ import annotations

from math import prod

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import are_stored, as_boxes
from singa_lite.kernels.loop_kernels.routine import BoxView, Builder, Call, Routine
from singa_lite.kernels.routine import BufferView

#: Into how many pieces work is cut at most: enough for the cores of a large machine.
MOST_PIECES = 64
#: Elements of a piece at least, as each has sums of its own.
LEAST_PIECE = 1 << 15
#: Columns that a loop adds up at a time, as in numbers.h.
CHUNK = 512


def _reduce(call: Call, routine: Routine) -> bool:
    axes = call.settings["axes"]
    return _add(routine, call.kernel, call["x"], call["y"], axes, call.number("alpha", 1.0))  # type: ignore[arg-type]


def _bias_gradient(call: Call, routine: Routine) -> bool:
    dy, kept = call["dy"], int(call.number("axis"))
    axes = tuple(axis for axis in range(dy.ndim) if axis != kept % dy.ndim)
    return _add(routine, "reduce_sum", dy, call["db"], axes, 1.0)


def _add(routine: Routine, function: str, x: TensorSpec, y: TensorSpec, axes: tuple[int, ...], alpha: float) -> bool:
    """Adds the step; False for other types than float32 and bfloat16, and axes that go backwards."""
    if not are_stored(x, y) or any(stride < 0 for stride in x.strides):
        return False
    summed = {axis % x.ndim for axis in axes}
    others = [axis for axis in range(x.ndim) if axis not in summed]
    places = others if y.ndim == x.ndim else range(y.ndim)
    kept, (of_y, of_x) = as_boxes([(_along(y, places), y), (_along(x, others), x)])
    across, (over_x,) = as_boxes([(_along(x, sorted(summed)), x)])
    width, y_step = 1, 1
    if kept[-1] > 1 and of_x.steps[-1] == 1:
        width, y_step = kept[-1], of_y.steps[-1]
        kept, of_x, of_y = _without_last(kept), _outer(of_x), _outer(of_y)
    elif over_x.steps[-1] == 1:
        width, y_step = across[-1], 0
        across, over_x = _without_last(across), _outer(over_x)
    pieces = _pieces(prod(kept), width if y_step else 1, prod(across) * (1 if y_step else width))
    scratch = routine.temporary((y.size * pieces,), "float64") if pieces > 1 else None
    routine.run(function, of_x, of_y, kept, over_x, across, width, y_step, pieces, scratch, alpha)
    return True


def _pieces(results: int, width: int, terms: int) -> int:
    """Into how many pieces what is added up is cut, as otherwise a few threads would have all the work."""
    chunks = results * -(-width // CHUNK)
    wanted = min(MOST_PIECES // chunks, terms * results * width // LEAST_PIECE // chunks)
    return max(1, min(wanted, terms))


def _along(spec: TensorSpec, axes: list[int] | range) -> TensorSpec:
    """The tensor's first element and all others along these axes."""
    return TensorSpec([spec.shape[axis] for axis in axes], spec.dtype, [spec.strides[axis] for axis in axes])


def _outer(box: BoxView) -> BoxView:
    view: BufferView = box.view
    return BoxView(view, (0, *box.steps[:-1]), box.type)


def _without_last(extents: tuple[int, ...]) -> tuple[int, ...]:
    return (1, *extents[:-1])


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min"), _reduce),
    "bias_gradient": _bias_gradient,
}
