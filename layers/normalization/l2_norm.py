"""L2Norm: each sample divided by its length."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import one_input, positive
from singa_lite.tensor import Shape, Tensor


class L2Norm(Layer):
    """y = x / sqrt(sum of x**2 over the sample + epsilon).

    Input and output samples of any shape. epsilon: above 0.
    """

    def __init__(self, name: str, epsilon: float = 1e-8, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.epsilon = positive(self, "epsilon", epsilon)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        return one_input(self, shapes)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.l2_norm(x, self.epsilon)
