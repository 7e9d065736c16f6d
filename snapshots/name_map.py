"""NameMap: where each array of a net lies in the files of another program, as others share them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.torch_layout import AxisSlice, TorchLayout
from singa_lite.snapshots.tree import ArraySpec


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
        return {path: self._chosen(where, path, layouts, present) for path, layouts in places}

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

    def _chosen(
        self, where: str, path: str, layouts: tuple[TorchLayout, ...], present: Collection[str] | None
    ) -> TorchLayout:
        found = [layout for layout in layouts if present is None or layout.name in present]
        if not found:
            names = " or ".join(repr(layout.name) for layout in layouts)
            raise SnapshotError(f"{where}: wanted an entry {names} for {path!r}, received none of that name")
        return found[0]

    def is_beside(self, name: str) -> bool:
        """Whether a name of a file belongs to no array of a net."""
        return re.fullmatch(self.beside, name) is not None or any(name in names for names in self.copies.values())


#: What says how the entries of a file are called: {layer: module, or path: full name}, or a map.
Names = Mapping[str, str] | NameMap
