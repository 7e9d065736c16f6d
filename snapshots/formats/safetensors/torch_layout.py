"""Where an array of the tree is in a safetensors file, and how it lies there."""

from __future__ import annotations

from typing import Any, NamedTuple

from singa_lite.array_types import Array
from singa_lite.errors import SnapshotError
from singa_lite.tensor import Shape

Axes = tuple[int, ...]


class TorchLayout(NamedTuple):
    """Where an entry is.

    name: in the file; axes: the tree's, in the file's order; one of them that is not there, such as the 2 of (0, 1, 3),
    has the extent 1 in the tree. None: as they are.
    """

    name: str
    axes: Axes | None = None

    @classmethod
    def of(cls, where: str, given: Any) -> TorchLayout:
        """That of a list [name, axes] from a file; SnapshotError for anything else."""
        if isinstance(given, list) and len(given) == 2 and isinstance(given[0], str):
            name, axes = given
            if axes is None:
                return cls(name)
            if isinstance(axes, list) and all(type(axis) is int for axis in axes):
                return cls(name, tuple(axes))
        raise SnapshotError(f"{where}: wanted a name and axes, received {str(given)[:100]}")

    def fits(self, count: int) -> bool:
        """Whether the axes are those of an array with so many in the file, of which the tree's has one more at most."""
        if self.axes is None:
            return True
        return len(self.axes) == len(set(self.axes)) == count and set(self.axes) <= set(range(count + 1))

    def stored_shape(self, shape: Shape) -> Shape:
        """The shape in the file."""
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def stored(self, array: Array) -> Array:
        """The array as it lies in the file, a view."""
        if self.axes is None:
            return array
        missing = [axis for axis in range(array.ndim) if axis not in self.axes]
        return array.transpose(*self.axes, *missing).reshape(self.stored_shape(array.shape))

    def restored_shape(self, shape: Shape) -> Shape:
        """The tree's shape of one in the file; as it is if it has other axes, for it will not fit."""
        if self.axes is None or len(self.axes) != len(shape):
            return shape
        extents = dict(zip(self.axes, shape, strict=True))
        return tuple(extents.get(axis, 1) for axis in range(max(self.axes, default=-1) + 1))

    def restored(self, array: Array) -> Array:
        """An array of the file as the tree has it, a view."""
        if self.axes is None or len(self.axes) != array.ndim:
            return array
        order = sorted(range(array.ndim), key=self.axes.__getitem__)
        return array.transpose(order).reshape(self.restored_shape(array.shape))
