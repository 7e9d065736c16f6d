"""The arguments kernel, stride, dilation, border_mode and pad, common to convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from singa_lite import autograd
from singa_lite.autograd.ops.windows import Extents as Extents
from singa_lite.autograd.ops.windows import as_image as as_image
from singa_lite.autograd.ops.windows import pair as pair
from singa_lite.autograd.ops.windows import window as checked_window
from singa_lite.kernels.interface.window import Window
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import label
from singa_lite.tensor import Shape, Tensor

#: Names of a sample's axes. A sequence is worked on as an image of height 1.
IMAGE = ("channels", "height", "width")
SEQUENCE = ("channels", "length")

#: What Keras's `padding` may be.
PADDINGS = ("same", "valid")


def window(
    layer: Layer,
    axes: int,
    kernel: Extents,
    stride: Extents,
    border_mode: str,
    pad: Extents | None,
    dilation: Extents = 1,
    padding: str | None = None,
    paddings: Sequence[str] = PADDINGS,
) -> Window:
    """Read the arguments of a layer over images (axes 2) or sequences (axes 1).

    kernel, stride, dilation: int, or for images a pair (height, width). border_mode "same" pads dilation *
    (kernel // 2) on both sides and wants odd kernels, "valid" pads nothing. pad sets it outright: int,
    (height, width) or (top, bottom, left, right) for images, (left, right) for sequences. padding: one of
    `paddings` in their place; the window has no pads then, as they go by the image's extents: see `padded`.
    ValueError for anything else.
    """
    if padding is not None:
        check_padding(layer, padding, paddings)
        border_mode = "valid"
    if not isinstance(border_mode, str) or border_mode not in ("same", "valid"):
        raise ValueError(f"{label(layer)}: wanted border_mode 'same' or 'valid', received {border_mode!r}")
    made = checked_window(label(layer), kernel, stride, 0 if pad is None else pad, dilation, axes)
    if border_mode == "valid" and any(made.pad):
        raise ValueError(f"{label(layer)}: wanted pad or border_mode 'valid', which pads nothing, received {pad!r}")
    if pad is not None or border_mode == "valid":
        return made
    if made.kernel[0] % 2 == 0 or made.kernel[1] % 2 == 0:
        raise ValueError(
            f"{label(layer)}: wanted an odd kernel for border_mode 'same', received {kernel}; "
            "use border_mode='valid' or pad="
        )
    height, width = (step * (extent // 2) for step, extent in zip(made.dilation, made.kernel, strict=True))
    return replace(made, pad=(height, height, width, width))


def check_padding(layer: Layer, padding: object, paddings: Sequence[str] = PADDINGS) -> None:
    """ValueError unless the padding is one of these, and stands alone; TypeError for numbers, as of PyTorch."""
    if not isinstance(padding, str):
        raise TypeError(
            f"{label(layer)}: wanted pad=, which takes numbers, or border_mode=, or padding= of {', '.join(paddings)}, "
            f"received padding={padding!r}"
        )
    if padding not in paddings:
        raise ValueError(f"{label(layer)}: wanted a padding of {', '.join(paddings)}, received {padding!r}")
    given = [name for name in ("border_mode", "pad") if layer.given_arguments.get(name) is not None]
    if given:
        raise ValueError(f"{label(layer)}: wanted padding or {given[0]}, received both")


def padded(window: Window, padding: str | None, extents: Sequence[int]) -> Window:
    """The window with the pads by which Keras's padding goes on samples of these extents; None: the window itself.

    "same" makes ceil(extent / stride) windows of each axis, and of an odd number of pads puts the larger half behind.
    "causal" puts all before, so that no window sees what comes after its last element.
    """
    if padding is None or padding == "valid":
        return window
    pads: list[int] = []
    for extent, step, span in zip(as_image(extents), window.stride, window.span, strict=True):
        missing = span - 1 if padding == "causal" else max((-(-extent // step) - 1) * step + span - extent, 0)
        before = missing if padding == "causal" else missing // 2
        pads += [before, missing - before]
    top, bottom, left, right = pads
    return replace(window, pad=(top, bottom, left, right))


def output_extents(layer: Layer, window: Window, extents: Sequence[int]) -> Shape:
    """How many windows fit along (height, width), or along (length,). ShapeError if not even one does."""
    height, width = as_image(extents)
    return window.positions(label(layer), (height, width))[2 - len(extents) :]


def as_images(x: Tensor) -> Tensor:
    """(n, c, h, w) as it is; (n, c, l) as (n, c, 1, l)."""
    return x if x.ndim == 4 else autograd.reshape(x, (*x.shape[:2], *as_image(x.shape[2:])))


def as_samples(images: Tensor, before: Tensor) -> Tensor:
    """What was made of `as_images(before)`, as sequences again if `before` holds sequences."""
    return images if before.ndim == 4 else autograd.reshape(images, (*images.shape[:2], images.shape[3]))
