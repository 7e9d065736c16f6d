"""The base of layers that draw random numbers while training."""

from __future__ import annotations

import numpy as np

from singa_lite.layer.layer import Layer

from ._checks import label, number


def checked_probability(layer: Layer, p: float) -> float:
    """The probability to drop. ValueError unless it is from 0 to below 1."""
    found = number(layer, "p", p, 0, 1)
    if found == 1:
        raise ValueError(f"{label(layer)}: wanted p, the probability to drop, below 1, received {p}")
    return found


def add_random_state(layer: Layer) -> None:
    """State random uint64 (3,): seed, stream of the layer, and counter."""
    layer.add_state("random", (3,), dtype=np.uint64).copy_from_numpy(layer.random_key("random"))
