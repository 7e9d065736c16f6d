"""Operands that may have gaps, as a piece of a concatenation has them, without changing a bit of the results.

The library picks its code by strides, and for those with gaps it has plain loops. So such operands are given to it
without gaps: a cacheful at a time (`pitched.py`, `along.py`), or whole, through a copy in the scratch, which costs what
the concatenation's own copy would. What convolutions read is not here, as it is read two or three times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

#: What has the same bits in every kernel set: they move numbers, or round once.
_EXACT = {"copy": "x y", **dict.fromkeys(("add", "add_activation", "subtract", "multiply", "divide"), "a b y")}
_ACTIVATIONS = ["relu", "relu6", "leaky_relu", "elu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu"]
#: Activations whose derivative goes by x; that of the others goes by y.
_BY_INPUT = "gelu", "gelu_tanh", "silu"

_ELEMENTS = {
    **dict.fromkeys((*_ACTIVATIONS, "scale", "exp", "power", "absolute", "clip"), "x y"),
    **{f"{name}_derivative": f"dy {'x' if name in _BY_INPUT else 'y'} dx" for name in _ACTIVATIONS},
}
_IMAGES = {
    **dict.fromkeys(("batch_norm", "batch_normalize", "batch_norm_inference", "max_pool2d", "avg_pool2d"), "x y"),
    **dict.fromkeys(("batch_norm_activation", "batch_normalize_activation"), "x y"),
    **dict.fromkeys(("batch_norm_add", "batch_normalize_add"), "x other y"),
    "batch_norm_activation_derivative": "dy x dx",
    "batch_norm_derivative": "dy x dx",
    "batch_norm_derivative_add": "dy x other dx",
    "batch_norm_gradient": "dy x",
    **dict.fromkeys(("max_pool2d_derivative", "avg_pool2d_derivative"), "dy dx"),
    **dict.fromkeys(("conv2d", "conv2d_activation"), "y"),
    "conv2d_derivative": "dx",
}

#: {kernel: such operands}.
ANY_STRIDES: Mapping[str, Collection[str]] = {
    name: tensors.split() for name, tensors in {**_EXACT, **_ELEMENTS, **_IMAGES}.items()
}
