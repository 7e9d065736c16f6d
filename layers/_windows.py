"""The arguments kernel, stride, dilation, border_mode and pad, common to convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from singa_lite import autograd
from singa_lite.kernels.interface.window import Window
from singa_lite.layer import Layer
from singa_lite.ops.windows import Extents as Extents
from singa_lite.ops.windows import as_image as as_image
from singa_lite.ops.windows import pair as pair
from singa_lite.ops.windows import window as checked_window
from singa_lite.tensor import Shape, Tensor

from ._checks import where

#: Names of a sample's axes. A sequence is worked on as an image of height 1.
IMAGE = ("channels", "height", "width")
SEQUENCE = ("channels", "length")


def window(
    layer: Layer,
    axes: int,
    kernel: Extents,
    stride: Extents,
    border_mode: str,
    pad: Extents | None,
    dilation: Extents = 1,
    modes: Sequence[str] = ("same", "valid"),
) -> Window:
    """Read the arguments of a layer over images (axes 2) or sequences (axes 1).

    kernel, stride, dilation: int, or for images a pair (height, width). border_mode "same" pads dilation *
    (kernel // 2) on both sides and wants odd kernels, "valid" pads nothing. pad sets it outright: int,
    (height, width) or (top, bottom, left, right) for images, (left, right) for sequences. modes: that the layer
    knows; "causal" pads dilation * (kernel - 1) before a sequence. ValueError for anything else.
    """
    if not isinstance(border_mode, str) or border_mode not in modes:
        wanted = " or ".join(map(repr, modes))
        raise ValueError(f"{where(layer)}: wanted border_mode {wanted}, received {border_mode!r}")
    made = checked_window(where(layer), kernel, stride, 0 if pad is None else pad, dilation, axes)
    if border_mode == "valid" and any(made.pad):
        raise ValueError(f"{where(layer)}: wanted pad or border_mode 'valid', which pads nothing, received {pad!r}")
    if border_mode == "causal":
        if pad is not None:
            raise ValueError(f"{where(layer)}: wanted pad or border_mode 'causal', which is a pad, received {pad!r}")
        return replace(made, pad=(0, 0, made.span[1] - 1, 0))
    if pad is not None or border_mode == "valid":
        return made
    if made.kernel[0] % 2 == 0 or made.kernel[1] % 2 == 0:
        raise ValueError(
            f"{where(layer)}: wanted an odd kernel for border_mode 'same', received {kernel}; "
            "use border_mode='valid' or pad="
        )
    height, width = (step * (extent // 2) for step, extent in zip(made.dilation, made.kernel, strict=True))
    return replace(made, pad=(height, height, width, width))


def output_extents(layer: Layer, window: Window, extents: Sequence[int]) -> Shape:
    """How many windows fit along (height, width), or along (length,). ShapeError if not even one does."""
    height, width = as_image(extents)
    return window.positions(where(layer), (height, width))[2 - len(extents) :]


def as_images(x: Tensor) -> Tensor:
    """(n, c, h, w) as it is; (n, c, l) as (n, c, 1, l)."""
    return x if x.ndim == 4 else autograd.reshape(x, (*x.shape[:2], *as_image(x.shape[2:])))


def as_samples(images: Tensor, before: Tensor) -> Tensor:
    """What was made of `as_images(before)`, as sequences again if `before` holds sequences."""
    return images if before.ndim == 4 else autograd.reshape(images, (*images.shape[:2], images.shape[3]))
