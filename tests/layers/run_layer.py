"""Layers set up and run alone, without a net."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_lite import autograd, device, tensor
from singa_lite.layer.layer import Context, Layer

RNG = np.random.default_rng(0)


def prepared(layer: Layer, *shapes: tuple[int, ...], dtype: Any = np.float64, seed: int = 5, on: Any = None) -> Layer:
    """The layer, set up for samples of these shapes."""
    layer.prepare(shapes, Context(on or device.cpu(), np.dtype(dtype), seed))
    return layer


def run(layer: Layer, *inputs: Any, training: bool = False, parameters: Mapping[str, Any] | None = None) -> Any:
    """Outputs in float64 as arrays, the layer being set up for the inputs if it is not yet."""
    arrays = [np.asarray(x, np.float64) for x in inputs]
    if layer.context is None:
        prepared(layer, *(x.shape[1:] for x in arrays))
    for name, value in (parameters or {}).items():
        layer.parameters[name].copy_from_numpy(np.reshape(np.asarray(value, np.float64), layer.parameters[name].shape))
    with autograd.no_grad():
        outputs = layer.forward(training, *map(tensor.from_numpy, arrays))
    return [tensor.to_numpy(y) for y in outputs] if isinstance(outputs, list) else tensor.to_numpy(outputs)


def state(layer: Layer, name: str) -> np.ndarray:
    """The value of one of the layer's states."""
    return tensor.to_numpy(layer.states[name])


def random_layer(cls: type[Layer], shape: tuple[int, ...], **options: Any) -> tuple[Layer, dict[str, np.ndarray]]:
    """A layer with random parameters, and these."""
    layer = prepared(cls("layer", **options), shape)
    values = {name: RNG.standard_normal(t.shape) for name, t in layer.parameters.items()}
    for name, value in values.items():
        layer.parameters[name].copy_from_numpy(value)
    return layer, values
