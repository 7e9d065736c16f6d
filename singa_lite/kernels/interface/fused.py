"""Two operations in one: what `passes/fuse.py` and `passes/linear_gradient.py` put in the place of the two.

activation: the name of an activation without settings, such as "relu". y is the activation's result.
"""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel
from singa_lite.kernels.interface.window import Window


@kernel(Facts(inner_strides_matter=True, multiplies="patches"))
def conv2d_activation(
    x: Read, weight: Read, bias: Read | None, y: Write, *, window: Window, groups: int, activation: str
) -> None:
    """y = activation(conv2d)."""


@kernel(Facts(strides_matter=True, multiplies="tensors"))
def linear_activation(x: Read, weight: Read, bias: Read | None, y: Write, *, activation: str) -> None:
    """y = activation(x @ weight + bias)."""


@kernel(Facts(strides_matter=True, multiplies="tensors"))
def linear_gradient(x: Read, dy: Read, dweight: Write, dbias: Write) -> None:
    """dweight = x^T @ dy; dbias = sum of dy over its rows.

    x: (n, in); dy: (n, out); dweight: (in, out); dbias: (out,).
    """
