"""Arithmetic on tensors that no tape records."""

from __future__ import annotations

from singa_lite.device import device_of
from singa_lite.tensor import Tensor


def product(value: Tensor, factor: Tensor) -> Tensor:
    """A new tensor; the factor is float64 ()."""
    device = device_of(value)
    made: Tensor = device.empty(value.shape, value.dtype, value.memory_order())
    device.run("copy", value, made)
    device.run("scale_by", factor, made)
    return made
