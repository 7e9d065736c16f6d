"""Which way is taken for a gradient of filters that nothing was measured for: what was the fastest for real nets.

Measured over the filters of ResNet-50 and MobileNetV2 (docs/measurements.md) with AVX2, with AVX-512, and in bfloat16;
with AVX-512 over those of DenseNet-121 and U-Net, too.
"""

from __future__ import annotations

from singa_lite.kernels.call import Call
from singa_lite.kernels.onednn_kernels.convolution import window_of
from singa_lite.kernels.onednn_kernels.library import layouts
from singa_lite.kernels.onednn_kernels.library.library import load

#: Elements of filters from which on the library's product packs both of its matrices. One of fewer, but not of few, is
#: slow over pixels with a multiple of so many channels, as those lie in a few sets of the caches.
_PACKED, _FEW, _SLOW_PITCH = 1 << 19, 1 << 15, 256
#: Multiply-adds for an element of x and dy, from which on to convert it is worth while.
_WORTH_CONVERTING = 120
#: Bytes of a sample of x and dy, which are converted in one go, up to which the scratch for that is small beside a net.
_LARGEST_SAMPLE = 1 << 24
#: Elements of filters from which on a product is faster than a convolution: in bfloat16, and in float32 with AVX-512.
_PRODUCT_NARROW, _PRODUCT_WIDE = 1 << 15, 1 << 18
#: And those up to which it is in float32, where the kernels are no fewer than the channels.
_PRODUCT_FEW = 1 << 14
#: Elements of x and dy that no cache holds: a convolution goes over them once for every few of its kernels, so of so
#: many kernels a product is faster in float32 with AVX-512, but where the channels are a multiple of _SLOW_PITCH.
_UNCACHED, _MANY_KERNELS = 5 << 20, 64


def rule(call: Call) -> str:
    """The variant's name: "direct", "product" or "blocked"."""
    x, dy, dweight = call["x"], call["dy"], call["dweight"]
    (kernels, channels), single, (window, _) = dweight.shape[:2], sees_single_pixels(call), window_of(call)
    size = kernels * channels
    if not layouts.are_floats(x, dy):
        return "product" if single and size > _PRODUCT_NARROW else "direct"
    if not load().has_avx512:
        return _with_avx2(call)
    is_uncached = kernels >= _MANY_KERNELS and channels % _SLOW_PITCH != 0 and x.size + dy.size >= _UNCACHED
    if single and (size >= _PRODUCT_WIDE or (size <= _PRODUCT_FEW and kernels >= channels) or is_uncached):
        return "product"
    is_strided = window.taps > 1 and window.stride != (1, 1)
    return "blocked" if is_strided and _is_worth_converting(call) else "direct"


def _with_avx2(call: Call) -> str:
    kernels, channels = call["dweight"].shape[:2]
    size, is_slow = kernels * channels, max(kernels, channels) % _SLOW_PITCH == 0
    is_fast = size >= _PACKED or (window_of(call)[0].stride == (1, 1) and (size < _FEW or not is_slow))
    if is_fast and sees_single_pixels(call):
        return "product"
    return "blocked" if _is_worth_converting(call) else "direct"


def _is_worth_converting(call: Call) -> bool:
    """It costs little where each element of the images is multiplied with much."""
    x, dy, (window, groups) = call["x"], call["dy"], window_of(call)
    products_an_element = dy.size * window.taps * call["dweight"].shape[1] / (x.size + dy.size)
    sample_bytes = (x.size + dy.size) // x.shape[0] * x.dtype.itemsize
    return groups == 1 and products_an_element >= _WORTH_CONVERTING and sample_bytes <= _LARGEST_SAMPLE


def sees_single_pixels(call: Call) -> bool:
    """Whether a filter is one element of each channel, and the library takes the strides of the pixels that it sees.

    It does not where a step beyond the last such pixel of a row, or of an image, leads into the next one.
    """
    window, groups = window_of(call)
    (height, width), (rows, columns), (down, across) = call["x"].shape[2:], call["dy"].shape[2:], window.stride
    ends_within = rows * down <= height and columns * across <= width
    return window.taps == 1 and not any(window.pad) and groups == 1 and ends_within
