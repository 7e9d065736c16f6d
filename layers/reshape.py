"""Layers that change the shape of samples, or the order of their axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import axis_of, is_int, label, not_the_batch, one_input
from singa_lite.tensor import Shape, Tensor


class Reshape(Layer):
    """Gives the sample's elements, in C order, another shape.

    Input samples of any shape; output samples of `shape`.

    shape: without the batch axis, as many elements as the input; one extent may be -1, to be worked out.

    >>> net = Sequential([layers.Input((12,)), layers.Reshape("images", (3, 2, -1))])
    >>> net.predict(np.ones((2, 12), "float32")).shape
    (2, 3, 2, 2)
    """

    keeps_values = True
    features_last = False

    def __init__(self, name: str, shape: Sequence[int], **options: Any) -> None:
        super().__init__(name, **options)
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


class Flatten(Layer):
    """Makes one axis of all axes from `axis` on, in C order; those before it stay.

    Input samples of any shape; output samples (product of all extents,) for axis 1, (first extent, product of
    the others) for axis 2, and so on.

    axis: counts the batch as 0, negative from the end; never the batch.

    >>> net = Sequential([layers.Input((3, 8, 6)), layers.Flatten()])
    >>> net.predict(np.ones((2, 3, 8, 6), "float32")).shape
    (2, 144)
    """

    keeps_values = True

    def __init__(self, name: str, axis: int = 1, **options: Any) -> None:
        super().__init__(name, **options)
        self.axis = not_the_batch(self, axis)

    def setup(self, *shapes: Shape) -> Shape:
        """(*kept, *merged) -> (*kept, product of the merged)."""
        return self._flat(one_input(self, shapes))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, *kept, *merged) -> (n, *kept, product of the merged)."""
        return autograd.reshape(x, (x.shape[0], *self._flat(x.shape[1:])))

    def _flat(self, shape: Shape) -> Shape:
        kept = axis_of(self, self.axis, shape) - 1
        return (*shape[:kept], prod(shape[kept:]))


class Permute(Layer):
    """Puts the sample's axes into another order, as a view.

    Input samples of as many axes as `axes` has; output samples with axis axes[i] of the input as axis i of the output.

    axes: each axis of a sample once, counted from 1, as the batch is axis 0 (as in Keras): (2, 1) turns
    (time, features) into (features, time).

    >>> net = Sequential([layers.Input((7, 3)), layers.Permute("channels_first", (2, 1))])
    >>> net.predict(np.ones((2, 7, 3), "float32")).shape
    (2, 3, 7)
    """

    features_last = False

    def __init__(self, name: str, axes: Sequence[int], **options: Any) -> None:
        super().__init__(name, **options)
        given = list(axes) if isinstance(axes, Sequence) and not isinstance(axes, str) else []
        if not given or not all(map(is_int, given)) or sorted(given) != list(range(1, len(given) + 1)):
            raise ValueError(
                f"{label(self)}: wanted axes with each axis of a sample once, counted from 1, such as (2, 1), received "
                f"{axes!r}"
            )
        self.axes: Shape = tuple(int(axis) for axis in given)

    def setup(self, *shapes: Shape) -> Shape:
        """The extents in the order of the axes."""
        shape = one_input(self, shapes)
        if len(shape) != len(self.axes):
            raise ShapeError(f"{label(self)}: wanted input samples of {len(self.axes)} axes, received {shape}")
        return tuple(shape[axis - 1] for axis in self.axes)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same with its axes in their order."""
        return autograd.transpose(x, (0, *self.axes))
