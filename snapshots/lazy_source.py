"""An open file as `tree.Source`, for formats that know all their arrays once it is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots.tree import Form, Lazy


class LazySource:
    """Arrays by the tree's paths, read when they are asked for."""

    def __init__(self, path: str, arrays: Mapping[str, Lazy], attributes: Mapping[str, Any]) -> None:
        self.path, self.attributes = path, attributes
        self._arrays = arrays
        self.shapes: dict[str, Form] = {entry: (lazy.shape, lazy.dtype) for entry, lazy in arrays.items()}

    def attribute(self, name: str) -> Any:
        """One of the attributes, or None."""
        return self.attributes.get(name)

    def read(self, path: str) -> NDArray[Any]:
        """The array, as shape and dtype of `shapes` say. SnapshotError for one that is not there or damaged."""
        if path not in self._arrays:
            raise SnapshotError(f"{self.path}: wanted one of its entries, received {path!r}")
        return self._arrays[path].fetch()
