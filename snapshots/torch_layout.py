"""The name and the order of axes that an array of the tree has in a safetensors file."""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.tensor import Shape

Axes = tuple[int, ...]

#: The most axes that an array has.
MOST_AXES = 64


class AxisSlice(NamedTuple):
    """Indices from begin to below end of `whole` along an axis of an array in the file."""

    axis: int
    begin: int
    end: int
    whole: int

    def of_shape(self, shape: Shape) -> Shape:
        """The shape of the part of an array of this shape."""
        return (*shape[: self.axis], self.end - self.begin, *shape[self.axis + 1 :])

    def whole_shape(self, shape: Shape) -> Shape:
        """The shape of the array of which the part has this shape."""
        return (*shape[: self.axis], self.whole, *shape[self.axis + 1 :])

    def of_array(self, array: Array) -> Array:
        """The part of an array; a view."""
        return array[(slice(None),) * self.axis + (slice(self.begin, self.end),)]


class TorchLayout(NamedTuple):
    """The name and layout of an entry in PyTorch.

    name: in the file; axes: those of the tree in the file's order, None if it is the same; part: of the file's array,
    None if it is all of it. An axis that the file lacks, such as the 2 in (0, 1, 3), has the extent 1 in the tree.
    trailing: how many such axes of the tree there are behind the last one that the file has.
    """

    name: str
    axes: Axes | None = None
    part: AxisSlice | None = None
    trailing: int = 0

    @classmethod
    def of(cls, where: str, given: object) -> TorchLayout:
        """The layout of a list as `noted` gives it, in a file. SnapshotError for anything else."""
        if isinstance(given, list) and 2 <= len(given) <= 4 and isinstance(given[0], str):
            name, axes, *more = given
            numbers = [[] if axes is None else axes, *more]
            if all(isinstance(each, list) and all(type(number) is int for number in each) for each in numbers):
                part = AxisSlice(*more[0]) if more and len(more[0]) == len(AxisSlice._fields) else None
                trailing = more[1][0] if len(more) == 2 and len(more[1]) == 1 else 0
                found = cls(name, None if axes is None else tuple(axes), part, trailing)
                if found.noted() == given:
                    return found
        raise SnapshotError(f"{where}: wanted a name and axes, received {str(given)[:100]}")

    def noted(self) -> list[object]:
        """[name, axes], of a part [name, axes, part], with trailing axes [name, axes, part, [trailing]]: for JSON."""
        axes = None if self.axes is None else list(self.axes)
        part = [] if self.part is None else list(self.part)
        more = [part, [self.trailing]] if self.trailing else [part] if part else []
        return [self.name, axes, *more]

    def has_part(self, shape: Shape) -> bool:
        """Whether an array of this shape in the file has the part."""
        if self.part is None:
            return True
        axis, begin, end, whole = self.part
        return 0 <= axis < len(shape) and 0 <= begin < end <= whole == shape[axis]

    def fits(self, count: int) -> bool:
        """Whether an array of `count` axes in the file can have these, and the tree's one axis more at most."""
        if self.axes is None:
            return True
        if not 0 <= self.trailing < MOST_AXES - count:
            return False
        return len(self.axes) == len(set(self.axes)) == count and set(self.axes) <= set(range(count + 1))

    def stored_shape(self, shape: Shape) -> Shape:
        """The shape in the file, of the part where it is one."""
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def stored(self, array: Array) -> Array:
        """The tree's array as the file has it, a view."""
        if self.axes is None:
            return array
        missing = [axis for axis in range(array.ndim) if axis not in self.axes]
        return array.transpose(*self.axes, *missing).reshape(self.stored_shape(array.shape))

    def restored_shape(self, shape: Shape) -> Shape:
        """The tree's shape of an array in the file. One of another number of axes keeps its shape, and will not fit."""
        shape = shape if self.part is None else self.part.of_shape(shape)
        if self.axes is None or len(self.axes) != len(shape):
            return shape
        extents = dict(zip(self.axes, shape, strict=True))
        return tuple(extents.get(axis, 1) for axis in range(max(self.axes, default=-1) + 1 + self.trailing))

    def restored(self, array: Array) -> Array:
        """An array of the file as the tree has it, a view."""
        shape = self.restored_shape(array.shape)
        array = array if self.part is None else self.part.of_array(array)
        if self.axes is None or len(self.axes) != array.ndim:
            return array
        order = sorted(range(array.ndim), key=self.axes.__getitem__)
        return array.transpose(order).reshape(shape)
