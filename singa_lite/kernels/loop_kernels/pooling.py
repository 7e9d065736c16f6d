"""Two-dimensional pooling, channels innermost; images that lie otherwise are copied."""

from __future__ import annotations

from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.loop_kernels.operands import as_matrix
from singa_lite.kernels.loop_kernels.routine import Argument, Builder, Call, Routine, RowsView, want

#: Images as rows of channels.
_ROWS, _CHANNELS = (0, 2, 3), (1,)


def _maximum(call: Call, routine: Routine) -> None:
    x, y, index = call["x"], call["y"], call.optional("index")
    rows = _rows(routine, [x, y], index)
    width = 1 if index is None else index.dtype.itemsize
    routine.run(call.kernel, *rows, index, width, *_geometry(call, x, y))


def _maximum_derivative(call: Call, routine: Routine) -> None:
    dy, dx, index = call["dy"], call["dx"], call["index"]
    rows = _rows(routine, [dy, dx], index)
    routine.run(call.kernel, rows[0], index, index.dtype.itemsize, rows[1], *_geometry(call, dx, dy))


def _average(call: Call, routine: Routine) -> None:
    (x,), (y,) = call.all("x", "dx"), call.all("y", "dy")
    rows = _rows(routine, call.all("x", "dy", "y", "dx"))
    routine.run(call.kernel, *rows, *_geometry(call, x, y), int(call.number("count_pad")))


def _rows(routine: Routine, images: list[TensorSpec], index: TensorSpec | None = None) -> list[RowsView]:
    """The tensors as rows of channels; UnservedError for an index that lies otherwise."""
    if index is not None:
        dense = ordered_strides(index.shape, (*_ROWS, *_CHANNELS), index.dtype.itemsize)
        are_dense = (n == 1 or a == b for a, b, n in zip(index.strides, dense, index.shape, strict=True))
        want(all(are_dense), "an index without gaps")
    return [as_matrix(routine, [one], _CHANNELS, _ROWS).views[0] for one in images]


def _geometry(call: Call, x: TensorSpec, y: TensorSpec) -> tuple[Argument, Argument]:
    """Sizes and window as pooling.h has them."""
    window: Window = call.settings["window"]  # type: ignore[assignment]  # as the interface has it
    images, channels, *extents = x.shape
    return (images, *extents, *y.shape[2:], channels), (*window.kernel, *window.stride, *window.pad_before)


#: {kernel: what adds its steps}.
KERNELS: dict[str, Builder] = {
    "max_pool2d": _maximum,
    "max_pool2d_derivative": _maximum_derivative,
    **dict.fromkeys(("avg_pool2d", "avg_pool2d_derivative"), _average),
}
