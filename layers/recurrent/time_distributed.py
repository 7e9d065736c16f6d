"""TimeDistributed: a layer on each step of a sequence."""

from __future__ import annotations

from collections.abc import Iterable

from singa_lite import autograd
from singa_lite.layer.calls import by_itself
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layer.past import LayerPast
from singa_lite.layers._checks import held_layers, input_axes
from singa_lite.tensor import Shape, Tensor


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

    def __init__(self, name: str, layer: Layer, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
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
