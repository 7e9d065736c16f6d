"""Trees of weights alone: parameters and running statistics, as other programs' files and `weights_only` have them.

They lack the optimizer's state and perhaps random state, which then stay as the net has them. A mark among their
attributes says so; it is kept when such a tree is written in a format that could hold everything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from singa_lite.snapshots.manifest import Attribute
from singa_lite.snapshots.tree import VERSION, LazyArray, Tree

#: The attribute that marks such a tree, by True. Files have it under this name.
_MARK = "foreign"


def attributes(entries: int, wanted: Tree | None) -> dict[str, Attribute]:
    """Attributes of a marked tree of so many arrays. `layers` is that of `wanted`."""
    found: dict[str, Attribute] = {"format": "singa_lite", "version": VERSION, "entries": entries, _MARK: True}
    layers = None if wanted is None else wanted.attributes.get("layers")
    return found if layers is None else found | {"layers": layers}


def of_arrays(path: str, arrays: dict[str, LazyArray], wanted: Tree | None) -> Tree:
    """A marked tree of these arrays. path: the file's name; wanted: as for `attributes`."""
    return Tree(arrays, attributes(len(arrays), wanted), path)


def mark(contents: Tree) -> None:
    """Mark a tree as one of weights alone."""
    contents.attributes[_MARK] = True


def of_tree(contents: Tree) -> Tree:
    """A marked tree of the parameters and running statistics in a tree."""
    arrays = {
        path: lazy
        for path, lazy in contents.arrays.items()
        if path.startswith("parameters/") or (path.startswith("state/") and lazy.dtype.kind == "f")
    }
    left_out = ("optimizer", "step", "config", "config_missing")
    attributes = {name: value for name, value in contents.attributes.items() if name not in left_out}
    found = Tree(arrays, attributes | {"entries": len(arrays)}, contents.path)
    mark(found)
    return found


def is_marked(attributes: Mapping[str, object]) -> bool:
    """Whether these attributes are of a marked tree."""
    return attributes.get(_MARK) is True


def random_state(present: Collection[str], wanted: Tree | None) -> dict[str, LazyArray]:
    """The keys of random streams in `wanted`, which are state of whole numbers, but for paths that are `present`."""
    if wanted is None:
        return {}
    return {
        path: lazy
        for path, lazy in wanted.arrays.items()
        if path.startswith("state/") and lazy.dtype.kind != "f" and path not in present
    }


def completed(found: Tree, wanted: Tree) -> Tree:
    """A marked tree with the random state of `wanted` that it lacks. Any other tree is given back as it is."""
    missing = random_state(found.arrays, wanted) if is_marked(found.attributes) else {}
    if not missing:
        return found
    attributes = dict(found.attributes)
    entries = attributes.get("entries")
    if type(entries) is int:
        attributes["entries"] = entries + len(missing)
    return Tree(found.arrays | missing, attributes, found.path)
