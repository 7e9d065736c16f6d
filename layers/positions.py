"""Positions added to sequences: learned ones, and sines and cosines; tables of these, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.ops.attention import rows_at
from singa_lite.autograd.ops.shape import first_rows
from singa_lite.common.array_types import Array
from singa_lite.common.checks import above_zero, integer
from singa_lite.common.errors import ShapeError
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer
from singa_lite.layer.past import LayerPast
from singa_lite.layers._checks import init, input_axes, label, positive, positive_int
from singa_lite.layers.rotary_scaling import Scaling, scaled_rates
from singa_lite.tensor import Shape, Tensor


def rotary_table(time: int, size: int, base: float = 10000.0, scaling: Scaling = None) -> Array:
    """Cosines and sines of position * base**(-2 * i / size), as `autograd.rotary` takes them (arXiv 2104.09864).

    float64 (2, time, size / 2); size: of the features that are turned, even; scaling: of the angles, see
    `scaled_rates`.
    """
    angles = _angles("rotary_table", time, size, base, scaling)
    return np.stack([np.cos(angles), np.sin(angles)])


def sinusoidal_table(time: int, size: int, base: float = 10000.0) -> Array:
    """sin(position * base**(-2 * i / size)) at feature 2 * i and the cosine behind it (Vaswani, arXiv 1706.03762, 3.5).

    float64 (time, size); size: even.
    """
    angles = _angles("sinusoidal_table", time, size, base)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(time, size)


def _angles(where: str, time: int, size: int, base: float, scaling: Scaling = None) -> Array:
    """(time, size / 2)."""
    time, size = integer(f"{where} time", time, 1), integer(f"{where} size", size, 2)
    if size % 2:
        raise ValueError(f"{where} size: wanted an even number, received {size}")
    rates = above_zero(f"{where} base", base) ** (-np.arange(0, size, 2) / size)
    angles: Array = np.arange(time)[:, None] * scaled_rates(where, rates, scaling)
    return angles


class LearnedPositions(Layer):
    """Adds a trained row for each position: y = x + weight[:time].

    Input and output samples (time, features). Parameter: weight (max_length, features).

    max_length: positions that the table has, at least time; None: time. weight_init: an Initializer, its name, or a
    number.

    >>> net = Sequential([layers.Input((6, 4)), layers.LearnedPositions("positions", max_length=10)])
    >>> net.parameters()["positions/weight"].shape
    (10, 4)
    """

    passes_mask = True
    any_length = True

    def __init__(
        self, name: str, max_length: int | None = None, *, weight_init: initializer.Spec = "uniform", **options: Any
    ) -> None:
        super().__init__(name, **options)
        self.max_length = None if max_length is None else positive_int(self, "max_length", max_length)
        self.weight_init = init(self, "weight_init", weight_init)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept. ShapeError for more positions than the table has."""
        time, features = input_axes(self, shapes, ("time", "features"))
        length = time if self.max_length is None else self.max_length
        if time > length:
            raise ShapeError(f"{label(self)}: wanted at most max_length {length} positions, received {time}")
        self.add_parameter("weight", (length, features), self.weight_init, (length, features))
        return time, features

    def most_positions(self) -> int | None:
        """Rows of the table."""
        return self.parameters["weight"].shape[0]

    def continued(self, past: LayerPast, *inputs: Tensor) -> Tensor:
        """x (n, m, features) -> the same shape, by the next m rows."""
        (x,) = inputs
        weight = self.parameters["weight"]
        return autograd.add(x, rows_at(weight.view((1, *weight.shape)), past.position, x.shape[1]))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, time, features) -> the same shape."""
        weight, time = self.parameters["weight"], x.shape[1]
        return autograd.add(x, weight if weight.shape[0] == time else autograd.split(weight, 0, (time,))[0])


class TextStarts(Layer):
    """Passes on where the text of each position begins, for rows that hold several texts: an input of a net.

    Input and output samples (time,), integers from 0: of a row of a text of 3 ids and one of 2, [0, 0, 0, 3, 3]. Layers
    with packed=True take it. Texts that are generated are alone in their rows, and need none.

    >>> net = FeedForwardNet()
    >>> tokens = net.add(layers.Embedding("tokens", 100, 8, input_sample_shape=(5,)))
    >>> starts = net.add(layers.TextStarts("starts", input_sample_shape=(5,)), [])
    >>> block = net.add(layers.TransformerBlock("block", 2, True, packed=True), [tokens, starts])
    >>> net.predict({"tokens": np.ones((2, 5), "int64"), "starts": np.zeros((2, 5), "int64")}).shape
    (2, 5, 8)
    """

    input_ids = 2**63
    positionwise = True
    any_length = True
    begins_texts = True

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        return input_axes(self, shapes, ("time",))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, time) of integers -> the same bytes."""
        return autograd.identity(x)


class SinusoidalPositions(Layer):
    """Adds sines and cosines of the position: y = x + table, table[t, 2 * i] = sin(t * base**(-2 * i / features)), the
    cosine at 2 * i + 1.

    From Vaswani and others, arXiv 1706.03762, section 3.5. Input and output samples (time, features), features even.
    The table (time, features) follows from the base, and is no state.

    base: above 0.

    >>> net = Sequential([layers.Input((3, 2)), layers.SinusoidalPositions()])
    >>> print(net.predict(np.zeros((1, 3, 2), "float32")).round(3))
    [[[ 0.     1.   ]
      [ 0.841  0.54 ]
      [ 0.909 -0.416]]]
    """

    passes_mask = True
    any_length = True

    def __init__(self, name: str, base: float = 10000.0, **options: Any) -> None:
        super().__init__(name, **options)
        self.base = positive(self, "base", base)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        time, features = input_axes(self, shapes, ("time", "features"))
        if features % 2:
            raise ShapeError(f"{label(self)}: wanted an even number of features, received {(time, features)}")
        self.add_constant("table", sinusoidal_table(time, features, self.base))
        return time, features

    def options_changed(self) -> None:
        """The table is that of the base."""
        time, features = self.constants["table"].shape
        self.add_constant("table", sinusoidal_table(time, features, self.base))

    def most_positions(self) -> int | None:
        """Rows of the table."""
        return self.constants["table"].shape[0]

    def continued(self, past: LayerPast, *inputs: Tensor) -> Tensor:
        """x (n, m, features) -> the same shape, by the next m rows."""
        (x,) = inputs
        table = self.constants["table"]
        return autograd.add(x, rows_at(table.view((1, *table.shape)), past.position, x.shape[1]))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, time, features) -> the same shape."""
        return autograd.add(x, first_rows(self.constants["table"], 0, x.shape[1]))
