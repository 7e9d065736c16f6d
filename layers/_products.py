"""What layers share whose layers within are products of equal options."""

from __future__ import annotations

from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import bias_init as checked_bias_init
from singa_lite.layers._checks import flag, init
from singa_lite.layers.dense import Dense


class Products(Layer):
    """Base of layers that hold several Dense, all with the same `use_bias`, `weight_init` and `bias_init`."""

    def take_options(self, use_bias: bool, weight_init: initializer.Spec, bias_init: initializer.Spec) -> None:
        """For `__init__`: check and keep what all products go by."""
        self.use_bias = flag(self, "use_bias", use_bias)
        self.weight_init = init(self, "weight_init", weight_init)
        self.bias_init = checked_bias_init(self, bias_init, self.use_bias)

    def product(self, name: str, num_output: int) -> Dense:
        """A layer that this one is to hold."""
        return Dense(name, num_output, self.use_bias, weight_init=self.weight_init, bias_init=self.bias_init)
