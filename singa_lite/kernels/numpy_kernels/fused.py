"""Two kernels one behind the other, the second in place: what the fused ones of other sets are compared with."""

from __future__ import annotations

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import activation as activations
from singa_lite.kernels.numpy_kernels.convolution import conv2d
from singa_lite.kernels.numpy_kernels.elementwise import add
from singa_lite.kernels.numpy_kernels.linear import linear, matmul
from singa_lite.kernels.numpy_kernels.reduction import bias_gradient
from singa_lite.kernels.numpy_kernels.scratch import RULES, Bytes, Shaped, scratch


def _activated(y: Array, activation: str, memory: Bytes) -> None:
    function = getattr(activations, activation)
    if function in RULES:
        function(y, y, scratch=memory[: RULES[function](y, y)])
    else:
        function(y, y)


def _activation_bytes(y: Shaped, activation: str) -> int:
    function = getattr(activations, activation)
    return RULES[function](y, y) if function in RULES else 0


def _conv2d_bytes(
    x: Shaped, weight: Shaped, bias: Shaped | None, y: Shaped, *, activation: str, **settings: object
) -> int:
    return max(RULES[conv2d](x, weight, bias, y, **settings), _activation_bytes(y, activation))


def _linear_bytes(x: Shaped, weight: Shaped, bias: Shaped | None, y: Shaped, *, activation: str) -> int:
    return _activation_bytes(y, activation)


@scratch(lambda a, b, y, *, activation: _activation_bytes(y, activation))
def add_activation(a: Array, b: Array, y: Array, *, activation: str, scratch: Bytes) -> None:
    """y = activation(a + b), the activation in place."""
    add(a, b, y)
    _activated(y, activation, scratch)


@scratch(_conv2d_bytes)
def conv2d_activation(
    x: Array,
    weight: Array,
    bias: Array | None,
    y: Array,
    *,
    window: Window,
    groups: int,
    activation: str,
    scratch: Bytes,
) -> None:
    """y = activation(conv2d)."""
    own = RULES[conv2d](x, weight, bias, y, window=window, groups=groups)
    conv2d(x, weight, bias, y, window=window, groups=groups, scratch=scratch[:own])
    _activated(y, activation, scratch)


@scratch(_linear_bytes)
def linear_activation(
    x: Array, weight: Array, bias: Array | None, y: Array, *, activation: str, scratch: Bytes
) -> None:
    """y = activation(x @ weight + bias)."""
    linear(x, weight, bias, y)
    _activated(y, activation, scratch)


def _gradient_bytes(x: Shaped, dy: Shaped, dweight: Shaped, dbias: Shaped | None) -> int:
    return RULES[bias_gradient](dy, dbias)


@scratch(_gradient_bytes)
def linear_gradient(x: Array, dy: Array, dweight: Array, dbias: Array, *, scratch: Bytes) -> None:
    """The product, then the sums."""
    matmul(x, dy, dweight, transpose_a=True, transpose_b=False)
    bias_gradient(dy, dbias, axis=1, scratch=scratch)
