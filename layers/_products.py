"""What layers share whose layers within are products of equal options."""

from __future__ import annotations

from singa_lite.layers._weighted import Weighted
from singa_lite.layers.dense import Dense


class Products(Weighted):
    """Base of layers that hold several Dense, all with the same `use_bias`, `weight_init` and `bias_init`."""

    def product(self, name: str, num_output: int) -> Dense:
        """A layer that this one is to hold."""
        return Dense(name, num_output, self.use_bias, weight_init=self.weight_init, bias_init=self.bias_init)
