"""Activations that a sum or a normalization does before it stores its result, by their numbers in `bounded.cuh`."""

from __future__ import annotations

import numpy as np

_BOUNDS = {"": 0, "relu": 1, "relu6": 2}
#: Those behind a batch normalization; going back they are worked out again from what it was given.
ACTIVATIONS = ("relu", "relu6")

#: What is done in one go.
FUSIONS = (
    *((kernel, activation) for kernel in ("batch_norm", "batch_norm_derivative", "add") for activation in ACTIVATIONS),
    *((kernel, "other") for kernel in ("batch_norm", "batch_norm_derivative")),
)


def bound_of(activation: str) -> np.int32 | None:
    """What a kernel is told of it; None where it has none of that name."""
    number = _BOUNDS.get(activation)
    return None if number is None else np.int32(number)
