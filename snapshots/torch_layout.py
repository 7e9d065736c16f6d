"""The name and the order of axes that an array has in a safetensors file; maps of these for another program's files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.tree import ArraySpec
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
    def from_noted(cls, where: str, given: object) -> TorchLayout:
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


@dataclass(frozen=True)
class NameMap:
    """Names and layouts for `net.load(path, names=...)` and `net.save(path, names=...)`; `snapshots.maps` makes them.

    places: {path in the tree: the layouts that it may have, the one that is written first}; a file has one of them.
    copies: {path: names under which a file may have the same array again}; they are read, and must be equal. beside:
    a pattern of names of a file that belong to no array of a net. made_for: what the map was made for, for errors.
    """

    places: Mapping[str, tuple[TorchLayout, ...]]
    copies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    beside: str = ""
    made_for: str = "a net"

    def layouts(
        self, where: str, specs: Mapping[str, ArraySpec], present: Collection[str] | None, is_partial: bool = False
    ) -> dict[str, TorchLayout]:
        """The layout of each path of the map. present: the names in a file, None for one that is written.

        is_partial: whether paths of names that are not there are left out. SnapshotError unless the map was made for a
        net of these parameters, and else for a name that is not there.
        """
        self._check(where, specs)
        places = self.places.items()
        if is_partial and present is not None:
            places = {path: each for path, each in places if any(one.name in present for one in each)}.items()
        return {path: self._choose_layout(where, path, layouts, present) for path, layouts in places}

    def paths(self, where: str, specs: Mapping[str, ArraySpec]) -> dict[tuple[str, AxisSlice | None], str]:
        """{(name, part): path}, of all names that a file may have. Where two paths have one, it is the first choice's.

        SnapshotError unless the map was made for a net of these parameters.
        """
        self._check(where, specs)
        found: dict[tuple[str, AxisSlice | None], str] = {}
        for rank in range(max(map(len, self.places.values()), default=0)):
            for path, layouts in self.places.items():
                for layout in layouts[rank : rank + 1]:
                    found.setdefault((layout.name, layout.part), path)
        return found

    def _check(self, where: str, specs: Mapping[str, ArraySpec]) -> None:
        parameters = {path for path in specs if path.startswith("parameters/")}
        strange = sorted(parameters ^ set(self.places))
        if strange:
            raise SnapshotError(f"{where}: names: wanted a map that was made for this net, received one of {strange}")

    def _choose_layout(
        self, where: str, path: str, layouts: tuple[TorchLayout, ...], present: Collection[str] | None
    ) -> TorchLayout:
        found = [layout for layout in layouts if present is None or layout.name in present]
        if not found:
            names = " or ".join(repr(layout.name) for layout in layouts)
            raise SnapshotError(f"{where}: wanted an entry {names} for {path!r}, received none of that name")
        return found[0]

    def is_ignored(self, name: str) -> bool:
        """Whether a name of a file belongs to no array of a net."""
        return re.fullmatch(self.beside, name) is not None or any(name in names for names in self.copies.values())


#: What says how the entries of a file are called: {layer: module, or path: full name}, or a map.
Names = Mapping[str, str] | NameMap
