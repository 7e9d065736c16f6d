"""The shape rule of windows that slide over images, common to convolution and pooling."""

from __future__ import annotations

from singa_lite.errors import ShapeError

Pair = tuple[int, int]
Pad = tuple[int, int, int, int]


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
