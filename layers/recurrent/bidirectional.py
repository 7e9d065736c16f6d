"""Bidirectional: a recurrent layer from the first step to the last, and another one from the last to the first."""

from __future__ import annotations

from copy import deepcopy

from singa_lite.common.errors import GraphError
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import check_choice, held_layers, label
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

    def __init__(
        self, name: str, layer: Layer, merge: str = "concat", *, input_sample_shape: InputShape | None = None
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
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
        if input_sample_shape is None:
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
