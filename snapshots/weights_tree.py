"""What files of other programs lack: the attributes of a snapshot, and random state, which stays as the net has it.

What comes from such a file is marked as foreign, also after it was written in a format that could hold all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from singa_lite.snapshots.tree import VERSION, LazyArray, Tree

#: The attribute, true where there may be no random state, and there was no place for the optimizer's.
_MARK = "foreign"


def attributes(entries: int, wanted: Tree | None) -> dict[str, Any]:
    """Attributes of a marked tree with that many arrays and no optimizer. `layers` is that of `like`."""
    found: dict[str, Any] = {"format": "singa_lite", "version": VERSION, "entries": entries, _MARK: True}
    layers = None if wanted is None else wanted.attributes.get("layers")
    return found if layers is None else found | {"layers": layers}


def of_arrays(path: str, arrays: dict[str, LazyArray], wanted: Tree | None) -> Tree:
    """A marked tree of these arrays. path: the file's name; like: as for `attributes`."""
    return Tree(arrays, attributes(len(arrays), wanted), path)


def mark(contents: Tree) -> None:
    """Mark a tree as one of another program's file."""
    contents.attributes[_MARK] = True


def of_tree(contents: Tree) -> Tree:
    """A marked tree of what other programs keep: parameters and running statistics."""
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
    """Whether these attributes mark a tree as one of another program's file."""
    return attributes.get(_MARK) is True


def random_state(present: Collection[str], wanted: Tree | None) -> dict[str, LazyArray]:
    """State of `like` that holds no floats and is not among `present`: the keys of random streams."""
    if wanted is None:
        return {}
    return {
        path: lazy
        for path, lazy in wanted.arrays.items()
        if path.startswith("state/") and lazy.dtype.kind != "f" and path not in present
    }


def completed(found: Tree, wanted: Tree) -> Tree:
    """Adds to a marked tree what is `kept` of `like`. Any other tree is given back as it is."""
    missing = random_state(found.arrays, wanted) if is_marked(found.attributes) else {}
    if not missing:
        return found
    told = dict(found.attributes)
    entries = told.get("entries")
    if type(entries) is int:
        told["entries"] = entries + len(missing)
    return Tree(found.arrays | missing, told, found.path)
