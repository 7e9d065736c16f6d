"""Base of the layers that do the same to each element."""

from __future__ import annotations

from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import one_input
from singa_lite.tensor import Shape


class Elementwise(Layer):
    """A layer of one input that keeps its shape and does the same to each element. A subclass gives `forward`."""

    passes_mask = True
    positionwise = True
    any_length = True

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        return one_input(self, shapes)
