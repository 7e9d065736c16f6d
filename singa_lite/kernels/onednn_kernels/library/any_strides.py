"""Operands that may have gaps, as a piece of a concatenation has them, without changing a bit of the results.

The library picks its code by strides, and for those with gaps it has plain loops. So such operands are given to it
without gaps: a cacheful at a time (`pitched.py`, `along.py`), or whole, through a copy in the scratch, which costs what
the concatenation's own copy would. What convolutions read is not here, as it is read two or three times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

#: What has the same bits in every kernel set: they move numbers, or round once.
_EXACT = {"copy": "x y", **dict.fromkeys(("add", "subtract", "multiply", "divide"), "a b y")}
_ACTIVATIONS = ["relu", "relu6", "leaky_relu", "elu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu"]
#: Activations whose derivative goes by x; that of the others goes by y.
_BY_INPUT = "gelu", "gelu_tanh", "silu"

_ELEMENTS = {
    **dict.fromkeys((*_ACTIVATIONS, "scale", "exp", "power", "absolute", "clip"), "x y"),
    **{f"{name}_derivative": f"dy {'x' if name in _BY_INPUT else 'y'} dx" for name in _ACTIVATIONS},
}
_IMAGES = {
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), "x y"),
    **dict.fromkeys(("max_pool2d_derivative", "avg_pool2d_derivative"), "dy dx"),
    "conv2d": "y",
    "conv2d_derivative": "dx",
}

#: {kernel: such operands}.
ANY_STRIDES: Mapping[str, Collection[str]] = {
    name: tensors.split() for name, tensors in {**_EXACT, **_ELEMENTS, **_IMAGES}.items()
}
