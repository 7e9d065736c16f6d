"""The arguments kernel, stride, dilation, border_mode and pad, common to convolution and pooling."""

from __future__ import annotations

from dataclasses import dataclass

from singa_lite import autograd
from singa_lite.layer import Layer
from singa_lite.ops.windows import Extents as Extents
from singa_lite.ops.windows import Pad, Pair, as_image, window_count
from singa_lite.ops.windows import pads as checked_pads
from singa_lite.ops.windows import pair as pair
from singa_lite.tensor import Shape, Tensor

from ._checks import place

#: Names of a sample's axes. A sequence is worked on as an image of height 1.
IMAGE = ("channels", "height", "width")
SEQUENCE = ("channels", "length")


@dataclass(frozen=True)
class Windows:
    """Where windows lie on an image.

    kernel, stride, dilation: (height, width); pad: (top, bottom, left, right).
    """

    kernel: Pair
    stride: Pair
    dilation: Pair
    pad: Pad

    def count(self, where: str, extents: Shape) -> Shape:
        """How many windows fit along (height, width), or along (length,). ShapeError if not even one does."""
        height, width = as_image(extents)
        found = window_count(where, (height, width), self.kernel, self.stride, self.pad, self.dilation)
        return found[2 - len(extents) :]


def windows(
    layer: Layer,
    axes: int,
    kernel: Extents,
    stride: Extents,
    border_mode: str,
    pad: Extents | None,
    dilation: Extents = 1,
) -> Windows:
    """Read the arguments of a layer over images (axes 2) or sequences (axes 1).

    kernel, stride, dilation: int, or for images a pair (height, width). border_mode "same" pads dilation *
    (kernel // 2) on both sides and wants odd kernels, "valid" pads nothing. pad sets it outright: int,
    (height, width) or (top, bottom, left, right) for images, (left, right) for sequences. ValueError for
    anything else.
    """
    kernels, strides, dilations = (
        pair(place(layer), what, value, axes)
        for what, value in (("kernel", kernel), ("stride", stride), ("dilation", dilation))
    )
    if not isinstance(border_mode, str) or border_mode not in ("same", "valid"):
        raise ValueError(f"{place(layer)}: wanted border_mode 'same' or 'valid', received {border_mode!r}")
    if pad is not None:
        pads = checked_pads(place(layer), pad, axes)
        if border_mode == "valid" and any(pads):
            raise ValueError(f"{place(layer)}: wanted pad or border_mode 'valid', which pads nothing, received {pad!r}")
    elif border_mode == "same":
        if kernels[0] % 2 == 0 or kernels[1] % 2 == 0:
            raise ValueError(
                f"{place(layer)}: wanted an odd kernel for border_mode 'same', received {kernel}; "
                "use border_mode='valid' or pad="
            )
        pads = _same(kernels, dilations)
    else:
        pads = (0, 0, 0, 0)
    return Windows(kernels, strides, dilations, pads)


def as_images(x: Tensor) -> Tensor:
    """(n, c, h, w) as it is; (n, c, l) as (n, c, 1, l)."""
    return x if x.ndim == 4 else autograd.reshape(x, (*x.shape[:2], *as_image(x.shape[2:])))


def as_samples(images: Tensor, like: Tensor) -> Tensor:
    """Images back in the form that `like` had before `as_images`."""
    return images if like.ndim == 4 else autograd.reshape(images, (*images.shape[:2], images.shape[3]))


def _same(kernel: Pair, dilation: Pair) -> Pad:
    height, width = (step * (extent // 2) for step, extent in zip(dilation, kernel, strict=True))
    return height, height, width, width
