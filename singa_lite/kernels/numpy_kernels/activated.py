"""Activations by name, applied in place to what another kernel has made; "" is none."""

from __future__ import annotations

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels import activation as activations
from singa_lite.kernels.numpy_kernels.scratch import RULES, Bytes, Shaped


def activate(y: Array, activation: str, scratch: Bytes) -> None:
    """y = activation(y). scratch: `activation_bytes` or more."""
    if activation:
        function = getattr(activations, activation)
        given = {"scratch": scratch[: RULES[function](y, y)]} if function in RULES else {}
        function(y, y, **given)


def activation_bytes(y: Shaped, activation: str) -> int:
    """Bytes of scratch of the activation alone."""
    function = getattr(activations, activation) if activation else None
    return RULES[function](y, y) if function in RULES else 0
