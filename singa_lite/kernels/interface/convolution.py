"""Two-dimensional convolution (cross-correlation, as everywhere in the field) in three directions."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel
from singa_lite.kernels.interface.window import Window

# Shapes of all three: x (n, c, h, w); weight (k, c / groups, kh, kw), (kh, kw) being the window's kernel; y (n, k, oh,
# ow), oh and ow being its positions over (h, w). Its padding is of zeros; groups divides c and k.


@kernel(Facts(inner_strides_matter=True, multiplies="patches", by_samples=("x", "y")))
def conv2d(
    x: Read, weight: Read, bias: Read | None, y: Write, *, window: Window, groups: int, activation: str = ""
) -> None:
    """y = activation(x convolved with weight, plus bias (k,)). activation: one without settings, such as "relu"."""


@kernel(Facts(inner_strides_matter=True, multiplies="patches", by_samples=("dy", "dx")))
def conv2d_derivative(dy: Read, weight: Read, dx: Write, *, window: Window, groups: int) -> None:
    """dx = derivative of sum(dy * y) by x."""


@kernel(Facts(inner_strides_matter=True, multiplies="patches", sums_over=("x", "dy")))
def conv2d_gradient(x: Read, dy: Read, dweight: Write, *, window: Window, groups: int) -> None:
    """dweight = derivative of sum(dy * y) by weight."""
