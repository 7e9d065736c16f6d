"""Reshape: the same elements under another sample shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import is_int, label, one_input


class Reshape(Layer):
    """The sample's elements, in C order, under another shape.

    Input samples of any shape; output samples of `shape`.

    shape: without the batch axis, as many elements as the input; one extent may be -1, to be worked out.
    """

    keeps_values = True
    features_last = False

    def __init__(self, name: str, shape: Sequence[int], *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        extents = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else (None,)
        valid = all(is_int(extent) and (extent >= 1 or extent == -1) for extent in extents)
        if not valid or extents.count(-1) > 1:
            raise ValueError(
                f"{label(self)}: wanted a sample shape of extents of at least 1, one of them -1 at most, "
                f"received {shape!r}"
            )
        self.shape: Shape = tuple(int(extent) for extent in extents if extent is not None)

    def setup(self, *shapes: Shape) -> Shape:
        """The input's shape -> `shape` with its -1 worked out."""
        return self._resolved(one_input(self, shapes))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> (n, *shape)."""
        return autograd.reshape(x, (x.shape[0], *self._resolved(x.shape[1:])))

    def _resolved(self, given: Shape) -> Shape:
        known = abs(prod(self.shape))
        if prod(given) % known or (-1 not in self.shape and prod(given) != known):
            raise ShapeError(
                f"{label(self)}: wanted input samples that fit shape {self.shape}, "
                f"received {prod(given)} elements of shape {given}"
            )
        return tuple(prod(given) // known if extent == -1 else extent for extent in self.shape)
