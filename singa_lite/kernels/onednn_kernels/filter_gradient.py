"""The gradient by the filters in several ways, of which one is chosen by the call's form (`kernels/variants.py`).

* direct: the library's convolution, images channels last, as they lie.
* product: filters of one element see each pixel by itself, so their gradient is x^T dy over all pixels: a product of
  matrices, as images lie channels last. With strides, the pixels that the filters see are put together first.
* blocked: the library's convolution, images converted in the scratch to the layout that its code likes best.
"""

from __future__ import annotations

from singa_lite.kernels.call import Call
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import bfloat16, one_thread
from singa_lite.kernels.onednn_kernels.blocked_gradient import blocked_gradient
from singa_lite.kernels.onednn_kernels.convolution import conv2d_gradient, window_of
from singa_lite.kernels.onednn_kernels.filter_gradient_rule import rule, sees_single_pixels
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.library import load
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.variants import Variants


def product_gradient(call: Call) -> Routine | None:
    """For filters of one element, without padding and groups."""
    x, dy, dweight = call["x"], call["dy"], call["dweight"]
    multiplied = layouts.are_floats(x, dy) or (layouts.are_of_one_type(x, dy) and bfloat16.multiplies())
    if not multiplied or not layouts.are_floats(dweight) or not sees_single_pixels(call):
        return None
    (kernels, channels), pixels, dtype = dweight.shape[:2], dy.size // dy.shape[1], str(x.dtype)
    turned = p.memory_desc((channels, pixels), (1, channels), dtype)
    slopes = p.memory_desc((pixels, kernels), (kernels, 1), dtype)
    primitive = p.usable("matmul", turned, slopes, None, p.memory_desc((channels, kernels), (kernels, 1)))
    if primitive is None:
        return None
    routine = Routine()
    operands = {
        f.SRC: _pixels(routine, x, _covered_pixels(x, dy, window_of(call)[0])),
        f.WEIGHTS: _pixels(routine, dy, dy),
    }
    if layouts.is_dense(dweight, layouts.KERNELS_LAST):
        routine.run(primitive, {**operands, f.DST: dweight})
        return routine
    made = memory_descs.dense(dweight.shape, axes=layouts.KERNELS_LAST)
    copy = routine.temporary(made.nbytes)
    routine.run(primitive, {**operands, f.DST: copy})
    routine.run(p.Reorder(made, memory_descs.desc_of(dweight)), {f.SRC: copy, f.DST: dweight})
    return routine


def _covered_pixels(x: TensorSpec, dy: TensorSpec, window: Window) -> TensorSpec:
    """The pixels of x that filters of one element see."""
    (batch, channels, rows, columns), (down, across) = x.strides, window.stride
    shape = *x.shape[:2], *dy.shape[2:]
    return TensorSpec(shape, x.dtype, (batch, channels, rows * down, columns * across))


def _pixels(routine: Routine, tensor: TensorSpec, seen: TensorSpec) -> BufferView:
    """`seen`, a part of the tensor, as a matrix of pixels by channels without gaps: the tensor itself, or a copy."""
    if layouts.is_dense(seen, layouts.CHANNELS_LAST):
        return tensor
    wanted = memory_descs.dense(seen.shape, str(seen.dtype), layouts.CHANNELS_LAST)
    copy = routine.temporary(wanted.nbytes)
    routine.run(p.Reorder(memory_descs.desc_of(seen), wanted), {f.SRC: tensor, f.DST: copy})
    return copy


def _library() -> str:
    return f"oneDNN {load().version}"


FILTER_GRADIENTS = Variants(
    "conv2d_gradient",
    {"direct": conv2d_gradient, "product": product_gradient, "blocked": blocked_gradient},
    rule,
    _library,
    one_thread.count,
)
