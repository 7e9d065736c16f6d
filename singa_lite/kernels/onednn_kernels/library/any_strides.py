"""Operands that may have gaps, as a piece of a concatenation has them, without changing a bit of the results.

The library picks its code by strides, and for those with gaps it has plain loops. So such operands are given to it
without gaps, through a copy in the scratch, which costs what the concatenation's own copy would. What convolutions
read is not here, as it is read two or three times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_IMAGES = {
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), "x y"),
    **dict.fromkeys(("max_pool2d_derivative", "avg_pool2d_derivative"), "dy dx"),
    "conv2d": "y",
    "conv2d_derivative": "dx",
}

#: {kernel: such operands}.
ANY_STRIDES: Mapping[str, Collection[str]] = {name: tensors.split() for name, tensors in _IMAGES.items()}
