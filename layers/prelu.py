"""PReLU: a leaky ReLU whose slopes are trained."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import init, is_int, label, one_input
from singa_lite.tensor import Shape, Tensor


class PReLU(Layer):
    """y = x where x > 0, else alpha * x (He and others, arXiv 1502.01852).

    Input and output samples of any shape with an axis. Parameters: alpha, of the sample's shape with 1 for the axes
    that share it; by default one for each channel, (channels, 1, 1) for images.

    shared_axes: axes along which one alpha serves all, counted from 1, the channels, as 0 is the batch; None for all
    but the channels, () for an alpha for each element, (1, 2, 3) for one alpha for all of an image. alpha_init: an
    Initializer, its name, or a number.
    """

    def __init__(
        self,
        name: str,
        shared_axes: Sequence[int] | None = None,
        *,
        alpha_init: initializer.Spec = 0.25,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.shared_axes = None if shared_axes is None else self._axes(shared_axes)
        self.alpha_init = init(self, "alpha_init", alpha_init)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = one_input(self, shapes)
        shared = range(2, len(shape) + 1) if self.shared_axes is None else self.shared_axes
        if not shape or max(shared, default=1) > len(shape):
            raise ShapeError(
                f"{label(self)}: wanted input samples that have the shared axes {tuple(shared)}, received {shape}"
            )
        self.positionwise = self.any_length = len(shape) > 1 and 1 in shared
        self.add_parameter(
            "alpha", [1 if axis in shared else extent for axis, extent in enumerate(shape, 1)], self.alpha_init
        )
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.prelu(x, self.parameters["alpha"])

    def _axes(self, given: object) -> tuple[int, ...]:
        if not isinstance(given, Sequence) or not all(is_int(axis) and axis >= 1 for axis in given):
            raise ValueError(
                f"{label(self)}: wanted shared_axes, a tuple of axes of at least 1 (0 is the batch), received {given!r}"
            )
        return tuple(sorted({int(axis) for axis in given}))
