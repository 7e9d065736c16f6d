"""The layout of an array of ours in Keras."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import Array
from singa_lite.snapshots.formats.keras.orders import Order, is_plain
from singa_lite.tensor import Shape


class Layout(NamedTuple):
    """An array of ours in Keras: reshaped to `split`, its axes permuted by `axes`, its rows by `order`.

    gates: the number of our gate for each of Keras's, which lie along the last axis; () if they are the same. row:
    which of the two rows of Keras's array it is, None if it is all of it.
    """

    ours: Shape
    split: Shape
    axes: tuple[int, ...]
    order: Order = ()
    gates: tuple[int, ...] = ()
    row: int | None = None

    @property
    def keras(self) -> Shape:
        """The shape in Keras."""
        shape = tuple(self.split[axis] for axis in self.axes)
        return shape if self.row is None else (2, *shape)

    def rows(self) -> NDArray[np.intp] | None:
        """The number of our row for each row of Keras's; None where they have the same order."""
        if not self.order or is_plain(self.order):
            return None
        found, start = [], 0
        for piece in self.order:
            numbers = np.arange(start, start + prod(piece)).reshape(piece)
            found.append(np.moveaxis(numbers, 0, -1).reshape(-1))
            start += prod(piece)
        return np.concatenate(found)

    def view(self, array: Array) -> Array:
        """Our array with Keras's axes, its rows in our order; a view, unless gates are moved."""
        return self._gates_moved(array, self.gates).reshape(self.split).transpose(self.axes)

    @staticmethod
    def _gates_moved(array: Array, gates: Sequence[int]) -> Array:
        if not gates:
            return array
        parts = array.reshape(*array.shape[:-1], len(gates), array.shape[-1] // len(gates))
        return parts[..., list(gates), :].reshape(array.shape)

    def to_ours(self, array: Array) -> Array:
        """Keras's array as one of ours, C order."""
        array = array if self.row is None else array[self.row]
        array = self._gates_moved(array, np.argsort(self.gates).tolist())
        if self.order and not is_plain(self.order):
            return self._rows_moved(array)
        return np.ascontiguousarray(array.transpose(np.argsort(self.axes)).reshape(self.ours))

    def _rows_moved(self, array: Array) -> Array:
        """Keras's rows in our order. `rows` might take more memory than the array, whose shape a file decides."""
        moved, start = np.empty_like(array), 0
        for piece in self.order or ():
            rows, rest = slice(start, start + prod(piece)), array.shape[1:]
            theirs = array[rows].reshape(*piece[1:], piece[0], *rest)
            moved[rows].reshape(*piece, *rest)[...] = np.moveaxis(theirs, len(piece) - 1, 0)
            start += prod(piece)
        return moved


def identity_layout(shape: Shape) -> Layout:
    """The layout of an array that is the same in Keras."""
    return Layout(shape, shape, tuple(range(len(shape))))
