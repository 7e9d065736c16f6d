"""What files of other programs lack: the attributes of a snapshot, and random state, which stays as the net has it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from singa_lite.snapshots.tree import VERSION, Lazy, Tree


def attributes(entries: int, like: Tree | None) -> dict[str, Any]:
    """Those of a snapshot with that many arrays and no optimizer. layers: those of `like`."""
    found: dict[str, Any] = {"format": "singa_lite", "version": VERSION, "entries": entries}
    layers = None if like is None else like.attributes.get("layers")
    return found if layers is None else found | {"layers": layers}


def kept(present: Collection[str], like: Tree | None) -> dict[str, Lazy]:
    """State of `like` that is no number and not in the file: the keys of random streams."""
    if like is None:
        return {}
    return {
        path: lazy
        for path, lazy in like.arrays.items()
        if path.startswith("state/") and lazy.dtype.kind != "f" and path not in present
    }
