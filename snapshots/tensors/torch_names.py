"""PyTorch's names and layouts of the tree's entries: "parameters/dense/weight" is "dense.weight", transposed.

Parameters and running statistics are "<layer>.<name>"; no name of ours holds a dot, so a layer's may. All else
(random state, optimizer state, what a checkpoint adds) keeps its path, whose slashes no layer can hold: nothing
collides, unless `names` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots.tree import Form
from singa_lite.tensor import Shape

#: {class: {our name: PyTorch's}}, where they differ. Both normalizations call them so there.
_NAMES = {
    "BatchNormalization": {"gamma": "weight", "beta": "bias"},
    "LayerNormalization": {"gamma": "weight", "beta": "bias"},
}

#: {class: {our name: axes of ours in PyTorch's order}}. A convolution's weight lies as PyTorch's does.
_AXES = {"Dense": {"weight": (1, 0)}}

#: State that PyTorch has too.
_STATE = ("running_mean", "running_var")

#: What PyTorch's state_dict has beyond that, of no use here: the batches that a BatchNorm has seen.
IGNORED = ("num_batches_tracked",)


Axes = tuple[int, ...]


class Place(NamedTuple):
    """Where an entry is. name: in the file; axes: the tree's, in the file's order; None: as they are."""

    name: str
    axes: Axes | None = None

    @classmethod
    def of(cls, where: str, given: Any) -> Place:
        """That of a list [name, axes] from a file; SnapshotError for anything else."""
        if isinstance(given, list) and len(given) == 2 and isinstance(given[0], str):
            name, axes = given
            if axes is None:
                return cls(name)
            if isinstance(axes, list) and all(type(axis) is int for axis in axes):
                return cls(name, tuple(axes))
        raise SnapshotError(f"{where}: wanted a name and axes, received {str(given)[:100]}")

    def stored_shape(self, shape: Shape) -> Shape:
        """The shape in the file."""
        return shape if self.axes is None else tuple(shape[axis] for axis in self.axes)

    def stored(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array as it lies in the file, a view."""
        return array if self.axes is None else array.transpose(self.axes)

    def restored_shape(self, shape: Shape) -> Shape:
        """The tree's shape of one in the file; as it is if it has other axes, for it will not fit."""
        order = self._order(len(shape))
        return shape if order is None else tuple(shape[axis] for axis in order)

    def restored(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the file as the tree has it, a view."""
        order = self._order(array.ndim)
        return array if order is None else array.transpose(order)

    def _order(self, count: int) -> Axes | None:
        if self.axes is None or len(self.axes) != count:
            return None
        return tuple(self.axes.index(axis) for axis in range(count))


def places(where: str, forms: Mapping[str, Form], layers: Any, names: Mapping[str, str] | None) -> dict[str, Place]:
    """The place of each path. layers: the tree's attribute, None if unknown.

    names: {layer: module, or path: full name}. SnapshotError for a name that two paths would have, and for a key
    that is no layer and no path; TypeError for what is no mapping of strings.
    """
    kinds = _kinds(forms, layers)
    given = _checked(where, names, {*forms, *kinds})
    found = {path: _place(path, kinds, given) for path in forms}
    owner: dict[str, str] = {}
    for path, place in found.items():
        other = owner.setdefault(place.name, path)
        if other != path:
            raise SnapshotError(
                f"{where}: wanted a name for each entry, received {place.name!r} for {other!r} and {path!r}"
            )
    return found


def _checked(where: str, names: Mapping[str, str] | None, known: Iterable[str]) -> dict[str, str]:
    given = _strings(names)
    strange = sorted(given.keys() - set(known))
    if strange:
        raise SnapshotError(f"{where}: names: wanted layers or paths of the tree as keys, received {strange}")
    return given


def _strings(names: Mapping[str, str] | None) -> dict[str, str]:
    given = {} if names is None else names
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise TypeError(f"names: wanted a mapping of strings, received {names!r}")
    return dict(given)


def _place(path: str, kinds: Mapping[str, str], names: Mapping[str, str]) -> Place:
    branch, _, rest = path.partition("/")
    layer, _, name = rest.rpartition("/")
    kind = kinds.get(layer, "")
    axes = _AXES.get(kind, {}).get(name) if branch == "parameters" else None
    if path in names:
        return Place(names[path], axes)
    if not layer or "/" in layer or not (branch == "parameters" or (branch == "state" and name in _STATE)):
        return Place(path)
    return Place(joined(names.get(layer, layer), _NAMES.get(kind, {}).get(name, name)), axes)


def joined(module: str, name: str) -> str:
    """A key of a state_dict; that of the module itself, "", has no dot."""
    return f"{module}.{name}" if module else name


def _kinds(forms: Mapping[str, Form], layers: Any) -> dict[str, str]:
    """{layer: class}; guessed where the tree does not say, as that of an old snapshot."""
    try:
        return {str(layer): str(kind) for layer, kind in json.loads(layers)}
    except (TypeError, ValueError, RecursionError):
        return _guessed(forms)


def _guessed(forms: Mapping[str, Form]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for path, (shape, _) in forms.items():
        branch, _, rest = path.partition("/")
        layer, _, name = rest.rpartition("/")
        if branch == "parameters" and layer:
            kinds.setdefault(layer, "")
            if name == "gamma":
                kinds[layer] = "BatchNormalization"  # LayerNormalization has the same names
            elif name == "weight" and len(shape) == 2:
                kinds[layer] = "Dense"
    return kinds


def guessed_places(where: str, forms: Mapping[str, Form], names: Mapping[str, str] | None) -> dict[str, Place]:
    """The places of a file of PyTorch's, from its names and shapes alone: {our path: place}.

    A module with running statistics, or with a weight of one axis, is a normalization; a weight of two axes is that
    of a Linear; a name with a slash is a path. names: as for `places`, read backwards.
    """
    given = {theirs: ours for ours, theirs in _strings(names).items()}
    found: dict[str, Place] = {}
    for name, (shape, _) in forms.items():
        module, _, last = name.rpartition(".")
        if last in IGNORED:
            continue
        axes = (1, 0) if last == "weight" and len(shape) == 2 else None
        path = given.get(name) or _guessed_path(forms, name, given.get(module, module))
        if path in found:
            raise SnapshotError(f"{where}: entry {path!r}: would be both {found[path].name!r} and {name!r}")
        found[path] = Place(name, axes)
    return found


def _guessed_path(forms: Mapping[str, Form], name: str, layer: str) -> str:
    module, _, last = name.rpartition(".")
    if "/" in name:
        return name
    if last in _STATE:
        return f"state/{layer}/{last}"
    weight = forms.get(joined(module, "weight"))
    if weight is not None and len(weight[0]) == 1:
        last = {"weight": "gamma", "bias": "beta"}.get(last, last)
    return f"parameters/{layer}/{last}"
