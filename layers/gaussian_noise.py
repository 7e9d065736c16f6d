"""GaussianNoise: normal numbers added while training."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import number, one_input
from ._dropout import add_random_state


class GaussianNoise(Layer):
    """In training y = x + normal numbers of mean 0; else y = x.

    Input and output samples of any shape. State: random uint64 (3,), as of Dropout. The numbers are drawn in float32,
    so that they are the same in a net of any dtype.

    std: the standard deviation of the numbers, 0 or more.
    """

    passes_mask = True

    positionwise = True
    any_length = True

    def __init__(self, name: str, std: float, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.std = number(self, "std", std, 0)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = one_input(self, shapes)
        add_random_state(self)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape; in training the random state moves on."""
        if training and self.std > 0:
            noise = autograd.normal(x.shape, self.states["random"], std=self.std)
            return autograd.add(x, autograd.cast(noise, x.dtype))
        return autograd.identity(x)
