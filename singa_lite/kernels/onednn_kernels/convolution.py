"""Two-dimensional convolution in three directions, images channels last, filters with the kernels innermost.

The forward primitives read such filters as they are (on AVX-512 as fast as their own blocked layout); those of the two
backward directions want blocks, so filters or their gradient go through a temporary of the routine, once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from singa_lite.kernels.call import Call
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import bfloat16
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.conversion import read_as, written_as
from singa_lite.kernels.onednn_kernels.library.post_ops import POST_OPS
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine

#: The library's algorithm of all convolutions here.
DIRECT = 1


def geometry(window: Window) -> tuple[object, ...]:
    """The window as the library takes it: for dilation it wants the number of pixels between taps."""
    gaps = tuple(step - 1 for step in window.dilation)
    return tuple(map(p.dims, (window.stride, gaps, window.pad_before, window.pad_behind)))


class _Descs(NamedTuple):
    """Memory descriptors of x, filters, bias and y, for which the primitives of all three directions are made."""

    x: p.MemoryDesc
    weight: p.MemoryDesc
    bias: p.MemoryDesc | None
    y: p.MemoryDesc

    def forward(self, window: Window, post_ops: tuple[p.PostOp, ...] = ()) -> Primitive:
        operands = *self, *geometry(window)
        return Primitive("convolution_forward", f.FORWARD_TRAINING, DIRECT, *operands, post_ops=post_ops)


def conv2d(call: Call) -> Routine | None:
    """Forward, and the activation before the result is stored."""
    x, weight, bias, y = call["x"], call["weight"], call.optional("bias"), call["y"]
    post_ops = POST_OPS.get(call.text("activation"))
    if post_ops is None or not _supports((x, y), weight, bias):
        return None
    window, groups = window_of(call)
    dtype = layouts.factors_of(x, y)
    image, result = _image(x, dtype), _image(y)
    vector = None if bias is None else memory_descs.dense(bias.shape)

    def forward(filters: p.MemoryDesc) -> Primitive:
        return _Descs(image, filters, vector, result).forward(window, post_ops)

    as_it_lies = [lying_filters(weight, groups)] if dtype == layouts.FLOAT.name else []
    primitive = _fastest(forward, *as_it_lies, chosen_filters(weight, groups, dtype))
    return _one_step(primitive, groups, {f.SRC: x, f.WEIGHTS: weight, f.BIAS: bias}, f.DST, y)


def conv2d_derivative(call: Call) -> Routine | None:
    """Derivative by the images.

    Of strides and a channel a group the library has no code of its own for bfloat16 and takes that of any groups, which
    is 10 to 200 times as slow: done in float32, that costs two conversions.
    """
    dy, weight, dx = call["dy"], call["weight"], call["dx"]
    window, groups = window_of(call)
    is_depthwise = groups > 1 and groups == dx.shape[1]
    if not _supports((dy, dx), weight) or (is_depthwise and window.stride != (1, 1) and layouts.is_narrow(dy)):
        return None
    dtype = layouts.factors_of(dy, dx)
    image, result, chosen = _image(dx), _image(dy, dtype), chosen_filters(weight, groups, dtype)
    hint = _Descs(_image(dx, dtype), chosen, None, result).forward(window)

    def backward(filters: p.MemoryDesc) -> Primitive:
        return Primitive("convolution_backward_data", DIRECT, image, filters, result, *geometry(window), forward=hint)

    primitive = _fastest(backward, chosen)
    return _one_step(primitive, groups, {f.DIFF_DST: dy, f.WEIGHTS: weight}, f.DIFF_SRC, dx)


def conv2d_gradient(call: Call) -> Routine | None:
    """Gradient by the filters."""
    x, dy, dweight = call["x"], call["dy"], call["dweight"]
    if not _supports((x, dy), dweight):
        return None
    window, groups = window_of(call)
    dtype = layouts.factors_of(x, dy)
    image, result = _image(x, dtype), _image(dy, dtype)
    hint = _Descs(image, chosen_filters(dweight, groups, dtype), None, result).forward(window)

    def backward(filters: p.MemoryDesc) -> Primitive:
        operands = image, filters, None, result, *geometry(window)
        return Primitive("convolution_backward_weights", DIRECT, *operands, forward=hint)

    primitive = _fastest(backward, chosen_filters(dweight, groups))
    return _one_step(primitive, groups, {f.SRC: x, f.DIFF_DST: dy}, f.DIFF_WEIGHTS, dweight)


def window_of(call: Call) -> tuple[Window, int]:
    """The window of a convolution, and its number of groups."""
    return call.settings["window"], call.settings["groups"]  # type: ignore[return-value]  # as the interface has them


def _one_step(
    primitive: Primitive | None, groups: int, read: Mapping[int, TensorSpec | None], argument: int, written: TensorSpec
) -> Routine | None:
    """The primitive over what is read, by argument; operands that lie otherwise than it wants them are converted."""
    if primitive is None:
        return None

    def lying(argument: int, spec: TensorSpec) -> p.MemoryDesc:
        is_filters = argument in (f.WEIGHTS, f.DIFF_WEIGHTS)
        return lying_filters(spec, groups) if is_filters else memory_descs.desc_of(spec)

    routine = Routine()
    views: dict[int, BufferView | None] = {
        at: read_as(routine, spec, lying(at, spec), primitive.memory_desc(at))
        for at, spec in read.items()
        if spec is not None
    }
    lies, wanted = lying(argument, written), primitive.memory_desc(argument)
    with written_as(routine, written, lies, wanted) as target:
        routine.run(primitive, {**views, argument: target})
    return routine


def _supports(images: tuple[TensorSpec, TensorSpec], *others: TensorSpec | None) -> bool:
    """Whether the library multiplies such images, and the others are float32."""
    if not layouts.are_stored(*images) or not layouts.are_floats(*others):
        return False
    return layouts.are_floats(*images) or bfloat16.multiplies()


def _fastest(made: Callable[[p.MemoryDesc], Primitive], *choices: p.MemoryDesc) -> Primitive | None:
    """The primitive of the first choice that has direct code, else of the last; None if that runs plain loops."""
    found = None
    for choice in choices:
        primitive = made(choice)
        if "gemm" not in primitive.implementation and "ref" not in primitive.implementation:
            return primitive
        found = primitive
    return None if found is None or "ref" in found.implementation else found


def _image(spec: TensorSpec, dtype: str = "") -> p.MemoryDesc:
    """Of images as primitives are given them. dtype: which they are converted to; by default their own."""
    return memory_descs.dense(spec.shape, dtype or str(spec.dtype), layouts.CHANNELS_LAST)


def lying_filters(spec: TensorSpec, groups: int) -> p.MemoryDesc:
    """Filters as they lie; with an axis of groups before the others where there are several."""
    strides = layouts.strides_of(spec)
    if groups == 1:
        return p.memory_desc(spec.shape, strides)
    kernels = spec.shape[0] // groups
    return p.memory_desc((groups, kernels, *spec.shape[1:]), (kernels * strides[0], *strides))


def chosen_filters(spec: TensorSpec, groups: int, dtype: str = "float32") -> p.MemoryDesc:
    """Filters as the primitive likes them best; with an axis of groups before the others where there are several."""
    shape = spec.shape if groups == 1 else (groups, spec.shape[0] // groups, *spec.shape[1:])
    return memory_descs.any_layout(shape, dtype)


#: {kernel: what makes its routine}; gradients by the filters are made in several ways (`filter_gradient.py`).
KERNELS = {"conv2d": conv2d, "conv2d_derivative": conv2d_derivative}
