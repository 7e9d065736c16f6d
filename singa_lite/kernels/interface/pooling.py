"""Two-dimensional pooling."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel
from singa_lite.kernels.interface.window import Window

# Shapes of all: x (n, c, h, w); y (n, c, oh, ow), oh and ow being the window's positions over (h, w).
# The window has dilation 1 and pads less than its extents, so it holds at least one element of x everywhere.


@kernel(Facts(by_samples=("x", "y", "index")))
def max_pool2d(x: Read, y: Write, index: Write | None, *, window: Window) -> None:
    """y = the largest element of each window; padding never wins, not even against minus infinity; the first NaN wins.

    index: y's shape, uint8 if the window has at most 256 taps, else int32; the winner's number in its window,
    row * kw + column, the first one on ties. None where no derivative will be asked for.
    """


@kernel(Facts(by_samples=("dy", "index", "dx")))
def max_pool2d_derivative(dy: Read, index: Read, dx: Write, *, window: Window) -> None:
    """dx = dy added at each window's winner, 0 elsewhere, also where dy is infinite."""


@kernel(Facts(by_samples=("x", "y")))
def avg_pool2d(x: Read, y: Write, *, window: Window, count_pad: bool) -> None:
    """y = sum of each window / its count: all its taps if count_pad, else the elements of x in it."""


@kernel(Facts(by_samples=("dy", "dx")))
def avg_pool2d_derivative(dy: Read, dx: Write, *, window: Window, count_pad: bool) -> None:
    """dx = each dy / count added to its whole window."""
