"""SwiGLU: a product that another one opens and closes."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import features_of, positive_int
from singa_lite.layers.dense import Products
from singa_lite.tensor import Shape, Tensor


class SwiGLU(Products):
    """Computes y = silu(gate(x)) * value(x) over the last axis (Shazeer, arXiv 2002.05202), as in Llama.

    Input samples (..., features), output samples (..., num_output). Layers inside: gate and value, each a Dense of
    num_output. use_bias: of both. weight_init, bias_init: an Initializer, its name, or a number, of both.

    >>> net = Sequential([layers.Input((6, 8)), layers.SwiGLU("hidden", 12)])
    >>> net.predict(np.ones((2, 6, 8), "float32")).shape
    (2, 6, 12)
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
        weight_init: initializer.Spec = "glorot_uniform",
        bias_init: initializer.Spec = 0.0,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.num_output = positive_int(self, "num_output", num_output)
        self.take_options(use_bias, weight_init, bias_init)
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
