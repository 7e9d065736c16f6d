"""Windows that slide over images: their arguments and the shape rule, common to convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_lite.checks import is_int
from singa_lite.errors import ShapeError
from singa_lite.tensor import Shape

Pair = tuple[int, int]
Pad = tuple[int, int, int, int]

#: One number for all axes, or one for each.
Extents = int | Sequence[int]


def pair(where: str, what: str, value: Extents, axes: int = 2) -> Pair:
    """(height, width) of an int or one int an axis, all at least 1; axes 1: of a sequence, an image of height 1.

    ValueError for anything else.
    """
    given = _entries(value)
    if len(given) == 1 and is_int(value):
        given *= axes
    if len(given) != axes or not all(is_int(extent) and 1 <= extent < 2**31 for extent in given):
        wanted = "an integer" if axes == 1 else "an integer or a pair (height, width)"
        raise ValueError(f"{where}: wanted {what} to be {wanted}, at least 1, received {value!r}")
    height, width = as_image([int(extent) for extent in given])
    return height, width


def pads(where: str, value: Extents, axes: int = 2) -> Pad:
    """(top, bottom, left, right) of an int, (height, width) or all four; axes 1: of an int or (left, right).

    ValueError for anything else.
    """
    given = _entries(value)
    if len(given) == 1 and is_int(value):
        given *= 2 * axes
    elif len(given) == 2 and axes == 2:
        given = (given[0], given[0], given[1], given[1])
    if len(given) != 2 * axes or not all(is_int(extent) and 0 <= extent < 2**31 for extent in given):
        wanted = "(left, right)" if axes == 1 else "(height, width) or (top, bottom, left, right)"
        raise ValueError(f"{where}: wanted pad to be an integer or {wanted}, at least 0, received {value!r}")
    top, bottom, left, right = (0,) * (4 - 2 * axes) + tuple(int(extent) for extent in given)
    return top, bottom, left, right


def as_image(extents: Sequence[int]) -> Shape:
    """Extents (height, width) as they are, (length,) with a height of 1."""
    return (1,) * (2 - len(extents)) + tuple(extents)


def _entries(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def window_count(where: str, size: Pair, kernel: Pair, stride: Pair, pad: Pad, dilation: Pair = (1, 1)) -> Pair:
    """How many windows fit, (rows, columns): (size + pads - dilation * (kernel - 1) - 1) // stride + 1.

    size: (h, w) of the image; pad: (top, bottom, left, right). ShapeError if not even one fits.
    """
    padded = size[0] + pad[0] + pad[1], size[1] + pad[2] + pad[3]
    extents = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if padded[0] < extents[0] or padded[1] < extents[1]:
        raise ShapeError(
            f"{where}: wanted an image of at least {extents[0]} x {extents[1]} with its padding, "
            f"received {padded[0]} x {padded[1]} ({size[0]} x {size[1]} before padding)"
        )
    return (padded[0] - extents[0]) // stride[0] + 1, (padded[1] - extents[1]) // stride[1] + 1
