"""The arguments kernel, stride, dilation, border_mode and pad, common to convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from singa_lite import autograd
from singa_lite.layer import Layer
from singa_lite.ops.windows import Pad, Pair, window_count
from singa_lite.tensor import Shape, Tensor

from ._checks import is_int, place

#: One number for all axes, or one for each.
Extents = int | Sequence[int]

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
        height, width = _image(extents)
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
        _pair(layer, axes, what, value)
        for what, value in (("kernel", kernel), ("stride", stride), ("dilation", dilation))
    )
    if not isinstance(border_mode, str) or border_mode not in ("same", "valid"):
        raise ValueError(f"{place(layer)}: wanted border_mode 'same' or 'valid', received {border_mode!r}")
    if pad is not None:
        pads = _pads(layer, axes, pad)
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
    return x if x.ndim == 4 else autograd.reshape(x, (*x.shape[:2], *_image(x.shape[2:])))


def as_samples(images: Tensor, like: Tensor) -> Tensor:
    """Images back in the form that `like` had before `as_images`."""
    return images if like.ndim == 4 else autograd.reshape(images, (*images.shape[:2], images.shape[3]))


def _image(extents: Sequence[int]) -> Shape:
    return (1,) * (2 - len(extents)) + tuple(extents)


def _entries(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _pair(layer: Layer, axes: int, what: str, value: Any) -> Pair:
    given = _entries(value)
    if len(given) == 1 and is_int(value):
        given *= axes
    if len(given) != axes or not all(is_int(extent) and extent >= 1 for extent in given):
        wanted = "an integer" if axes == 1 else "an integer or a pair (height, width)"
        raise ValueError(f"{place(layer)}: wanted {what} to be {wanted}, at least 1, received {value!r}")
    height, width = _image([int(extent) for extent in given])
    return height, width


def _pads(layer: Layer, axes: int, pad: Any) -> Pad:
    given = _entries(pad)
    if len(given) == 1 and is_int(pad):
        given *= 2 * axes
    elif len(given) == 2 and axes == 2:
        given = (given[0], given[0], given[1], given[1])
    if len(given) != 2 * axes or not all(is_int(extent) and extent >= 0 for extent in given):
        wanted = "(left, right)" if axes == 1 else "(height, width) or (top, bottom, left, right)"
        raise ValueError(f"{place(layer)}: wanted pad to be an integer or {wanted}, at least 0, received {pad!r}")
    top, bottom, left, right = (0,) * (4 - 2 * axes) + tuple(int(extent) for extent in given)
    return top, bottom, left, right


def _same(kernel: Pair, dilation: Pair) -> Pad:
    height, width = (step * (extent // 2) for step, extent in zip(dilation, kernel, strict=True))
    return height, height, width, width
