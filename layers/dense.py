"""Dense, every output from every input, and the base of layers that hold several."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import features_of, positive_int
from singa_lite.layers._weighted import Activated, Weighted, WithActivation
from singa_lite.tensor import Shape, Tensor


class Dense(WithActivation):
    """Computes y = activation(x @ weight + bias) over the last axis, whatever axes stand before it.

    Input samples (..., features), as (features,) or (time, features); output samples (..., num_output). Images want
    Flatten before, unless each row of pixels is meant.
    Parameters: weight (features, num_output), bias (num_output,).

    use_bias: False leaves the bias out. activation: a mode of `Activation`, "softmax" (of the last axis), "linear",
    such an operation of `autograd`, or an Activation; None: none. weight_init, bias_init: an Initializer, its name,
    or a number.

    >>> net = Sequential([layers.Input((5,)), layers.Dense(3, activation="relu")])
    >>> net.predict(np.ones((2, 5), "float32")).shape
    (2, 3)
    """

    passes_mask = True

    positionwise = True

    features_last = True

    def __init__(
        self,
        name: str,
        num_output: int,
        use_bias: bool = True,
        *,
        activation: Activated = None,
        weight_init: initializer.Spec = "glorot_uniform",
        bias_init: initializer.Spec = 0.0,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.num_output = positive_int(self, "num_output", num_output)
        self.take_options(use_bias, weight_init, bias_init)
        self.take_activation(activation)

    def setup(self, *shapes: Shape) -> Shape:
        """(..., features) -> (..., num_output)."""
        *beside, features = features_of(self, shapes)
        self.any_length = bool(beside)
        fans = features, self.num_output
        self.add_parameter("weight", fans, self.weight_init, fans)
        if self.use_bias:
            self.add_parameter("bias", (self.num_output,), self.bias_init)
        return (*beside, self.num_output)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ..., features) -> (n, ..., num_output)."""
        y = autograd.linear(x, self.parameters["weight"], self.parameters["bias"] if self.use_bias else None)
        return self.activated(y, -1)


class Products(Weighted):
    """Base of layers that hold several Dense, all with the same `use_bias`, `weight_init` and `bias_init`."""

    def product(self, name: str, num_output: int) -> Dense:
        """A layer that this one is to hold."""
        return Dense(name, num_output, self.use_bias, weight_init=self.weight_init, bias_init=self.bias_init)
