"""Layers one after the other as one layer, with what went in added or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import Layer, SampleShape
from singa_lite.layers._checks import held_layers, label, one_input
from singa_lite.tensor import Shape, Tensor


class Sequential(Layer):
    """Runs layers one after the other: y is the output of the last one, and each takes all that the one before gives.

    Input samples as the first layer takes them, output samples as the last one gives them. Parameters and state: those
    of its layers, "<name>/<layer>/weight".

    layers: one or more, of different names, in their order; they are in no net and in no other layer.
    input_sample_shape: default the first layer's.

    >>> block = layers.Sequential("block", [layers.Dense("a", 4), layers.Dense("b", 3)])
    >>> sorted(Sequential([layers.Input((5,)), block]).parameters())
    ['block/a/bias', 'block/a/weight', 'block/b/bias', 'block/b/weight']
    """

    positionwise = True

    def __init__(self, name: str, layers: Sequence[Layer], **options: Any) -> None:
        super().__init__(name, **options)
        for layer in held_layers(self, layers):
            self.add_layer(layer)
        held = list(self.layers.values())
        self.gives = held[-1].gives
        self.input_ids = next((x.input_ids for x in held if x.input_ids is not None or not x.keeps_values), None)
        self.features_last = next((x.features_last for x in reversed(held) if x.features_last is not None), None)
        self.keeps_values = all(layer.keeps_values for layer in held)
        if self.input_sample_shapes is None:
            self.input_sample_shapes = held[0].input_sample_shapes

    def setup(self, *shapes: Shape) -> SampleShape:
        """The shape of the last layer's output, a list of them for several."""
        given = list(shapes)
        for layer in self.layers.values():
            given = self.set_up_several(layer, *given)
        held = self.layers.values()
        self.any_length, self.keeps_time = all(x.any_length for x in held), all(x.keeps_time for x in held)
        return given if len(given) > 1 else given[0]

    def forward(self, training: bool, *xs: Tensor) -> Tensor | list[Tensor]:
        """xs, each (n, ...) -> the last layer's output, (n, ...), a list of them for several."""
        given = self.through(training, *xs)
        return given if len(given) > 1 else given[0]

    def through(self, training: bool, *xs: Tensor) -> list[Tensor]:
        """All outputs of the last layer."""
        given = list(xs)
        for layer in self.layers.values():
            given = self.run_several(layer, training, *given)
        return given


class Residual(Sequential):
    """Adds to x what its layers make of it, one after the other: y = x + f(x) (He and others, arXiv 1512.03385).

    Input and output samples of one shape, which f has to keep: ShapeError if it does not. Parameters and state: those
    of its layers, "<name>/<layer>/weight".

    layers: one or more, of different names, in their order; they are in no net and in no other layer.
    input_sample_shape: default the first layer's.

    >>> block = layers.Residual("block", [layers.Dense("hidden", 8, activation="relu"), layers.Dense("out", 5)])
    >>> Sequential([layers.Input((5,)), block]).predict(np.ones((2, 5), "float32")).shape
    (2, 5)
    """

    passes_mask = True

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        self.gives, self.keeps_values = "", False
        shape = one_input(self, shapes)
        found = super().setup(shape)
        if found != shape:
            raise ShapeError(f"{label(self)}: wanted layers that keep the sample shape {shape}, received {found}")
        return shape

    def forward(self, training: bool, *xs: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        (x,) = xs
        (y,) = self.through(training, x)
        return autograd.add(x, y)
