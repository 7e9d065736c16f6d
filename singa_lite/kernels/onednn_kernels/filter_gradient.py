"""The gradient by the filters in several ways, of which one is chosen by the call's form (`kernels/variants.py`).

* direct: the library's convolution, images channels last, as they lie.
* product: filters of one element see each pixel by itself, so their gradient is x^T dy over all pixels: a product of
  matrices, as images lie channels last. With strides, the pixels that the filters see are put together first.
* blocked: the library's convolution, images converted in the scratch to the layout that its code likes best.
"""

from __future__ import annotations

from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import bfloat16, layouts, memory_descs, one_thread
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.blocked_gradient import blocked_gradient
from singa_lite.kernels.onednn_kernels.convolution import conv2d_gradient
from singa_lite.kernels.onednn_kernels.library import OneDNNError, load
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.work import lies
from singa_lite.kernels.variants import Variants

#: Elements of filters from which on the library's product packs both of its matrices. One of fewer, but not of few, is
#: slow over pixels with a multiple of so many channels, as those lie in a few sets of the caches.
_PACKED, _FEW, _SLOW_PITCH = 1 << 19, 1 << 15, 256
#: Multiply-adds for an element of x and dy, from which on to convert it is worth while.
_WORTH_CONVERTING = 120
#: Bytes of a sample of x and dy, which are converted in one go, up to which the scratch for that is small beside a net.
_LARGEST_SAMPLE = 1 << 24


def product_gradient(
    x: TensorSpec, dy: TensorSpec, dweight: TensorSpec, *, window: Window, groups: int
) -> Routine | None:
    """For filters of one element, without padding and groups."""
    multiplied = layouts.are_floats(x, dy) or (layouts.are_of_one_type(x, dy) and bfloat16.multiplies())
    if not multiplied or not layouts.are_floats(dweight) or not _sees_single_pixels(dy, x, window, groups):
        return None
    (kernels, channels), pixels, dtype = dweight.shape[:2], dy.size // dy.shape[1], str(x.dtype)
    turned = p.memory_desc((channels, pixels), (1, channels), dtype)
    slopes = p.memory_desc((pixels, kernels), (kernels, 1), dtype)
    primitive = _product(turned, slopes, p.memory_desc((channels, kernels), (kernels, 1)))
    if primitive is None:
        return None
    routine = Routine()
    operands = {f.SRC: _pixels(routine, x, _seen(x, dy, window)), f.WEIGHTS: _pixels(routine, dy, dy)}
    if lies(dweight, layouts.KERNELS_LAST):
        routine.run(primitive, {**operands, f.DST: dweight})
        return routine
    made = memory_descs.dense(dweight.shape, axes=layouts.KERNELS_LAST)
    copy = routine.temporary(made.nbytes)
    routine.run(primitive, {**operands, f.DST: copy})
    routine.run(p.Reorder(made, memory_descs.of(dweight)), {f.SRC: copy, f.DST: dweight})
    return routine


def _sees_single_pixels(dy: TensorSpec, x: TensorSpec, window: Window, groups: int) -> bool:
    """Whether a filter is one element of each channel, and the library takes the strides of the pixels that it sees.

    It does not where a step beyond the last such pixel of a row, or of an image, leads into the next one.
    """
    (_, _, height, width), (_, _, rows, columns), (down, across) = x.shape, dy.shape, window.stride
    ends_within = rows * down <= height and columns * across <= width
    return window.taps == 1 and not any(window.pad) and groups == 1 and ends_within


def _seen(x: TensorSpec, dy: TensorSpec, window: Window) -> TensorSpec:
    """The pixels of x that filters of one element see."""
    (batch, channels, rows, columns), (down, across) = x.strides, window.stride
    shape = *x.shape[:2], *dy.shape[2:]
    return TensorSpec(shape, x.dtype, (batch, channels, rows * down, columns * across))


def _pixels(routine: Routine, tensor: TensorSpec, seen: TensorSpec) -> BufferView:
    """`seen`, a part of the tensor, as a matrix of pixels by channels without gaps: the tensor itself, or a copy."""
    if lies(seen, layouts.CHANNELS_LAST):
        return tensor
    wanted = memory_descs.dense(seen.shape, str(seen.dtype), layouts.CHANNELS_LAST)
    copy = routine.temporary(wanted.nbytes)
    routine.run(p.Reorder(memory_descs.of(seen), wanted), {f.SRC: tensor, f.DST: copy})
    return copy


def _product(left: p.MemoryDesc, right: p.MemoryDesc, result: p.MemoryDesc) -> Primitive | None:
    """The primitive, if the library has more than plain loops for it."""
    try:
        primitive = Primitive("matmul", left, right, None, result)
    except OneDNNError as error:
        if error.status != OneDNNError.UNIMPLEMENTED:
            raise
        return None
    return None if "ref" in primitive.implementation else primitive


def _rule(x: TensorSpec, dy: TensorSpec, dweight: TensorSpec, *, window: Window, groups: int) -> str:
    """Where nothing was measured: what was the fastest for ResNet-50's and MobileNetV2's filters on AVX2, in float32.

    Converting images costs little where each of their elements is multiplied with much.
    """
    if not layouts.are_floats(x, dy):
        return "direct"
    (kernels, channels), taps = dweight.shape[:2], window.taps
    size, is_slow = kernels * channels, max(kernels, channels) % _SLOW_PITCH == 0
    is_fast = size >= _PACKED or (window.stride == (1, 1) and (size < _FEW or not is_slow))
    if is_fast and _sees_single_pixels(dy, x, window, groups):
        return "product"
    products_an_element = dy.size * taps * channels / (x.size + dy.size)
    sample_bytes = (x.size + dy.size) // x.shape[0] * x.dtype.itemsize
    is_worth_it = products_an_element >= _WORTH_CONVERTING and sample_bytes <= _LARGEST_SAMPLE
    return "blocked" if groups == 1 and is_worth_it else "direct"


def _library() -> str:
    return f"oneDNN {load().version}"


FILTER_GRADIENTS = Variants(
    "conv2d_gradient",
    {"direct": conv2d_gradient, "product": product_gradient, "blocked": blocked_gradient},
    _rule,
    _library,
    one_thread.count,
)
