"""Two-dimensional convolution (cross-correlation, as everywhere in the field) in three directions."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel

# Shapes of all three: x (n, c, h, w); weight (k, c / groups, kh, kw); y (n, k, oh, ow) with
# oh = (h + top + bottom - dilation_h * (kh - 1) - 1) // stride_h + 1, and ow likewise.
# stride, dilation: (height, width); pad: (top, bottom, left, right), zeros; groups divides c and k.


@kernel(Facts(inner_strides_matter=True, activated="conv2d_activation"))
def conv2d(
    x: Read,
    weight: Read,
    bias: Read | None,
    y: Write,
    *,
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    """y = x convolved with weight, plus bias (k,)."""


@kernel(Facts(inner_strides_matter=True))
def conv2d_derivative(
    dy: Read,
    weight: Read,
    dx: Write,
    *,
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    """dx = derivative of sum(dy * y) by x."""


@kernel(Facts(inner_strides_matter=True))
def conv2d_gradient(
    x: Read,
    dy: Read,
    dweight: Write,
    *,
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    """dweight = derivative of sum(dy * y) by weight."""
