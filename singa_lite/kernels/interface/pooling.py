"""Two-dimensional pooling."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Read, Write, kernel

# Shapes of all: x (n, c, h, w); y (n, c, oh, ow) with oh = (h + top + bottom - kh) // stride_h + 1, ow likewise.
# kernel, stride: (height, width); pad: (top, bottom, left, right), each less than the kernel's extent, so every
# window holds at least one element of x.


@kernel()
def max_pool2d(
    x: Read,
    y: Write,
    index: Write | None,
    *,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
) -> None:
    """y = the largest element of each window; padding never wins; NaN wins.

    index: y's shape, uint8 if kh * kw <= 256, else int32; the winner's place in its window, row * kw + column,
    the first one on ties. None where no derivative will be asked for.
    """


@kernel()
def max_pool2d_derivative(
    dy: Read,
    index: Read,
    dx: Write,
    *,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
) -> None:
    """dx = dy added at each window's winner, 0 elsewhere."""


@kernel()
def avg_pool2d(
    x: Read,
    y: Write,
    *,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    count_pad: bool,
) -> None:
    """y = sum of each window / its count: kh * kw if count_pad, else the elements of x in it."""


@kernel()
def avg_pool2d_derivative(
    dy: Read,
    dx: Write,
    *,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    count_pad: bool,
) -> None:
    """dx = each dy / count added to its whole window."""
