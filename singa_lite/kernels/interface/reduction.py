"""Sums and extremes along axes. NaN and infinities reach what they are part of, and no other."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel


@kernel(Facts(strides_matter=True))
def reduce_sum(x: Read, y: Write, *, axes: tuple[int, ...], alpha: float) -> None:
    """y = alpha * sum of x along `axes`.

    y: x's shape with `axes` kept as 1 or left out. With alpha = 1 / count this is the mean.
    """


@kernel()
def reduce_max(x: Read, y: Write, *, axes: tuple[int, ...]) -> None:
    """y = the largest of x along `axes`, NaN where one of them is. y: as of `reduce_sum`; no extent of `axes` is 0."""


@kernel()
def reduce_min(x: Read, y: Write, *, axes: tuple[int, ...]) -> None:
    """y = the smallest of x along `axes`, NaN where one of them is. y: as of `reduce_max`."""


@kernel()
def bias_gradient(dy: Read, db: Write, *, axis: int) -> None:
    """db = sum of dy along all axes but `axis`. db: (dy.shape[axis],)."""
