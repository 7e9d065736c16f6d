"""RMSNormalization: divided by the root mean square of the features."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import features_of, init, positive
from singa_lite.tensor import Shape, Tensor


class RMSNormalization(Layer):
    """y = gamma * x / sqrt(mean of x**2 over the last axis + epsilon) (Zhang and Sennrich, arXiv 1910.07467).

    Input and output samples (..., features). Parameter: gamma (features,).

    epsilon: above 0. gamma_init: an Initializer, its name, or a number.
    """

    passes_mask = True

    positionwise = True

    def __init__(
        self,
        name: str,
        epsilon: float = 1e-6,
        *,
        gamma_init: initializer.Spec = 1.0,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.epsilon = positive(self, "epsilon", epsilon)
        self.gamma_init = init(self, "gamma_init", gamma_init)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = features_of(self, shapes)
        self.any_length = len(shape) > 1
        self.add_parameter("gamma", shape[-1:], self.gamma_init)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ..., features) -> the same shape."""
        return autograd.rms_norm(x, self.parameters["gamma"], self.epsilon)
