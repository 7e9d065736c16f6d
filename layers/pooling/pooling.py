"""Poolings over windows of images and sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from singa_lite import autograd
from singa_lite.kernels.interface.window import Window
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import flag, input_axes, is_int, label
from singa_lite.layers._windows import (
    IMAGE,
    SEQUENCE,
    Extents,
    as_image,
    as_images,
    as_samples,
    output_extents,
    padded,
    window,
)
from singa_lite.tensor import Shape, Tensor


class Pooling(Layer):
    """Pooling over images, or over sequences as images of height 1. A subclass names the `axes`.

    kernel, stride: 3 and 2 where None. border_mode: None is "same", or "valid" where a kernel is even, for which
    there is no "same". padding: Keras's, in the place of border_mode and pad; kernel and stride are Keras's then
    where None: 2 and the kernel. ceil_mode: what is left at the end is pooled as well, by a window that goes beyond it.
    """

    axes: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        name: str,
        kernel: Extents | None = None,
        stride: Extents | None = None,
        border_mode: str | None = None,
        pad: Extents | None = None,
        *,
        padding: str | None = None,
        ceil_mode: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        kernel = kernel if kernel is not None else 3 if padding is None else 2
        stride = stride if stride is not None else 2 if padding is None else kernel
        self.kernel, self.stride, self.padding = kernel, stride, padding
        extents = kernel if isinstance(kernel, tuple | list) else (kernel,)
        even = any(extent % 2 == 0 for extent in extents if is_int(extent))
        usual = "valid" if even and pad is None else "same"
        mode = usual if border_mode is None else border_mode
        self.window = window(self, len(self.axes) - 1, kernel, stride, mode, pad, padding=padding)
        self.window.check_pads(label(self))
        self.ceil_mode = flag(self, "ceil_mode", ceil_mode)

    def summary_note(self) -> str:
        """The window."""
        return str(self.window)

    def setup(self, *shapes: Shape) -> Shape:
        """(channels, *extents) -> (channels, *how many windows fit)."""
        channels, *extents = input_axes(self, shapes, self.axes)
        self.window = padded(self.window, self.padding, extents)
        return (channels, *output_extents(self, self.window_over(extents), extents))

    def window_over(self, extents: Sequence[int]) -> Window:
        """The window over images or sequences of these extents, with ceil_mode padded behind as far as it goes."""
        height, width = as_image(extents)
        return self.window.rounded_up((height, width)) if self.ceil_mode else self.window


class MaxPooling(Pooling):
    """The largest element of each window; padding never wins."""

    misnomers: ClassVar = dict.fromkeys(("average", "avg", "ave", "mean"), "AvgPooling takes averages")

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, *extents) -> (n, channels, *how many windows fit)."""
        w = self.window_over(x.shape[2:])
        return as_samples(autograd.max_pool2d(as_images(x), w.kernel, w.stride, w.pad), before=x)


class AvgPooling(Pooling):
    """The average of each window. count_pad: whether pads count as zeros; None: unless `padding` is given."""

    misnomers: ClassVar = {"max": "MaxPooling takes the largest"}

    def __init__(self, *args: Any, count_pad: bool | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.count_pad = self.padding is None if count_pad is None else flag(self, "count_pad", count_pad)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, *extents) -> (n, channels, *how many windows fit)."""
        images, w = as_images(x), self.window_over(x.shape[2:])
        pad, counts = w.pad, self.count_pad
        if counts and pad != self.window.pad:
            # What lies beyond the padding does not count, so the padding is made of zeros that do.
            top, bottom, left, right = self.window.pad
            images = autograd.pad(images, ((top, bottom), (left, right))) if any(self.window.pad) else images
            pad, counts = (0, w.pad[1] - bottom, 0, w.pad[3] - right), False
        return as_samples(autograd.avg_pool2d(images, w.kernel, w.stride, pad, counts), before=x)


class MaxPooling1D(MaxPooling):
    """Takes the largest element of each window over sequences; padding never wins, and of equals the first does.

    Input samples (channels, length); output samples (channels, ol) with
    ol = (length + left + right - kernel) // stride + 1.

    kernel, stride: int, at least 1, by default 3 and 2. pad: int or (left, right), each below the kernel. border_mode,
    padding, ceil_mode: as of MaxPooling2D, along one axis.

    >>> net = Sequential([layers.Input((1, 6)), layers.MaxPooling1D("pool", 3, 3, "valid")])
    >>> print(net.predict([[[1.0, 3.0, 2.0, 7.0, 9.0, 8.0]]]))
    [[[3. 9.]]]
    """

    axes = SEQUENCE


class MaxPooling2D(MaxPooling):
    """Takes the largest element of each window over images; padding never wins, and of equals the first does.

    Input samples (channels, height, width); output samples (channels, oh, ow) with
    oh = (height + top + bottom - kernel) // stride + 1, ow likewise.

    kernel, stride: int or pair (height, width), at least 1, by default 3 and 2. border_mode: "same" pads kernel //
    2 on every side and wants odd kernels, "valid" pads nothing. pad: sets it outright, int, (height, width) or
    (top, bottom, left, right), each below the kernel's extent. padding: Keras's, in the place of both: "same" makes
    ceil(height / stride) x ceil(width / stride) windows, an odd pad behind, "valid" pads nothing; kernel and stride
    are 2 and the kernel then, unless given.
    ceil_mode: PyTorch's: what is left at the end is pooled too; the division above is rounded up, but a window
    must begin inside the image or the padding before it.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.MaxPooling2D(pool_size=2)])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3, 4, 3)
    """

    axes = IMAGE


class AvgPooling1D(AvgPooling):
    """Takes the average of each window over sequences.

    Input samples (channels, length); output samples (channels, ol) with
    ol = (length + left + right - kernel) // stride + 1.

    kernel, stride: int, at least 1, by default 3 and 2. pad: int or (left, right), each below the kernel. border_mode,
    padding, count_pad, ceil_mode: as of AvgPooling2D, along one axis.

    >>> net = Sequential([layers.Input((1, 6)), layers.AvgPooling1D("pool", 2, 2, "valid")])
    >>> print(net.predict([[[1.0, 3.0, 5.0, 7.0, 9.0, 11.0]]]))
    [[[ 2.  6. 10.]]]
    """

    axes = SEQUENCE


class AvgPooling2D(AvgPooling):
    """Takes the average of each window over images.

    Input samples (channels, height, width); output samples (channels, oh, ow) with
    oh = (height + top + bottom - kernel) // stride + 1, ow likewise.

    kernel, stride: int or pair (height, width), at least 1, by default 3 and 2. border_mode: "same" pads kernel //
    2 on every side and wants odd kernels, "valid" pads nothing. pad: sets it outright, int, (height, width) or
    (top, bottom, left, right), each below the kernel's extent. padding: Keras's, in the place of both: "same" makes
    ceil(height / stride) x ceil(width / stride) windows, an odd pad behind, "valid" pads nothing; kernel and stride
    are 2 and the kernel then, unless given. count_pad: True divides every window's sum by the kernel's area, False
    by the number of its elements inside the image; None is True, with `padding` False, as in Keras.
    ceil_mode: PyTorch's: what is left at the end is pooled too; the division above is rounded up, but a window
    must begin inside the image or the padding before it. What lies behind all padding does not count.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.AvgPooling2D(pool_size=2)])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 3, 4, 3)
    """

    axes = IMAGE
