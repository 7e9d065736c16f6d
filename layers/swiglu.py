"""SwiGLU: a product that another one opens and closes."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.layers._checks import features_of, positive_int
from singa_lite.layers.dense import Products
from singa_lite.tensor import Shape, Tensor


class SwiGLU(Products):
    """y = silu(gate(x)) * value(x) over the last axis (Shazeer, arXiv 2002.05202), as in Llama.

    Input samples (..., features), output samples (..., num_output). Layers inside: gate and value, each a Dense of
    num_output. use_bias: of both. weight_init, bias_init: an Initializer, its name, or a number, of both.
    """

    passes_mask = True

    positionwise = True

    features_last = True

    def __init__(self, name: str, num_output: int, use_bias: bool = True, **options: Any) -> None:
        super().__init__(name, use_bias=use_bias, **options)
        self.num_output = positive_int(self, "num_output", num_output)
        self._gate, self._value = (self.add_layer(self.product(part, self.num_output)) for part in ("gate", "value"))

    def setup(self, *shapes: Shape) -> Shape:
        """(..., features) -> (..., num_output)."""
        shape = features_of(self, shapes)
        self.any_length = len(shape) > 1
        self.set_up(self._gate, shape)
        return self.set_up(self._value, shape)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ..., features) -> (n, ..., num_output)."""
        gate = autograd.silu(self.run(self._gate, training, x))
        return autograd.multiply(gate, self.run(self._value, training, x))
