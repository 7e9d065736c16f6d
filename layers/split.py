"""Split: one input to several outputs."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import one_input, positive_int


class Split(Layer):
    """num_output outputs, each the input itself: nothing is copied, their derivatives are summed.

    Input samples of any shape; a list of num_output output samples of the same.
    """

    keeps_values = True

    positionwise = True
    any_length = True

    def __init__(self, name: str, num_output: int, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.num_output = positive_int(self, "num_output", num_output)

    def setup(self, *shapes: Shape) -> list[Shape]:
        """The input's shape, num_output times."""
        return [one_input(self, shapes)] * self.num_output

    def forward(self, training: bool, x: Tensor) -> list[Tensor]:
        """x (n, ...) -> num_output times the same."""
        return [autograd.identity(x) for _ in range(self.num_output)]
