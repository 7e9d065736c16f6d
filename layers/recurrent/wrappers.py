"""Layers that hold another one: a recurrent layer in both directions, and any layer at each time."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from singa_lite import autograd
from singa_lite.common.errors import GraphError
from singa_lite.layer.calls import by_itself
from singa_lite.layer.layer import Layer
from singa_lite.layer.past import LayerPast
from singa_lite.layers._checks import check_choice, held_layers, input_axes, label
from singa_lite.layers._masks import without_padding
from singa_lite.layers.recurrent._recurrent import MERGES, RecurrentLayer, merged
from singa_lite.tensor import Shape, Tensor


class Bidirectional(Layer):
    """Merges a recurrent layer with one like it that goes from the last step to the first: y = merge(forward(x),
    backward(x)).

    Unlike `bidirectional=True`, where each stack takes both directions of the one before, the two meet at their ends
    only. Input samples (time, features), perhaps a mask (time,), as the layer takes them; output samples as the layer
    gives them, with merge "concat" twice as wide; those of sequences are in the order of the input. A mask keeps
    padding out of both directions.

    Layers inside: forward and backward, with the options of the layer that was given, and parameters of their own.

    layer: an LSTM, GRU or SimpleRNN in no net, of one direction and not stateful; it stands for its options alone.
    merge: "concat", "sum", "mul" or "ave".

    >>> inner = layers.GRU("gru", 4, return_sequences=True)
    >>> net = Sequential([layers.Input((6, 3)), layers.Bidirectional("both", inner)])
    >>> net.predict(np.ones((2, 6, 3), "float32")).shape
    (2, 6, 8)
    """

    features_last = True
    any_length = True

    def __init__(self, name: str, layer: Layer, merge: str = "concat", **options: Any) -> None:
        super().__init__(name, **options)
        (given,) = held_layers(self, [layer])
        if not isinstance(given, RecurrentLayer):
            raise TypeError(f"{label(self)}: wanted a recurrent layer, received {type(given).__name__}")
        if given.bidirectional or given.stateful:
            option = "bidirectional" if given.bidirectional else "stateful"
            raise GraphError(f"{label(self)}: wanted a layer of one direction from 0 on, received {option}=True")
        self.layer = given
        self.merge = check_choice(self, "merge", merge, MERGES)
        self.passes_mask = self.keeps_time = given.return_sequences
        for direction in ("forward", "backward"):
            self.add_layer(_named(given, direction))
        if self.input_sample_shapes is None:
            self.input_sample_shapes = given.input_sample_shapes

    def setup(self, *shapes: Shape) -> Shape:
        """As the layer, with merge "concat" twice as wide."""
        given = [self.set_up(layer, *shapes) for layer in self.layers.values()]
        *beside, width = given[0]
        return (*beside, width * 2 if self.merge == "concat" else width)

    def forward(self, training: bool, *inputs: Tensor) -> Tensor:
        """x (n, time, features), perhaps mask (n, time) -> what both give."""
        x, *mask = inputs
        x = without_padding(x, mask[0] if mask else x.mask)
        return merged([self.run(layer, training, x, *mask) for layer in self.layers.values()], self.merge)


def _named(layer: RecurrentLayer, direction: str) -> RecurrentLayer:
    """A layer with the same options under that name."""
    made = deepcopy(layer)
    made._name, made.backwards, made.without_padding = direction, direction == "backward", True
    return made


class TimeDistributed(Layer):
    """Applies a layer to each time step, y[:, t] = layer(x[:, t]): the steps of all samples go through it as one batch.

    Input samples (time, ...), output samples (time, ...), behind the time what the layer takes and gives. Parameters
    and state: those of the layer, "<name>/<layer>/weight".

    layer: of one input and one output, in no net and in no other layer. One that works on statistics of the batch has
    them over all steps.

    >>> net = Sequential([layers.Input((6, 3, 4)), layers.TimeDistributed("steps", layers.Flatten("flat"))])
    >>> net.predict(np.ones((2, 6, 3, 4), "float32")).shape
    (2, 6, 12)
    """

    passes_mask = True
    any_length = True

    def __init__(self, name: str, layer: Layer, **options: Any) -> None:
        super().__init__(name, **options)
        (self.layer,) = held_layers(self, [layer])
        self.add_layer(self.layer)
        self.keeps_values = self.layer.keeps_values
        self.gives = self.layer.gives
        self.input_ids, self.features_last = self.layer.input_ids, self.layer.features_last

    def setup(self, *shapes: Shape) -> Shape:
        """(time, ...) -> (time, ...)."""
        time, *step = input_axes(self, shapes, ("time", "..."))
        return time, *self.set_up(self.layer, tuple(step))

    def continued_layers(self) -> Iterable[Layer]:
        """None: to the layer each step is a sample by itself."""
        return ()

    def continued(self, past: LayerPast, *inputs: Tensor) -> Tensor:
        """x (n, m, ...) -> (n, m, ...)."""
        return by_itself(lambda: self.forward(False, *inputs))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, time, ...) -> (n, time, ...)."""
        n, time, *step = x.shape
        y = self.run(self.layer, training, autograd.reshape(x, (n * time, *step)))
        return autograd.reshape(y, (n, time, *y.shape[1:]))
