"""The net of an estimator that is given none: dense layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite import layers
from singa_lite.common.checks import goes_through, integer
from singa_lite.layer.layer import Layer
from singa_lite.tensor import Shape


def perceptron(shape: Shape, outputs: int, hidden: Sequence[int]) -> list[Layer]:
    """Layers from samples of this shape to so many scores; hidden: the widths of those between."""
    if not goes_through(hidden):
        raise ValueError(f"hidden: wanted widths of layers, as (100,), received {hidden!r:.100}")
    widths = [integer("hidden", width, 1) for width in hidden]
    made: list[Layer] = [layers.Flatten("flat", input_sample_shape=shape)]
    for number, width in enumerate(widths):
        made.append(layers.Dense(f"hidden{number}", width, weight_init="he_uniform"))
        made.append(layers.Activation(f"relu{number}"))
    return [*made, layers.Dense("scores", outputs)]
