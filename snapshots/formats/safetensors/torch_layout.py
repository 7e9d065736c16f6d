"""The name and the order of axes that an array of the tree has in a safetensors file."""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.array_types import Array
from singa_lite.errors import SnapshotError
from singa_lite.tensor import Shape

Axes = tuple[int, ...]


class TorchLayout(NamedTuple):
    """How PyTorch names and lays out an entry.

    name: in the file; axes: those of the tree in the file's order, None if it is the same. An axis that the file lacks,
    such as the 2 in (0, 1, 3), has the extent 1 in the tree.
    """

    name: str
    axes: Axes | None = None

    @classmethod
    def of(cls, where: str, given: object) -> TorchLayout:
        """The layout of a list [name, axes] in a file. SnapshotError for anything else."""
        if isinstance(given, list) and len(given) == 2 and isinstance(given[0], str):
            name, axes = given
            if axes is None:
                return cls(name)
            if isinstance(axes, list) and all(type(axis) is int for axis in axes):
                return cls(name, tuple(axes))
        raise SnapshotError(f"{where}: wanted a name and axes, received {str(given)[:100]}")

    def fits(self, count: int) -> bool:
        """Whether an array of `count` axes in the file can have these, and the tree's one axis more at most."""
        if self.axes is None:
            return True
        return len(self.axes) == len(set(self.axes)) == count and set(self.axes) <= set(range(count + 1))

    def stored_shape(self, shape: Shape) -> Shape:
        """The shape in the file."""
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def stored(self, array: Array) -> Array:
        """The tree's array as the file has it, a view."""
        if self.axes is None:
            return array
        missing = [axis for axis in range(array.ndim) if axis not in self.axes]
        return array.transpose(*self.axes, *missing).reshape(self.stored_shape(array.shape))

    def restored_shape(self, shape: Shape) -> Shape:
        """The tree's shape of an array in the file. One of another number of axes keeps its shape, and will not fit."""
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
