"""What files of other programs lack: the attributes of a snapshot, and random state, which stays as the net has it.

What comes from such a file is marked as foreign, also after it was written in a format that could hold all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from singa_lite.snapshots.tree import VERSION, Lazy, Tree

#: The attribute, true where there may be no random state, and there was no place for the optimizer's.
_MARK = "foreign"


def attributes(entries: int, like: Tree | None) -> dict[str, Any]:
    """Those of a snapshot with that many arrays and no optimizer, marked. layers: those of `like`."""
    found: dict[str, Any] = {"format": "singa_lite", "version": VERSION, "entries": entries, _MARK: True}
    layers = None if like is None else like.attributes.get("layers")
    return found if layers is None else found | {"layers": layers}


def tree_of(path: str, arrays: dict[str, Lazy], like: Tree | None) -> Tree:
    """The tree of such a file, which has these arrays. path: its name."""
    return Tree(arrays, attributes(len(arrays), like), path)


def mark(contents: Tree) -> None:
    """Say of a tree that it comes from such a file."""
    contents.attributes[_MARK] = True


def weights(contents: Tree) -> Tree:
    """What other programs have of a tree: parameters and running statistics."""
    arrays = {
        path: lazy
        for path, lazy in contents.arrays.items()
        if path.startswith("parameters/") or (path.startswith("state/") and lazy.dtype.kind == "f")
    }
    told = {name: value for name, value in contents.attributes.items() if name not in ("optimizer", "step")}
    found = Tree(arrays, told | {"entries": len(arrays)}, contents.path)
    mark(found)
    return found


def is_marked(attributes: Mapping[str, Any]) -> bool:
    """Whether a tree of these attributes comes from such a file."""
    return attributes.get(_MARK) is True


def kept(present: Collection[str], like: Tree | None) -> dict[str, Lazy]:
    """State of `like` that is no number and not in the file: the keys of random streams."""
    if like is None:
        return {}
    return {
        path: lazy
        for path, lazy in like.arrays.items()
        if path.startswith("state/") and lazy.dtype.kind != "f" and path not in present
    }


def completed(found: Tree, like: Tree) -> Tree:
    """An opened tree with what is `kept` of `like` beside it if it is marked; itself if nothing is."""
    missing = kept(found.arrays, like) if is_marked(found.attributes) else {}
    if not missing:
        return found
    told = dict(found.attributes)
    entries = told.get("entries")
    if type(entries) is int:
        told["entries"] = entries + len(missing)
    return Tree(found.arrays | missing, told, found.path)
